"""A line whose rate follows a recorded trace, in the format of Mahimahi."""

import hashlib
from pathlib import Path
from typing import Annotated, ClassVar, Final

from pydantic import AfterValidator, Field

from tunnelmark.engine.link import Trace
from tunnelmark.links.base import DIGEST
from tunnelmark.links.wire import WireLink, WireParams
from tunnelmark.model.errors import LabError
from tunnelmark.model.params import Params

DIGESTS: Final = {name: f"{name}{DIGEST}" for name in ("forward", "reverse")}
"""Columns of a trace's path and of what it contains."""
LARGEST_BYTES: Final = 64 << 20
"""Largest trace that the engine reads."""


def _readable(value: str) -> str:
    path = Path(value).expanduser()
    try:
        size = path.stat().st_size
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise ValueError(f"is {value!r}, which cannot be read: {reason}") from error
    if not path.is_file() or not 0 < size <= LARGEST_BYTES:
        raise ValueError(f"is {value!r}, must be a file of 1 to {LARGEST_BYTES} bytes")
    return value


TracePath = Annotated[str, Field(min_length=1, max_length=4096), AfterValidator(_readable)]


class TraceParams(WireParams):
    """A line whose rate is recorded."""

    forward: TracePath = Field(
        description="trace towards the server: one line per opportunity to send 1504 bytes, with "
        "its time in ms; relative to the directory where the command runs"
    )
    reverse: TracePath | None = Field(
        None, description="trace towards the client; default: that of forward"
    )

    def columns(self) -> dict[str, object]:
        """Return them with what the traces contain: over another recording a point is another.

        Raises ``LabError`` for a trace that cannot be read any more.
        """
        paths = {"forward": self.forward, "reverse": self.reverse}
        return super().columns() | {
            DIGESTS[name]: None if path is None else hashlib.sha256(_read(path)).hexdigest()
            for name, path in paths.items()
        }


class TraceLink(WireLink):
    """A recorded line: each opportunity carries 1504 bytes, an IP packet and four bytes."""

    kind: ClassVar[str] = "trace"
    title: ClassVar[str] = "Recorded line"
    params_type: ClassVar[type[Params]] = TraceParams
    # Mahimahi counts an IP packet and the four bytes of a TUN header.
    frame_overhead_bytes: ClassVar[int] = -10
    frame_min_bytes: ClassVar[int] = 0
    params: TraceParams

    def rates_bit_s(self) -> tuple[None, None]:
        """Return no rates: the traces say when packets leave."""
        return None, None

    def traces(self) -> tuple[Trace, Trace]:
        """Read both files; the engine checks them line by line."""
        forward = _read(self.params.forward)
        back = self.params.reverse
        reverse = forward if back is None else _read(back)
        return Trace("forward.trace", forward), Trace("reverse.trace", reverse)


def _read(path: str) -> bytes:
    try:
        return Path(path).expanduser().read_bytes()
    except OSError as error:
        raise LabError(f"{path}: cannot be read: {error.strerror}") from error
