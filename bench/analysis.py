"""How long an analysis takes, and how much memory: each measured in a program of its own."""

import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from page import Line
from synthetic import Design, Truth, large, simulate, write

_POINTS: Final = 10_000
_REPEATS: Final = 5
_EVIDENCE_BYTES: Final = 6_700
"""Of one trial, as the engine leaves it."""
_SUMMARISE: Final = """
import sys
from tunnelmark.report.summary import summarise
from tunnelmark.store import open_result
summary = summarise(open_result(sys.argv[1]))
assert len(summary.points) > 5000 and summary.statements and summary.findings
"""
_PLAN: Final = """
import sys
sys.path.append(sys.argv[1])
from synthetic import large
from tunnelmark.study import parse_study
from tunnelmark.study.plan import first_round, jobs
points, repeats = map(int, sys.argv[2:])
plan = jobs(parse_study(large(points, repeats).text, "synthetic.toml"))
assert sum(len(first_round(job)) for job in plan) == points * repeats
"""
# A program counts the memory of the one that started it until it is loaded: so a small one does.
_WATCH: Final = """
import resource, subprocess, sys, time
start = time.monotonic()
status = subprocess.call(sys.argv[1:], stdout=subprocess.DEVNULL)
print(time.monotonic() - start, resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024)
sys.exit(status)
"""
_TRUTH: Final = Truth(
    {("a", "goodput_bit_s"): -0.05, ("b", "rtt_p50_ns"): 0.1}, bring_ups=0.01, loss=0.01, burst=5
)


def analysis(repeats: int) -> list[Line]:
    """Return the lines of the bench: many points, the report of a small study, the help."""
    command = str(Path(sys.executable).with_name("tunnelmark"))
    with tempfile.TemporaryDirectory(prefix="tunnelmark-bench-") as folder:
        many = write(
            simulate(large(_POINTS, _REPEATS), _TRUTH, 1),
            Path(folder) / "many",
            evidence_bytes=_EVIDENCE_BYTES,
        )
        design = Design(tunnels=("a", "b", "c"), payloads_bytes=tuple(range(64, 70)), max_repeats=6)
        small = write(
            simulate(design, _TRUTH, 1), Path(folder) / "small", evidence_bytes=_EVIDENCE_BYTES
        )
        return [
            _line(
                f"Plan of a study of {_POINTS} points with {_REPEATS} repeats, every trial listed",
                plan_of(_POINTS, _REPEATS),
                seconds=2,
                repeats=repeats,
            ),
            _line(
                f"Analysis of a study of {_POINTS} points with {_REPEATS} repeats",
                [sys.executable, "-c", _SUMMARISE, str(many)],
                seconds=10,
                mebibytes=2048,
                repeats=1,
            ),
            _line(
                "Terminal report of a study like the quickstart",
                [command, "report", str(small)],
                seconds=1.5,
                repeats=repeats,
            ),
            _line("tunnelmark --help", [command, "--help"], seconds=0.3, repeats=repeats),
        ]


def plan_of(points: int, repeats: int) -> list[str]:
    """Return a program that plans a study."""
    return [sys.executable, "-c", _PLAN, str(Path(__file__).parent), str(points), str(repeats)]


def _line(
    name: str,
    arguments: Sequence[str],
    *,
    seconds: float,
    repeats: int,
    mebibytes: float | None = None,
) -> Line:
    """Return the median of what a program takes; compiled modules are there before."""
    took, memory = zip(*(measured(arguments) for _ in range(repeats + 1)), strict=True)
    median = sorted(took[1:])[(repeats - 1) // 2]
    most = max(memory)
    limit = f" and {mebibytes:.0f} MiB" if mebibytes else ""
    met = median <= seconds and (mebibytes is None or most <= mebibytes)
    target, how = f"at most {seconds:g} s{limit}", f"median of {repeats}"
    return Line(name, f"{median:.2f} s, {most:.0f} MiB", "", target, met, how)


def measured(arguments: Sequence[str]) -> tuple[float, float]:
    """Return seconds and MiB of one run."""
    watched = [sys.executable, "-S", "-c", _WATCH, *arguments]
    done = subprocess.run(watched, stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"bench: {' '.join(arguments[:3])} ended with {done.returncode}")
    seconds, mebibytes = map(float, done.stdout.split())
    return seconds, mebibytes
