"""Known answers: studies of tunnels of chosen figures, and what the program says of them."""

import contextlib
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import polars as pl
from rich.console import Console
from scipy import stats

import tunnelmark.tunnels
from tunnelmark.analysis.cells import cells_of
from tunnelmark.analysis.contrasts import contrast
from tunnelmark.analysis.cpu_cost import cpu_cost
from tunnelmark.analysis.estimates import PointEstimates, point_estimates
from tunnelmark.analysis.strata import set_apart
from tunnelmark.execute import execute
from tunnelmark.lab.placement import Wanted
from tunnelmark.report.summary import summarise
from tunnelmark.report.terminal import print_report
from tunnelmark.store import Result, open_result
from tunnelmark.study import parse_study

HERE: Final = Path(__file__).parent
PACKET_S: Final = 300e-6
BYTE_PS: Final = 50_000
UNWRAP_S: Final = 60e-6
"""Of a packet on its way out of the tunnel: more than a relay takes to wake up and pass it on."""
PAYLOAD_BYTES: Final = 500
USER_S: Final = PACKET_S + (PAYLOAD_BYTES + 28) * BYTE_PS * 1e-12 + UNWRAP_S
"""Of a packet in the known tunnel, both ends, with IP and UDP inside."""
COST_SCATTER: Final = 0.03
"""Of the chosen costs from start to start: an interval has something to hold."""
KERNEL_S: Final = 1e-3
"""So much that what others save in wake-ups where a core is kept awake, some 10 us, is small."""
DELAY_NS: Final = 5e6
"""By which the delays of two known tunnels differ: what else a relay takes is in both."""
SHORT_DELAY_NS: Final = 1e6
"""Of the shorter one: more than a relay burns for a packet, and both leave equally far from the
packets that come in between, every 2.5 ms."""
LOSS_FORWARD: Final = 0.05
LOSS_REVERSE: Final = 0.02

HEAD: Final = """
format = 1
name = "truth"
title = "Known answers"
seed = {seed}

[precision]
metric = "cpu_lab_ratio"
relative_half_width = "1 %"
min_repeats = {repeats}
max_repeats = {repeats}
max_invalid = 10
bring_ups = {bring_ups}

[[link]]
kind = "serial"
rate = "100 Mbit/s"
delay = "1 ms"
"""
_KNOWN: Final = f"""
[[tunnel]]
kind = "known"
packet_cost = "{PACKET_S * 1e6:g} us"
byte_cost_ps = {BYTE_PS}
unwrap_cost = "{UNWRAP_S * 1e6:g} us"
scatter = {COST_SCATTER}
seed = {{seed}}
"""
KERNEL: Final = (
    HEAD
    + f"""
[[tunnel]]
kind = "known_kernel"
label = "kernel-cost"
packet_cost = "{KERNEL_S * 1e6:g} us"

[[workload]]
kind = "udp_load"
packet_rate = 500
payload_bytes = {PAYLOAD_BYTES}
duration = "800 ms"
drain = "100 ms"
"""
)
USER: Final = (
    HEAD
    + _KNOWN
    + f"""\
label = "known"
delay = "{SHORT_DELAY_NS / 1e6:g} ms"
"""
    + _KNOWN
    + f"""\
label = "known-path"
delay = "{(SHORT_DELAY_NS + DELAY_NS) / 1e6:g} ms"
loss_forward = "{LOSS_FORWARD:.0%}"
loss_reverse = "{LOSS_REVERSE:.0%}"

[[workload]]
kind = "udp_load"
direction = "echo"
packet_rate = 400
payload_bytes = {PAYLOAD_BYTES}
duration = "800 ms"
drain = "100 ms"
"""
)
"""Cost, delay and loss in one: a start of a tunnel takes longer than a trial."""


KERNEL_TUNNELS: Final = ("wireguard-kernel", "ipsec-kernel", "macsec")
_MACHINE_LOAD: Final = """
[[workload]]
kind = "udp_load"
packet_rate = 200
payload_bytes = 8800
duration = "6 s"
drain = "200 ms"
"""
"""Long packets: with 1400 bytes MACsec costs some 130 us of an emulated CPU, less than a pair of
trials scatters by."""
_JUMBO: Final = HEAD + "mtu = 9000\n"
IN_KERNEL: Final = (
    _JUMBO
    + """
[[tunnel]]
kind = "wireguard"
label = "wireguard-kernel"
implementation = "kernel"

[[tunnel]]
kind = "ipsec"
label = "ipsec-kernel"
implementation = "kernel"

[[tunnel]]
kind = "macsec"
label = "macsec"
"""
    + _MACHINE_LOAD
)


def known_in_kernel(costs_us: Mapping[str, float]) -> str:
    """Return a study of known costs in the kernel, under the load of ``IN_KERNEL``."""
    tunnels = [
        f'\n[[tunnel]]\nkind = "known_kernel"\nlabel = "like-{name}"\npacket_cost = "{us:.1f} us"\n'
        for name, us in costs_us.items()
    ]
    return _JUMBO + "".join(tunnels) + _MACHINE_LOAD


class NoAnswerError(Exception):
    """Too few trials were valid: a busy computer."""


@dataclass(frozen=True)
class Answer:
    """What the program says of one figure, and what it is."""

    what: str
    unit: str
    truth: float
    value: float
    low: float
    high: float

    @property
    def covered(self) -> bool:
        """Whether the interval has the truth in it."""
        return self.low <= self.truth <= self.high

    @property
    def error(self) -> float:
        """How far off the figure is, as a share of the truth."""
        return self.value / self.truth - 1


def add_drivers() -> None:
    """Let the registry find the drivers of this folder; nothing of a release knows of them."""
    folder = str(HERE / "drivers")
    if folder not in tunnelmark.tunnels.__path__:
        tunnelmark.tunnels.__path__.append(folder)


def measure(
    text: str,
    *,
    seed: int,
    repeats: int,
    results: Path,
    engine: str,
    wanted: Wanted = "auto",
    bring_ups: int | None = None,
) -> Result:
    """Run a study as the command does, and report; a bring-up for each repeat unless given."""
    add_drivers()
    filled = text.format(seed=seed, repeats=repeats, bring_ups=bring_ups or repeats)
    study = parse_study(filled, "truth.toml")
    ended = execute(
        study,
        results_dir=results,
        listener=_quiet,
        keep_samples=False,
        engine=engine,
        wanted=wanted,
    )
    result = open_result(Path(ended.directory))
    with Path(os.devnull).open("w", encoding="utf-8") as nowhere:
        print_report(summarise(result), Console(file=nowhere))
    return result


def user_answers(result: Result) -> list[Answer]:
    """Return the answers of a study of ``USER``."""
    return [user_cost(result), *paths(result)]


def kernel_answers(result: Result) -> list[Answer]:
    """Return the answer of a study of ``KERNEL``."""
    return [kernel_cost(result, "kernel-cost", KERNEL_S * 1e6)]


def user_cost(result: Result) -> Answer:
    """Return what a packet costs in user space, of the tunnel that loses none."""
    (own,) = _points(result, "known")
    used = own.estimates.get("cpu_cost_s_per_mpkt")
    if used is None or used.low is None or used.high is None:
        raise NoAnswerError("no interval of the cost in user space")
    name = "CPU of a packet in user space"
    return Answer(name, "us", USER_S * 1e6, used.value, used.low, used.high)


def kernel_cost(result: Result, tunnel: str, truth_us: float) -> Answer:
    """Return what a packet costs in the kernel, as the report has it."""
    (kernel,) = _points(result, tunnel)
    found = cpu_cost(kernel, "cpu_cost_s_per_mpkt")
    assert found.of_programs is None
    estimate = found.of_machine
    if estimate is None or estimate.low is None or estimate.high is None:
        raise NoAnswerError(f"no interval of the cost in the kernel: {tunnel}")
    return Answer(
        f"CPU of a packet in the kernel, {tunnel}",
        "us",
        truth_us,
        *(estimate.value, estimate.low, estimate.high),
    )


def beside_known(measured: Callable[..., Result]) -> list[tuple[Answer, Answer]]:
    """Return what each tunnel of the kernel costs, and what the program says of that cost put in.

    ``measured`` runs a study. The truth of the first is 0: none is known.
    """
    of_tunnels = measured(IN_KERNEL, repeats=18, bring_ups=3)
    found = [kernel_cost(of_tunnels, name, 0.0) for name in KERNEL_TUNNELS]
    costs_us = {name: one.value for name, one in zip(KERNEL_TUNNELS, found, strict=True)}
    known = measured(known_in_kernel(costs_us), repeats=36, bring_ups=6)
    return [
        (one, kernel_cost(known, f"like-{name}", costs_us[name]))
        for name, one in zip(KERNEL_TUNNELS, found, strict=True)
    ]


def paths(result: Result) -> list[Answer]:
    """Return loss and delay of a study of ``USER``."""
    (lossy,) = _points(result, "known-path")
    found = []
    for metric, truth in (
        ("loss_forward_ratio", LOSS_FORWARD),
        ("loss_reverse_ratio", LOSS_REVERSE),
    ):
        own = lossy.estimates.get(metric)
        if own is None or own.low is None or own.high is None:
            raise NoAnswerError(f"no interval of {metric}")
        found.append(
            Answer(metric, "%", *(100 * value for value in (truth, own.value, own.low, own.high)))
        )
    for metric, truth in (
        ("owd_forward_p50_ns", DELAY_NS),
        ("owd_reverse_p50_ns", DELAY_NS),
        ("rtt_p50_ns", 2 * DELAY_NS),
    ):
        one = _between(result, metric, "ms", truth)
        found.append(
            Answer(metric, "ms", *(v / 1e6 for v in (one.truth, one.value, one.low, one.high)))
        )
    return found


@contextlib.contextmanager
def busy_core() -> Iterator[None]:
    """Keep a core busy with a program that is none of the lab's, and that gives way to it.

    Even at the lowest priority it would keep what is measured waiting, and no trial would be valid.
    """
    words = ["chrt", "--idle", "0", sys.executable, "-c", "while True: pass"]
    with subprocess.Popen(words) as process:
        try:
            yield
        finally:
            process.kill()


def _between(result: Result, metric: str, unit: str, truth: float) -> Answer:
    """Return how a tunnel differs from the one that is alike but for what was chosen."""
    cells = {cell.names["tunnel"]: cell for cell in cells_of(_trials(result), metric)}
    if any(name not in cells or not cells[name].figures for name in ("known-path", "known")):
        raise NoAnswerError(f"no valid trial gave {metric}")
    spread = contrast(cells["known-path"], cells["known"], metric, absolute=True).spread
    if spread.error is None:
        raise NoAnswerError(f"no interval of {metric}")
    confidence = result.manifest.confidence
    half = float(stats.t.ppf((1 + confidence) / 2, spread.freedom)) * spread.error
    return Answer(metric, unit, truth, spread.value, spread.value - half, spread.value + half)


def _points(result: Result, tunnel: str) -> list[PointEstimates]:
    found = point_estimates(_trials(result), confidence=result.manifest.confidence)
    points = [point for point in found if point.label == tunnel]
    if not points:
        reasons = "; ".join(block.error for block in result.blocks.values() if block.error)
        raise NoAnswerError(f"{tunnel} has no trial: {reasons}")
    return points


def _trials(result: Result) -> pl.DataFrame:
    return set_apart(result.trials(), result.blocks.values())


def _quiet(_event: object) -> None:
    """Say nothing."""


Evaluate = Callable[[Result], list[Answer]]
STUDIES: Final[Sequence[tuple[str, Evaluate]]] = ((USER, user_answers), (KERNEL, kernel_answers))
