"""Workloads that set a study's tunnels, or clients of them, up again: which tunnels bear it."""

from tunnelmark.model.registry import make
from tunnelmark.model.trial import BASELINE, DriverSpec
from tunnelmark.study.study import Study
from tunnelmark.tunnels.registry import tunnel_kinds


def no_restarts(study: Study, workload: DriverSpec) -> str | None:
    """Return why the tunnels of a study cannot be set up again by a workload, or None."""
    if workload.background:
        return "nothing can be beside it: it takes the tunnel down"
    tunnels = [spec for spec in study.tunnels if spec.kind != BASELINE]
    if not tunnels:
        return "the study has no tunnel that could be set up"
    for spec in tunnels:
        if reason := make(tunnel_kinds(), spec).no_set_up():
            return f"tunnel {spec.label}: {reason}"
    return None


def no_joins(study: Study, workload: DriverSpec, joining: int) -> str | None:
    """Return why ``joining`` clients of each tunnel cannot leave and join again, or None."""
    if workload.background:
        return "nothing can be beside it: the clients that stay send what the workload says"
    tunnels = [spec for spec in study.tunnels if spec.kind != BASELINE]
    if not tunnels:
        return "the study has no tunnel whose clients could join"
    for spec in tunnels:
        tunnel = make(tunnel_kinds(), spec)
        if reason := tunnel.no_joins():
            return f"tunnel {spec.label}: {reason}"
        if tunnel.params.paths <= joining:
            return (
                f"tunnel {spec.label}: joining is {joining}, must be less than its "
                f"{tunnel.params.paths} clients: one at least stays"
            )
    return None
