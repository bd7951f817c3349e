"""Record files of the engine, and the join of both ends of a flow (``docs/engine.md``)."""

import dataclasses
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from tunnelmark.model.errors import ResultError

TURNED: Final = "-reverse"
"""Ends the stem of the file names of a stream that the server sends."""
MISSING_NS: Final = np.iinfo(np.int64).min
"""A time that never was, in the files; ``None`` or not-a-number everywhere else."""
UNKNOWN_RESIDENCE: Final = 2**32 - 1
"""A residence time that was not reported, in the files."""

NOT_SENT: Final = 1
SEND_ERROR: Final = 2
LATE: Final = 4
REORDERED: Final = 8
USER_TIME: Final = 16

_MAGIC: Final = b"TMREC\0\0\0"
_HEADER: Final = struct.Struct("<8sHHIQq32s")
_LIMIT_BYTES: Final = 8 << 30
_SENDER, _REFLECTOR = 1, 2
_PIECE: Final = 4096
"""Records that a cache holds."""
_SEND: Final = np.dtype(
    [
        ("seq", "<u8"),
        ("scheduled_ns", "<i8"),
        ("sent_ns", "<i8"),
        ("remote_rx_ns", "<i8"),
        ("returned_ns", "<i8"),
        ("size", "<u4"),
        ("flow", "<u2"),
        ("flags", "<u2"),
        ("duplicates", "<u4"),
        ("residence_ns", "<u4"),
        ("zero", "V8"),
    ]
)
_REFLECT: Final = np.dtype(
    [
        ("seq", "<u8"),
        ("received_ns", "<i8"),
        ("answered_ns", "<i8"),
        ("size", "<u4"),
        ("flow", "<u2"),
        ("flags", "<u2"),
        ("duplicates", "<u4"),
        ("session", "<u4"),
    ]
)

_SENT: Final = (
    *("seq", "sent_ns", "size"),
    *("remote_rx_ns", "returned_ns", "residence_ns", "flags"),
)
_REFLECTED: Final = ("seq", "received_ns", "answered_ns")

Table = npt.NDArray[np.void]
_Columns = dict[str, npt.NDArray[Any]]


def read_send(data: bytes | memoryview, place: str) -> Table:
    """Parse a sender's file; ``ResultError`` names ``place`` and what is wrong."""
    return _read(data, place, _SENDER, _SEND)


def read_reflect(data: bytes | memoryview, place: str) -> Table:
    """Parse a reflector's file."""
    return _read(data, place, _REFLECTOR, _REFLECT)


def no_reflect() -> Table:
    """Return the table of a reflector whose file was not kept."""
    return np.zeros(0, _REFLECT)


def read_any(data: bytes, place: str) -> Table:
    """Parse a file of either end, by what it says that it is."""
    kind = _HEADER.unpack_from(data)[2] if len(data) >= _HEADER.size else 1
    return read_reflect(data, place) if kind == _REFLECTOR else read_send(data, place)


@dataclass(frozen=True)
class Flow:
    """What happened to every packet of one flow that was sent, in order of sequence numbers.

    What is derived of the times is worked out once: nobody may write to any of the arrays.
    """

    sent_ns: npt.NDArray[np.int64]
    size: npt.NDArray[np.int64]
    arrived_ns: npt.NDArray[np.int64]
    """Arrival at the reflector, ``MISSING_NS`` if it never came there."""
    answered_ns: npt.NDArray[np.int64]
    """Sending of the answer; its arrival where only the answer reports it."""
    returned_ns: npt.NDArray[np.int64]
    residence_ns: npt.NDArray[np.int64]
    """Residence time at the reflector, ``MISSING_NS`` where it was not reported."""
    late: npt.NDArray[np.bool_]

    @cached_property
    def arrived(self) -> npt.NDArray[np.bool_]:
        """Which packets reached the reflector."""
        return np.asarray(self.arrived_ns != MISSING_NS)

    @cached_property
    def answered(self) -> npt.NDArray[np.bool_]:
        """Which packets the reflector answered."""
        return np.asarray(self.answered_ns != MISSING_NS)

    @cached_property
    def returned(self) -> npt.NDArray[np.bool_]:
        """Which replies came back, late ones included."""
        return np.asarray(self.returned_ns != MISSING_NS)

    @cached_property
    def timed(self) -> npt.NDArray[np.bool_]:
        """Which packets have a round-trip delay: back in time, with a known residence time."""
        return np.asarray(self.returned & ~self.late & (self.residence_ns != MISSING_NS))

    @cached_property
    def rtt_ns(self) -> npt.NDArray[np.int64]:
        """Round trips of the ``timed`` packets, less the residence time at the reflector."""
        seen = self.timed
        return self.returned_ns[seen] - self.sent_ns[seen] - self.residence_ns[seen]

    @cached_property
    def owd_forward_ns(self) -> npt.NDArray[np.int64]:
        """Delay from sender to reflector of each packet, ``MISSING_NS`` where it never arrived."""
        return np.where(self.arrived, self.arrived_ns - self.sent_ns, MISSING_NS)

    @cached_property
    def delays_ns(self) -> npt.NDArray[np.int64]:
        """Delay from sender to reflector of each packet that arrived."""
        seen = self.arrived
        if seen.all():
            return self.arrived_ns - self.sent_ns
        return self.arrived_ns[seen] - self.sent_ns[seen]

    @property
    def quickest_ns(self) -> int:
        """Delay of the quickest packet that arrived, 0 without one.

        Where the far end has a clock of its own, that packet is taken to need no time.
        """
        return int(self.delays_ns.min()) if len(self.delays_ns) else 0

    @cached_property
    def arrived_bytes(self) -> int:
        """Payload of the packets that reached the reflector."""
        return _sum(self.size, self.arrived)

    @cached_property
    def returned_bytes(self) -> int:
        """Payload of the replies that came back."""
        return _sum(self.size, self.returned)

    def within(self, wait_ns: int, *, one_clock: bool = True) -> "Flow":
        """Return the flow as one waiting time sees it (RFC 7680 section 2.8.2).

        What came later than that after its own sending is lost, wherever in the trial it was sent:
        early packets would else be waited for longer than the last ones. Without ``one_clock`` the
        quickest packet is taken to need no time.
        """
        delays = self.delays_ns
        seen = self.arrived
        least = 0 if one_clock else self.quickest_ns
        unseen = self.answered & ~seen
        trips = self.returned_ns[self.returned] - self.sent_ns[self.returned]
        longest = max(int(delays.max(initial=least)) - least, int(trips.max(initial=0)))
        if longest <= wait_ns and not unseen.any():
            return self
        in_time = delays - least <= wait_ns
        returned = self.returned & (self.returned_ns - self.sent_ns <= wait_ns)
        arrived = seen.copy()
        arrived[seen] = in_time
        arrived |= returned & seen

        def kept(times: npt.NDArray[np.int64], which: npt.NDArray[np.bool_]) -> Any:
            return np.where(which, times, MISSING_NS)

        return dataclasses.replace(
            self,
            arrived_ns=kept(self.arrived_ns, arrived),
            answered_ns=kept(self.answered_ns, arrived),
            returned_ns=kept(self.returned_ns, returned),
        )


def join(send: Table, reflect: Table, flow: int) -> Flow:
    """Join both ends of one flow; see ``join_all``."""
    (joined,) = join_all(send, reflect, [flow])
    return joined


def join_all(send: Table, reflect: Table, flows: Sequence[int]) -> tuple[Flow, ...]:
    """Join both ends of flows by sequence number; packets that never left are left out.

    A packet that only the reflector knows was sent by nobody and does not appear: the check of
    conservation compares its count with what the reflector says.
    """
    sent, came = _by_flow(send, _SENT, flows), _by_flow(reflect, _REFLECTED, flows)
    return tuple(_joined(*both) for both in zip(sent, came, strict=True))


def _joined(sender: _Columns, reflector: _Columns) -> Flow:
    left = sender["sent_ns"] != MISSING_NS
    if not left.all():
        sender = {name: column[left] for name, column in sender.items()}
    hit, at = _pairs(sender["seq"], reflector["seq"])
    arrived, answered = (
        _placed(reflector[name][at], hit, len(sender["seq"]))
        for name in ("received_ns", "answered_ns")
    )
    remote = sender["remote_rx_ns"]
    residence = _residence(sender["residence_ns"], remote, arrived, answered)
    if not _is_all(remote, MISSING_NS):
        # An answer proves the arrival even where the reflector was killed before it wrote its file.
        reported = (arrived == MISSING_NS) & (remote != MISSING_NS)
        if reported.any():
            arrived = np.where(reported, remote, arrived)
            answered = np.where(reported, remote + np.maximum(residence, 0), answered)
    return Flow(
        sent_ns=sender["sent_ns"],
        size=sender["size"],
        arrived_ns=arrived,
        answered_ns=answered,
        returned_ns=sender["returned_ns"],
        residence_ns=residence,
        late=(sender["flags"] & LATE) != 0,
    )


def _by_flow(table: Table, fields: Sequence[str], flows: Sequence[int]) -> Iterator[_Columns]:
    """Yield fields of each flow's records, in order of their numbers."""
    columns = _columns(table, (*fields, "flow"))
    of = columns.pop("flow")
    alone = len(flows) == 1 and _is_all(of, flows[0])
    if not alone:
        order = np.argsort(of, kind="stable")
        of = of[order]
    for flow in flows:
        found = columns
        if not alone:
            which = order[slice(*np.searchsorted(of, (flow, flow + 1)))]
            found = {name: column[which] for name, column in columns.items()}
        numbers = found["seq"]
        if not (numbers[1:] >= numbers[:-1]).all():
            again = np.argsort(numbers, kind="stable")
            found = {name: column[again] for name, column in found.items()}
        yield found


def _columns(table: Table, fields: Sequence[str]) -> _Columns:
    """Return fields of all records, each in one piece; one that never changes takes no memory.

    Piece by piece: records are long, so that all fields of a record find it in the cache.
    """
    # A number may be larger than any time.
    kinds = {name: np.uint64 if name == "seq" else np.int64 for name in fields}
    first = table[0] if len(table) else np.zeros((), table.dtype)
    found: _Columns = {}
    for at in range(0, len(table), _PIECE):
        piece = table[at : at + _PIECE]
        for name in fields:
            values = piece[name]
            if name not in found:
                if (values == first[name]).all():
                    continue
                found[name] = np.empty(len(table), kinds[name])
                found[name][:at] = first[name]
            found[name][at : at + _PIECE] = values
    same = (name for name in fields if name not in found)
    return found | {
        name: np.broadcast_to(first[name].astype(kinds[name]), (len(table),)) for name in same
    }


def _pairs(sent: npt.NDArray[Any], came: npt.NDArray[Any]) -> tuple[Any, Any]:
    """Return which of the packets sent came, and where each of these stands among those that came.

    Both are in order; of several with one number the first counts.
    """
    if len(sent) and len(came) and int(sent[-1]) - int(sent[0]) == len(sent) - 1:
        # Numbered without a gap, as nearly every sender does: a number is a place.
        within = sent[0] <= came[0] and came[-1] <= sent[-1]
        if within and (sent[1:] > sent[:-1]).all() and (came[1:] > came[:-1]).all():
            every = len(came) == len(sent)
            return slice(None) if every else (came - sent[0]).astype(np.int64), slice(None)
    at = np.searchsorted(came, sent)
    inside = at < len(came)
    hit = np.zeros(len(sent), dtype=np.bool_)
    hit[inside] = came[at[inside]] == sent[inside]
    return hit, at[hit]


def _placed(column: npt.NDArray[np.int64], hit: Any, count: int) -> npt.NDArray[np.int64]:
    """Return the values at their places among so many packets, ``MISSING_NS`` at all others."""
    if isinstance(hit, slice):
        return column
    if not len(column) or _is_all(column, MISSING_NS):
        return _all(MISSING_NS, count)
    placed = np.full(count, MISSING_NS, dtype=np.int64)
    placed[hit] = column
    return placed


def _residence(
    reported: npt.NDArray[np.int64],
    remote: npt.NDArray[np.int64],
    arrived: npt.NDArray[np.int64],
    answered: npt.NDArray[np.int64],
) -> npt.NDArray[np.int64]:
    """Return the residence times, ``MISSING_NS`` where nobody knows.

    What is too long for the reply to carry, the reflector's own record has.
    """
    if _is_all(reported, UNKNOWN_RESIDENCE) and _is_all(answered, MISSING_NS):
        return _all(MISSING_NS, len(reported))
    unknown = reported == UNKNOWN_RESIDENCE
    if not unknown.any():
        return reported
    came = np.where(arrived == MISSING_NS, remote, arrived)
    both = unknown & (came != MISSING_NS) & (answered != MISSING_NS)
    known = np.where(unknown, MISSING_NS, reported)
    return np.where(both, answered - came, known) if both.any() else known


def _is_all(column: npt.NDArray[np.int64], value: int) -> bool:
    """Say whether a column takes no memory since it has this value alone."""
    return len(column) > 0 and column.strides == (0,) and column[0] == value


def _all(value: int, count: int) -> npt.NDArray[np.int64]:
    return np.broadcast_to(np.int64(value), (count,))


def _sum(values: npt.NDArray[np.int64], which: npt.NDArray[np.bool_]) -> int:
    """Return the sum of these values."""
    if len(values) and values.strides == (0,):
        return int(values[0]) * int(np.count_nonzero(which))
    return int(np.sum(values, where=which))


def _read(data: bytes | memoryview, place: str, kind: int, layout: np.dtype[Any]) -> Table:
    if len(data) < _HEADER.size or len(data) > _LIMIT_BYTES:
        raise ResultError(
            f"{place}: has {len(data)} bytes, must be {_HEADER.size} to {_LIMIT_BYTES}"
        )
    magic, version, found, size, count, _start, _zero = _HEADER.unpack_from(data)
    if magic != _MAGIC:
        raise ResultError(f"{place}: is not a record file of the engine")
    if version != 1 or found != kind or size != layout.itemsize:
        raise ResultError(
            f"{place}: has version {version}, kind {found}, records of {size} bytes; "
            f"must be 1, {kind}, {layout.itemsize}"
        )
    whole = (len(data) - _HEADER.size) // size
    # A file that was being written when its process was killed has no count: its size decides.
    if count != 2**64 - 1 and count != whole:
        raise ResultError(f"{place}: announces {count} records, has {whole}")
    if count != 2**64 - 1 and (rest := (len(data) - _HEADER.size) % size):
        raise ResultError(f"{place}: has {rest} byte{'s' * (rest != 1)} after its {count} records")
    return np.frombuffer(data, layout, whole, _HEADER.size)
