"""What a tunnel costs in CPU: in its programs, and in the whole machine above its baseline."""

from dataclasses import dataclass
from typing import Final

from tunnelmark.analysis.estimate import Estimate
from tunnelmark.analysis.estimates import PointEstimates

COSTS: Final = {
    "cpu_tunnel_ratio": "cpu_lab_ratio",
    "cpu_cost_s_per_gib": "cpu_machine_cost_s_per_gib",
    "cpu_cost_s_per_mpkt": "cpu_machine_cost_s_per_mpkt",
}
"""Metric of the tunnel's programs to that of everything that ran."""


@dataclass(frozen=True)
class CpuCost:
    """The cost of a tunnel at one point. None: not measured, never 0."""

    of_programs: Estimate | None
    """What its programs used; a tunnel in the kernel has none whose time it is: its work is in
    softirq, in threads of the kernel and in the system calls of whoever sends."""
    of_machine: Estimate | None
    """What everything that ran used above the paired baseline: programs and kernel together."""

    @property
    def clear(self) -> bool:
        """Whether ``of_machine`` can be distinguished from nothing."""
        above = self.of_machine
        return above is not None and above.low is not None and above.low > 0


def cpu_cost(point: PointEstimates, metric: str) -> CpuCost:
    """Return both costs by a metric of ``COSTS``."""
    return CpuCost(point.estimates.get(metric), point.differences.get(COSTS[metric]))


def cpu_costs(point: PointEstimates) -> dict[str, CpuCost]:
    """Return the costs of which one was measured at least, by the metric of the programs."""
    found = {metric: cpu_cost(point, metric) for metric in COSTS}
    return {metric: cost for metric, cost in found.items() if cost != CpuCost(None, None)}
