"""What a workload of a study gives."""

from tunnelmark.workloads.registry import workload_kinds


def metrics_of(kind: str) -> tuple[str, ...]:
    """Return the names of the metrics that a kind of workload gives, in the order of a report."""
    return workload_kinds()[kind].metrics
