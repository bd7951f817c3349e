"""A study by a Dask cluster: a real scheduler and workers, some of which are killed."""

import io
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import distributed
import polars as pl
import pytest

from dask_processes import Processes
from made_simulated import OF_THE_RUN
from small_study import one_echo
from tunnelmark.cli import main
from tunnelmark.engine.binary import find_engine
from tunnelmark.execute import Simulation, execute
from tunnelmark.execute import scheduler as of_scheduler
from tunnelmark.execute.cluster import execute_on
from tunnelmark.execute.scheduler import Cluster, SchedulerLostError
from tunnelmark.run.events import Event, JobDone
from tunnelmark.store import Result, open_result
from tunnelmark.study import Study, load_study
from tunnelmark.study.plan import jobs

# What Dask's own shutdown leaves to the garbage collector is not a fault of ours.
pytestmark = [
    pytest.mark.usefixtures("engine", "runtime"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]

STUDY = """\
format = 1
name = "made"
title = "Made"
[precision]
metric = "rtt_p50_ns"
min_repeats = 2
max_repeats = 2
bring_ups = 1
[[tunnel]]
kind = "openvpn"
cipher = "AES-256-GCM"
[[tunnel]]
kind = "wireguard"
[[link]]
kind = "serial"
label = "line"
rate = ["2 Mbit/s", "4 Mbit/s", "8 Mbit/s"]
delay = "10 ms"
loss_forward = "10 %"
[[workload]]
kind = "udp_echo"
gap = "5 ms"
packets = 50
payload_bytes = 64
"""
EVERY_TRIAL = 6 * 2 * 2


@pytest.fixture
def runtime(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Give this run and the workers that it starts ledgers of their own."""
    monkeypatch.setenv("TUNNELMARK_RUNTIME", str(tmp_path / "runtime"))


@pytest.fixture
def dask(tmp_path: Path, runtime: None) -> Iterator[Processes]:  # noqa: ARG001 - comes first
    with Processes(tmp_path) as processes:
        yield processes


@pytest.fixture
def study(tmp_path: Path) -> Study:
    file = tmp_path / "made.toml"
    file.write_text(STUDY, encoding="utf-8")
    return load_study(str(file))


def by_cluster(
    address: str, study: Study | None, folder: Path, listener: object = None, **more: object
) -> Result:
    reported = listener if callable(listener) else lambda _event: None
    ended = execute_on(
        Cluster(address),
        study,
        results_dir=folder / "cluster",
        listener=reported,
        keep_samples=True,
        engine=find_engine(),
        simulation=Simulation(),
        **more,  # type: ignore[arg-type]
    )
    assert ended.outcome == "complete"
    return open_result(Path(ended.directory))


def by_here(study: Study, folder: Path) -> Result:
    ended = execute(
        study,
        results_dir=folder / "here",
        listener=lambda _event: None,
        keep_samples=True,
        engine=find_engine(),
        simulation=Simulation(),
    )
    return open_result(Path(ended.directory))


def test_the_installed_command_runs_a_study_on_all_cores(study: Study, tmp_path: Path) -> None:
    done = subprocess.run(
        _with_workers_of_its_own(tmp_path),
        capture_output=True,
        text=True,
        check=False,
        timeout=240,
    )
    assert done.returncode == 0, done.stderr
    (directory,) = (tmp_path / "cluster").iterdir()
    tables = [
        one.trials().drop(OF_THE_RUN).sort("trial_id", "path")
        for one in (open_result(directory), by_here(study, tmp_path))
    ]
    assert tables[0].equals(tables[1], null_equal=True)


def test_what_a_killed_run_with_workers_of_its_own_left_is_removed_by_clean(
    study: Study,  # noqa: ARG001 - its file is run
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.setenv("TMPDIR", str(scratch))
    run = subprocess.Popen(_with_workers_of_its_own(tmp_path), start_new_session=True)
    while not list(tmp_path.glob("**/worker-*/")):
        assert run.poll() is None
        time.sleep(0.02)
    run.kill()
    run.wait()
    while _lives(run.pid):
        time.sleep(0.1)
    assert main.call(["clean"]) == 0
    assert list(scratch.iterdir()) == []
    assert list(tmp_path.glob("**/worker-*/")) == []


def _with_workers_of_its_own(folder: Path) -> list[str]:
    """Return the run of the study as a user calls it.

    Workers import the file of the command, and must not run it again.
    """
    command = Path(sys.executable).with_name("tunnelmark")
    words = ["run", str(folder / "made.toml"), "--backend", "sim", "--cluster", "local:2"]
    return [str(command), *words, "--results", str(folder / "cluster"), "--quiet"]


def _lives(group: int) -> bool:
    """Say whether there is a process of a group."""
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True


def tables(result: Result) -> Mapping[str, bytes]:
    """Return the bytes of all tables of trials and of all samples."""
    found = {path.name: path.read_bytes() for path in result.directory.glob("samples/*")}
    for name, files in result.jobs().items():
        assert files.journal is None
        frame = result.trials().filter(block_id=name).drop(OF_THE_RUN)
        frame.write_parquet(buffer := io.BytesIO())
        found[name] = buffer.getvalue()
    return found


def every_trial_once(result: Result) -> bool:
    trials = result.trials().filter(path="total")
    return trials.height == trials["trial_id"].n_unique() == EVERY_TRIAL


def _at_the_first(
    reported: list[JobDone], dask: Processes, act: Callable[[str], None]
) -> Callable[[Event], None]:
    """Return a listener that keeps what is done and, of two workers, gives the other's name."""

    def listener(event: Event) -> None:
        if isinstance(event, JobDone):
            reported.append(event)
            if len(reported) == 1:
                name = event.worker.partition("/")[2]
                act(next(other for other in dask.workers if other != name))

    return listener


def test_a_worker_dies_and_the_result_is_byte_for_byte_that_of_one_computer(
    dask: Processes, study: Study, tmp_path: Path
) -> None:
    dask.start(2)
    _wait_for(dask, 2)
    reported: list[JobDone] = []
    # The one that is at work: the other one has just sent its part.
    kill_one = _at_the_first(reported, dask, lambda other: dask.kill(dask.workers[other]))
    result = by_cluster(dask.address, study, tmp_path, kill_one)
    assert every_trial_once(result)
    assert [event.jobs_done for event in reported] == [1, 2, 3, 4, 5, 6]
    assert {event.jobs_expected for event in reported} == {6}
    assert tables(result) == tables(by_here(study, tmp_path))
    # The manifest says which worker ran which job, as each trial does.
    ran = {name: one.worker for one in result.manifest.sittings for name in one.jobs}
    assert ran == {event.job_id: event.worker for event in reported}
    assert ran == dict(result.trials().select("block_id", "worker").iter_rows())
    assert result.manifest.outcome == "complete"
    assert not (result.directory / ".parts").exists()


def test_the_first_job_of_a_worker_ends_dasks_profiler(
    dask: Processes, study: Study, tmp_path: Path
) -> None:
    # With Python 3.11 it waits for ever when a thread ends in a garbage collection of its own.
    # Sent by value, as workers do not know this module.
    def profiled(dask_worker: distributed.Worker) -> list[bool]:
        callbacks = dask_worker.periodic_callbacks
        return [callbacks[name].is_running() for name in ("profile", "profile-cycle")]

    dask.start(1)
    _wait_for(dask, 1)
    connect: Any = distributed.Client
    with connect(dask.address, set_as_default=False) as client:
        assert [*client.run(profiled).values()] == [[True, True]]
        assert every_trial_once(by_cluster(dask.address, study, tmp_path))
        assert [*client.run(profiled).values()] == [[False, False]]


def test_a_worker_dies_with_a_part_that_nobody_has_fetched(
    dask: Processes, study: Study, tmp_path: Path
) -> None:
    dask.start(2)
    _wait_for(dask, 2)
    reported: list[JobDone] = []

    def kill_when_it_has_ended_a_job(other: str) -> None:
        connect: Any = distributed.Client
        with connect(dask.address, set_as_default=False) as client:

            def workers() -> dict[str, str]:
                found = client.scheduler_info(n_workers=-1)["workers"]
                return {one["name"]: address for address, one in found.items()}

            address = workers()[other]
            while not client.has_what([address])[address]:
                time.sleep(0.01)
            dask.kill(dask.workers[other])
            while other in workers():
                time.sleep(0.01)

    listener = _at_the_first(reported, dask, kill_when_it_has_ended_a_job)
    result = by_cluster(dask.address, study, tmp_path, listener)
    assert every_trial_once(result)
    assert [event.jobs_done for event in reported] == [1, 2, 3, 4, 5, 6]
    assert tables(result) == tables(by_here(study, tmp_path))


def test_the_scheduler_dies_and_a_resume_runs_the_rest(
    dask: Processes, study: Study, tmp_path: Path
) -> None:
    dask.start(1)

    def kill_the_scheduler(event: Event) -> None:
        if isinstance(event, JobDone) and event.jobs_done == 2:
            dask.kill(dask.scheduler)

    with pytest.raises(SchedulerLostError, match=r"of 6 jobs are kept, resume the rest with: "):
        by_cluster(dask.address, study, tmp_path, kill_the_scheduler)
    (directory,) = (tmp_path / "cluster").iterdir()
    before = open_result(directory)
    kept = set(before.jobs())
    assert len(kept) >= 2
    assert before.manifest.outcome == "interrupted"

    for worker in dask.workers.values():
        dask.kill(worker)
    dask.start(1)
    reported: list[Event] = []
    result = by_cluster(dask.address, None, tmp_path, reported.append, resume=directory)
    done = {event.job_id for event in reported if isinstance(event, JobDone)}
    assert done == {job.job_id for job in jobs(study)} - kept
    assert every_trial_once(result)
    assert tables(result) == tables(by_here(study, tmp_path))


def test_a_worker_that_will_not_do_is_refused(
    dask: Processes,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    file = tmp_path / "lab.toml"
    file.write_text(one_echo("lab", "Lab", ""), encoding="utf-8")
    dask.start(1)
    _wait_for(dask, 1)
    command = ["run", str(file), "--cluster", dask.address, "--place", "local", "--quiet"]
    assert main.call([*command, "--results", str(tmp_path / "none")]) == 3
    right = f'dask worker {dask.address} --nthreads 1 --resources "lab=1"'
    assert right in capsys.readouterr().err
    with monkeypatch.context() as patch:
        patch.setattr("tunnelmark.__version__", "99.0")
        assert main.call([*command, "--results", str(tmp_path / "none")]) == 3
    assert "worker worker1 on " in (error := capsys.readouterr().err)
    assert "this is 99.0" in error
    assert not (tmp_path / "none").exists()


@pytest.mark.lab
def test_a_worker_with_the_resource_runs_labs_and_is_set_beside_others_once(
    dask: Processes, tmp_path: Path
) -> None:
    file = tmp_path / "lab.toml"
    tunnels = '[[tunnel]]\nkind = "openvpn"\n[[tunnel]]\nkind = "tinc"\n'
    file.write_text(one_echo("lab", "Lab", tunnels), encoding="utf-8")
    dask.start(0)
    dask.add("--resources", "lab=1")
    _wait_for(dask, 1)
    command = ["run", str(file), "--cluster", dask.address, "--place", "local", "--quiet"]
    assert main.call([*command, "--results", str(tmp_path / "lab")]) == 0
    (directory,) = (tmp_path / "lab").iterdir()
    result = open_result(directory)
    trials = result.trials()
    assert set(trials["stratum"]) == {"namespaces"}
    # The environment is that of the study, whichever programs a job itself needs.
    (key,) = set(trials["environment"])
    assert {"kernel", "openvpn", "tincd"} <= result.manifest.environments[key].keys()
    assert result.manifest.environment == result.manifest.environments[key]
    (beside,) = set(result.jobs()) - {job.job_id for job in jobs(load_study(str(file)))}
    own = trials.filter(block_id=beside)
    assert own["trial_id"].n_unique() == 1
    assert set(own["tunnel"]) == {"none"}
    assert own["point_id"][0] in set(trials.filter(pl.col("block_id") != beside)["point_id"])
    assert [len(one.jobs) for one in result.manifest.sittings] == [3]


def test_no_scheduler_is_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(of_scheduler, "_ANSWER_S", 1)
    command = ["run", "quickstart", "--backend", "sim", "--results", str(tmp_path / "results")]
    assert main.call([*command, "--cluster", "tcp://127.0.0.1:9", "--quiet"]) == 3
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert "tcp://127.0.0.1:9: no Dask scheduler answers within 1 s" in error


def _wait_for(dask: Processes, workers: int) -> None:
    with of_scheduler.connected(Cluster(dask.address), dask.folder) as scheduler:
        scheduler._client.wait_for_workers(workers)
