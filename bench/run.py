"""Benchmarks of the engine beside iperf3, irtt, ping and netem, in one run on one machine.

Every figure is a median of alternating repeats; targets are ratios of figures of the same run.
Writes ``bench/results.md``. Usage: ``python bench/run.py --flood PROGRAM [--only GROUP] …``.
"""

import argparse
import os
import signal
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Final

import emulator
import endpoints
from analysis import analysis
from cluster import POINTS, cluster
from ours import version
from page import Line, write
from pair import Pair, pair
from simulation import simulation

from tunnelmark.engine.binary import find_engine

_GROUPS: Final = ("endpoints", "emulator", "analysis", "simulation", "cluster")


def main() -> int:
    """Run the benchmarks and write the page; exit status 1 if a target is missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--flood", type=Path, help="the source of frames")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=2.0, help="of one run")
    parser.add_argument("--points", type=int, default=POINTS, help="of the study of the cluster")
    parser.add_argument("--only", choices=_GROUPS, help="no page is written")
    options = parser.parse_args()
    if options.flood is None and options.only in {None, "emulator"}:
        parser.error("--flood PROGRAM is needed for the emulator")
    if os.geteuid() != 0 and options.only not in {"analysis", "simulation", "cluster"}:
        sys.exit("bench: needs root: network namespaces are made")
    load = os.getloadavg()[0]
    if load > 0.5:  # noqa: PLR2004 - two cores, of which a run needs both
        print(f"bench: the machine is busy (load average {load:.2f}): figures will be worse")
    # What was made is removed then too.
    signal.signal(signal.SIGTERM, lambda number, _frame: sys.exit(128 + number))
    engine = find_engine()
    lines: list[Line] = []
    if options.only in {None, "endpoints"}:
        with pair(engine) as made:
            lines += _each(made, *_endpoints(options.repeats, options.seconds))
    if options.only in {None, "emulator"}:
        with pair(engine, emulated=True) as made:
            lines += _each(made, *_emulator(options.repeats, options.seconds, options.flood))
    if options.only in {None, "analysis"}:
        lines += _reported(analysis(options.repeats))
    if options.only in {None, "simulation"}:
        lines += _reported(simulation(options.repeats))
    if options.only in {None, "cluster"}:
        lines += _reported(cluster(options.points))
    if options.only is None:
        write(lines, version=version(engine), load=load)
    return 1 if any(line.met is False for line in lines) else 0


Group = Callable[[Pair], list[Line]]


def _endpoints(repeats: int, seconds: float) -> list[Group]:
    return [
        partial(endpoints.floor, repeats=repeats),
        partial(endpoints.pacing, seconds=seconds * 3, drift_seconds=seconds * 30),
        partial(endpoints.one_way, repeats=repeats, seconds=seconds),
        partial(endpoints.echo_rate, repeats=repeats, seconds=seconds),
        partial(endpoints.flows, repeats=repeats, seconds=seconds),
        partial(endpoints.endurance, packets=10_000_000),
    ]


def _emulator(repeats: int, seconds: float, flood: Path) -> list[Group]:
    return [
        partial(emulator.delay_error, seconds=seconds * 3),
        partial(emulator.shares, seconds=seconds * 2, repeats=repeats),
        partial(emulator.rate_accuracy, flood=flood, seconds=seconds * 5),
        partial(emulator.frame_rate, flood=flood, seconds=seconds, repeats=repeats),
    ]


def _each(made: Pair, *groups: Group) -> list[Line]:
    return [line for group in groups for line in _reported(group(made))]


def _reported(lines: list[Line]) -> list[Line]:
    for line in lines:
        mark = {True: "met", False: "MISSED", None: ""}[line.met]
        print(f"{line.name}: {line.ours}; {line.peer}; {line.target} {mark}", flush=True)
    return lines


if __name__ == "__main__":
    sys.exit(main())
