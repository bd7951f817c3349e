"""Benchmarks of the engine beside iperf3, irtt, ping and netem, in one run on one machine.

Every figure is a median of alternating repeats; targets are ratios of figures of the same run.
Writes ``bench/results.md``. Usage: ``python bench/run.py --flood PROGRAM [--only GROUP] …``.
"""

import argparse
import os
import signal
import sys
import traceback
from collections.abc import Callable, Mapping
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
_MOST_WORDS: Final = 150
"""Characters of why a group failed, on the page."""


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
            lines += _each(made, _endpoints(options.repeats, options.seconds))
    if options.only in {None, "emulator"}:
        with pair(engine, emulated=True) as made:
            lines += _each(made, _emulator(options.repeats, options.seconds, options.flood))
    if options.only in {None, "analysis"}:
        lines += _reported("analysis", partial(analysis, options.repeats))
    if options.only in {None, "simulation"}:
        lines += _reported("simulation", partial(simulation, options.repeats))
    if options.only in {None, "cluster"}:
        lines += _reported("cluster", partial(cluster, options.points))
    if options.only is None:
        write(lines, version=version(engine), load=load)
    return 1 if any(line.met is False for line in lines) else 0


Group = Callable[[Pair], list[Line]]


def _endpoints(repeats: int, seconds: float) -> dict[str, Group]:
    return {
        "RTT floor": partial(endpoints.floor, repeats=repeats),
        "pacing": partial(endpoints.pacing, seconds=seconds * 3, drift_seconds=seconds * 30),
        "one way": partial(endpoints.one_way, repeats=repeats, seconds=seconds),
        "echo": partial(endpoints.echo_rate, repeats=repeats, seconds=seconds),
        "many flows": partial(endpoints.flows, repeats=repeats, seconds=seconds),
        "endurance": partial(endpoints.endurance, packets=10_000_000),
    }


def _emulator(repeats: int, seconds: float, flood: Path) -> dict[str, Group]:
    return {
        "delay of the emulator": partial(emulator.delay_error, seconds=seconds * 3),
        "share of a core": partial(emulator.shares, seconds=seconds * 2, repeats=repeats),
        "rate of the emulator": partial(emulator.rate_accuracy, flood=flood, seconds=seconds * 5),
        "frames of the emulator": partial(
            emulator.frame_rate, flood=flood, seconds=seconds, repeats=repeats
        ),
    }


def _each(made: Pair, groups: Mapping[str, Group]) -> list[Line]:
    lines = []
    for name, group in groups.items():
        lines += _reported(name, partial(group, made))
        made.end()
    return lines


def _reported(name: str, group: Callable[[], list[Line]]) -> list[Line]:
    """Return the lines of a group; one that fails has a line that says so, and the rest goes on."""
    try:
        lines = group()
    except (Exception, SystemExit) as error:
        # Whoever asks for the end has a number.
        if isinstance(error, SystemExit) and isinstance(error.code, int):
            raise
        traceback.print_exc()
        words = " ".join(f"{type(error).__name__}: {error}".split())[:_MOST_WORDS]
        lines = [Line(name, f"failed: {words.replace('|', '/')}", "", "ends", met=False)]
    for line in lines:
        mark = {True: "met", False: "MISSED", None: ""}[line.met]
        print(f"{line.name}: {line.ours}; {line.peer}; {line.target} {mark}", flush=True)
    return lines


if __name__ == "__main__":
    sys.exit(main())
