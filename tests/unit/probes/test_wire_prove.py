"""The whole proof against a link that is simulated packet by packet: no root, no clock."""

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simulated_link import (
    BARE,
    CLIENT,
    CLOCK_NS,
    MS,
    NOISE,
    RULE,
    Link,
    LinkHost,
    Outgoing,
    clear,
    encrypting,
    fragments,
    joining,
    proof,
    scrambling,
    spelling,
    udp,
)
from tunnelmark.model.block import ProofVerdict, WireSample
from tunnelmark.model.errors import LabError
from tunnelmark.model.host import Host
from tunnelmark.model.tunnel import WireRule
from tunnelmark.probes.attribution import Probe
from tunnelmark.probes.capture import Capture
from tunnelmark.probes.wire import Sent


def test_a_tunnel_that_encrypts_is_proved_and_measured() -> None:
    kept: dict[str, bytes] = {}
    found = proof(Link(encrypting(24)), keep=kept.__setitem__)
    assert found.ok, found.message
    assert found.fragmentation_point_bytes == 1420
    assert found.samples == (
        WireSample(100, (180,)),
        WireSample(1000, (1080,)),
        WireSample(1420, (1500,)),
        WireSample(1421, (1500, 21)),
        WireSample(1472, (1500, 72)),
    )
    assert (found.foreign_packets, found.marker_seen, found.encrypted_expected) == (0, False, True)
    assert [sample.overhead_bytes for sample in found.samples][:2] == [80, 80]
    assert sorted(kept) == [f"proof-tunnel-0-{n}" for n in range(len(kept))]
    assert f"{found.packets} packets, all UDP to or from port 1194" in found.message


@settings(max_examples=25, deadline=None)
@given(overhead=st.integers(0, 200), lose=st.sampled_from([0.0, 0.05, 0.15]))
def test_the_fragmentation_point_is_found_whatever_the_overhead_and_the_loss(
    overhead: int, lose: float
) -> None:
    found = proof(Link(encrypting(overhead), lose=lose), repeats=5)
    assert found.fragmentation_point_bytes == 1444 - overhead
    assert found.ok, found.message
    assert WireSample(1000, (1056 + overhead,)) in found.samples


@pytest.mark.parametrize("held_ms", [1, 3, 6])
def test_on_a_busy_computer_probes_are_kept_further_apart_until_it_is_known_whose_packets_these_are(
    held_ms: int,
) -> None:
    for seed in range(10):
        link = Link(encrypting(24), held_ns=held_ms * MS, rng=random.Random(seed))  # noqa: S311
        found = proof(link)
        assert found.ok, found.message
        assert WireSample(1000, (1080,)) in found.samples
        assert found.fragmentation_point_bytes == 1420
        assert link.spacing == 1 or held_ms > 1


def test_where_packets_are_held_up_without_end_nothing_is_seen_and_nothing_is_wrong() -> None:
    for seed in range(10):
        link = Link(encrypting(24), held_ns=50 * MS, rng=random.Random(seed))  # noqa: S311
        found = proof(link)
        assert found.verdict is ProofVerdict.COULD_NOT_SEE, found.message
        assert "do not match the timing" in found.message


def test_without_a_tunnel_the_point_is_1472_and_the_marker_is_read() -> None:
    found = proof(Link(clear), BARE)
    assert found.ok, found.message
    assert (found.fragmentation_point_bytes, found.marker_seen) == (1472, True)
    assert WireSample(1000, (1028,)) in found.samples
    assert "as expected without encryption" in found.message


def test_a_tunnel_that_passes_cleartext_fails() -> None:
    found = proof(Link(lambda payload: udp(1194, bytes(8) + payload)))
    assert not found.ok
    assert found.marker_seen
    assert found.foreign_packets == 0
    assert "the plaintext marker is readable in" in found.message


@pytest.mark.parametrize(
    "wrap",
    [scrambling(b"\x5a"), scrambling(random.Random(2).randbytes(2000)), spelling],  # noqa: S311
    ids=["one byte", "a long key", "base64"],
)
def test_a_cipher_in_name_only_fails(wrap: Callable[[bytes], bytes]) -> None:
    """The marker is nowhere to be read, and yet nothing is encrypted."""
    found = proof(Link(wrap))
    assert (found.verdict, found.marker_seen) == (ProofVerdict.SAW_WRONG, False)
    assert "the packets are not ciphertext" in found.message


def test_a_tunnel_that_is_bypassed_fails_twice() -> None:
    found = proof(Link(clear))
    assert not found.ok
    assert found.marker_seen
    assert found.foreign_packets == found.packets
    assert "are not UDP to or from port 1194, the first is UDP from 198.18.0.1 port 40000 to" in (
        found.message
    )


def test_a_tunnel_that_encrypts_only_one_way_fails() -> None:
    turn = iter(range(10**6))

    def wrap(payload: bytes) -> bytes:
        return encrypting(24)(payload) if next(turn) % 2 == 0 else udp(1194, payload)

    link = Link(wrap)
    found = proof(link)
    assert not found.ok
    assert found.marker_seen


def test_a_baseline_that_shows_no_marker_fails() -> None:
    found = proof(Link(encrypting(0, port=7790)), BARE)
    assert not found.ok
    assert "although nothing encrypts them" in found.message


def test_keepalives_change_no_size() -> None:
    def keepalive(now_ns: int) -> Outgoing:
        frame = fragments(udp(1194, NOISE[:32]), 7, forward=True)[0]
        return [(now_ns - 30 * MS, frame), (now_ns - 90 * MS, frame)]

    found = proof(Link(encrypting(24), noise=keepalive))
    assert found.ok, found.message
    assert found.fragmentation_point_bytes == 1420


@pytest.mark.parametrize("least", [0, 47])
def test_acknowledgements_that_ride_on_a_packet_are_not_of_its_payload(least: int) -> None:
    bare, rng = encrypting(24), random.Random(5)  # noqa: S311 - a repeatable test, no secret

    def wrap(payload: bytes) -> bytes:
        return bare(payload + bytes(rng.choice((0, 0, 0, 3, 4, 5, 6, 7, 8))))

    found = proof(Link(wrap), replace(RULE, least_carrier_bytes=least), search=False)
    assert found.ok, found.message
    seen = {one.payload_bytes: sum(one.outer_packet_bytes) for one in found.samples}
    # Of a rule that is not QUIC's, a size without a majority is left out.
    whole = {size: size + 80 for size in (100, 1000)}
    assert (seen.items() >= whole.items()) is bool(least)


def test_a_stranger_on_the_link_is_noticed_but_a_neighbour_s_keepalive_is_not() -> None:
    def stranger(now_ns: int) -> Outgoing:
        return [(now_ns, fragments(udp(53, NOISE[:32]), 7, forward=True)[0])]

    found = proof(Link(encrypting(24), noise=stranger))
    assert found.verdict is ProofVerdict.SAW_WRONG
    assert found.foreign_packets > 0
    beside = replace(RULE, udp_ports=(53,))
    assert proof(Link(encrypting(24), noise=stranger), idle=(beside,)).ok


def test_without_the_search_it_takes_one_batch_and_says_nothing_of_the_point() -> None:
    kept: dict[str, bytes] = {}
    sizes = tuple(range(100, 1300, 100))
    found = proof(Link(encrypting(24)), payload_sizes=sizes, search=False, keep=kept.__setitem__)
    assert found.ok, found.message
    assert list(kept) == ["proof-end-0-0"]
    assert found.fragmentation_point_bytes is None
    assert "not searched for" in found.message
    wrong = proof(Link(clear), payload_sizes=sizes, search=False)
    assert wrong.verdict is ProofVerdict.SAW_WRONG


@pytest.mark.parametrize(("moved", "batches"), [(0, 1), (1, 2), (-1, 2), (200, 2), (-300, 2)])
def test_a_point_that_is_known_takes_one_batch_and_one_that_moved_is_found(
    moved: int, batches: int
) -> None:
    kept: dict[str, bytes] = {}
    link = Link(encrypting(24))
    found = proof(link, expected_bytes=1420 + moved, keep=kept.__setitem__)
    assert found.ok, found.message
    assert found.fragmentation_point_bytes == 1420
    assert WireSample(1000, (1080,)) in found.samples
    assert len(kept) == batches if not moved else batches <= len(kept) <= 4


@pytest.mark.parametrize("wrap", [clear, scrambling(b"\x5a"), spelling])
def test_a_look_at_the_known_point_sees_what_a_search_does(wrap: Callable[[bytes], bytes]) -> None:
    found = proof(Link(wrap), payload_sizes=(500,), expected_bytes=1420)
    assert found.verdict is ProofVerdict.SAW_WRONG


STREAM = replace(RULE, tcp_ports=(443,))


def test_the_rest_of_a_datagram_in_a_stream_may_come_with_the_next_one() -> None:
    found = proof(Link(encrypting(24), rest_ns=6 * MS), STREAM, payload_sizes=(100, 1000, 2000))
    assert found.ok, found.message
    assert WireSample(1000, (1080,)) in found.samples
    assert 2000 not in {sample.payload_bytes for sample in found.samples}
    # A segment that is full shows no end, but that there is no room for one.
    assert found.fragmentation_point_bytes in {None, 1420}


def test_a_stream_that_shows_no_cut_is_not_said_to_have_none() -> None:
    # Each segment takes the start of the datagram behind it along.
    link = Counting(joining(24))
    found = proof(link, STREAM, payload_sizes=(100, 1000, 2000))
    assert found.fragmentation_point_bytes is None
    assert "a stream that does not show where packets are cut" in found.message
    # Nor is it asked for what it will not show until all batches are used up.
    assert link.batches <= 5


@pytest.mark.parametrize("wanted", [(64,), (24, 25, 64), (64, 1000, 2000)])
def test_what_a_stream_has_left_of_a_long_datagram_is_not_of_the_next_small_one(
    wanted: tuple[int, ...],
) -> None:
    found = proof(Link(joining(24)), STREAM, payload_sizes=wanted)
    assert found.ok, found.message
    seen = {one.payload_bytes: one.outer_packet_bytes for one in found.samples}
    assert all(seen[size] == (size + 80,) for size in wanted if size < 1400)


@pytest.mark.parametrize("late", [0.1, 0.3])
@pytest.mark.parametrize("seed", range(10))
def test_datagrams_that_a_busy_stream_joins_are_not_taken_for_one(late: float, seed: int) -> None:
    found = proof(Link(joining(24, late=late, seed=seed)), STREAM, payload_sizes=(64, 1000, 1300))
    assert found.ok, found.message
    seen = {one.payload_bytes: one.outer_packet_bytes for one in found.samples}
    assert {size: seen[size] for size in seen if size <= 1420} == {
        size: (size + 80,) for size in seen if size <= 1420
    }
    assert found.fragmentation_point_bytes in {None, 1420}
    assert seen


@pytest.mark.parametrize("seed", range(10))
def test_the_first_fragment_alone_is_not_a_datagram_with_little_around_it(seed: int) -> None:
    """One of a payload of 1,472 bytes has 3 bytes more: all others were dropped for theirs."""
    sizes = (24, 100, 1000, *range(1363, 1382))
    link = Link(joining(27, seed=seed, inner_mtu=1400))
    found = proof(link, STREAM, payload_sizes=sizes)
    assert found.ok, found.message
    seen = {one.payload_bytes: one.outer_packet_bytes for one in found.samples}
    # The smallest may hold the end of the longest each time.
    assert seen.keys() >= {size for size in sizes[1:] if size <= 1372}
    assert all(seen[size] == (size + 83,) for size in seen if size <= 1372)
    assert all(len(packets) > 1 for size, packets in seen.items() if size > 1372)


@pytest.mark.parametrize("seed", range(5))
def test_padding_to_blocks_in_a_stream_is_not_a_part_of_another_datagram(seed: int) -> None:
    sizes = (25, *range(96, 113), 1000)
    link = Link(joining(27, late=0.05, seed=seed, block=16))
    found = proof(link, STREAM, payload_sizes=sizes)
    assert found.ok, found.message
    seen = {one.payload_bytes: one.outer_packet_bytes for one in found.samples}
    assert seen.keys() >= {*sizes[1:]}
    assert all(seen[size] == ((size + 28 + 15) // 16 * 16 + 55,) for size in sizes[1:])


@pytest.mark.parametrize("sizes", [(200,), (64, 200, 1000)])
@pytest.mark.parametrize("batches", [1, 2])
def test_segments_that_report_a_loss_are_longer_for_a_while(
    sizes: tuple[int, ...], batches: int
) -> None:
    """While a segment of the way back is missing, each on the way there has a SACK option."""
    whole = joining(24)

    def wrap(payload: bytes) -> bytes:
        data = whole(payload)
        return udp(1194, data[8:] + NOISE[:12]) if data and link.batches <= batches else data

    link = Counting(wrap)

    def said(size: int) -> tuple[int, ...] | None:
        return (size + 80,) if size <= 1420 else None

    found = proof(link, STREAM, payload_sizes=sizes, expected=said)
    assert found.ok, found.message
    seen = {one.payload_bytes: one.outer_packet_bytes for one in found.samples}
    assert [seen[size] for size in sizes] == [(size + 80,) for size in sizes]


def test_a_stream_without_the_rest_of_a_datagram_proves_nothing() -> None:
    whole = encrypting(24)
    found = proof(Link(lambda payload: whole(payload[:1000])), STREAM, payload_sizes=(100, 2000))
    assert found.verdict is ProofVerdict.COULD_NOT_SEE
    assert "not all packets of a payload of 2000 bytes were seen" in found.message


def test_data_that_goes_another_way_while_the_tunnel_chats_is_noticed() -> None:
    found = proof(Link(lambda _payload: udp(1194, NOISE[:40])))
    assert not found.ok
    assert "a payload of 100 bytes that cannot be compressed took 68 bytes" in found.message


@dataclass
class Counting(Link):
    """A link that counts the batches."""

    batches: int = 0

    def send(self, sizes: Sequence[int], *, marker: bytes, repeats: int) -> Sent:
        self.batches += 1
        return super().send(sizes, marker=marker, repeats=repeats)


@dataclass
class Mistaken(Link):
    """A link on which each probe of the first batches seems to be the one before it."""

    batches: int = 1

    def send(self, sizes: Sequence[int], *, marker: bytes, repeats: int) -> Sent:
        if not self.batches:
            return super().send(sizes, marker=marker, repeats=repeats)
        self.batches -= 1
        sent = super().send((*sizes[-1:], *sizes[:-1]), marker=marker, repeats=repeats)
        taken = [
            Probe(probe.sent_ns, sizes[at % len(sizes)]) for at, probe in enumerate(sent.probes)
        ]
        return replace(sent, probes=tuple(taken))


@pytest.mark.parametrize("search", [True, False])
def test_a_batch_that_was_mistaken_is_asked_for_again(*, search: bool) -> None:
    sizes = tuple(range(100, 1300, 100))
    link = Mistaken(encrypting(24))
    found = proof(link, payload_sizes=sizes, search=search)
    assert found.verdict is ProofVerdict.PROVED, found.message
    for size in sizes:
        assert WireSample(size, (size + 28 + 24 + 28,)) in found.samples
    always = proof(Mistaken(encrypting(24), batches=99), payload_sizes=sizes, search=search)
    assert always.verdict is ProofVerdict.SAW_WRONG
    assert "that cannot be compressed took" in always.message


@pytest.mark.parametrize(("spoilt", "verdict"), [(2, "proved"), (10**6, "could_not_see")])
def test_a_rest_that_was_not_seen_is_asked_for_again_and_never_wrong(
    spoilt: int, verdict: str
) -> None:
    link, rest = Link(encrypting(24)), 362
    send, batches = link.send, iter(range(10**6))

    def cut(sizes: Sequence[int], *, marker: bytes, repeats: int) -> Sent:
        sent = send(sizes, marker=marker, repeats=repeats)
        if next(batches) < spoilt:
            link.frames = [(at, frame) for at, frame in link.frames if len(frame) != 14 + rest]
        return sent

    link.send = cut  # type: ignore[method-assign]
    found = proof(link, payload_sizes=(100, 1762), repeats=5)
    assert found.verdict == verdict, found.message
    if verdict == "proved":
        assert WireSample(1762, (1500, rest)) in found.samples
    else:
        assert "not all packets of a payload of 1762 bytes were seen" in found.message


def test_batches_of_which_nothing_is_known_do_not_use_up_the_attempts_at_a_size() -> None:
    link, whole = Link(encrypting(24)), 592
    send, batches = link.send, iter(range(10**6))

    def busy(sizes: Sequence[int], *, marker: bytes, repeats: int) -> Sent:
        number = next(batches)
        link.held_ns = 400 * MS if number in {1, 2, 3} else 400_000
        sent = send(sizes, marker=marker, repeats=repeats)
        if not number:
            link.frames = [(at, frame) for at, frame in link.frames if len(frame) != 14 + whole]
        return sent

    link.send = busy  # type: ignore[method-assign]
    sizes = tuple(range(112, 1300, 100))
    found = proof(link, payload_sizes=sizes, search=False)
    assert found.verdict is ProofVerdict.PROVED, found.message
    assert {sample.payload_bytes for sample in found.samples} == {*sizes}


@pytest.mark.parametrize(("mistaken", "seen"), [(0, 592), (1, 592), (10**6, 600)])
def test_what_contradicts_the_model_is_asked_for_again_until_it_is_certain(
    mistaken: int, seen: int
) -> None:
    link, asked = Link(encrypting(24)), 0
    send = link.send

    def busy(sizes: Sequence[int], *, marker: bytes, repeats: int) -> Sent:
        nonlocal asked
        sent = send(sizes, marker=marker, repeats=repeats)
        if 512 in sizes and asked < mistaken:
            other = fragments(udp(1194, NOISE[: 600 - 28]), 7, forward=True)[0]
            link.frames = [
                (at, other if len(one) == 606 and one[26:30] == CLIENT else one)
                for at, one in link.frames
            ]
        asked += 512 in sizes
        return sent

    link.send = busy  # type: ignore[method-assign]
    sizes = tuple(range(112, 1300, 100))
    found = proof(
        link, payload_sizes=sizes, search=False, expected=lambda size: (size + 28 + 24 + 28,)
    )
    assert found.verdict is ProofVerdict.PROVED, found.message
    assert WireSample(512, (seen,)) in found.samples
    assert asked == {0: 1, 1: 2, 10**6: 4}[mistaken]


@pytest.mark.parametrize("rest_ms", [3, 4, 5, 6, 8])
@pytest.mark.parametrize("seed", range(5))
def test_a_second_packet_that_follows_late_is_waited_for(rest_ms: int, seed: int) -> None:
    """As of tinc on a busy computer: it passed when the next probe was due."""

    def said(size: int) -> tuple[int, ...]:
        whole = size + 28 + 24 + 28
        return (whole,) if whole <= 1500 else (1500, whole - 1480)

    link = Link(encrypting(24), rest_ns=rest_ms * MS, rng=random.Random(seed))  # noqa: S311
    wanted = (100, 1000, 1421, 1500, 2000)
    found = proof(link, payload_sizes=wanted, expected=said)
    assert found.ok, found.message
    assert found.fragmentation_point_bytes == 1420
    seen = {sample.payload_bytes: sample.outer_packet_bytes for sample in found.samples}
    assert seen == {size: said(size) for size in (*wanted, 1420)}


def test_a_baseline_whose_probes_do_not_arrive_is_not_called_encrypted() -> None:
    chat = [(CLOCK_NS, fragments(udp(7790, NOISE[:32]), 7, forward=True)[0])]
    link = Link(clear, lose=1.0, arrive=False, noise=lambda _now: chat)
    found = proof(link, BARE)
    assert found.verdict == "could_not_see"
    assert "none of " in found.message


@pytest.mark.parametrize(
    ("link", "host", "message"),
    [
        ({"arrive": False}, {}, "none of "),
        ({"lose": 1.0}, {}, "no packet was seen on the link"),
        ({"lose": 1.0}, {}, "do not match the timing of the"),
        ({}, {"dropped": 3}, "none of 4 captures is whole (12 packets dropped by the kernel)"),
    ],
)
def test_what_proves_nothing_is_no_proof(
    link: dict[str, Any], host: dict[str, Any], message: str
) -> None:
    simulated = Link(encrypting(24), **link)
    found = proof(simulated, host=LinkHost(simulated, **host))
    assert found.verdict is ProofVerdict.COULD_NOT_SEE
    assert message in found.message


def test_no_batch_is_so_small_that_it_could_be_mistaken() -> None:
    link = Link(encrypting(24))
    batches: list[int] = []
    send = link.send

    def counted(sizes: Sequence[int], *, marker: bytes, repeats: int) -> Sent:
        batches.append(len(set(sizes)))
        assert len(set(sizes)) == len(sizes)
        return send(sizes, marker=marker, repeats=repeats)

    link.send = counted  # type: ignore[method-assign]
    assert proof(link).ok
    assert min(batches) >= 12


def test_many_sizes_of_a_study_are_all_measured() -> None:
    sizes = tuple(range(25, 1425, 10))
    found = proof(Link(encrypting(24)), payload_sizes=sizes)
    assert found.ok, found.message
    assert {sample.payload_bytes for sample in found.samples} == {*sizes, 1420, 1421}


def test_a_tunnel_that_never_splits_has_no_point_within_the_sizes_tried() -> None:
    def wrap(payload: bytes) -> bytes:
        return udp(1194, NOISE[: 40 + len(payload) // 3])

    found = proof(Link(wrap), payload_sizes=())
    assert found.fragmentation_point_bytes is None


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        (
            {"programs": ()},
            "no capture on link: tcpdump is not installed (apt-get install tcpdump)",
        ),
        (
            {"refuses": "tcpdump: a: No such device exists\n"},
            "tcpdump on a of link ended with status 1: a: No such device exists",
        ),
    ],
)
def test_a_capture_that_does_not_start_says_why(changed: dict[str, Any], message: str) -> None:
    link = Link(encrypting(24))
    with pytest.raises(LabError) as caught:
        proof(link, host=LinkHost(link, **changed))
    assert str(caught.value) == message


def test_a_capture_file_that_contradicts_tcpdump_is_refused() -> None:
    link = Link(encrypting(24))
    with pytest.raises(LabError, match=r"tcpdump captured \d+ packets, its file has"):
        proof(link, host=LinkHost(link, miscounted=1))


def test_where_groups_cannot_be_changed_our_own_capture_runs() -> None:
    link = Link(encrypting(24))
    host = LinkHost(link, setgroups=b"deny\n", programs=())
    found = proof(link, host=host)
    assert found.ok, found.message
    assert {process.argv[1:4] for process in host.spawned} == {
        ("-m", "tunnelmark.probes.sniff", "a")
    }


def test_tcpdump_is_ended_whatever_happens_in_between() -> None:
    link = Link(encrypting(24))
    host = LinkHost(link)
    capture = Capture(cast("Host", host), "a", name="x")

    def fail() -> None:
        with capture:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fail()
    assert [process.status for process in host.spawned] == [0]
    with pytest.raises(LabError, match="is not running"):
        capture.stop()


class Layer2(Link):
    """What the tunnel sends are frames of a type of their own, between two Ethernet addresses."""

    def send(self, sizes: Sequence[int], *, marker: bytes, repeats: int) -> Sent:
        sent = super().send(sizes, marker=marker, repeats=repeats)
        self.frames = [(at, self.secured(frame)) for at, frame in self.frames]
        return sent

    @staticmethod
    def secured(frame: bytes) -> bytes:
        client, server = bytes.fromhex("020000000001"), bytes.fromhex("020000000002")
        ends = server + client if frame[26:30] == CLIENT else client + server
        return ends + b"\x88\xe5" + frame[14:]


def test_frames_that_are_not_ip_are_proved_where_the_rule_names_their_type() -> None:
    rule = WireRule(encrypted=True, describe="MACsec", ip_protocols=(), ether_types=(0x88E5,))
    found = proof(Layer2(encrypting(24)), rule)
    assert found.ok, found.message
    # The Ethernet header does not count, whatever is behind it does.
    assert WireSample(1000, (1080,)) in found.samples
    assert found.fragmentation_point_bytes == 1420
    refused = proof(Layer2(encrypting(24)), replace(rule, ether_types=(0x88CC,)))
    assert not refused.ok
    assert "are not MACsec, the first is a frame of type 0x88e5" in refused.message


def test_sizes_of_what_is_compressed_with_a_memory_are_not_judged() -> None:
    seen: list[bytes] = []

    def remembers(payload: bytes) -> bytes:
        shown = payload if len(seen) < 30 else payload[:40]
        seen.append(payload)
        return udp(7790, shown)

    rule = replace(BARE, udp_ports=(7790,), describe="UDP, deflated")
    judged = proof(Link(remembers), rule)
    assert not judged.ok
    assert "bytes that cannot be compressed took" in judged.message
    seen.clear()
    found = proof(Link(remembers), replace(rule, compresses=True))
    assert found.ok, found.message
    assert (found.samples, found.fragmentation_point_bytes) == ((), None)
    assert found.marker_seen
    assert "sizes are not judged" in found.message
