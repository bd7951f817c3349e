"""Record files: what the engine writes is read, all else refused; the join loses nothing."""

import struct

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tunnelmark.engine.records import (
    _REFLECT,
    _SEND,
    LATE,
    MISSING_NS,
    UNKNOWN_RESIDENCE,
    join,
    read_reflect,
    read_send,
)
from tunnelmark.model.errors import ResultError

SEND = struct.Struct("<QqqqqIHHI12x")
REFLECT = struct.Struct("<QqqIHHI4x")


def file(kind: int, records: list[bytes], *, count: int | None = None, **changes: int) -> bytes:
    size = {1: SEND.size, 2: REFLECT.size}[kind]
    header = {"version": 1, "kind": kind, "size": size, **changes}
    return struct.pack(
        "<8sHHIQq32x",
        b"TMREC\0\0\0",
        header["version"],
        header["kind"],
        header["size"],
        len(records) if count is None else count,
        0,
    ) + b"".join(records)


def sent(seq: int, sent_ns: int = 10, rx: int = MISSING_NS, back: int = MISSING_NS) -> bytes:
    return SEND.pack(seq, sent_ns, sent_ns, rx, back, 100, 0, 0, 0)


def test_the_layout_is_that_of_the_contract() -> None:
    assert (SEND.size, REFLECT.size) == (64, 40)
    (record,) = read_send(file(1, [SEND.pack(1, 2, 3, 4, 5, 6, 7, 8, 9)]), "f")
    assert list(record)[:9] == [1, 2, 3, 4, 5, 6, 7, 8, 9]
    (record,) = read_reflect(file(2, [REFLECT.pack(1, 2, 3, 4, 5, 6, 7)]), "f")
    assert list(record)[:7] == [1, 2, 3, 4, 5, 6, 7]


def test_a_file_that_was_being_written_gives_its_whole_records() -> None:
    data = file(1, [sent(0), sent(1), sent(2)[:30]], count=2**64 - 1)
    assert list(read_send(data, "f")["seq"]) == [0, 1]


@pytest.mark.parametrize(
    ("data", "complaint"),
    [
        (b"", "f: has 0 bytes, must be 64 to"),
        (file(1, [])[:63], "f: has 63 bytes"),
        (b"X" + file(1, [])[1:], "f: is not a record file"),
        (file(1, [], version=2), "f: has version 2"),
        (file(2, []), "f: has version 1, kind 2"),
        (file(1, [], size=63), "records of 63 bytes"),
        (file(1, [], size=0), "records of 0 bytes"),
        (file(1, [sent(0)], count=2), "f: announces 2 records, has 1"),
        (file(1, [sent(0)], count=2**63), "f: announces"),
        (file(1, [sent(0), sent(1)], count=1), "f: announces 1 records, has 2"),
        (file(1, [sent(0), b"x"], count=1), "f: has 1 byte after its 1 records"),
    ],
)
def test_what_is_no_record_file_is_refused(data: bytes, complaint: str) -> None:
    with pytest.raises(ResultError, match=complaint):
        read_send(data, "f")


@given(st.binary(max_size=300))
def test_no_bytes_do_harm(data: bytes) -> None:
    for text in (data, file(1, [])[:16] + data, file(1, [], count=2**64 - 1) + data):
        try:
            table = read_send(text, "f")
        except ResultError:
            continue
        assert len(table) * SEND.size + 64 <= len(text)


@st.composite
def exchanges(draw: st.DrawFn) -> list[dict[str, int]]:
    """Packets of two flows, each with what happened to it."""
    packets = []
    first = draw(st.sampled_from([0, 2**63 - 4, 2**64 - 8]))
    for flow in (0, 1):
        for seq in range(draw(st.integers(0, 8))):
            left = draw(st.booleans())
            known = left and draw(st.booleans())
            back = known and draw(st.booleans())
            packets.append(
                {
                    "flow": flow,
                    "seq": first + seq,
                    "sent": 100 + seq if left else MISSING_NS,
                    "arrived": 200 + seq if known else MISSING_NS,
                    "answered": 300 + seq if known else MISSING_NS,
                    "returned": 400 + seq if back else MISSING_NS,
                    "late": int(back and draw(st.booleans())),
                    # Killed before its file was complete: the answer alone reports the arrival.
                    "recorded": int(known and draw(st.booleans())),
                }
            )
    return draw(st.permutations(packets))


@given(exchanges())
def test_the_join_is_what_happened(packets: list[dict[str, int]]) -> None:
    send = read_send(
        file(
            1,
            [
                SEND.pack(
                    p["seq"],
                    100,
                    p["sent"],
                    p["arrived"] if p["returned"] != MISSING_NS else MISSING_NS,
                    p["returned"],
                    9,
                    p["flow"],
                    LATE * p["late"],
                    0,
                )
                for p in packets
            ],
        ),
        "s",
    )
    reflect = read_reflect(
        file(
            2,
            [
                REFLECT.pack(p["seq"], p["arrived"], p["answered"], 9, p["flow"], 0, 0)
                for p in reversed(packets)
                if p["recorded"]
            ],
        ),
        "r",
    )
    for flow in (0, 1):
        own = sorted(
            (p for p in packets if p["flow"] == flow and p["sent"] != MISSING_NS),
            key=lambda p: p["seq"],
        )
        reported = [p["recorded"] or p["returned"] != MISSING_NS for p in own]
        joined = join(send, reflect, flow)
        assert list(joined.sent_ns) == [p["sent"] for p in own]
        assert list(joined.returned_ns) == [p["returned"] for p in own]
        assert list(joined.late) == [bool(p["late"]) for p in own]
        assert list(joined.arrived) == reported
        assert list(joined.arrived_ns) == [
            p["arrived"] if known else MISSING_NS for p, known in zip(own, reported, strict=True)
        ]
        assert list(joined.answered_ns[joined.answered]) == [
            p["answered"] if p["recorded"] else p["arrived"]
            for p, known in zip(own, reported, strict=True)
            if known
        ]
        in_time = [p for p in own if p["returned"] != MISSING_NS and not p["late"]]
        assert list(joined.rtt_ns) == [p["returned"] - p["sent"] for p in in_time]
        # Conservation: sent = arrived + lost forward, arrived = returned + lost in reverse.
        assert joined.arrived.sum() + (~joined.arrived).sum() == len(own)
        assert not (joined.returned & ~joined.arrived).any()


@given(st.lists(st.integers(0, 12)), st.lists(st.integers(0, 12)), st.booleans())
def test_a_number_is_found_with_gaps_and_copies_as_without(
    sent: list[int], came: list[int], dense: bool
) -> None:
    sent = list(range(3, 3 + len(sent))) if dense else sorted(sent)
    send = [
        (seq, 0, 10 + seq, MISSING_NS, MISSING_NS, 64, 0, 0, 0, UNKNOWN_RESIDENCE, b"")
        for seq in sent
    ]
    reflect = [(seq, 100 + at, MISSING_NS, 64, 0, 0, 0, 0) for at, seq in enumerate(came)]
    flow = join(np.array(send, _SEND), np.array(reflect, _REFLECT), 0)
    first = {seq: 100 + at for at, seq in reversed(list(enumerate(came)))}
    assert flow.sent_ns.tolist() == [10 + seq for seq in sent]
    assert flow.arrived_ns.tolist() == [first.get(seq, MISSING_NS) for seq in sent]
