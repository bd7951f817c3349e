"""The proofs by wire of a block: before its trials, and again when they are done."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from tunnelmark.lab.lab import Lab
from tunnelmark.lab.session.floor import fixed_round_trip
from tunnelmark.lab.session.listen import listening
from tunnelmark.lab.session.warm import waiting_ns
from tunnelmark.model.block import ProofVerdict, Stratum, WireProof
from tunnelmark.model.errors import RefusedError, TunnelError
from tunnelmark.model.registry import make
from tunnelmark.model.trial import Block
from tunnelmark.model.tunnel import TrafficPath, TunnelUp
from tunnelmark.probes.attribution import Expected
from tunnelmark.probes.fragmentation import LARGEST_BYTES
from tunnelmark.probes.prober import PROBE_SPACING_NS, EngineProber, least_gap_ns
from tunnelmark.probes.wire import prove
from tunnelmark.workloads.registry import workload_kinds

PROOF_PAYLOADS_BYTES = (64, 512, 1400)
"""Sizes of the proof by wire where the workloads of the study choose none of their own."""
_END_PAYLOADS_BYTES = tuple(range(100, 1300, 100))
"""Sizes of the proof at the end: one batch of them cannot be mistaken."""
_END_TRIES = 3
# The air itself keeps a frame for some ms, in a machine that is emulated for tens of them.
_AIR_SPACING_NS = 60_000_000
# Programs on an emulated CPU keep a packet for some ms more.
_EMULATED_SPACING_NS = 12_000_000

Keep = Callable[[str, bytes], None]


def proofs_before(
    block: Block,
    lab: Lab,
    up: TunnelUp,
    *,
    beside: Sequence[TunnelUp],
    expected: Expected,
    seed: Callable[[str], int],
    keep: Keep,
    points: dict[str, int],
) -> Iterator[WireProof]:
    """Yield the proof of each path, with the sizes of the study and the fragmentation point.

    Of a gateway those of the first client and of the last.

    ``points`` has the fragmentation point of each path, in bytes, where an earlier bring-up found
    it: a look whether it is still there is shorter than a search. It is brought up to date.
    ``beside`` is what is up beside it and carries nothing, ``expected`` is as in ``prove``, and
    ``seed`` gives one for a name.
    """
    sizes = {
        size
        for point in block.points
        for size in make(workload_kinds(), point.workload).payload_sizes
    }
    payload_sizes = sorted(sizes) or PROOF_PAYLOADS_BYTES
    for path in _listened_to(lab, up):
        own = seed(f"proof/{path.name}")
        idle = [other.wire for other in beside]
        proof = _proof(
            lab,
            up,
            path,
            seed=own,
            payload_sizes=payload_sizes,
            idle=idle,
            keep=keep,
            expected=expected,
            expected_bytes=points.pop(path.name, None),
        )
        if proof.fragmentation_point_bytes is not None:
            points[path.name] = proof.fragmentation_point_bytes
        yield proof


def proofs_after(
    lab: Lab, up: TunnelUp, *, seed: Callable[[str], int], keep: Keep
) -> Iterator[WireProof]:
    """Yield the last proof of each path: a cipher may have been given up under load.

    One that could not see is tried again; the trials have shown by themselves that packets passed,
    so that it does not count against them.
    """
    for path in _listened_to(lab, up):
        for number in range(_END_TRIES):
            own = seed(f"proof at the end/{path.name}/{number}")
            proof = _proof(
                lab,
                up,
                path,
                seed=own,
                payload_sizes=_END_PAYLOADS_BYTES,
                keep=keep,
                search=False,
                once=True,
            )
            if proof.verdict is not ProofVerdict.COULD_NOT_SEE:
                break
        yield proof


def _listened_to(lab: Lab, up: TunnelUp) -> Sequence[TrafficPath]:
    """Return the paths whose wire is listened to.

    One takes seconds; what passes on the wire of each client is counted by kind in every trial.
    """
    return (*up.paths[:1], *up.paths[1:][-1:]) if lab.is_gateway else up.paths


def hold(block: Block, proof: WireProof) -> None:
    """Raise unless the proof holds."""
    if proof.verdict is ProofVerdict.SAW_WRONG:
        raise RefusedError(f"{block.tunnel.label}: the proof by wire failed: {proof.message}")
    if proof.verdict is ProofVerdict.COULD_NOT_SEE:
        raise TunnelError(
            f"{block.tunnel.label}: the proof by wire saw no packets: {proof.message}"
        )


def _proof(lab: Lab, up: TunnelUp, path: TrafficPath, *, seed: int, **more: Any) -> WireProof:
    with listening(lab, up, path) as watch:
        prober = EngineProber(
            path,
            client=path.client.host if path.client else lab.client_host,
            server=lab.server_host,
            engine=lab.place.engine,
            seed=seed,
            spacing_ns=_spacing_ns(lab, up),
            drain_ns=_drain_ns(lab, up),
            stream=bool(up.wire.tcp_ports),
        )
        return prove(path, up.wire, prober=prober, watch=watch, seed=seed, **more)


def _spacing_ns(lab: Lab, up: TunnelUp) -> int:
    if up.tap is not None:
        return _AIR_SPACING_NS
    return _EMULATED_SPACING_NS if lab.place.stratum is Stratum.EMULATED else PROBE_SPACING_NS


def _drain_ns(lab: Lab, up: TunnelUp) -> int:
    """Return how long replies are waited for where some are lost."""
    quick = lab.place.stratum is Stratum.NAMESPACES and not lab.place.limits
    # A stream brings what was lost on the link some round trips later.
    if not quick or up.wire.tcp_ports:
        return waiting_ns(None)
    fixed = fixed_round_trip(lab.link, LARGEST_BYTES, lab.client.mtu_bytes)
    return waiting_ns(fixed, gap_ns=least_gap_ns(PROBE_SPACING_NS))
