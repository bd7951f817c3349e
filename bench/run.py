"""Benchmarks of the engine beside iperf3, irtt and ping, in one run on one machine.

Every figure is a median of alternating repeats; targets are ratios of figures of the same run.
Writes ``bench/results.md``. Usage: ``python bench/run.py [--repeats N] [--seconds S]``.
"""

import argparse
import os
import platform
import statistics
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from ours import echo, relay_run, version
from pair import Pair, pair
from peers import PeerRun, iperf3_udp, irtt, ping_rtt_p50_us

from tunnelmark.engine.binary import find_engine

RESULTS = Path(__file__).parent / "results.md"
LOSS_FREE = 0.0005
"""A run with at most this loss counts as loss-free: a single interrupt of a shared machine."""


@dataclass(frozen=True)
class Line:
    """One benchmark."""

    name: str
    ours: str
    peer: str
    target: str
    met: bool | None
    """None: there is no target, or no peer on this machine."""


def main() -> None:
    """Run all benchmarks and write the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=2.0)
    options = parser.parse_args()
    if os.geteuid() != 0:
        sys.exit("bench: needs root: network namespaces are made")
    engine = find_engine()
    lines: list[Line] = []
    with pair(engine) as made:
        lines += one_way(made, options.repeats, options.seconds)
        lines += echo_rate(made, options.repeats, options.seconds)
        lines += pacing(made, options.seconds)
        lines += floor(made, options.repeats)
    with pair(engine, emulated=True) as made:
        lines += link_rate(made, options.seconds)
        lines += link_delay(made, options.seconds)
    write(lines, engine, options.repeats)
    for line in lines:
        mark = {True: "met", False: "MISSED", None: ""}[line.met]
        print(f"{line.name}: {line.ours}; {line.peer}; {line.target} {mark}")


def search(run: Callable[[float], tuple[float, float]], low: float, high: float) -> float:
    """Return the highest rate received without loss; ``run`` gives (loss ratio, rate received)."""
    best = 0.0
    for _ in range(6):
        rate = (low * high) ** 0.5
        loss, received = run(rate)
        # A sender that cannot reach the rate it was asked for has found its limit.
        if loss <= LOSS_FREE and received >= 0.97 * rate:
            best, low = max(best, received), rate
        else:
            best = max(best, received if loss <= LOSS_FREE else 0.0)
            high = rate
    return best


def one_way(made: Pair, repeats: int, seconds: float) -> list[Line]:
    """64-byte payload, one flow, one way: the highest rate received without loss."""

    def engine(rate: float) -> tuple[float, float]:
        run = echo(made, gap_ns=int(1e9 / rate), duration_s=seconds, one_way=True, realtime=False)
        return 1 - run.received / run.sent, run.received_packet_s

    def iperf3(rate: float) -> tuple[float, float]:
        run = iperf3_udp(made, packet_s=rate, duration_s=seconds)
        return run.loss_ratio, run.received_packet_s

    ours, theirs = [], []
    for _ in range(repeats):
        ours.append(search(engine, 100e3, 1e6))
        theirs.append(search(iperf3, 20e3, 400e3))
    return [_ratio("one way, 64 byte, loss-free", ours, theirs, "iperf3", 4.0, "packet/s")]


def echo_rate(made: Pair, repeats: int, seconds: float) -> list[Line]:
    """64-byte payload, there and back: the highest rate without loss, and CPU per packet."""
    costs: dict[str, list[float]] = {"engine": [], "irtt": []}

    def engine(rate: float) -> tuple[float, float]:
        run = echo(made, gap_ns=int(1e9 / rate), duration_s=seconds, realtime=False)
        costs["engine"].append(run.cpu_s / run.sent * 1e6)
        return 1 - run.returned / run.sent, run.sent_packet_s

    def peer(rate: float) -> tuple[float, float]:
        run = irtt(made, gap_us=1e6 / rate, duration_s=seconds)
        costs["irtt"].append(run.cpu_s / max(run.sent, 1) * 1e6)
        return run.loss_ratio, run.received / seconds

    ours, theirs = [], []
    for _ in range(repeats):
        ours.append(search(engine, 50e3, 800e3))
        theirs.append(search(peer, 5e3, 200e3))
    own, other = statistics.median(costs["engine"]), statistics.median(costs["irtt"])
    cpu = Line(
        "CPU per packet, echo, both ends",
        f"{own:.2f} µs",
        f"irtt {other:.2f} µs",
        "below irtt",
        own < other,
    )
    return [
        _ratio("echo, 64 byte, loss-free", ours, theirs, "irtt (busy timer)", 4.0, "packet/s"),
        cpu,
    ]


def pacing(made: Pair, seconds: float) -> list[Line]:
    """Sent minus scheduled, at two gaps."""
    lines = []
    for gap_us in (1000, 100):
        run = echo(made, gap_ns=gap_us * 1000, duration_s=seconds * 3, records=True)
        assert run.lateness_us is not None  # noqa: S101 - records were asked for
        p50, p99, most = np.percentile(run.lateness_us, [50, 99, 100])
        drift = float(np.median(run.lateness_us[-100:]) - np.median(run.lateness_us[:100]))
        peer: PeerRun = irtt(made, gap_us=gap_us, duration_s=seconds)
        lines.append(
            Line(
                f"pacing error at a gap of {gap_us} µs, p50 / p99 / max",
                f"{p50:.1f} / {p99:.1f} / {most:.1f} µs, drift {drift:+.1f} µs",
                f"irtt p50 {peer.timer_p50_us:.1f}, max {peer.timer_max_us:.1f} µs",
                "p50 at most 10 µs, p99 at most 50 µs",
                bool(p50 <= 10 and p99 <= 50),  # noqa: PLR2004 - the targets
            )
        )
    return lines


def floor(made: Pair, repeats: int) -> list[Line]:
    """Median RTT on a veth pair."""
    ours, theirs, pings = [], [], []
    for _ in range(repeats):
        run = echo(made, gap_ns=1_000_000, duration_s=1.0)
        ours.append(run.rtt_p50_us or float("nan"))
        peer = irtt(made, gap_us=1000, duration_s=1.0)
        theirs.append(peer.rtt_p50_us or float("nan"))
        pings.append(ping_rtt_p50_us(made, count=500))
    own, other, ping = map(statistics.median, (ours, theirs, pings))
    return [
        Line(
            "RTT floor, median",
            f"{own:.1f} µs",
            f"irtt {other:.1f} µs, ping {ping:.1f} µs",
            "at most irtt's, within 15 µs of ping's",
            bool(own <= other and own - ping <= 15),  # noqa: PLR2004 - the target
        )
    ]


def link_rate(made: Pair, seconds: float) -> list[Line]:
    """Frames per second through the emulator with no rate set, 64 and 1472 byte of payload."""
    lines = []
    spec = _direction(None, 0)
    for payload, target, scale, unit in ((64, 400e3, 1.0, "packet/s"), (1472, 4e9, 12e3, "bit/s")):
        found = []

        def run(rate: float, payload: int = payload) -> tuple[float, float]:
            result = {}

            def load() -> None:
                result["run"] = echo(
                    made,
                    gap_ns=int(1e9 / rate),
                    duration_s=seconds,
                    payload_bytes=payload,
                    one_way=True,
                    realtime=False,
                )

            relay_run(made, spec, load)
            one = result["run"]
            return 1 - one.received / one.sent, one.received_packet_s

        found = [search(run, 20e3, 900e3) * scale for _ in range(3)]
        best = statistics.median(found)
        lines.append(
            Line(
                f"link emulator, {payload} byte payload, loss-free",
                f"{best:,.0f} {unit}",
                "the sender and receiver above share its two cores",
                f"at least {target:,.0f} {unit}",
                best >= target,
            )
        )
    return lines


def link_delay(made: Pair, seconds: float) -> list[Line]:
    """Frames handed on minus due, at 20 ms, by the emulator's own histogram."""

    def load() -> None:
        echo(made, gap_ns=1_000_000, duration_s=seconds * 3)

    summary, _ = relay_run(made, _direction(None, 20_000_000), load)
    direction = summary["a_to_b"]
    assert isinstance(direction, dict)  # noqa: S101 - docs/engine.md
    late = direction["lateness_ns"]
    p50, p99 = late["p50"] / 1000, late["p99"] / 1000
    return [
        Line(
            "link emulator, delay error at 20 ms, p50 / p99",
            f"{p50:.1f} / {p99:.1f} µs",
            "-",
            "p50 at most 20 µs, p99 at most 100 µs",
            bool(p50 <= 20 and p99 <= 100),  # noqa: PLR2004 - the targets
        )
    ]


def write(lines: list[Line], engine: str, repeats: int) -> None:
    """Write the page."""
    cpu = next(
        (
            text.split(":", 1)[1].strip()
            for text in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
            if text.startswith("model name")
        ),
        "unknown CPU",
    )
    rows = [
        "# Benchmarks",
        "",
        (
            f"Made by `make bench` on {cpu}, {os.cpu_count()} cores, Linux {platform.release()}, "
            f"engine {version(engine)}; medians of {repeats} alternating repeats; all figures of "
            "one run."
        ),
        "",
        "| benchmark | engine | beside it | target | met |",
        "| --- | --- | --- | --- | --- |",
    ]
    for line in lines:
        met = {True: "yes", False: "**missed**", None: "-"}[line.met]
        rows.append(f"| {line.name} | {line.ours} | {line.peer} | {line.target} | {met} |")
    RESULTS.write_text("\n".join(rows) + "\n", encoding="utf-8")
    print(f"written: {RESULTS}")


def _ratio(  # noqa: PLR0917 - a line of the page
    name: str, ours: list[float], theirs: list[float], peer: str, target: float, unit: str
) -> Line:
    own, other = statistics.median(ours), statistics.median(theirs)
    return Line(
        name,
        f"{own:,.0f} {unit}",
        f"{peer} {other:,.0f} {unit}",
        f"{target:g} times, seen {own / other if other else float('nan'):.1f} times",
        bool(other and own >= target * other),
    )


def _direction(rate_bit_s: int | None, delay_ns: int) -> dict[str, object]:
    return {
        "rate_bit_s": rate_bit_s,
        "delay_ns": delay_ns,
        "queue": {"type": "packets", "limit": 100_000},
        "frame_overhead_bytes": -14,
        "frame_min_bytes": 0,
        "loss": {"type": "none"},
        "delay_variation": {"type": "none"},
        "reorder": False,
    }


if __name__ == "__main__":
    main()
