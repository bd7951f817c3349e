"""Warm-up: a short stream through every path, before anything counts."""

from typing import Final

from tunnelmark.lab.lab import Lab
from tunnelmark.lab.session.floor import RoundTrip, fixed_round_trip
from tunnelmark.model.block import Stratum
from tunnelmark.model.errors import TunnelError
from tunnelmark.model.tunnel import TunnelUp
from tunnelmark.workloads.base import TrialContext
from tunnelmark.workloads.udp_echo import UdpEcho, UdpEchoParams

_PAYLOAD_BYTES: Final = 256
# A fifth of a second at a rate that no link of interest minds.
_GAP_NS: Final = 5 * 10**6
_PACKETS: Final = 40
# However many clients a gateway has, it must have an answer for each: they share what it takes.
_SHARED_GAP_NS: Final = 2 * 10**6
_LEAST_PACKETS: Final = 10
_USUAL_WAIT_NS: Final = 10**9
_SHORT_WAIT_NS: Final = 2 * 10**8


def warm_up(up: TunnelUp, lab: Lab, *, seed: int) -> None:
    """Fill caches and neighbour tables, let daemons reach their pace; nothing is recorded.

    Raises ``TunnelError`` if not a single packet comes back through a path: no trial would be of
    any use.
    """
    fixed = fixed_round_trip(lab.link, _PAYLOAD_BYTES, lab.client.mtu_bytes)
    wait_ns = waiting_ns(fixed if lab.place.stratum is Stratum.NAMESPACES else None)
    silent = _silent(up, lab, wait_ns, seed=seed)
    if silent:
        # A busy computer may have held a daemon up for as long as that; not for this long too.
        silent = _silent(up, lab, _USUAL_WAIT_NS, seed=seed + 1)
    if silent:
        raise TunnelError(f"path {silent[0]}: no packet of the warm-up came back")


def _silent(up: TunnelUp, lab: Lab, wait_ns: int, *, seed: int) -> list[str]:
    """Send a stream through every path; return the paths through which nothing came back."""
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
        spin=lab.spin,
    )
    outcome = UdpEcho(stream(len(up.paths), wait_ns)).run(context)
    if not outcome.measurements:
        reasons = "; ".join(check.message for check in outcome.checks if not check.ok)
        raise TunnelError(f"the warm-up failed: {reasons}")
    return [one.path for one in outcome.measurements if one.metrics.get("rtt_p50_ns") is None]


def stream(paths: int, wait_ns: int) -> UdpEchoParams:
    """Return what is sent through each of so many paths, waiting so long for replies."""
    gap_ns = max(_GAP_NS, _SHARED_GAP_NS * paths)
    return UdpEchoParams.model_validate(
        {
            "gap": f"{gap_ns} ns",
            "packets": max(_LEAST_PACKETS, _PACKETS * _GAP_NS // gap_ns),
            "payload_bytes": _PAYLOAD_BYTES,
            "load": "each",
            "late": f"{wait_ns} ns",
            "drain": f"{wait_ns} ns",
        }
    )


def waiting_ns(fixed: RoundTrip | None, *, gap_ns: int | None = None) -> int:
    """Return how long replies are waited for where some are lost.

    On a link of known delay that is short: a path that loses packets would else cost each bring-up
    a second or more for nothing. ``fixed`` is None where the delay is not known, or the CPU is
    slow; with ``gap_ns`` between packets all of which matter, none may wait for the one before it.
    """
    if fixed is None or (gap_ns is not None and fixed.serialization_ns > gap_ns):
        return _USUAL_WAIT_NS
    return min(_USUAL_WAIT_NS, _SHORT_WAIT_NS + fixed.total_ns)
