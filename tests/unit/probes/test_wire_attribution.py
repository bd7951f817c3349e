"""Attribution of packets to probes, against a link whose clock, delay and noise are known."""

import random
from collections.abc import Sequence
from dataclasses import replace
from unittest.mock import Mock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tunnelmark.probes.attribution import Probe, Votes, attribute
from tunnelmark.probes.pcap import WirePacket

MS = 10**6


def seeded(seed: int) -> random.Random:
    return random.Random(seed)  # noqa: S311 - a repeatable test, no secret


def agreed_sizes(
    probes: Sequence[Probe], *batches: Sequence[Sequence[WirePacket]]
) -> dict[int, tuple[int, ...]]:
    votes = Votes()
    for parts in batches:
        votes.add(probes, parts)
    return votes.agreed()


def packet(time_ns: int, ip_bytes: int) -> WirePacket:
    return WirePacket(
        time_ns, 4, ip_bytes, 17, "a", "b", 1, 2, None, 0, more_fragments=False, payload=b""
    )


def outer(payload_bytes: int) -> tuple[int, ...]:
    whole = payload_bytes + 80
    return (whole,) if whole <= 1500 else (1500, whole - 1480)


def batch(rng: random.Random, sizes: list[int], repeats: int) -> list[Probe]:
    at, probes = rng.randrange(10**12), []
    for _ in range(repeats):
        for size in sizes:
            probes.append(Probe(at, size))
            at += rng.randrange(4 * MS, 6 * MS)
    return probes


def link(rng: random.Random, probes: list[Probe], clock_ns: int, lost: float) -> list[WirePacket]:
    packets = []
    for probe in probes:
        if rng.random() < lost:
            continue
        at = probe.sent_ns + clock_ns + rng.randrange(50_000, 700_000)
        for number, length in enumerate(outer(probe.payload_bytes)):
            packets.append(packet(at + number * 5000, length))
    return packets


@settings(deadline=None)
@given(
    seed=st.integers(0, 2**32),
    clock_ns=st.integers(-(10**17), 10**18),
    sizes=st.lists(st.integers(24, 3000), min_size=12, max_size=30, unique=True),
    lost=st.sampled_from([0.0, 0.1, 0.3]),
)
def test_every_probe_gets_just_its_packets_whatever_the_clocks(
    seed: int, clock_ns: int, sizes: list[int], lost: float
) -> None:
    rng = seeded(seed)
    probes = batch(rng, sizes, 3)
    packets = link(rng, probes, clock_ns, lost)
    parts = attribute(probes, packets)
    if not packets:
        assert parts is None
        return
    if len(packets) < len(probes) // 2:
        return
    assert parts is not None
    for probe, part in zip(probes, parts, strict=True):
        assert tuple(p.ip_bytes for p in part) in ((), outer(probe.payload_bytes))
    assert sum(len(part) for part in parts) == len(packets)


@settings(deadline=None)
@given(seed=st.integers(0, 2**32))
def test_keepalives_between_the_probes_are_outvoted(seed: int) -> None:
    rng = seeded(seed)
    probes = batch(rng, [25, 400, 1000, 1400, 1472, 2000], 5)
    packets = link(rng, probes, 10**18, 0.0)
    # Two keepalives in 150 ms: more than any tunnel sends.
    for _ in range(2):
        packets.append(packet(10**18 + rng.randrange(probes[0].sent_ns, probes[-1].sent_ns), 60))
    parts = attribute(probes, sorted(packets, key=lambda p: p.time_ns))
    assert parts is not None
    assert agreed_sizes(probes, parts) == {
        size: outer(size) for size in (25, 400, 1000, 1400, 1472, 2000)
    }


def test_two_swapped_fragments_are_outvoted_and_a_lone_answer_is_no_majority() -> None:
    probes = [Probe(n, size) for n, size in enumerate((2000, 2000, 2000, 100, 100, 300))]
    one, two = packet(0, 1500), packet(0, 600)
    parts = [(one, two), (two, one), (one, two), (two,), (one,), (two,)]
    assert agreed_sizes(probes, parts) == {2000: (1500, 600)}


def test_a_late_part_that_stands_with_the_next_probe_is_of_neither() -> None:
    # As Nebula's on a busy computer: two of three parts came when the next probe was due.
    small, part, rest, next_rest = packet(0, 280), packet(0, 1380), packet(0, 198), packet(0, 199)
    probes = [Probe(n, size) for n, size in enumerate((200, 1370, 1371) * 3)]
    late = [(small,), (part,), (rest, part, next_rest)]
    in_time = [(small,), (part, rest), (part, next_rest)]
    votes = Votes(1272)
    votes.add(probes, [*late, *late, *in_time])
    assert votes.agreed() == {200: (280,)}
    votes.add(probes, [*in_time, *in_time, *in_time])
    assert votes.agreed() == {200: (280,), 1370: (1380, 198), 1371: (1380, 199)}


@pytest.mark.parametrize("wrong", [[(1456,)], [(80, 1456, 80)], [(1456,), (80, 1456, 80)]])
def test_what_two_saw_as_the_model_says_holds_although_more_saw_a_part(
    wrong: list[tuple[int, ...]],
) -> None:
    # As tinc's: the first fragment alone is as long as a whole datagram of that size would be.
    seen = [*wrong * 4, (1456, 80), (1456, 80)]
    probes = [Probe(n, 1373) for n in range(len(seen))]
    parts = [[packet(0, length) for length in lengths] for lengths in seen]
    agreed = {}
    expected: tuple[tuple[int, ...] | None, ...] = (None, (1456, 80), (1472,))
    for said in expected:
        votes = Votes(1272, expected=Mock(return_value=said))
        votes.add([Probe(0, 200)], [[packet(0, 279)]])
        votes.add(probes, parts)
        agreed[said] = votes.agreed().get(1373)
    assert agreed[1456, 80] == (1456, 80)
    # A model that nobody saw right makes no difference.
    assert agreed[None] == agreed[1472,] != (1456, 80)


def test_a_part_of_another_datagram_does_not_outvote_what_stands_around_all_others() -> None:
    sizes = (25, 100, 600, 601, 1000)
    probes = [Probe(n, size) for n, size in enumerate(sizes * 2)]
    # In both rounds the beginning of the fourth came with the third.
    outer = {25: 132, 100: 207, 600: 810, 601: 605, 1000: 1107}
    votes = Votes(1272, stream=True)
    votes.add(probes, [[packet(0, outer[probe.payload_bytes])] for probe in probes])
    assert votes.agreed() == {25: (132,), 100: (207,), 1000: (1107,)}
    # Sizes in a row, each with the next one in both rounds, are no majority either.
    row = range(200, 230, 2)
    votes.add(
        [Probe(0, size) for size in row] * 2, [[packet(0, 2 * size + 215)] for size in row] * 2
    )
    assert votes.agreed() == {25: (132,), 100: (207,), 1000: (1107,)}
    # It is known as soon as two rounds have it alone.
    votes.add([Probe(0, 601)] * 2, [[packet(0, 708)]] * 2)
    assert votes.agreed() == {25: (132,), 100: (207,), 601: (708,), 1000: (1107,)}


@settings(deadline=None)
@given(seed=st.integers(0, 2**32))
def test_slow_probes_do_not_shift_all_others_by_one(seed: int) -> None:
    rng = seeded(seed)
    probes = batch(rng, [25, 100, 1000, 1400, 1472, 24, 353, 684], 3)
    packets = []
    for probe in probes:
        # A daemon that is scheduled late now and then, on a machine that does other things.
        delay = rng.randrange(1 * MS, 2 * MS) if rng.random() < 0.15 else rng.randrange(100_000)
        packets += [packet(probe.sent_ns + delay, n) for n in outer(probe.payload_bytes)]
    parts = attribute(probes, packets)
    assert parts is not None
    for probe, part in zip(probes, parts, strict=True):
        assert tuple(p.ip_bytes for p in part) == outer(probe.payload_bytes)


@pytest.mark.parametrize("worst_ms", [2, 5, 10, 20, 40])
def test_packets_held_up_for_as_long_as_probes_are_apart_are_nobody_s(worst_ms: int) -> None:
    sizes = [24, 160, 296, 432, 568, 704, 840, 976, 1112, 1248, 1390, 1391, 800]
    known = 0
    for seed in range(40):
        rng = seeded(seed)
        gaps = [rng.randrange(6 * MS, 14 * MS) for _ in sizes]
        at, last, probes, packets = rng.randrange(10**12), 0, [], []
        for size, gap in [*zip(sizes, gaps, strict=True)] * 3:
            probes.append(Probe(at, size))
            last = max(last + 1000, at + rng.randrange(worst_ms * MS))
            packets += [packet(last, length) for length in outer(size)]
            at += gap
        parts = attribute(probes, packets)
        known += parts is not None
        found = {} if parts is None else agreed_sizes(probes, parts)
        # Shifted by one, all probes of a size agree on the packet of the next: less than they hold.
        assert [size for size, lengths in found.items() if sum(lengths) < size] == []
    assert known == (40 if worst_ms == 2 else 0) or worst_ms == 5


@settings(deadline=None)
@given(seed=st.integers(0, 2**32), held=st.integers(0, 40), burst=st.integers(2, 12))
def test_a_sender_that_was_held_up_spoils_only_what_it_sent_at_once(
    seed: int, held: int, burst: int
) -> None:
    rng = seeded(seed)
    probes = batch(rng, [25, 100, 1000, 1400, 1472, 24, 353, 684, 1015, 1346], 5)
    until = probes[min(held + burst, len(probes) - 1)].sent_ns - 1000 * burst
    late = [
        replace(probe, sent_ns=max(probe.sent_ns, until + 1000 * number))
        if held <= number < held + burst
        else probe
        for number, probe in enumerate(probes)
    ]
    late.sort()
    parts = attribute(late, link(rng, late, 10**18, 0.0))
    assert parts is not None
    for number, (probe, part) in enumerate(zip(late, parts, strict=True)):
        if not held - 1 <= number <= held + burst + 1:
            assert tuple(p.ip_bytes for p in part) == outer(probe.payload_bytes)
    assert agreed_sizes(late, parts) == {
        probe.payload_bytes: outer(probe.payload_bytes) for probe in late
    }


def test_votes_of_several_batches_count_together() -> None:
    probes = [Probe(0, 100), Probe(1, 200)]
    one, two = packet(0, 180), packet(0, 60)
    assert agreed_sizes(probes, [(one,), (two,)]) == {}
    assert agreed_sizes(probes, [(one,), (two,)], [(one,), ()]) == {100: (180,)}
    # A majority may be lost again.
    assert agreed_sizes(probes, [(one,), ()], [(one,), ()], [(two,), ()], [(two,), ()]) == {}


def test_noise_alone_is_attributed_to_nobody() -> None:
    probes = batch(seeded(1), [100, 200, 300, 400], 5)
    noise = [packet(10**18 + n * 40 * MS, 60) for n in range(3)]
    assert attribute(probes, noise) is None
    assert attribute(probes, []) is None
    assert attribute([], noise) is None


def test_a_probe_without_packets_takes_none_of_its_neighbours() -> None:
    probes = batch(seeded(2), [100, 200, 300, 400], 3)
    packets = [packet(p.sent_ns + 10**9, p.payload_bytes) for n, p in enumerate(probes) if n != 5]
    parts = attribute(probes, packets)
    assert parts is not None
    assert parts[5] == ()
    assert [len(part) for part in parts] == [1, 1, 1, 1, 1, 0, 1, 1, 1, 1, 1, 1]
