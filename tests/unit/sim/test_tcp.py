"""Bulk transfers in virtual time: what the simulator is asked for, and what its answer becomes."""

from dataclasses import replace
from typing import Any

import pytest

from tunnelmark.engine.link import Direction, LinkSpec, Queue
from tunnelmark.model.registry import make
from tunnelmark.model.trial import DriverSpec
from tunnelmark.sim.carriage import WINDOW_BYTES, Carriage, carriage
from tunnelmark.sim.simulate import Connection, ConnectionSecond, Simulated
from tunnelmark.sim.tcp import bulk_config, bulk_ends, segment_bytes
from tunnelmark.tunnels.registry import tunnel_kinds
from tunnelmark.workloads.bulk import BulkFlow

WAY = Direction(8_000_000, 10_000_000, Queue("packets", 50))
LINK = LinkSpec(WAY, WAY, 1)


def carried(kind: str, **params: Any) -> Carriage:
    tunnel = make(tunnel_kinds(), DriverSpec(kind, kind, params))
    return carriage(tunnel, LINK, 1500)


def flow(of: Carriage, **changes: Any) -> BulkFlow:
    plain = BulkFlow(of.paths[0], "forward", 1, 2, None, None)
    return replace(plain, **changes)


def second(octets: int, rtt_ns: int | None = 1_000_000) -> ConnectionSecond:
    return ConnectionSecond(octets + 10, octets, 1, rtt_ns, 14_480)


@pytest.mark.parametrize(
    ("kind", "params", "expected"),
    [
        # RFC 6691 and 12 bytes of timestamps: 1500 - 40 - 12; WireGuard has an MTU of 1420.
        ("none", {}, 1448),
        ("wireguard", {}, 1368),
        ("wireguard", {"inner": "ipv6"}, 1348),
        ("none", {"mss_clamp": 1000}, 988),
        ("none", {"mss_clamp": 1461}, 1448),
    ],
)
def test_segments_are_what_the_mtu_leaves(kind: str, params: dict[str, Any], expected: int) -> None:
    of = carried(kind, **params)
    assert segment_bytes(of, of.paths[0].mtu_bytes) == expected


def test_a_path_knows_all_packets_of_a_connection_and_none_is_cut() -> None:
    of = carried("none")
    reported: Any = bulk_config([flow(of)], of, seed=7, files_dir="/nowhere")
    (path,) = reported["paths"]
    assert [one["packets"] for one in path["sizes"]] == [
        [{"bytes": length, "on_link": [length]}] for length in (52, 60, 64, 72, 80, 1500)
    ]
    assert reported["tcp"] == [
        {
            "way": "forward",
            "path": 0,
            "segment_bytes": 1448,
            "window_bytes": WINDOW_BYTES,
            "congestion": "cubic",
            "seconds": 2,
        }
    ]


def test_each_stream_is_a_connection_with_what_the_study_asks_for() -> None:
    of = carried("wireguard", count=2)
    flows = [
        flow(of, streams=2, congestion="reno", window_bytes=65536),
        flow(of, path=of.paths[1], direction="reverse"),
    ]
    reported: Any = bulk_config(flows, of, seed=7, files_dir="/nowhere")
    found = [(one["way"], one["path"], one["congestion"]) for one in reported["tcp"]]
    assert found == [("forward", 0, "reno")] * 2 + [("reverse", 1, "cubic")]
    assert reported["tcp"][0]["window_bytes"] == 65536


def test_streams_of_a_flow_are_reported_together_as_iperf3_tells_them() -> None:
    of = carried("none")
    flows = [flow(of, direction="reverse"), flow(of, streams=2)]
    connections = (
        Connection("forward", 0, (second(100), second(300))),
        Connection("forward", 1, (second(10, 3_000_000), second(30, None))),
        Connection("reverse", 0, (second(5), second(7))),
    )
    found = Simulated({}, {}, (), 1, connections)
    back, there = bulk_ends(flows, of, found)
    assert [one.payload_bytes for one in back.receiver.seconds] == [5, 7]
    assert [one.payload_bytes for one in there.receiver.seconds] == [110, 330]
    assert [one.payload_bytes for one in there.sender.seconds] == [130, 350]
    assert [one.rtt_ns for one in there.sender.seconds] == [2e6, 1e6]
    assert [one.cwnd_bytes for one in there.sender.seconds] == [28_960] * 2
    assert (there.sender.retransmits, there.receiver.retransmits) == (4, None)
    assert (there.receiver.received_bytes, there.receiver.received_s) == (440, 2.0)
    assert (there.sender.mss_bytes, there.sender.congestion) == (1448, "cubic")
    assert there.sender.error is None


def test_a_connection_that_was_not_opened_is_an_error_and_no_zero() -> None:
    of = carried("none")
    found = Simulated({}, {}, (), 1, (Connection("forward", 0, ()),))
    (ends,) = bulk_ends([flow(of)], of, found)
    assert ends.sender.error == "a connection forward on path 0 was not opened"
    assert (ends.receiver.received_bytes, ends.sender.retransmits) == (None, None)


def test_connections_that_were_ended_have_whole_seconds_and_one_rest() -> None:
    of = carried("none")
    # One was opened a moment before a second was over, and has begun a second more than the other.
    early = Connection("forward", 0, (second(1000), second(2000), second(20)), rest_ns=10**7)
    late = Connection("forward", 0, (second(1000), second(1900)), rest_ns=995 * 10**6)
    never = Connection("forward", 0, (), rest_ns=None)
    found = Simulated({}, {}, (), 1, tcp=(early, late), stopped=True)
    (ends,) = bulk_ends([flow(of, streams=2, seconds=9)], of, found)
    assert ends.sender.error is None
    assert [one.seconds for one in ends.receiver.seconds] == [1.0, pytest.approx(1.01)]
    assert [one.payload_bytes for one in ends.receiver.seconds] == [2000, 3920]
    assert ends.receiver.received_s == pytest.approx(2.01)
    assert ends.sender.retransmits == 5
    # Of a load that was ended before all were open the others count.
    some = Simulated({}, {}, (), 1, tcp=(late, never), stopped=True)
    (ends,) = bulk_ends([flow(of, streams=2, seconds=9)], of, some)
    assert ends.receiver.received_bytes == 2900
    # Nor is it a failure that one was begun at the very end, and nothing came of it.
    none = Simulated({}, {}, (), 1, tcp=(never, never), stopped=True)
    (ends,) = bulk_ends([flow(of, streams=2, seconds=9)], of, none)
    assert ends.sender.error is None
    assert (ends.receiver.received_bytes, ends.receiver.received_s) == (0, 0.0)
    (ends,) = bulk_ends([flow(of, streams=2, seconds=9)], of, replace(none, stopped=False))
    assert "was not opened" in (ends.sender.error or "")
