"""Record files and their join: strict, bounded, and no packet counted twice."""

import contextlib
import struct

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tunnelmark.engine.records import MISSING_NS, join, read_reflect, read_send
from tunnelmark.model.errors import ResultError

_SEND = struct.Struct("<QqqqqIHHII8x")
_REFLECT = struct.Struct("<QqqIHHI4x")


def _file(kind: int, size: int, rows: list[bytes], count: int | None = None) -> bytes:
    number = len(rows) if count is None else count
    return struct.pack("<8sHHIQq32x", b"TMREC\0\0\0", 1, kind, size, number, 0) + b"".join(rows)


def _sent(
    seq: int,
    at: int | None,
    back: int | None = None,
    remote: int | None = None,
    residence: int = 0,
) -> bytes:
    times = [MISSING_NS if t is None else t for t in (at, remote, back)]
    return _SEND.pack(seq, seq * 100, times[0], times[1], times[2], 500, 0, 0, 0, residence)


def _reflected(seq: int, at: int) -> bytes:
    return _REFLECT.pack(seq, at, at + 1, 500, 0, 0, 0)


def test_loss_is_reported_by_direction() -> None:
    send = read_send(
        _file(1, 64, [_sent(0, 10, 40, 20), _sent(1, 110), _sent(2, 210), _sent(3, None)]), "s"
    )
    reflect = read_reflect(_file(2, 40, [_reflected(0, 20), _reflected(2, 220)]), "r")
    flow = join(send, reflect, 0)
    assert flow.arrived.tolist() == [True, False, True]
    assert flow.returned.tolist() == [True, False, False]
    assert flow.rtt_ns.tolist() == [30]


def test_what_the_reflector_took_is_no_delay_of_the_path() -> None:
    longest = 2**32 - 1
    rows = [_sent(0, 10, 40, 20, 5), _sent(1, 110, 140, 120, longest)]
    send = read_send(_file(1, 64, rows), "s")
    reflected = [_reflected(0, 20), _REFLECT.pack(1, 120, 127, 500, 0, 0, 0)]
    reported = join(send, read_reflect(_file(2, 40, reflected), "r"), 0)
    assert reported.rtt_ns.tolist() == [25, 23]
    alone = join(send, read_reflect(_file(2, 40, []), "r"), 0)
    # Nobody tells how long the second was there: no round trip, and not one of 30.
    assert alone.rtt_ns.tolist() == [25]
    assert alone.timed.tolist() == [True, False]
    assert alone.answered_ns.tolist() == [25, 120]


def test_a_field_with_one_value_takes_no_memory() -> None:
    """A load of a minute is millions of packets of one size that nobody answers."""
    sent = [
        _SEND.pack(seq, 0, 10 + seq, MISSING_NS, MISSING_NS, 500, 0, 0, 0, 2**32 - 1)
        for seq in range(4)
    ]
    came = [_REFLECT.pack(seq, 20 + seq, MISSING_NS, 500, 0, 0, 0) for seq in range(3)]
    flow = join(read_send(_file(1, 64, sent), "s"), read_reflect(_file(2, 40, came), "r"), 0)
    fields = (flow.size, flow.answered_ns, flow.returned_ns, flow.residence_ns)
    assert [field.strides for field in fields] == [(0,)] * 4
    assert [set(field.tolist()) for field in fields] == [{500}, *[{MISSING_NS}] * 3]
    assert flow.arrived_ns.tolist() == [20, 21, 22, MISSING_NS]
    assert (flow.arrived_bytes, flow.returned_bytes) == (1500, 0)
    assert flow.within(5) is not flow
    assert flow.within(10) is flow


def test_an_answer_proves_an_arrival_that_the_reflector_did_not_write() -> None:
    send = read_send(_file(1, 64, [_sent(0, 10, 40, 20)]), "s")
    flow = join(send, read_reflect(_file(2, 40, []), "r"), 0)
    assert flow.arrived.tolist() == [True]


@given(
    fates=st.lists(st.sampled_from(["both", "forward", "reverse"]), max_size=80),
    order=st.randoms(use_true_random=False),
)
def test_every_packet_is_somewhere(fates: list[str], order: "np.random.Generator") -> None:
    sent, reflected = [], []
    for seq, fate in enumerate(fates):
        back = seq * 100 + 50 if fate == "both" else None
        sent.append(_sent(seq, seq * 100, back, seq * 100 + 20 if back else None))
        if fate != "forward":
            reflected.append(_reflected(seq, seq * 100 + 20))
    order.shuffle(sent)
    order.shuffle(reflected)
    send = read_send(_file(1, 64, sent), "s")
    flow = join(send, read_reflect(_file(2, 40, reflected), "r"), 0)
    assert len(flow.sent_ns) == len(fates)
    assert int((~flow.arrived).sum()) == fates.count("forward")
    assert int((flow.arrived & ~flow.returned).sum()) == fates.count("reverse")
    assert int(flow.returned.sum()) == fates.count("both")


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "has 0 bytes"),
        (b"x" * 64, "not a record file"),
        (_file(2, 40, []), "must be 1, 1, 64"),
        (_file(1, 63, []), "must be 1, 1, 64"),
        (_file(1, 64, [_sent(0, 1)], count=2), "announces 2 records, has 1"),
    ],
)
def test_what_is_no_record_file_is_refused_by_name(data: bytes, words: str) -> None:
    with pytest.raises(ResultError, match=words) as error:
        read_send(data, "trial-1.send.rec")
    assert "trial-1.send.rec" in str(error.value)


def test_a_file_that_was_being_written_gives_its_whole_records() -> None:
    data = _file(1, 64, [_sent(0, 1), _sent(1, 2)], count=2**64 - 1)
    assert len(read_send(data[:-10], "s")) == 1


@given(st.binary(max_size=300))
def test_any_bytes_are_survived(data: bytes) -> None:
    with contextlib.suppress(ResultError):
        read_send(data, "s")
