"""Bulk data over TCP: theory without a tunnel, and what compression makes of zeros."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tunnelmark.engine.link import LinkSpec
from tunnelmark.hosts.ledger import Ledger
from tunnelmark.lab.emulators import LinkCounters
from tunnelmark.lab.lab import Lab
from tunnelmark.links.registry import link_kinds
from tunnelmark.model.topology import Topology
from tunnelmark.tunnels.base import Tunnel
from tunnelmark.tunnels.none import NoneTunnel
from tunnelmark.tunnels.openvpn import OpenVpnTunnel
from tunnelmark.workloads.base import TrialContext
from tunnelmark.workloads.tcp_bulk import TcpBulk

pytestmark = [pytest.mark.lab, pytest.mark.timing]

# A full frame carries 1500 - 20 - 32 bytes (TCP timestamps, RFC 7323) and costs 1538 on the line.
SHARE = 1448 / 1538


@dataclass(frozen=True)
class Seen:
    """A transfer: what the program reported, and what the link forwarded."""

    goodput_bit_s: float
    payload_bytes: int
    wire_bit_s: float
    """IP packets towards the server."""
    wire_bytes: int
    """Both ways."""


Transfer = Callable[..., Seen]


@pytest.fixture
def transfer(tmp_path: Path, ledger: Ledger, engine: str) -> Transfer:
    def run(tunnel: Tunnel, link: LinkSpec, **params: object) -> Seen:
        with _lab(ledger, tunnel, link, engine, tmp_path) as (lab, context):
            workload = TcpBulk(TcpBulk.params_type.model_validate(params))
            assert workload.unavailable(lab.client_host) is None
            before = _counters(lab)
            outcome = workload.run(context)
            after = _counters(lab)
            assert [check.message for check in outcome.checks if not check.ok] == []
            (total,) = [m for m in outcome.measurements if m.path == "total"]
            goodput = total.metrics["tcp_goodput_bit_s"]
            assert goodput is not None
            forward, reverse = (_octets(before, after, way) for way in ("forward", "reverse"))
            return Seen(
                goodput,
                outcome.payload_bytes,
                forward * 8 / outcome.measuring_s,
                forward + reverse,
            )

    return run


@contextmanager
def _lab(
    ledger: Ledger, tunnel: Tunnel, link: LinkSpec, engine: str, folder: Path
) -> Iterator[tuple[Lab, TrialContext]]:
    with Lab(ledger, Topology(), link, engine=engine, logs=folder / "logs") as lab:
        assert tunnel.unavailable(lab.client_host) is None
        try:
            up = tunnel.up(lab.site)
            yield (
                lab,
                TrialContext(
                    client=lab.client_host,
                    server=lab.server_host,
                    paths=up.paths,
                    engine=engine,
                    seed=5,
                    samples_dir=None,
                    sample_stem="shown",
                    progress=lambda _progress: None,
                    cancelled=lambda: False,
                    link=link,
                ),
            )
        finally:
            tunnel.down()


def _counters(lab: Lab) -> LinkCounters:
    counters = lab.counters()
    assert counters is not None
    return counters


def _octets(before: LinkCounters, after: LinkCounters, way: str) -> int:
    then: Any = getattr(before, way)
    now: Any = getattr(after, way)
    frames = int(now["delivered"]) - int(then["delivered"])
    return int(now["delivered_bytes"]) - int(then["delivered_bytes"]) - before.header_bytes * frames


def link(kind: str, **params: object) -> LinkSpec:
    made = link_kinds()[kind]
    spec = made(made.params_type.model_validate(params)).spec(1)
    assert isinstance(spec, LinkSpec)
    return spec


def none() -> Tunnel:
    return NoneTunnel(NoneTunnel.params_type())


def openvpn(**params: object) -> Tunnel:
    return OpenVpnTunnel(OpenVpnTunnel.params_type.model_validate(params))


@pytest.mark.parametrize("rate", ["10 Mbit/s", "100 Mbit/s"])
def test_a_bulk_transfer_is_within_1_percent_of_theory(transfer: Transfer, rate: str) -> None:
    number, _ = rate.split()
    preset = dict(link_kinds()["ethernet"].presets[f"ethernet-{number}"])
    # A queue of 0.2 s: what a busy computer holds up in between is made up for from it.
    preset["queue"] = f"{25 * int(number)} kB"
    spec = link("ethernet", **preset)
    # BBR would leave it empty.
    seen = transfer(none(), spec, duration="10 s", congestion="reno")
    assert seen.goodput_bit_s == pytest.approx(int(number) * 1e6 * SHARE, rel=0.01)


def test_zeros_through_lzo_are_faster_than_the_line_and_random_data_is_not(
    transfer: Transfer,
) -> None:
    line_bit_s, seconds = 2e6, 3
    spec = link("serial", rate="2 Mbit/s", queue="64 KiB")
    zeros = transfer(openvpn(compression="lzo"), spec, duration=f"{seconds} s", content="zero")
    assert zeros.goodput_bit_s > 3 * line_bit_s
    # What the queue held when the last byte was sent comes after it.
    assert zeros.wire_bit_s < line_bit_s + 64 * 1024 * 8 / seconds
    assert zeros.payload_bytes / zeros.wire_bytes > 3
    random = transfer(openvpn(compression="lzo"), spec, duration=f"{seconds} s", content="random")
    assert random.goodput_bit_s < line_bit_s
    assert random.payload_bytes < random.wire_bytes
    plain = transfer(openvpn(), spec, duration=f"{seconds} s", content="zero")
    assert plain.goodput_bit_s < line_bit_s
    assert plain.payload_bytes < plain.wire_bytes
