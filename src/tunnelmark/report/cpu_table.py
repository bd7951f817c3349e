"""The CPU cost of each tunnel as a table: its programs' beside the whole machine's."""

from collections.abc import Sequence
from dataclasses import dataclass

from tunnelmark.analysis.cpu_cost import COSTS, CpuCost, cpu_cost, cpu_costs
from tunnelmark.analysis.units import unit
from tunnelmark.model.metrics import METRICS
from tunnelmark.report.families import Family
from tunnelmark.report.show import NOTHING, change, figure

TITLE = "CPU cost of each tunnel"
ABOUT = (
    "Of the tunnel's programs, and of the whole machine above no tunnel: programs, softirq and "
    "threads of the kernel together, so the second contains the first. A tunnel in the kernel has "
    "no programs that do its work."
)


@dataclass(frozen=True)
class CpuTable:
    """Heads and rows; the first cell of a row is the tunnel."""

    heads: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


def cpu_table(family: Family) -> CpuTable | None:
    """Return the table of a family; None if no tunnel of it has a cost."""
    metrics = [m for m in COSTS if any(m in cpu_costs(point) for point in family.points)]
    if not metrics:
        return None
    rows = [
        (point.tunnel, *family.cells(point), *_cells([cpu_cost(point, m) for m in metrics]))
        for point in family.points
        if not point.is_baseline
    ]
    heads = ["tunnel", *family.headings]
    for metric in metrics:
        heads.append(f"{METRICS[metric].title} [{unit(metric).name}]")
        heads.append(f"{METRICS[COSTS[metric]].title}, above no tunnel")
    return CpuTable(tuple(heads), tuple(rows))


def _cells(costs: Sequence[CpuCost]) -> list[str]:
    return [text for cost in costs for text in (figure(cost.of_programs), _above(cost))]


def _above(cost: CpuCost) -> str:
    if cost.of_machine is None:
        return NOTHING
    return change(cost.of_machine) + ("" if cost.clear else ": no clear difference")
