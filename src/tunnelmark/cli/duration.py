"""How long something takes, from words."""

import click


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
