"""What a tunnel costs in CPU, wherever its work is done."""

from dataclasses import dataclass
from typing import Final

from tunnelmark.analysis.estimates import Estimate, PointEstimates

_OF_ALL: Final = {
    "cpu_tunnel_ratio": "cpu_lab_ratio",
    "cpu_cost_s_per_gib": "cpu_machine_cost_s_per_gib",
    "cpu_cost_s_per_mpkt": "cpu_machine_cost_s_per_mpkt",
}
"""Metric of the tunnel's programs to that of everything that ran."""


@dataclass(frozen=True)
class CpuCost:
    """The cost of a tunnel at one point."""

    estimate: Estimate
    of_programs: bool
    """Whether its programs used it; else everything that ran did, above the paired baseline."""

    @property
    def clear(self) -> bool:
        """Whether it can be distinguished from nothing."""
        return self.of_programs or (self.estimate.low is not None and self.estimate.low > 0)


def cpu_cost(point: PointEstimates, metric: str) -> CpuCost | None:
    """Return what the tunnel's programs used, by ``metric``; without that, what the machine did.

    A tunnel in the kernel has no programs whose time it is: its work is in softirq, in threads of
    the kernel and in the system calls of whoever sends.
    """
    if (own := point.estimates.get(metric)) is not None:
        return CpuCost(own, of_programs=True)
    if (above := point.differences.get(_OF_ALL[metric])) is not None:
        return CpuCost(above, of_programs=False)
    return None
