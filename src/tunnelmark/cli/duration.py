"""How long something takes, in words."""


def shown_duration(seconds: float) -> str:
    """Return ``45 s``, ``3 min 20 s`` or ``2 h 05 min``."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours} h {minutes:02d} min"
    return f"{minutes} min {rest:02d} s" if minutes else f"{rest} s"
