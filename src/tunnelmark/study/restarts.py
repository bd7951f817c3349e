"""Workloads that take a study's tunnels down and set them up again: which tunnels bear it."""

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
