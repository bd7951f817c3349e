"""A Dask scheduler as this process sees it; ``distributed`` is imported when one is asked for."""

import importlib
import logging
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from tunnelmark.execute.worker import LAB, Facts, Sent, carry_out, facts
from tunnelmark.model.errors import LabError, StudyError
from tunnelmark.model.faults import one_line

_LOCAL: Final = re.compile(r"local:([1-9][0-9]{0,2})")
_ADDRESS: Final = re.compile(r"(?:tcp|tls|ws|wss)://\S+")
_ANSWER_S: Final = 10


@dataclass(frozen=True)
class Cluster:
    """Where the scheduler is: its address, or how many workers this run has of its own."""

    address: str
    workers: int | None = None


@dataclass(frozen=True)
class Answer:
    """What became of a job that was handed out: a part, or why there is none."""

    job_id: str
    sent: Sent | None
    error: str = ""


class SchedulerLostError(LabError):
    """The scheduler does not answer any more."""


def parse_cluster(text: str) -> Cluster:
    """Return the cluster of ``tcp://HOST:PORT`` or ``local:N``; ``StudyError`` if it is neither."""
    if found := _LOCAL.fullmatch(text):
        return Cluster(text, int(found[1]))
    if _ADDRESS.fullmatch(text):
        return Cluster(text)
    raise StudyError(
        f"--cluster is {text[:80]!r}, must be the address of a Dask scheduler (tcp://HOST:8786), "
        "or local:N with 1 to 999 workers"
    )


@contextmanager
def connected(cluster: Cluster, folder: Path) -> Iterator["Scheduler"]:
    """Connect to a scheduler, or start one with its workers, which end with this.

    ``folder`` is for the files of those that are started. Raises ``LabError`` with the remedy where
    there is none.
    """
    dask = _distributed()
    # What Dask logs of a scheduler that is gone is reported in one line here.
    logging.getLogger("distributed").setLevel(logging.CRITICAL)
    own = None
    try:
        if cluster.workers is not None:
            # Scheduler and workers have their folders in it.
            with importlib.import_module("dask").config.set(temporary_directory=str(folder)):
                own = dask.LocalCluster(
                    n_workers=cluster.workers,
                    threads_per_worker=1,
                    processes=True,
                    dashboard_address=None,
                )
        client = dask.Client(own or cluster.address, timeout=_ANSWER_S, set_as_default=False)
    except OSError as error:
        if own is not None:
            own.close()
        raise LabError(
            f"{cluster.address}: no Dask scheduler answers within {_ANSWER_S} s (start one with: "
            "dask scheduler)"
        ) from error
    try:
        yield Scheduler(client, cluster.address)
    finally:
        # It may be gone.
        with suppress(Exception):
            client.close(timeout=1)
        if own is not None:
            own.close()


class Scheduler:
    """Takes jobs, and gives what became of them in the order in which they end."""

    def __init__(self, client: Any, address: str) -> None:
        """Take a client of ``distributed``."""
        self._client, self.address = client, address
        self._ended = _distributed().as_completed(loop=client.loop)
        self._jobs: dict[Any, str] = {}
        """By future."""

    def check(self, wanted: tuple[str, str], *, labs: bool) -> int:
        """Return how many jobs the workers that are there run at a time; 0: there are none yet.

        ``wanted`` are the versions of Tunnelmark and its engine. Raises ``LabError`` for a worker
        that has others, and where there are workers, but none that may have a lab.
        """
        workers = self._client.scheduler_info(n_workers=-1)["workers"]
        for address, found in self._client.run(facts, on_error="return").items():
            _check_worker(f"worker {workers.get(address, {}).get('name', address)}", found, wanted)
        if not labs:
            return sum(one["nthreads"] for one in workers.values())
        fit = [one for one in workers.values() if one["resources"].get(LAB) == 1]
        if workers and not fit:
            raise LabError(
                f"{self.address}: none of {len(workers)} workers has the resource {LAB}=1; start "
                f"one as root on each computer for labs: {self.lab_worker}"
            )
        hosts = [one["host"] for one in fit]
        if twice := [host for host in hosts if hosts.count(host) > 1]:
            raise LabError(
                f"{self.address}: {hosts.count(twice[0])} workers of computer {twice[0]} have the "
                f"resource {LAB}=1, but two labs at a time would disturb each other: leave one"
            )
        return len(fit)

    @property
    def lab_worker(self) -> str:
        """The command that starts a worker for labs."""
        return f'dask worker {self.address} --nthreads 1 --resources "{LAB}=1"'

    def __len__(self) -> int:
        """Return how many jobs have been handed out and not come back."""
        return len(self._jobs)

    def submit(self, job_id: str, task: str, *, name: str, lab: bool) -> None:
        """Hand a job out; ``name`` is of the run."""
        with self._lost_if_it_fails():
            future = self._client.submit(
                carry_out,
                task,
                key=f"{name}-{job_id}",
                pure=False,
                resources={LAB: 1} if lab else None,
            )
            self._jobs[future] = job_id
            self._ended.add(future)

    def next(self) -> Answer:
        """Wait for a job to end; ``SchedulerLostError`` if none will."""
        with self._lost_if_it_fails():
            # Its worker died before its result was fetched: another one runs it again.
            while (future := next(self._ended)).status == "lost":
                self._ended.add(future)
            job_id = self._jobs[future]
            try:
                answer = Answer(job_id, future.result())
            except Exception as error:
                # Of a job that was lost while it was asked for, only now is known how it ended.
                if future.status != "error":
                    raise
                answer = Answer(job_id, None, _reported(error))
        del self._jobs[future]
        future.release()
        return answer

    def forget(self) -> None:
        """Let the workers end what has not come back: nobody waits for it."""
        # A client that has lost its scheduler would wait for another.
        with suppress(Exception):
            if self._client.status == "running":
                self._client.cancel(list(self._jobs), force=True)
        self._jobs.clear()

    @contextmanager
    def _lost_if_it_fails(self) -> Iterator[None]:
        dask = _distributed()
        try:
            yield
        except (OSError, dask.client.FutureCancelledError, dask.CancelledError) as error:
            raise SchedulerLostError(f"the scheduler {self.address} was lost") from error


def _check_worker(name: str, found: object, wanted: tuple[str, str]) -> None:
    if isinstance(found, ModuleNotFoundError):
        raise LabError(f"{name} lacks {found.name}: install tunnelmark {wanted[0]} in its Python")
    if isinstance(found, BaseException):
        raise LabError(f"{name} cannot be used: {one_line(found)}")
    if not isinstance(found, Facts):
        raise LabError(f"{name} has another tunnelmark: install {wanted[0]} in its Python")
    if (found.tunnelmark, found.engine) != wanted:
        raise LabError(
            f"{name} on {found.computer} has tunnelmark {found.tunnelmark} with engine "
            f"{found.engine}, this is {wanted[0]} with {wanted[1]}: install the same on both"
        )


def _reported(error: BaseException) -> str:
    if type(error).__name__ == "KilledWorker":
        return "each of the workers that ran it died"
    return one_line(error)


def _distributed() -> Any:
    try:
        return importlib.import_module("distributed")
    except ImportError as error:
        raise LabError(
            'a cluster needs Dask, which is not here: pip install "tunnelmark[cluster]"'
        ) from error
