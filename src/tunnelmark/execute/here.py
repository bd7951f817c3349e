"""A run in this process: check, jobs, end; everything it makes is removed, whatever ends it."""

import socket
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path

from tunnelmark.execute.begin import check_where, chosen_jobs, create_result, limited
from tunnelmark.execute.hosts_limits import check_study, forwarded
from tunnelmark.execute.parts import take_in
from tunnelmark.execute.study_of import placed, study_of
from tunnelmark.hosts.inventory import Inventory
from tunnelmark.hosts.ledger import Ledger
from tunnelmark.lab.clean import clean, find_leftovers
from tunnelmark.lab.hosts_placement import HostsPlacement
from tunnelmark.lab.placement import Placement, Wanted
from tunnelmark.lab.session.backend import LabBackend
from tunnelmark.model.costs import CostModel
from tunnelmark.model.suites import Suite
from tunnelmark.run.events import Listener, RunEnded
from tunnelmark.run.interrupt import Interrupted, Interrupts
from tunnelmark.run.loop import Loop
from tunnelmark.sim.backend import SimBackend
from tunnelmark.sim.known_costs import known_costs
from tunnelmark.store import Writer
from tunnelmark.study import Study
from tunnelmark.study.plan import jobs as plan_jobs


@dataclass(frozen=True)
class Simulation:
    """A run in virtual time in the place of labs."""

    costs: Path | None = None
    """A folder with cost models, which come before those of this package."""
    timeless: bool = False
    """The work of tunnels takes no time, whatever models there are."""
    all_samples: bool = False
    """Records of single packets are kept however many they are."""

    def models(self) -> tuple[CostModel, ...]:
        """Return the cost models; ``StudyError`` for a file that is wrong."""
        return () if self.timeless else known_costs(self.costs)


def execute(
    study: Study | None,
    *,
    results_dir: Path,
    listener: Listener,
    keep_samples: bool,
    engine: str,
    seed: int | None = None,
    job: str | None = None,
    resume: Path | None = None,
    budget_s: float | None = None,
    wanted: Wanted = "auto",
    suite: Suite | None = None,
    kernel: str | None = None,
    hosts: Inventory | None = None,
    simulation: Simulation | None = None,
    say: Callable[[str], None] = lambda _step: None,
) -> RunEnded:
    """Run a study, or resume an interrupted one (``resume``; ``study`` is then None).

    ``job`` runs the one job of that name, into a result directory of its own. ``budget_s`` ends the
    run in time, and divides it over the points. ``wanted`` is where labs stand, unless they
    stand on ``hosts`` or a ``simulation`` takes their place; ``suite`` and ``kernel`` are of their
    machines, in place of the study's; ``say`` is called with what takes time before the run starts.
    Raises ``StudyError``, ``LabError`` or ``ResultError`` for what makes the whole run impossible;
    a job that fails is recorded and the run goes on.
    """
    clean(find_leftovers())
    only: tuple[str, ...] = (job,) if job is not None else ()
    if resume is not None:
        take_in(resume)
        check_where(resume, on_hosts=hosts is not None, simulated=simulation is not None)
        study, only = study_of(resume)
    if study is None:
        raise ValueError("needs a study or a directory to resume")
    if seed is not None and resume is None:
        study = replace(study, seed=seed)
    if resume is None:
        study = replace(study, place=placed(study.place, suite, kernel))
    planned = plan_jobs(study)
    jobs = chosen_jobs(planned, only, study)
    if hosts is not None:
        say(check_study(study, hosts).describe())
    try:
        with Interrupts() as interrupts, Ledger() as ledger, ExitStack() as closing:
            backend: LabBackend | SimBackend
            if simulation is not None:
                backend = SimBackend(
                    engine,
                    simulation.models(),
                    ledger.in_memory("sim"),
                    keep_samples,
                    simulation.all_samples,
                )
                able = limited(backend.check(planned), only, study)
            else:
                placement: Placement | HostsPlacement
                if hosts is None:
                    system = study.place.system
                    placement = Placement(
                        ledger, engine=engine, wanted=wanted, system=system, say=say
                    )
                else:
                    placement = HostsPlacement(ledger, hosts, forwarded=forwarded(study), say=say)
                closing.enter_context(placement)
                backend = LabBackend(ledger, placement, engine, keep_samples)
                able = backend.check(jobs, planned)
            writer = (
                Writer(resume)
                if resume
                else create_result(results_dir, study, only, ledger.run_id, able)
            )
            if resume:
                # What was missing then may be there now.
                runs = {job.block.tunnel.label for job in able.jobs}
                before = writer.manifest.skipped.items()
                kept = {label: why for label, why in before if label not in runs}
                writer.update(skipped={**kept, **able.skipped})
            try:
                writer.begin(socket.gethostname(), able.environment, ledger.run_id)
                return Loop(
                    able.jobs,
                    backend,
                    writer,
                    listener,
                    interrupts,
                    skipped=able.skipped,
                    budget_s=budget_s,
                    changed=backend.changed,
                ).run(resumed=resume is not None)
            finally:
                writer.close()
    except Interrupted:
        # Asked twice, or before there was anything to record.
        raise KeyboardInterrupt from None
