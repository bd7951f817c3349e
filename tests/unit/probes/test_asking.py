"""Which sizes a proof asks for, and when it has asked enough."""

from collections.abc import Mapping, Sequence

from tunnelmark.model.tunnel import WireRule
from tunnelmark.probes.asking import Asking
from tunnelmark.probes.attribution import Probe, anything
from tunnelmark.probes.carriers import Carrier
from tunnelmark.probes.fragmentation import bracket

STREAM = WireRule(
    encrypted=True, describe="TCP to or from port 443", ip_protocols=(6,), tcp_ports=(443,)
)
POINT = 1372
AROUND = 107


def asking(*, search: bool = True, once: bool = False) -> Asking:
    return Asking(
        (64, POINT),
        STREAM,
        ip_version=4,
        inner_mtu_bytes=1400,
        one_packet_bytes=1300,
        search=search,
        expected_bytes=None,
        expected=anything,
        once=once,
    )


def packets(size: int) -> tuple[int, ...]:
    """Return what a datagram of that many bytes takes on the link."""
    return (size + AROUND,) if size <= POINT else (1500, size + AROUND - 1401)


def answer(ask: Asking, sizes: Sequence[int], seen: Mapping[int, tuple[int, ...]]) -> bool:
    """Answer a batch: each of three probes saw its packets, or what ``seen`` has of its size."""
    probes = [Probe(at, size) for at, size in enumerate([*sizes] * 3)]
    parts = [
        [Carrier(probe.sent_ns, length, b"") for length in seen.get(size, packets(size))]
        for probe in probes
        for size in (probe.payload_bytes,)
    ]
    return ask.answer(probes, parts, whole=True)


def test_one_size_that_was_seen_wrong_does_not_speak_against_all_that_is_seen_right() -> None:
    ask = asking()
    # The packet of the datagram before it came so late that it stands with this one.
    answer(ask, ask.batch(), {POINT: (POINT + AROUND - 22, POINT + AROUND)})
    assert POINT not in ask.lengths
    batches = 1
    while sizes := ask.batch():
        answer(ask, sizes, {})
        batches += 1
    assert ask.lengths[POINT] == (POINT + AROUND,)
    assert bracket(ask.lengths).point == POINT
    assert batches <= 4


def test_where_only_what_passes_is_asked_one_batch_that_counts_is_enough() -> None:
    # Of none of a size's probes it is known which packets were its own.
    unknown: dict[int, tuple[int, ...]] = {64: (), POINT: ()}
    ask, patient = asking(search=False, once=True), asking(search=False)
    for one in (ask, patient):
        assert one.batch()
        # A batch that does not count.
        assert not one.answer([Probe(0, 64)], None, whole=True)
        answer(one, one.batch(), unknown)
        assert not one.lengths
    assert not ask.batch()
    assert patient.batch()
