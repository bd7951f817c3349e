"""A job in a lab: link, tunnel, proof by wire, trials, down; for each bring-up."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from tunnelmark.hosts.ledger import Ledger
from tunnelmark.hosts.undoing import do_all
from tunnelmark.lab.carrier import noted, set_carrier
from tunnelmark.lab.lab import Lab
from tunnelmark.lab.mss_clamp import clamp, removal
from tunnelmark.lab.place import Place
from tunnelmark.lab.session import evidence
from tunnelmark.lab.session.calm import Calm
from tunnelmark.lab.session.floor import Floor, Floors, measure_floor
from tunnelmark.lab.session.joins import Joins
from tunnelmark.lab.session.layers import held_to, layers_seen, model_check
from tunnelmark.lab.session.limits import limits_at
from tunnelmark.lab.session.proving import hold, proofs_after, proofs_before
from tunnelmark.lab.session.set_ups import SetUps
from tunnelmark.lab.session.stand import Side, Stand, Task, receive_time
from tunnelmark.lab.session.trial import run_trial
from tunnelmark.lab.session.warm import warm_up
from tunnelmark.links.base import Link
from tunnelmark.links.registry import link_of
from tunnelmark.model.block import ProofVerdict, Stratum, WireProof
from tunnelmark.model.errors import LabError, TunnelError
from tunnelmark.model.faults import write
from tunnelmark.model.job import Job
from tunnelmark.model.registry import make
from tunnelmark.model.seeds import stream
from tunnelmark.model.session import Observer, Seen, Where
from tunnelmark.model.topology import Topology
from tunnelmark.model.trial import BASELINE, Block, Trial, TrialResult
from tunnelmark.model.tunnel import DataPath, TunnelUp
from tunnelmark.model.validity import Check
from tunnelmark.probes.attribution import Expected, anything
from tunnelmark.probes.busy import Busy
from tunnelmark.tunnels.base import Tunnel
from tunnelmark.tunnels.registry import tunnel_kinds
from tunnelmark.workloads.background import loads_of
from tunnelmark.workloads.base import Workload
from tunnelmark.workloads.registry import workload_kinds


class LabSession:
    """A ``Session`` whose trials are those of real programs."""

    def __init__(
        self,
        job: Job,
        ledger: Ledger,
        place: Callable[[], Place],
        *,
        engine: str,
        folder: Path,
        keep_samples: bool,
        observer: Observer,
        calm: Calm,
        floors: Floors | None = None,
    ) -> None:
        """Make nothing yet; ``place`` is asked for each bring-up where its lab stands.

        ``floors`` are those that other sessions of the run have measured, ``calm`` is what they
        know of the computer.
        """
        self.where = Where()
        self.seen = Seen()
        self._job, self._block = job, job.block
        self._ledger, self._place, self._engine = ledger, place, engine
        self._folder, self._keep_samples = folder, keep_samples
        self._observer = observer
        self._attempt = 0
        self._closing: list[Callable[[], None]] = []
        """Called last first, whatever became of the bring-up."""
        self._stand: Stand | None = None
        self._workloads: dict[str, Workload] = {}
        self._floors: Floors = {} if floors is None else floors
        self._calm = calm
        self._points: dict[str, dict[str, int]] = {"tunnel": {}, "baseline": {}}
        """Fragmentation point of each path, in bytes of payload, as the last bring-up found it."""
        self._was_up = False
        """Whether the last trial asked the tunnel and found it up."""
        self._lost: str | None = None
        """Why the last trial could not bring the tunnel up again."""
        self._unlike_model: int | None = None
        """Bring-up in which a proof was not as modelled and was done again."""

    def up(self, bring_up: int, attempt: int) -> None:
        """Make the lab, bring the tunnel and its baseline up, prove both, warm them."""
        self.seen, self._attempt, self._workloads = Seen(), attempt, {}
        self._lost = None
        link = link_of(self._block.link)
        tunnel = make(tunnel_kinds(), self._block.tunnel)
        baseline = make(tunnel_kinds(), self._block.baseline)
        with self._observer.during("lab"):
            lab = self._lab(link, tunnel)
            self._closing = [lab.down, baseline.down, tunnel.down]
            self.where.placed_on, self.where.stratum = lab.place.placed_on, lab.place.stratum
            self.where.devices = {name: one.describe() for name, one in lab.place.limits.items()}
        if _confined(lab.place):
            tunnel.confine()
        made = self._brought_up(lab, tunnel, baseline)
        self._prove(made, tunnel, link.mtu_bytes)
        agreed = made.up.negotiated[0]
        if tunnel.chooses:
            self.where.chosen = agreed.implementation
        proof = self.seen.proofs[0]
        as_modelled = model_check(tunnel, agreed, proof.samples, link.mtu_bytes)
        self._repeat_once(as_modelled, bring_up)
        self.where.layers = layers_seen(tunnel, agreed, proof, link.mtu_bytes)
        floor = self._warm(made, tunnel)
        self._stand = Stand(
            lab=lab,
            tunnel=tunnel,
            own=Side(made.up, self.seen.proofs, (as_modelled,)),
            base=Side(made.base, self.seen.baseline_proofs, ()),
            limits=limits_at(self._job.limits, lab.place),
            probes=self._job.probes,
            floor=floor,
            samples_dir=self._folder / "samples" if self._keep_samples else None,
        )

    def run(self, trial: Trial, attempt: int) -> TrialResult:
        """Run one trial over the tunnel, or beside it."""
        stand = self._standing()
        self._wait_for_calm(stand.lab)
        key = trial.point.workload.label
        workload = self._workloads.setdefault(key, make(workload_kinds(), trial.point.workload))
        for limit in stand.lab.place.limits.values():
            limit.settle()
        own = trial.point.tunnel.kind == self._block.tunnel.kind
        task = Task(trial, attempt, workload, loads_of(trial.point.workload))
        kind = Joins if workload.joining else SetUps if workload.restarts else None
        set_ups = None if kind is None else kind(stand, trial.point.tunnel)
        if set_ups is not None:
            self._closing.append(set_ups.down)
        side = stand.own if own else stand.base
        result = run_trial(stand, side, task, self._observer, set_ups)
        if set_ups is not None:
            self._stand, self._lost = set_ups.stand, set_ups.lost
        self._calm.note(result.validity, result.duration_s)
        self._was_up = evidence.was_up(result.validity)
        return result

    def problem(self) -> str | None:
        """Return what of tunnel and lab has died."""
        stand = self._standing()
        if self._lost is not None:
            return self._lost
        # Asking costs an emulated CPU 60 ms, and the trial has just asked.
        return (None if self._was_up else stand.tunnel.problem()) or stand.lab.problem()

    def finish(self) -> None:
        """Prove again that what is on the link is the tunnel's."""
        stand = self._standing()
        with self._observer.during("proof"):
            for proof in self._proofs_again(stand.lab, stand.own.up):
                self.seen.end_proofs += (proof,)
                if proof.verdict is ProofVerdict.SAW_WRONG:
                    hold(self._block, proof)

    def down(self) -> None:
        """Take the tunnel, its baseline and the lab down."""
        self._stand = None
        closing, self._closing = self._closing, []
        do_all(*reversed(closing))

    def _lab(self, link: Link, tunnel: Tunnel) -> Lab:
        spec = link.spec(self._seed("link"))
        topology = self._job.topology
        return Lab(
            self._ledger,
            Topology(
                link.mtu_bytes,
                topology.router,
                topology.reassembly,
                clients=tunnel.params.clients,
                shared=tunnel.params.shared,
            ),
            spec,
            engine=self._engine,
            logs=self._folder / "logs" / self._job.job_id,
            place=self._place(),
            emulate=not tunnel.is_link,
            offloads=spec is None,
            spin=self._job.probes.spin,
        )

    def _brought_up(self, lab: Lab, tunnel: Tunnel, baseline: Tunnel) -> "_Made":
        with self._observer.during("tunnel"):
            ends = (*lab.client_hosts, lab.server_host)
            set_carrier(tunnel, ends)
            up = noted(tunnel.up(lab.site), tunnel, ends)
            if (mss_bytes := tunnel.params.mss_clamp) is not None:
                self._closing += removal(*ends)
                up = clamp(up, mss_bytes, client=lab.client_host, server=lab.server_host)
            self.seen.negotiated = up.negotiated
            refuse_unlimited(self._block, up, lab.place)
            lab.adopt(up.medium)
            base = up if self._alone else up.reference or baseline.up(lab.site)
            self.seen.baseline_negotiated = base.negotiated
        return _Made(lab, up, base)

    def _prove(self, made: "_Made", tunnel: Tunnel, link_mtu_bytes: int) -> None:
        expected = held_to(tunnel, made.up.negotiated[0], link_mtu_bytes)
        with self._observer.during("proof"):
            for proof in self._proofs(made.lab, made.up, (), expected):
                self.seen.proofs += (proof,)
                hold(self._block, proof)
            for proof in () if self._alone else self._proofs(made.lab, made.base, (made.up,)):
                self.seen.baseline_proofs += (proof,)
                hold(self._block, proof)
        self.seen.baseline_proofs = self.seen.baseline_proofs or self.seen.proofs

    def _repeat_once(self, as_modelled: Check, bring_up: int) -> None:
        """Raise ``TunnelError`` the first time that a bring-up's proof is not as modelled.

        It would fail each of its trials, and a busy computer may have mistaken one packet for
        another. What is so twice is so: then each trial says it.
        """
        if as_modelled.ok or self._unlike_model == bring_up:
            return
        self._unlike_model = bring_up
        raise TunnelError(f"{self._block.tunnel.label}: {as_modelled.message}")

    def _warm(self, made: "_Made", tunnel: Tunnel) -> Floor | None:
        """Warm both up; return what the lab itself adds, measured unless an alike one was."""
        with self._observer.during("warm"):
            for one in (made.up,) if self._alone else (made.up, made.base):
                warm_up(one, made.lab, seed=self._seed("warm"))
            if (alike := self._alike(made, tunnel)) not in self._floors:
                self._calm.doubt()
                self._wait_for_calm(made.lab)
                self._floors[alike] = measure_floor(
                    made.base,
                    made.lab,
                    seed=self._seed("floor"),
                    receive_time=receive_time(made.up),
                )
        return self._floors[alike]

    def _wait_for_calm(self, lab: Lab) -> None:
        # What goes on in the computers of others is not seen from here.
        if lab.place.stratum is not Stratum.HOSTS:
            limits = limits_at(self._job.limits, lab.place)
            most = Busy(limits.sender_lateness, min(limits.steal, limits.starvation))
            self._calm.wait(most, self._observer.waiting, self._observer.cancelled)

    def _alike(self, made: "_Made", tunnel: Tunnel) -> str:
        """Return what a lab without its tunnel is: two that are alike have one floor."""
        block, params = self._block, tunnel.params
        lab = (self._job.topology, block.link, block.device, made.lab.place.placed_on)
        ends = (block.baseline, params.clients, params.shared, receive_time(made.up))
        return repr((*lab, *ends))

    def _proofs(
        self,
        lab: Lab,
        up: TunnelUp,
        beside: tuple[TunnelUp, ...],
        expected: Expected = anything,
    ) -> Iterator[WireProof]:
        return proofs_before(
            self._block,
            lab,
            up,
            beside=beside,
            expected=expected,
            seed=self._seed,
            keep=self._keep_capture,
            points=self._points["baseline" if beside else "tunnel"],
        )

    def _proofs_again(self, lab: Lab, up: TunnelUp) -> Iterator[WireProof]:
        return proofs_after(lab, up, seed=self._seed, keep=self._keep_capture)

    def _keep_capture(self, name: str, pcap: bytes) -> None:
        if self._keep_samples:
            safe = "".join(c if c.isalnum() or c in "-." else "-" for c in name)
            write(self._folder / "captures" / f"{self._job.job_id}-{safe}.pcap", pcap)

    def _seed(self, what: str) -> int:
        """Return a seed of one attempt: an unlucky one is not drawn again by the next."""
        return stream(self._job.seed, f"{what}/{self._job.job_id}/{self._attempt}")

    def _standing(self) -> Stand:
        if self._stand is None:
            raise RuntimeError("the session is not up")
        return self._stand

    @property
    def _alone(self) -> bool:
        return self._block.tunnel.kind == BASELINE


@dataclass(frozen=True)
class _Made:
    """A lab in which a tunnel and its baseline are up."""

    lab: Lab
    up: TunnelUp
    base: TunnelUp


def refuse_unlimited(block: Block, up: TunnelUp, place: Place) -> None:
    """Raise ``LabError`` where the tunnel's work is out of reach of its device's CPU limit."""
    if not _confined(place) or block.tunnel.kind == BASELINE:
        return
    for agreed in up.negotiated:
        if agreed.data_path is not DataPath.USER_SPACE:
            raise LabError(
                f"{block.tunnel.label} on {block.device.label}: {agreed.version} does its work in "
                f"the {agreed.data_path or 'kernel'} of this computer, which a CPU limit does not "
                "reach; choose an implementation in user space, or --place endpoints"
            )


def _confined(place: Place) -> bool:
    """Say whether a CPU limit holds programs, and not the kernel that they share."""
    return bool(place.limits) and not place.limits_kernel
