"""Warm-up: a short stream through every path, before anything counts."""

from typing import Final

from tunnelmark.lab.lab import Lab
from tunnelmark.model.errors import TunnelError
from tunnelmark.model.tunnel import TunnelUp
from tunnelmark.workloads.base import TrialContext
from tunnelmark.workloads.udp_echo import UdpEcho, UdpEchoParams

# A fifth of a second at a rate that no link of interest minds.
_STREAM: Final = {"gap": "5 ms", "packets": 40, "payload_bytes": 256, "load": "each"}


def warm_up(up: TunnelUp, lab: Lab, *, seed: int) -> None:
    """Fill caches and neighbour tables, let daemons reach their pace; nothing is recorded.

    Raises ``TunnelError`` if not a single packet comes back: no trial would be of any use.
    """
    context = TrialContext(
        client=lab.client_host,
        server=lab.server_host,
        paths=up.paths,
        engine=lab.place.engine,
        seed=seed,
        samples_dir=None,
        sample_stem="warm",
        progress=lambda _progress: None,
        cancelled=lambda: False,
        owner_pid=lab.place.owner_pid,
    )
    outcome = UdpEcho(UdpEchoParams.model_validate(_STREAM)).run(context)
    for measurement in outcome.measurements:
        if measurement.metrics.get("rtt_p50_ns") is None:
            raise TunnelError(f"path {measurement.path}: no packet of the warm-up came back")
    if not outcome.measurements:
        reasons = "; ".join(check.message for check in outcome.checks if not check.ok)
        raise TunnelError(f"the warm-up failed: {reasons}")
