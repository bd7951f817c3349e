"""Handshakes over a known link: no faster than their round trips, counted as by tcpdump."""

import json
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from types import SimpleNamespace
from typing import Any

import polars as pl
import pytest

from small_study import LOOSE_VALIDITY
from tunnelmark.engine.link import Direction, LinkSpec, Loss, Queue
from tunnelmark.hosts.ledger import Ledger
from tunnelmark.lab.lab import Lab
from tunnelmark.lab.session import set_ups
from tunnelmark.lab.session.quiet import wait_until_quiet
from tunnelmark.lab.session.set_ups import SetUps
from tunnelmark.lab.session.stand import Side, Stand
from tunnelmark.model.rules import Limits, Probes
from tunnelmark.model.set_up import Sent
from tunnelmark.model.topology import Topology
from tunnelmark.model.trial import DriverSpec
from tunnelmark.probes.capture import Capture, WirePacket
from tunnelmark.tunnels.registry import tunnel_kinds

pytestmark = pytest.mark.lab

_DELAY_NS = 20_000_000
_QUIET_S = 1.2
_ROUND_TRIP_NS = 2 * _DELAY_NS
_DATA_OPCODES = (6, 9)
"""Of OpenVPN's data packets, P_DATA_V1 and P_DATA_V2, in the upper five bits."""
_DATA_TYPE = 4
"""Of WireGuard's transport data message."""


def _openvpn(packet: WirePacket, _counted_ns: int) -> bool:
    return packet.payload[0] >> 3 not in _DATA_OPCODES


def _wireguard(packet: WirePacket, _counted_ns: int) -> bool:
    return packet.payload[0] != _DATA_TYPE


def _before_the_count(packet: WirePacket, counted_ns: int) -> bool:
    # Of a stream that is encrypted from the start only the time tells.
    return packet.time_ns <= counted_ns


# The round trips that no implementation can do without, with that of the first packet at the end:
# OpenVPN's reset, TLS 1.3 (RFC 8446 section 2), its own keys; WireGuard's two messages; TCP, the
# key exchange, service, public key and channel of SSH (RFC 4253, 4252 and 4254).
CASES: list[tuple[str, dict[str, object], int, Callable[[WirePacket, int], bool]]] = [
    ("openvpn", {}, 4, _openvpn),
    ("wireguard", {"implementation": "wireguard-go"}, 2, _wireguard),
    ("ssh_tun", {"key_exchange": "curve25519-sha256"}, 6, _before_the_count),
]


def link(loss: float = 0.0) -> LinkSpec:
    direction = Direction(
        rate_bit_s=100_000_000,
        delay_ns=_DELAY_NS,
        queue=Queue("bytes", 1 << 20),
        loss=Loss("independent", probability=loss) if loss else Loss(),
    )
    return LinkSpec(direction, direction, seed=1)


@pytest.fixture
def ups(ledger: Ledger, engine: str) -> Iterator[Callable[..., SetUps]]:
    with ExitStack() as stack:

        def make(kind: str, params: dict[str, object], loss: float = 0.0) -> SetUps:
            spec = DriverSpec(kind, kind, params)
            driver = tunnel_kinds()[kind]
            tunnel = driver(driver.params_type.model_validate(params))
            lab = stack.enter_context(Lab(ledger, Topology(), link(loss), engine=engine))
            if reason := tunnel.unavailable(lab.client_host):
                pytest.skip(reason)
            # The kernels report their IPv6 groups for a second or two (RFC 3810 section 9.11).
            wait_until_quiet(lab, look_s=_QUIET_S)
            side = Side(SimpleNamespace(paths=()), (), ())  # type: ignore[arg-type]
            stand = Stand(lab, tunnel, side, side, Limits(), Probes(), None, None)
            made = SetUps(stand, spec)
            stack.callback(made.down)
            return made

        yield make


def _beside(kind: str) -> pytest.MarkDecorator:
    """Bounds are lower ones, and counts; but of SSH the time says which packets count."""
    return pytest.mark.timing if kind == "ssh_tun" else pytest.mark.paced


@pytest.mark.parametrize(
    "case",
    [pytest.param(case, marks=_beside(case[0]), id=case[0]) for case in CASES],
)
def test_a_handshake_takes_its_round_trips_and_is_counted_as_tcpdump_does(
    ups: Callable[..., SetUps],
    monkeypatch: pytest.MonkeyPatch,
    case: tuple[str, dict[str, object], int, Callable[[WirePacket, int], bool]],
) -> None:
    kind, params, round_trips, is_handshake = case
    counted_ns: list[int] = []
    count = set_ups._Watch.count

    def noting(watch: Any) -> None:
        count(watch)
        counted_ns.append(time.time_ns())

    monkeypatch.setattr(set_ups._Watch, "count", noting)
    made = ups(kind, params)
    lab = made.stand.lab
    # What an end sends is seen there, before the link.
    ends = {lab.client.ipv4: lab.client_host, lab.server.ipv4: lab.server_host}
    with ExitStack() as stack:
        captures = {
            address: stack.enter_context(Capture(host, "eth0", name=f"handshake-{host.name}"))
            for address, host in ends.items()
        }
        done = made.again(20.0)
        time.sleep(0.2)
        captured = {address: capture.stop() for address, capture in captures.items()}
    assert done.took_ns is not None, done.reason
    assert done.took_ns >= round_trips * _ROUND_TRIP_NS
    assert not any(one.dropped for one in captured.values())
    for address, sent in zip(ends, (done.forward, done.reverse), strict=True):
        seen = [
            packet.ip_bytes
            for packet in captured[address].frames
            if isinstance(packet, WirePacket)
            and packet.source == address
            and is_handshake(packet, counted_ns[0])
        ]
        assert seen
        assert sent == Sent(len(seen), sum(seen))
    # Another one is a whole handshake again, with as many packets where none can be delayed.
    again = made.again(20.0)
    assert again.took_ns is not None, again.reason
    assert again.took_ns >= round_trips * _ROUND_TRIP_NS
    if kind == "wireguard":
        # Initiation and response, whitepaper sections 5.4.2 and 5.4.3, in UDP and IPv4.
        assert (again.forward, again.reverse) == (Sent(1, 148 + 28), Sent(1, 92 + 28))


@pytest.mark.paced
@pytest.mark.parametrize("kind", ["openvpn", "wireguard", "ssh_tun"])
def test_where_all_is_lost_each_set_up_fails_and_says_so(
    ups: Callable[..., SetUps], kind: str
) -> None:
    made = ups(kind, {}, loss=1.0)
    done = made.again(1.0)
    assert done.took_ns is None
    assert done.reason
    assert done.forward is not None
    assert done.forward.packets >= 1
    # Nothing of the client's came to the server.
    assert done.reverse == Sent(0, 0)
    assert made.lost is not None


_STUDY = f"""
format = 1
name = "handshakes"
title = "Handshakes"
seed = 7

[precision]
metric = "setup_p50_ns"
metrics = {{ udp_echo = "rtt_p50_ns" }}
relative_half_width = "50 %"
min_repeats = 1
max_repeats = 1
bring_ups = 1
max_invalid = 5

{LOOSE_VALIDITY}
[[tunnel]]
kind = "openvpn"

[[link]]
kind = "serial"
rate = "20 Mbit/s"
delay = "10 ms"

[[workload]]
kind = "handshake"
set_ups = 3

[[workload]]
kind = "udp_echo"
payload_bytes = 200
gap = "10 ms"
packets = 20
"""


@pytest.mark.paced
def test_a_study_has_its_figures_and_the_tunnel_is_up_behind_them(
    study: Callable[[str], Any],
) -> None:
    one = study(_STUDY)
    one.run()
    trials = one.trials().filter(pl.col("path") == "total")
    assert trials["valid"].all(), trials["details"].to_list()
    own = trials.filter(pl.col("workload").str.starts_with("handshake"))
    (bare,) = own.filter(pl.col("tunnel") == "none").iter_rows(named=True)
    (row,) = own.filter(pl.col("tunnel") != "none").iter_rows(named=True)
    assert row["setup_p50_ns"] >= 4 * 20_000_000
    assert 20_000_000 <= bare["setup_p50_ns"] < row["setup_p50_ns"]
    assert row["setup_failed_ratio"] == bare["setup_failed_ratio"] == 0
    # Certificates go both ways in TLS.
    assert row["handshake_bytes_forward"] > 1000
    assert row["handshake_bytes_reverse"] > 1000
    assert bare["handshake_bytes_forward"] == bare["handshake_packets_reverse"] == 0
    assert row["cpu_tunnel_ratio"] is None
    assert row["cpu_lab_ratio"] is None
    assert len(json.loads(row["details"])["set_ups"]) == 3
    echoes = trials.filter(pl.col("workload").str.starts_with("udp_echo"))
    assert echoes["loss_forward_ratio"].to_list() == [0, 0]
    assert one.leftovers() == []
