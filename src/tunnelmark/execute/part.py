"""One job by itself, on whatever computer: plain JSON in, a result directory out."""

import sys
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Final

from pydantic import BaseModel, ConfigDict, ValidationError

import tunnelmark
from tunnelmark.engine.binary import engine_version, find_engine
from tunnelmark.execute.study_of import study_in
from tunnelmark.hosts.ledger import Ledger
from tunnelmark.lab.clean import clean, find_leftovers
from tunnelmark.lab.placement import Placement, Wanted
from tunnelmark.lab.session.backend import LabBackend
from tunnelmark.model.costs import parse_costs
from tunnelmark.model.errors import LabError, StudyError
from tunnelmark.model.faults import one_line
from tunnelmark.model.job import from_json
from tunnelmark.model.session import Able
from tunnelmark.run.events import RunEnded
from tunnelmark.run.interrupt import Interrupted, Interrupts
from tunnelmark.run.loop import Loop
from tunnelmark.sim.backend import SimBackend
from tunnelmark.store import Manifest, Writer
from tunnelmark.store.layout import first_fault
from tunnelmark.study.plan import alike
from tunnelmark.study.plan import jobs as plan_jobs

TASK: Final = "task.json"
RESULT: Final = "result"
ERROR: Final = "error.txt"
INTERRUPTED: Final = "interrupted"
"""Outcome of a part that was ended in order before all of its trials were done."""


class Task(BaseModel):
    """A job with what a worker needs beside it."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    job: str
    """The JSON that ``tunnelmark plan --json`` prints of it."""
    head: Manifest
    """Of the run that the job is of; its part has the same run ID."""
    started_at: str
    """Of this sitting of the run: UTC, ISO 8601."""
    simulated: bool
    environment: Mapping[str, str] = {}
    """Of a simulation, which no computer decides."""
    costs: tuple[str, ...] = ()
    """Cost models of a simulation, in TOML, the first that holds counts."""
    wanted: Wanted = "auto"
    """Where a lab stands."""
    alike: bool = False
    """Whether the part also has the job that sets this computer beside others (A/A)."""
    keep_samples: bool = True
    all_samples: bool = False
    """Of a simulation, which keeps short records only without."""
    tunnelmark: str
    """Version that the worker must have too, as its engine."""
    engine: str


def parse_task(text: str) -> Task:
    """Return the task that ``Task.model_dump_json`` wrote; ``StudyError`` names what is wrong."""
    try:
        return Task.model_validate_json(text)
    except ValidationError as error:
        raise StudyError(f"task: {first_fault(error)}") from error


def versions() -> tuple[str, str]:
    """Return the versions of Tunnelmark and its engine here."""
    return tunnelmark.__version__, engine_version(find_engine())


def run_part(task: Task, directory: Path, *, worker: str, interrupts: Interrupts) -> RunEnded:
    """Run the job of a task into a new result directory.

    Raises ``LabError`` for a worker with other versions, or that cannot run it; what fails during
    the job is recorded.
    """
    here = versions()
    if here != (task.tunnelmark, task.engine):
        raise LabError(
            f"worker {worker} has tunnelmark {here[0]} with engine {here[1]}, the run has "
            f"{task.tunnelmark} with {task.engine}: install the same on both"
        )
    job = from_json(task.job.encode())
    engine = find_engine()
    clean(find_leftovers())
    with Ledger() as ledger, ExitStack() as closing:
        backend: LabBackend | SimBackend
        if task.simulated:
            models = tuple(
                parse_costs(text, f"cost model {number}")
                for number, text in enumerate(task.costs, 1)
            )
            backend = SimBackend(
                engine, models, ledger.in_memory("sim"), task.keep_samples, task.all_samples
            )
            able = Able((job,), {}, task.environment, ())
        else:
            study = study_in(task.head)
            placement = Placement(
                ledger, engine=engine, wanted=task.wanted, system=study.place.system
            )
            closing.enter_context(placement)
            backend = LabBackend(ledger, placement, engine, task.keep_samples)
            planned = plan_jobs(study)
            able = backend.check([job], planned)
            if task.alike:
                beside = alike(planned, worker.partition("/")[0])
                able = replace(able, jobs=(*able.jobs, beside))
        jobs = tuple(one.job_id for one in able.jobs)
        head = task.head.model_copy(
            update={
                "environment": able.environment,
                "environments": {},
                "sittings": (),
                "skipped": able.skipped,
                "omitted": (),
                "jobs": jobs,
                "outcome": None,
            }
        )
        writer = Writer.create(directory, head)
        try:
            writer.begin(
                worker,
                able.environment,
                head.run_id,
                started_at=task.started_at,
                jobs=jobs,
            )
            return Loop(
                able.jobs,
                backend,
                writer,
                lambda _event: None,
                interrupts,
                skipped=able.skipped,
                changed=backend.changed,
            ).run(resumed=False)
        finally:
            writer.close()


def main() -> None:
    """Run the task of a folder, for a worker: ``part.py FOLDER WORKER``."""
    folder, worker = Path(sys.argv[1]), sys.argv[2]
    try:
        with Interrupts() as interrupts:
            task = parse_task((folder / TASK).read_text(encoding="utf-8"))
            run_part(task, folder / RESULT, worker=worker, interrupts=interrupts)
    except (Exception, Interrupted) as error:  # noqa: BLE001 - whatever it is, the worker tells
        (folder / ERROR).write_text(one_line(error), encoding="utf-8")
        sys.exit(1)


if __name__ == "__main__":
    main()
