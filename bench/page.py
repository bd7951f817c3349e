"""The lines of the page and how it is written."""

import os
import platform
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

RESULTS = Path(__file__).parent / "results.md"


@dataclass(frozen=True)
class Line:
    """One benchmark."""

    name: str
    ours: str
    peer: str
    target: str
    met: bool | None
    """None: there is no target, or no peer on this machine."""
    how: str = "one run"
    """How often it was measured, and what stands here of it."""


def ratio(  # noqa: PLR0917 - a line of the page
    name: str,
    ours: Sequence[float],
    theirs: Sequence[float],
    peer: str,
    target: float,
    unit: str,
) -> Line:
    """Return the line of a target that is a multiple of a peer's figure."""
    own, other = statistics.median(ours), statistics.median(theirs)
    return Line(
        name,
        f"{own:,.0f} {unit}",
        f"{peer} {other:,.0f} {unit}",
        f"{target:g} times, seen {own / other if other else float('nan'):.1f} times",
        bool(other and own >= target * other),
        f"median of {len(ours)}, alternating",
    )


def below(name: str, ours: Sequence[float], theirs: Sequence[float], peer: str) -> Line:
    """Return the line of a cost in µs that has to be below a peer's."""
    own, other = statistics.median(ours), statistics.median(theirs)
    how = f"median of {len(ours)}, alternating"
    return Line(name, f"{own:.2f} µs", f"{peer} {other:.2f} µs", f"below {peer}", own < other, how)


def write(lines: Sequence[Line], *, version: str, load: float) -> None:
    """Write the page; ``load`` is the load average when the run began."""
    rows = [
        "# Benchmarks",
        "",
        (
            f"Made by `make bench` on {_cpu()}, {os.cpu_count()} cores, Linux "
            f"{platform.release()}, engine {version}; all figures of one run of the bench. "
            f"Load average at its start: {load:.2f}. Where the hypervisor took too much of the "
            "cores, a run was made again, at most three times; the least disturbed count."
        ),
        "",
        "| benchmark | engine | beside it | target | met | how |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    for line in lines:
        met = {True: "yes", False: "**missed**", None: "-"}[line.met]
        cells = (line.name, line.ours, line.peer, line.target, met, line.how)
        rows.append(f"| {' | '.join(cells)} |")
    RESULTS.write_text("\n".join(rows) + "\n", encoding="utf-8")
    print(f"written: {RESULTS}")


def _cpu() -> str:
    for text in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
        if text.startswith("model name"):
            return text.split(":", 1)[1].strip()
    return "unknown CPU"
