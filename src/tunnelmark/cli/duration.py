"""How long something takes, in words and from words."""

import click


def shown_duration(seconds: float) -> str:
    """Return ``45 s``, ``3 min 20 s`` or ``2 h 05 min``."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours} h {minutes:02d} min"
    return f"{minutes} min {rest:02d} s" if minutes else f"{rest} s"


def duration_s(_ctx: click.Context, parameter: click.Parameter, value: str | None) -> float | None:
    """Return the seconds of an option such as ``30 min``; a click callback."""
    from pydantic import TypeAdapter, ValidationError  # noqa: PLC0415 - keeps --help quick

    from tunnelmark.model.quantity import DurationNs  # noqa: PLC0415 - likewise

    if value is None:
        return None
    try:
        seconds: float = TypeAdapter(DurationNs).validate_python(value) / 1e9
    except ValidationError as error:
        why = error.errors()[0]["msg"].removeprefix("Value error, ")
        raise click.BadParameter(f"{value!r} {why}", param=parameter) from error
    if seconds <= 0:
        raise click.BadParameter(f"{value!r} must be more than 0 s", param=parameter)
    return seconds
