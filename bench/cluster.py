"""A study of many points planned, run and merged through a Dask cluster of two worker processes.

What each step takes, and the most memory that each process had. ``python bench/cluster.py POINTS``.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from page import Line

from tunnelmark.engine.binary import find_engine
from tunnelmark.execute import Simulation
from tunnelmark.execute.cluster import execute_on
from tunnelmark.execute.scheduler import parse_cluster
from tunnelmark.run.events import JobDone, RunStarted
from tunnelmark.study import load_study
from tunnelmark.study.plan import jobs

POINTS: Final = 10_000
_WORKERS: Final = 2
_SIZES: Final = 50
_WAYS: Final = 2
"""Each point is measured with the tunnel and without."""
_MOST_MIB: Final = 1024
_STUDY: Final = """\
format = 1
name = "cluster"
title = "Cluster"
[precision]
metric = "rtt_p50_ns"
min_repeats = 1
max_repeats = 1
bring_ups = 1
[[tunnel]]
kind = "openvpn"
cipher = "AES-256-GCM"
[[link]]
kind = "serial"
rate = "8 Mbit/s"
delay = {delays}
loss_forward = "1 %"
[[workload]]
kind = "udp_echo"
packets = 100
gap = "5 ms"
payload_bytes = {sizes}
"""


@dataclass(frozen=True)
class Took:
    """What a run of so many points came to."""

    points: int
    seconds: Mapping[str, float]
    """``planned``, ``run`` and ``merged``."""
    mib: Mapping[str, float]
    """Most memory (RSS) of ``controller``, ``scheduler`` and the larger of the ``workers``."""
    disk_mb: float
    files: int


def cluster(points: int = POINTS) -> list[Line]:
    """Return the line of the bench."""
    took = measured(points)
    seconds, mib = took.seconds, took.mib
    return [
        Line(
            f"{points:,} points in {points // _SIZES // _WAYS:,} jobs through Dask, two workers",
            f"planned in {seconds['planned']:.1f} s, run in {seconds['run']:.0f} s, merged in "
            f"{seconds['merged']:.0f} s; {took.disk_mb:.0f} MB in {took.files:,} files",
            ", ".join(f"{name} {size:.0f} MiB" for name, size in mib.items()) + " at most",
            f"at most {_MOST_MIB} MiB each",
            max(mib.values()) <= _MOST_MIB,
        )
    ]


def measured(points: int) -> Took:
    """Run a study of so many points; ``SystemExit`` if a trial is missing."""
    links = points // _SIZES // _WAYS
    delays = "[" + ", ".join(f'"{10_000 + number} us"' for number in range(links)) + "]"
    text = _STUDY.format(delays=delays, sizes=list(range(64, 64 + _SIZES)))
    with tempfile.TemporaryDirectory(prefix="tunnelmark-bench-") as name:
        folder = Path(name)
        study = folder / "cluster.toml"
        study.write_text(text, encoding="utf-8")
        with _cluster(folder) as (address, processes):
            words = [sys.executable, __file__, "--controller", address, str(study), str(folder)]
            done = subprocess.run(words, capture_output=True, text=True, check=False)
            mib = {kind: max(map(_most_mib, pids)) for kind, pids in processes.items()}
        if done.returncode:
            raise SystemExit(f"bench: the controller failed: {done.stderr[-2000:]}")
        reported = json.loads(done.stdout.splitlines()[-1])
        if reported["valid"] != points:
            raise SystemExit(f"bench: {reported['valid']} valid trials, must be {points}")
        files = [one for one in Path(reported["directory"]).rglob("*") if one.is_file()]
        size_mb = sum(one.stat().st_size for one in files) / 1e6
    mib = {"controller": reported["mib"], **mib}
    return Took(points, reported["seconds"], mib, size_mb, len(files))


@contextmanager
def _cluster(folder: Path) -> Iterator[tuple[str, Mapping[str, list[int]]]]:
    """Start a scheduler and workers as processes, and end them."""
    file = folder / "scheduler.json"
    started: list[subprocess.Popen[bytes]] = []
    with (folder / "dask.log").open("ab") as log:

        def start(module: str, *arguments: str) -> int:
            # They end with this process, also where it is killed.
            words = ["setpriv", "--pdeathsig", "KILL", sys.executable, "-m"]
            words += [f"distributed.cli.dask_{module}", *arguments]
            own = {"DASK_TEMPORARY_DIRECTORY": str(folder)}
            started.append(subprocess.Popen(words, stdout=log, stderr=log, env=os.environ | own))
            return started[-1].pid

        try:
            head = ("--host", "127.0.0.1", "--port", "0", "--no-dashboard")
            scheduler = start("scheduler", *head, "--scheduler-file", str(file))
            while not file.exists() or not file.read_text(encoding="utf-8").endswith("}"):
                time.sleep(0.05)
            address = str(json.loads(file.read_text(encoding="utf-8"))["address"])
            one = ("--no-nanny", "--no-dashboard", "--nthreads", "1")
            workers = [
                start("worker", address, *one, "--local-directory", str(folder / f"worker{number}"))
                for number in range(_WORKERS)
            ]
            yield address, {"scheduler": [scheduler], "worker": workers}
        finally:
            for process in reversed(started):
                process.kill()
                process.wait()


def _most_mib(pid: int) -> float:
    """Return the most memory that a process has had."""
    text = Path(f"/proc/{pid}/status").read_text(encoding="ascii")
    return int(text.partition("VmHWM:")[2].split()[0]) / 1024


def _controller(address: str, study_file: str, folder: Path) -> None:
    began = time.monotonic()
    study = load_study(study_file)
    jobs(study)
    seconds = {"planned": time.monotonic() - began}
    times: dict[type, float] = {}

    def listener(event: object) -> None:
        times[type(event)] = time.monotonic()

    ended = execute_on(
        parse_cluster(address),
        study,
        results_dir=folder / "results",
        listener=listener,
        keep_samples=False,
        engine=find_engine(),
        simulation=Simulation(),
    )
    seconds["run"] = times[JobDone] - times[RunStarted]
    seconds["merged"] = time.monotonic() - times[JobDone]
    reported = {
        "seconds": seconds,
        "mib": _most_mib(os.getpid()),
        "valid": ended.valid_trials,
        "directory": ended.directory,
    }
    print(json.dumps(reported))


if __name__ == "__main__":
    if sys.argv[1] == "--controller":
        _controller(sys.argv[2], sys.argv[3], Path(sys.argv[4]))
    else:
        print(measured(int(sys.argv[1])))
