"""Summaries and counters of the engine as frozen types: parsed strictly and bounded."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, Final, Literal, TypeVar, cast, get_args, get_type_hints

from tunnelmark.engine.events import Event
from tunnelmark.model.errors import LabError

T = TypeVar("T")

_LARGEST: Final = (1 << 64) - 1
_MAX_FLOWS: Final = 1 << 16

Realtime = Literal["kept", "never", "lost"]
"""``never``: not asked for or not allowed; ``lost``: given back by a thread that never rested."""


@dataclass(frozen=True)
class Histogram:
    """Quantiles of a number of durations, ns."""

    count: int
    min: int
    p50: int
    p90: int
    p99: int
    p999: int
    tail: int
    """What 1 % of the values reach, and at least two of 20 or more: for checks, not for figures."""
    max: int
    mean: float
    below_zero: int = 0
    """Values that were negative and count as 0."""


@dataclass(frozen=True)
class SendFlow:
    """What the sender counted of one flow. IPDV and PDV are not here: they are made of records."""

    flow: int
    due: int
    sent: int
    not_sent: int
    send_errors: int
    bytes_sent: int
    returned: int
    bytes_returned: int
    duplicates: int
    reordered: int
    late: int
    unrecorded: int
    """First replies that came when their packet's record had been written."""
    residence_unknown: int
    """Replies in time without a residence time of the reflector."""
    rejected: int
    overrun: int | None
    """None where the system counts none."""
    remote_received: int | None
    """Packets that a counting reflector of another make says it received, as far as it reported."""
    first_sent_ns: int | None
    last_sent_ns: int | None
    rtt_ns: Histogram | None
    owd_forward_ns: Histogram | None
    owd_reverse_ns: Histogram | None
    lateness_ns: Histogram | None


@dataclass(frozen=True)
class SendSummary:
    """End of ``send``."""

    start_ns: int
    end_ns: int
    realtime: Realtime
    timestamps: str
    awake_ns: int
    """Processor time that it spent awake, waiting for the time of a packet."""
    flows: tuple[SendFlow, ...]


@dataclass(frozen=True)
class ReflectFlow:
    """What the reflector counted of one flow."""

    flow: int
    received: int
    bytes_received: int
    answered: int
    duplicates: int
    reordered: int
    send_errors: int


@dataclass(frozen=True)
class ReflectSummary:
    """End of ``reflect``."""

    realtime: Realtime
    timestamps: str
    rejected: int
    overrun: int | None
    """None where the system counts none."""
    residence_ns: Histogram | None
    """From the arrival of a packet to its answer."""
    flows: tuple[ReflectFlow, ...]


@dataclass(frozen=True)
class LinkDirection:
    """Counters of one direction of the link emulator since its start."""

    offered: int
    offered_bytes: int
    """Frames from the destination address on, without FCS."""
    delivered: int
    delivered_bytes: int
    queue_dropped: int
    lost: int
    in_flight: int
    capture_dropped: int
    send_errors: int
    oversized: int
    checksum_missing: int
    lateness_ns: Histogram | None


def parse_send_summary(event: Event) -> SendSummary:
    """Parse the sender's ``summary``; ``LabError`` names the key that is wrong."""
    read = Reader(event, "summary of send")
    return SendSummary(
        start_ns=read.whole("start_ns"),
        end_ns=read.whole("end_ns"),
        realtime=read.realtime("realtime"),
        timestamps=read.text("timestamps"),
        awake_ns=read.whole("awake_ns"),
        flows=tuple(parsed(SendFlow, flow) for flow in read.objects("flows")),
    )


def parse_reflect_summary(event: Event) -> ReflectSummary:
    """Parse the reflector's ``summary``; ``LabError`` names the key that is wrong."""
    read = Reader(event, "summary of reflect")
    return ReflectSummary(
        realtime=read.realtime("realtime"),
        timestamps=read.text("timestamps"),
        rejected=read.whole("rejected"),
        overrun=read.whole_or_none("overrun"),
        residence_ns=read.histogram("residence_ns"),
        flows=tuple(parsed(ReflectFlow, flow) for flow in read.objects("flows")),
    )


def parse_link_direction(raw: Mapping[str, Any], place: str) -> LinkDirection:
    """Parse ``a_to_b`` or ``b_to_a``; ``LabError`` names the key that is wrong.

    Keys that a special link adds (WLAN: retries, collisions) are no error here.
    """
    return parsed(LinkDirection, Reader(raw, place))


def parsed(kind: type[T], read: "Reader") -> T:
    """Read each field of a class of counters and histograms; ``LabError`` names a wrong key."""
    how: dict[Any, Callable[[str], object]] = {
        int: read.whole,
        int | None: read.whole_or_none,
        Histogram | None: read.histogram,
    }
    return kind(**{name: how[type_](name) for name, type_ in _fields(cast("type", kind))})


def plain(value: Any) -> Any:
    """Return a summary, or a part of one, as ``dataclasses.asdict`` does, but copy no numbers."""
    if hasattr(value, "__dataclass_fields__"):
        return {name: plain(part) for name, part in vars(value).items()}
    return tuple(map(plain, value)) if isinstance(value, tuple) else value


@cache
def _fields(kind: type) -> tuple[tuple[str, Any], ...]:
    return tuple(get_type_hints(kind).items())


@dataclass(frozen=True)
class Reader:
    """Reads typed values out of an untrusted object."""

    raw: Mapping[str, Any]
    place: str

    def whole(self, key: str) -> int:
        """Return a whole number that is not negative."""
        value = self._value(key)
        if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= _LARGEST:
            raise self._wrong(key, value, f"a whole number from 0 to {_LARGEST}")
        return value

    def whole_or_none(self, key: str) -> int | None:
        """Return the same, or None where there is null."""
        return None if self._value(key) is None else self.whole(key)

    def realtime(self, key: str) -> Realtime:
        """Return what became of the real-time priority."""
        value = self._value(key)
        if value not in get_args(Realtime):
            raise self._wrong(key, value, f"one of {', '.join(get_args(Realtime))}")
        return cast("Realtime", value)

    def text(self, key: str) -> str:
        """Return a text."""
        value = self._value(key)
        if not isinstance(value, str):
            raise self._wrong(key, value, "a string")
        return value

    def objects(self, key: str) -> tuple["Reader", ...]:
        """Return readers of the objects of a list."""
        value = self._value(key)
        if not isinstance(value, list) or len(value) > _MAX_FLOWS:
            raise self._wrong(key, value, f"a list of at most {_MAX_FLOWS} objects")
        return tuple(self._object(f"{key}.{at}", part) for at, part in enumerate(value))

    def histogram(self, key: str) -> Histogram | None:
        """Return a histogram, or None where there is null."""
        value = self._value(key)
        if value is None:
            return None
        read = self._object(key, value)
        return Histogram(
            count=read.whole("count"),
            **{
                name: read.signed(name)
                for name in ("min", "p50", "p90", "p99", "p999", "tail", "max")
            },
            mean=read.number("mean"),
            below_zero=read.whole("below_zero"),
        )

    def signed(self, key: str) -> int:
        """Return a whole number that may be negative."""
        # An arrival may be stamped before the time the sender noted: a delay may be negative.
        value = self._value(key)
        if isinstance(value, bool) or not isinstance(value, int) or abs(value) > _LARGEST:
            raise self._wrong(key, value, f"a whole number up to {_LARGEST}")
        return value

    def number(self, key: str) -> float:
        """Return a number."""
        value = self._value(key)
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise self._wrong(key, value, "a number")
        return float(value)

    def _object(self, key: str, value: object) -> "Reader":
        if not isinstance(value, Mapping):
            raise self._wrong(key, value, "an object")
        return Reader(value, f"{self.place}.{key}")

    def _value(self, key: str) -> Any:
        if key not in self.raw:
            raise LabError(f"the engine's {self.place}: {key} is missing")
        return self.raw[key]

    def _wrong(self, key: str, value: object, wanted: str) -> LabError:
        return LabError(f"the engine's {self.place}: {key} is {value!r:.80}, must be {wanted}")
