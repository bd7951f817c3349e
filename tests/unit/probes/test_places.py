"""Every lost packet at one place: never more than a counter proves, and the sum is right."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tunnelmark.probes.places import (
    PLACES,
    UNKNOWN,
    HostCounts,
    assign,
    parse_counts,
    way_drops,
)

DEV = """Inter-|   Receive                                                |  Transmit
 face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs drop fifo colls carrier compressed
    lo:     100       1    0    0    0     0          0         0      100       1    0    0    0     0       0          0
  eth0:123456789  4000    1    2    3     0          0         0    99999    3000    4    5    6     0       0          0
  tun0: 5000       40    0    7    0     0          0         0     6000      50    0    8    0     0       0          0
"""  # noqa: E501 - as the kernel prints it
SNMP = """Ip: Forwarding DefaultTTL InHdrErrors InDiscards OutDiscards ReasmFails
Ip: 1 64 2 3 9 70
Udp: InDatagrams NoPorts InErrors OutDatagrams RcvbufErrors SndbufErrors InCsumErrors
Udp: 900 1 11 800 10 4 1
"""
XFRM = "XfrmInError             \t0\nXfrmInStateSeqError     \t7\nXfrmOutNoStates         \t3\n"
SNMP6 = "Ip6OutDiscards                  \t1\nUdp6InErrors                    \t5\n"
QDISC = json.dumps(
    [
        {"kind": "fq_codel", "dev": "tun0", "root": True, "drops": 100},
        {"kind": "pfifo", "dev": "tun0", "parent": "1:1", "drops": 100},
        {"kind": "noqueue", "dev": "eth0", "root": True, "drops": 0},
    ]
)
ZERO = dict.fromkeys(PLACES, 0)
counts = st.integers(0, 1000)
drops = st.dictionaries(st.sampled_from(PLACES), counts)


def test_counters_are_read_by_interface_and_name() -> None:
    found = parse_counts(DEV + SNMP + SNMP6, QDISC)
    assert found.received_drops == {"lo": 0, "eth0": 6, "tun0": 7}
    assert found.sent_drops == {"lo": 0, "eth0": 15, "tun0": 108}
    assert (found.stack_sent_drops, found.discards, found.send_errors) == (0, 9 + 1, 4)
    # What is left of a fragmented packet is no second loss of it: ReasmFails does not count.
    assert found.stack_received_drops == 2 + 3 + 11 + 5


def test_what_ipsec_dropped_has_a_place() -> None:
    """A replay window that is too small for a reordering line loses packets at the receiver."""
    found = parse_counts(DEV + SNMP + XFRM, QDISC)
    assert found.stack_received_drops == 2 + 3 + 11 + 7
    assert (found.stack_sent_drops, found.discards, found.send_errors) == (3, 9, 4)


@pytest.mark.parametrize(
    ("proc", "qdiscs"),
    [
        ("", ""),
        ("eth0: 1 2 3\n", "no JSON"),
        (DEV.replace("123456789", "many"), "{}"),
        ("Udp: InErrors\nUdp: 5 6\n", '[1, {"root": true, "dev": 7, "drops": "x"}]'),
        ("x" * 100_000, "[" * 100_000),
        ("Udp: 7\n", "[]"),
    ],
)
def test_what_is_not_as_the_kernel_has_it_counts_nothing(proc: str, qdiscs: str) -> None:
    found = parse_counts(proc, qdiscs)
    assert found.sent_drops.get("eth0", 0) == 0
    assert (found.stack_sent_drops, found.stack_received_drops) == (0, 0)


@given(st.text(max_size=200), st.text(max_size=200))
def test_anything_can_be_parsed(proc: str, qdiscs: str) -> None:
    parse_counts(proc, qdiscs)


def test_only_the_interfaces_of_the_path_count_and_only_what_grew() -> None:
    before = HostCounts({"eth0": 5, "tun0": 9}, {"eth0": 1}, 2, 3)
    after = HostCounts({"eth0": 7, "tun0": 0, "tun1": 50}, {"eth0": 1, "tun0": 4}, 2, 8)
    grown = after.since(before, ["eth0", "tun0", "tun0"])
    assert grown == HostCounts({"eth0": 2, "tun0": 0}, {"eth0": 0, "tun0": 4}, 0, 5)


def test_each_way_has_its_sender_its_link_and_its_receiver() -> None:
    sender = HostCounts({"eth0": 99}, {"eth0": 1, "tun0": 2}, 4, 99)
    receiver = HostCounts({"eth0": 8, "tun0": 16}, {"eth0": 99}, 99, 32)
    link = {"queue_dropped": 10, "lost": 20}, {"queue_dropped": 74, "lost": 148}
    assert way_drops(sender, link, receiver) == {
        "sender_socket": 4,
        "sender_queue": 3,
        "link_queue": 64,
        "link_line": 128,
        "receiver": 56,
    }
    assert "link_line" not in way_drops(sender, None, receiver)


def test_what_the_counters_explain_is_theirs_and_the_rest_unknown() -> None:
    found = assign(10, {"link_queue": 6, "link_line": 3})
    assert found.by_place == {**ZERO, "link_queue": 6, "link_line": 3, UNKNOWN: 1}


def test_where_others_lost_too_only_what_is_sure_has_a_place() -> None:
    # 10 of 13 drops were ours: at least 7 of the 10 were in the queue, and none surely elsewhere.
    found = assign(10, {"link_queue": 10, "link_line": 3})
    assert found.by_place == {**ZERO, "link_queue": 7, UNKNOWN: 3}
    # Two fragments each, and just one place drops at all.
    assert assign(5, {"link_queue": 10}).by_place == {**ZERO, "link_queue": 5, UNKNOWN: 0}


@given(counts, drops)
def test_the_sum_is_right_and_no_place_has_more_than_it_dropped(
    lost: int, dropped: dict[str, int]
) -> None:
    found = assign(lost, dropped)
    assert sum(found.by_place.values()) == lost
    assert set(found.by_place) == {*PLACES, UNKNOWN}
    assert all(0 <= found.by_place[place] <= dropped.get(place, 0) for place in PLACES)
    assert found.by_place[UNKNOWN] >= 0


@given(
    st.dictionaries(st.sampled_from(PLACES), counts),
    st.dictionaries(st.sampled_from(PLACES), counts),
)
def test_what_is_given_to_a_place_was_lost_there(
    ours: dict[str, int], others: dict[str, int]
) -> None:
    # Whatever others lost beside it: a place never gets more than really was lost there of ours,
    # as long as the counters saw all of ours.
    seen = {place: ours.get(place, 0) + others.get(place, 0) for place in PLACES}
    found = assign(sum(ours.values()), seen)
    assert all(found.by_place[place] <= ours.get(place, 0) for place in PLACES)


def test_a_negative_loss_is_refused() -> None:
    with pytest.raises(ValueError, match="lost is -1"):
        assign(-1, {})


def test_a_datagram_that_a_full_queue_drops_is_counted_there_alone() -> None:
    """Linux counts it three times: at the queue, as discarded, and as an error of the socket."""
    sender = HostCounts({}, {"ppp0": 100}, discards=100, send_errors=100)
    found = way_drops(sender, None, HostCounts())
    assert (found["sender_queue"], found["sender_socket"]) == (100, 0)
    assert assign(100, found).by_place["sender_queue"] == 100
    # What a socket had no room for is its own.
    alone = way_drops(HostCounts({}, {}, 2, send_errors=7), None, HostCounts())
    assert (alone["sender_queue"], alone["sender_socket"]) == (0, 9)
