"""Loads and searches against theory, and our figures beside those of irtt, ping and iperf3.

Every link here has a queue of hundreds of milliseconds: a sender that a busy machine holds up
catches up within it, so what is measured is the link and not the machine.
"""

import json
import math
import re
import statistics
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tunnelmark.engine.link import Direction, LinkSpec, Loss, Queue
from tunnelmark.hosts.ledger import Ledger
from tunnelmark.lab.lab import Lab
from tunnelmark.links.registry import link_kinds
from tunnelmark.model.host import Host
from tunnelmark.model.topology import SERVER_IPV4, Topology
from tunnelmark.tunnels.none import NoneTunnel
from tunnelmark.workloads.base import Outcome, TrialContext
from tunnelmark.workloads.rate_search import RateSearch, RateSearchParams
from tunnelmark.workloads.udp_echo import UdpEcho, UdpEchoParams
from tunnelmark.workloads.udp_load import UdpLoad, UdpLoadParams

pytestmark = [pytest.mark.lab, pytest.mark.timing]

IPERF3_PORT = 5301
IRTT_PORT = 2112
QUEUE = Queue("bytes", 1 << 20)
# Frames of RFC 2544 on 10 Mbit/s: 10^7 / (8 * (frame + preamble 8 + gap 12)) a second.
FRAMES = {64: 14880, 512: 2349, 1280: 961, 1518: 812}


class Bench:
    """A link without a tunnel, and what runs over it."""

    def __init__(self, lab: Lab, context: TrialContext) -> None:
        self.lab = lab
        self.context = context

    def run(self, workload: UdpEcho | UdpLoad | RateSearch) -> dict[str, Any]:
        """Run a workload; its figures. How exactly packets left is not judged (see above)."""
        outcome = workload.run(self.context)
        bad = [c.message for c in outcome.checks if not c.ok and "lateness" not in c.name]
        assert bad == []
        return total(outcome)

    def delivered(self, way: str) -> int:
        """Frames that the link has forwarded so far."""
        counters = self.lab.counters()
        assert counters is not None
        return int(getattr(counters, way)["delivered"])


def total(outcome: Outcome) -> dict[str, Any]:
    (measurement,) = [m for m in outcome.measurements if m.path == "total"]
    return dict(measurement.metrics)


@pytest.fixture
def bench(tmp_path: Path, ledger: Ledger, engine: str) -> Callable[..., Any]:
    @contextmanager
    def make(link: LinkSpec) -> Iterator[Bench]:
        with Lab(ledger, Topology(), link, engine=engine, logs=tmp_path / "logs") as lab:
            tunnel = NoneTunnel(NoneTunnel.params_type())
            up = tunnel.up(lab.site)
            context = TrialContext(
                client=lab.client_host,
                server=lab.server_host,
                paths=up.paths,
                engine=engine,
                seed=5,
                samples_dir=None,
                sample_stem="cross",
                progress=lambda _progress: None,
                cancelled=lambda: False,
                link=link,
                # Within the queue of the link a packet is on time.
                lateness_floor_ns=50_000_000,
            )
            yield Bench(lab, context)

    return make


def ethernet_10() -> LinkSpec:
    kind = link_kinds()["ethernet"]
    params = kind.params_type.model_validate({"rate": "10 Mbit/s", "queue": "1 MiB"})
    spec = kind(params).spec(1)
    assert isinstance(spec, LinkSpec)
    return spec


def serial(
    rate_bit_s: int, *, delay_ns: int = 0, loss: tuple[float, float] = (0, 0), queue: Queue = QUEUE
) -> LinkSpec:
    forward, reverse = (
        Direction(
            rate_bit_s,
            delay_ns,
            queue,
            loss=Loss("independent", probability=share) if share else Loss(),
        )
        for share in loss
    )
    return LinkSpec(forward, reverse, seed=3)


def _carries(bench: Bench, frame_bytes: int) -> None:
    # A tenth more than the line carries: its queue never runs empty and never runs over.
    packet_rate = 1.1 * FRAMES[frame_bytes]
    values = {"frame_bytes": frame_bytes, "packet_rate": packet_rate, "duration": "3 s"}
    before = bench.delivered("forward")
    figures = bench.run(UdpLoad(UdpLoadParams.model_validate(values)))
    assert figures["loss_forward_ratio"] == 0
    assert figures["received_forward_packet_s"] == pytest.approx(FRAMES[frame_bytes], rel=0.01)
    # The link's own count says the same: every frame that was sent, and no other but the few
    # that a kernel sends by itself.
    sent = math.ceil(packet_rate * 3)
    assert 0 <= bench.delivered("forward") - before - sent <= 10


@pytest.mark.parametrize("frame_bytes", list(FRAMES))
def test_udp_load_fills_10_mbit_s_ethernet(bench: Callable[..., Any], frame_bytes: int) -> None:
    with bench(ethernet_10()) as made:
        _carries(made, frame_bytes)


def test_frames_of_64_byte_by_iperf3(bench: Callable[..., Any]) -> None:
    # A frame of 64 bytes has room for 18: beside our own count, that of another sender.
    with bench(ethernet_10()) as made, _serving(made.context.server, IPERF3_PORT):
        before = made.delivered("forward")
        report = _iperf3(made.context.client, rate_bit_s=int(1.1 * 14880 * 18 * 8), length=18)
        _drained(made)
        carried = made.delivered("forward") - before
        received = report["end"]["sum_received"]
        assert received["packets"] / received["seconds"] == pytest.approx(14880, rel=0.03)
        assert carried >= received["packets"]


def test_rate_search_finds_what_the_line_carries(bench: Callable[..., Any]) -> None:
    with bench(serial(8_000_000, queue=Queue("bytes", 65536))) as made:
        params = {
            "payload_bytes": 1000,
            "trial": "2 s",
            "drain": "200 ms",
            "method": "mlrsearch",
            "width": "2 %",
            "lowest": "50 %",
        }
        figures = made.run(RateSearch(RateSearchParams.model_validate(params)))
        theory = 8e6 / 8 / 1028
        # A queue of 64 KiB is 64 of 1946 packets: so much above the line's rate nothing is lost.
        assert figures["throughput_lower_packet_s"] <= theory * 1.001
        assert theory <= figures["throughput_upper_packet_s"] <= theory * 1.08
        assert figures["throughput_lower_packet_s"] >= theory * 0.94
        assert 4 <= figures["search_trials"] <= 80


def test_echo_beside_irtt_and_ping(bench: Callable[..., Any]) -> None:
    link = serial(8_000_000, delay_ns=20_500_000, loss=(0.05, 0.02))
    count, seconds = 600, 3
    with bench(link) as made:
        context: TrialContext = made.context
        ours = made.run(
            UdpEcho(
                UdpEchoParams.model_validate(
                    {"gap": "5 ms", "packets": count, "payload_bytes": 200}
                )
            )
        )
        with _daemon(
            context.server,
            ["irtt", "server", "-i", "1ms", "-b", f"{SERVER_IPV4}:{IRTT_PORT}"],
            "listener",
        ):
            words = ["irtt", "client", "-Q", "-i", "5ms", "-d", f"{seconds}s", "-l", "200"]
            words += ["-o", str(context.client.work_dir / "irtt.json")]
            context.client.run([*words, f"{SERVER_IPV4}:{IRTT_PORT}"], timeout_s=60)
            irtt = json.loads(context.client.get(context.client.work_dir / "irtt.json"))["stats"]
        echo = context.client.run(
            ["ping", "-n", "-i", "0.02", "-c", "120", "-s", "200", SERVER_IPV4],
            timeout_s=60,
            check=False,
        ).text()
        # In the same order: serialization of a packet of 228 bytes each way, and 41 ms.
        theory_ns = 41e6 + 2 * 228 * 8 / 8e6 * 1e9
        pinged_ns = (
            statistics.median(float(ms) for ms in re.findall(r"time=([\d.]+) ms", echo)) * 1e6
        )
        for rtt_ns in (ours["rtt_p50_ns"], irtt["rtt"]["median"], pinged_ns):
            # 2 %, 0.8 ms, for three programs that a busy machine may wake late.
            assert rtt_ns == pytest.approx(theory_ns, rel=0.02)
        assert ours["rtt_p50_ns"] == pytest.approx(irtt["rtt"]["median"], rel=0.02)
        # Four standard errors of 600 packets: 0.036 forward, 0.023 back; both programs have them.
        for ratio, percent, share in (
            (ours["loss_forward_ratio"], irtt["upstream_loss_percent"], 0.05),
            (ours["loss_reverse_ratio"], irtt["downstream_loss_percent"], 0.02),
        ):
            bound = 4 * (share * (1 - share) / count) ** 0.5
            assert ratio == pytest.approx(share, abs=bound)
            assert percent / 100 == pytest.approx(share, abs=bound)


def test_udp_load_beside_iperf3(bench: Callable[..., Any]) -> None:
    # Both offer 9.6 Mbit/s of IP to a line of 8: what arrives is what the line carries.
    with bench(serial(8_000_000)) as made, _serving(made.context.server, IPERF3_PORT):
        ours = made.run(
            UdpLoad(
                UdpLoadParams.model_validate(
                    {"payload_bytes": 1000, "packet_rate": 1167, "duration": "3 s"}
                )
            )
        )
        report = _iperf3(made.context.client, rate_bit_s=1167 * 8000, length=1000)
        theirs = report["end"]["sum_received"]["bits_per_second"]
        theory = 8e6 * 1000 / 1028
        assert ours["goodput_bit_s"] == pytest.approx(theory, rel=0.01)
        # iperf3 counts from its own start to its own end, the queue's filling and all.
        assert theirs == pytest.approx(ours["goodput_bit_s"], rel=0.1)


def _drained(bench: Bench) -> None:
    """Wait until the link hands on no more frames."""
    before = -1
    while (now := bench.delivered("forward")) != before:
        before = now
        bench.context.client.run(["sleep", "0.3"])


def _iperf3(client: Host, *, rate_bit_s: int, length: int) -> dict[str, Any]:
    words = ["iperf3", "-c", SERVER_IPV4, "-p", str(IPERF3_PORT), "-u", "-J", "-t", "3"]
    done = client.run([*words, "-b", str(rate_bit_s), "-l", str(length)], timeout_s=60)
    report: dict[str, Any] = json.loads(done.stdout)
    return report


@contextmanager
def _serving(server: Host, port: int) -> Iterator[None]:
    words = ["iperf3", "-s", "-B", SERVER_IPV4, "-p", str(port), "--forceflush"]
    with _daemon(server, words, "listening"):
        yield


@contextmanager
def _daemon(host: Host, words: list[str], ready: str) -> Iterator[None]:
    process = host.spawn(words, name=words[0], lines=True)
    try:
        while ready not in (line := process.read_line(20) or "the end").lower():
            assert line != "the end", process.log_tail()
        yield
    finally:
        process.stop()
