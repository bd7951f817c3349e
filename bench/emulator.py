"""The link emulator between two namespaces, beside netem where the kernel has it."""

import json
import statistics
import subprocess
import time
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

from ours import EchoRun, echo, relay_run
from page import Line
from pair import Pair, pair
from search import LOSS_FREE, LOST, best_rate
from undisturbed import MOST_STOLEN_OF_TAILS, how, undisturbed

_DELAY_NS = 20_000_000
_WARM_S = 1.0
_MORE_THAN_RATE = 1.03
"""So much must go in that the rate shows what comes out."""
_DEEP = 1000
"""Packets: 12 ms at 1,000 Mbit/s, in which the source may be held up without an idle line."""


def frame_rate(made: Pair, flood: Path, seconds: float, repeats: int) -> list[Line]:
    """Frames per second through the emulator with neither rate nor delay, and CPU per frame."""
    lines, far = [], FarEnd(made)
    for frame_bytes, target, scale, unit in (
        (106, 400e3, 1.0, "packet/s"),
        (1514, 4e9, 1500 * 8, "bit/s"),
    ):
        costs: list[tuple[float, float]] = []

        def run(
            rate: float,
            frame_bytes: int = frame_bytes,
            costs: list[tuple[float, float]] = costs,
        ) -> tuple[float, float]:
            result: dict[str, int] = {}
            in_time: list[int] = []
            before, _ = far.received()

            def load() -> None:
                words = [str(flood), "eth0", str(frame_bytes), f"{rate:.0f}", f"{seconds:.0f}"]
                result.update(json.loads(made.run(made.client, words)))
                # What comes later was still queued: it is not lost, and not the rate.
                in_time.append(far.received()[0] - before)
                time.sleep(0.3)

            _, cpu_s = relay_run(made, direction(), load)
            received = far.received()[0] - before
            left = result["sent"] - result["refused"]
            loss, came_packet_s = 1 - received / max(left, 1), in_time[0] / result["ns"] * 1e9
            if loss <= LOSS_FREE:
                costs.append((came_packet_s, cpu_s / max(received, 1) * 1e6))
            return loss, came_packet_s

        bests, of_best = [], []
        for _ in range(repeats):
            costs.clear()
            bests.append(best_rate(run, 100e3, 1.2e6))
            of_best.append(max(costs, default=(0.0, float("nan")))[1])
        best = statistics.median(bests) * scale
        lines.append(
            Line(
                f"link emulator, frames of {frame_bytes} byte one way, {LOST}",
                f"{best:,.0f} {unit}, CPU {statistics.median(of_best):.1f} µs a frame",
                "the source shares its two cores",
                f"at least {target:,.0f} {unit}",
                best >= target,
                f"median of {repeats}",
            )
        )
    return lines


def rate_accuracy(made: Pair, flood: Path, seconds: float) -> list[Line]:
    """Bits per second that come out when more goes in, by the far end's interface counters."""
    lines, far = [], FarEnd(made)
    for rate_bit_s in (8_000_000, 100_000_000, 1_000_000_000):
        runs = undisturbed(partial(_rate_out, made, far, flood, rate_bit_s, seconds))
        (bit_s,) = runs.values
        error = bit_s / rate_bit_s - 1
        lines.append(
            Line(
                f"link emulator, {rate_bit_s / 1e6:,.0f} Mbit/s over {seconds:g} s",
                f"{bit_s / 1e6:,.3f} Mbit/s, {error:+.3%}",
                "-",
                "within 0.2 %",
                abs(error) <= 0.002,  # noqa: PLR2004 - the target
                how(runs),
            )
        )
    return lines


def _rate_out(made: Pair, far: "FarEnd", flood: Path, rate_bit_s: int, seconds: float) -> float:
    """Return the bits per second that come out when a tenth more goes in."""
    seen: list[float] = []

    def load() -> None:
        offered = rate_bit_s / (1500 * 8) * 1.1
        words = [str(flood), "eth0", "1514", f"{offered:.0f}", f"{seconds + 3:.0f}"]
        source = made.start(made.client, words)
        time.sleep(_WARM_S)
        frames, start = far.received()
        time.sleep(seconds)
        more, end = far.received()
        seen.append((more - frames) * 1500 * 8 / (end - start))
        words_of_source, _ = source.communicate(timeout=seconds + 30)
        sent = json.loads(words_of_source)
        offered_bit_s = (sent["sent"] - sent["refused"]) / sent["ns"] * 1e9 * 1500 * 8
        if offered_bit_s < _MORE_THAN_RATE * rate_bit_s:
            raise RuntimeError(f"{offered_bit_s:,.0f} bit/s do not fill {rate_bit_s:,}")

    relay_run(made, direction(rate_bit_s=rate_bit_s, queue=_DEEP), load)
    return seen[0]


def delay_error(made: Pair, seconds: float) -> list[Line]:
    """Frames forwarded minus due, at 20 ms, by the emulator's own histogram."""

    def run() -> tuple[Mapping[str, object], float]:
        rtt_us: list[float | None] = []

        def load() -> None:
            rtt_us.append(echo(made, gap_ns=1_000_000, duration_s=seconds).rtt_p50_us)

        summary, _ = relay_run(made, direction(delay_ns=_DELAY_NS), load)
        return summary, rtt_us[0] or float("nan")

    runs = undisturbed(run, most=MOST_STOLEN_OF_TAILS)
    ((summary, rtt_us),) = runs.values
    one = summary["a_to_b"]
    assert isinstance(one, dict)  # noqa: S101 - docs/engine.md
    late = one["lateness_ns"]
    p50, p99 = late["p50"] / 1000, late["p99"] / 1000
    own = rtt_us - 2 * _DELAY_NS / 1000
    return [
        Line(
            "link emulator, delay error at 20 ms, p50 / p99",
            f"{p50:.1f} / {p99:.1f} µs",
            "-",
            "p50 at most 20 µs, p99 at most 100 µs",
            bool(p50 <= 20 and p99 <= 100),  # noqa: PLR2004 - the targets
            how(runs),
        ),
        Line(
            "median RTT over two delays of 20 ms, minus 40 ms",
            f"{own:.1f} µs",
            netem(made.engine, seconds),
            "-",
            None,
            how(runs),
        ),
    ]


def shares(made: Pair, seconds: float, repeats: int) -> list[Line]:
    """CPU of the emulator and of both ends at some rates, waiting awake and asleep."""
    lines = []
    for rate in (1_000, 10_000, 100_000):
        awake, asleep = (_share(made, rate, seconds, repeats, spin=spin) for spin in (True, False))
        lines.append(
            Line(
                f"{rate:,} packet/s echoed over two delays of 20 ms, share of a core",
                f"emulator {awake.emulator:.1%}, both ends {awake.ends:.1%}, {awake.lost:.3%} lost",
                f"asleep until each is due: {asleep.emulator:.1%}, {asleep.ends:.1%}, "
                f"{asleep.lost:.3%} lost",
                "-",
                None,
                f"median of {repeats}",
            )
        )
    return lines


@dataclass(frozen=True)
class _Share:
    """CPU seconds per second."""

    emulator: float
    ends: float
    lost: float


def _share(made: Pair, packet_s: int, seconds: float, repeats: int, *, spin: bool) -> _Share:
    seen: list[tuple[float, float, float]] = []
    for _ in range(repeats):
        runs: list[EchoRun] = []

        def load(runs: list[EchoRun] = runs) -> None:
            gap_ns = 1_000_000_000 // packet_s
            runs.append(echo(made, gap_ns=gap_ns, duration_s=seconds, spin=spin))

        _, cpu_s = relay_run(made, direction(delay_ns=_DELAY_NS), load, spin=spin)
        (run,) = runs
        seen.append((cpu_s / seconds, run.cpu_s / seconds, 1 - run.returned / run.sent))
    return _Share(*(statistics.median(one) for one in zip(*seen, strict=True)))


def netem(engine: str, seconds: float) -> str:
    """Return what the same echo sees through the kernel's netem, or that it is not there."""
    with pair(engine) as made:
        for namespace in (made.client, made.server):
            words = ["qdisc", "add", "dev", "eth0", "root", "netem", "delay", "20ms"]
            added = subprocess.run(["tc", "-n", namespace, *words], capture_output=True, text=True)  # noqa: PLW1510
            if added.returncode:
                return "the kernel has no netem"
        run = echo(made, gap_ns=1_000_000, duration_s=seconds)
        return f"netem {(run.rtt_p50_us or float('nan')) - 2 * _DELAY_NS / 1000:.1f} µs"


def direction(
    *, rate_bit_s: int | None = None, delay_ns: int = 0, queue: int = 100_000
) -> Mapping[str, object]:
    """Return one direction of the emulator; a frame costs what its IP packet has."""
    return {
        "rate_bit_s": rate_bit_s,
        "delay_ns": delay_ns,
        "queue": {"type": "packets", "limit": queue},
        "frame_overhead_bytes": -14,
        "frame_min_bytes": 0,
        "loss": {"type": "none"},
        "delay_variation": {"type": "none"},
        "reorder": False,
    }


class FarEnd:
    """Frames that the far end's interface has taken, as a process of that namespace sees them.

    A program that is started to ask comes tens of milliseconds late beside the emulator and its
    source: 70 ms are 0.7 % of ten seconds.
    """

    def __init__(self, made: Pair) -> None:
        inside = Path(f"/proc/{made.start(made.server, ['sleep', 'infinity']).pid}")
        wanted = Path(f"/run/netns/{made.server}").stat().st_ino
        while (inside / "ns/net").stat().st_ino != wanted:
            time.sleep(0.01)
        self._counters = inside / "net/dev"

    def received(self) -> tuple[int, float]:
        """Return how many, and when they were counted (monotonic, s)."""
        (_, count, at_s) = min(self._look() for _ in range(_LOOKS))
        return count, at_s

    def _look(self) -> tuple[float, int, float]:
        start = time.monotonic()
        text = self._counters.read_text(encoding="ascii")
        end = time.monotonic()
        (row,) = (line for line in text.splitlines() if line.strip().startswith("eth0:"))
        return end - start, int(row.split()[2]), (start + end) / 2


_LOOKS: Final = 5
"""Of these the shortest counts: it was not interrupted."""
