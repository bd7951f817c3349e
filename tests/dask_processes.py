"""A Dask scheduler and workers as processes of this computer, to be killed at will."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Self

import tunnelmark

_SOURCES = Path(tunnelmark.__file__).parents[1]


class Processes:
    """Use as a context manager; leaving kills what is still alive."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.address = ""
        self.scheduler: subprocess.Popen[bytes] | None = None
        self.workers: dict[str, subprocess.Popen[bytes]] = {}
        self._count = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for process in (*self.workers.values(), self.scheduler):
            if process is not None:
                process.kill()
                process.wait()

    def start(self, workers: int) -> None:
        """Start what is missing of a scheduler and so many workers; wait for neither."""
        if self.scheduler is None or self.scheduler.poll() is not None:
            self._count += 1
            file = self.folder / f"scheduler{self._count}.json"
            arguments = ["--host", "127.0.0.1", "--port", "0", "--no-dashboard"]
            self.scheduler = self._python("scheduler", *arguments, "--scheduler-file", str(file))
            while not file.exists():
                assert self.scheduler.poll() is None
                time.sleep(0.05)
            self.address = _address(file)
        alive = [process for process in self.workers.values() if process.poll() is None]
        for _ in range(workers - len(alive)):
            self.add()

    def add(self, *arguments: str) -> str:
        """Start a worker and return its name."""
        name = f"worker{len(self.workers) + 1}"
        folder = self.folder / name
        self.workers[name] = self._python(
            *("worker", self.address, "--no-nanny", "--no-dashboard", "--nthreads", "1"),
            *("--name", name, "--local-directory", str(folder), *arguments),
        )
        return name

    def kill(self, process: "subprocess.Popen[bytes] | None") -> None:
        assert process is not None
        process.send_signal(signal.SIGKILL)
        process.wait()

    def _python(self, module: str, *arguments: str) -> "subprocess.Popen[bytes]":
        own = {"PYTHONPATH": str(_SOURCES), "DASK_TEMPORARY_DIRECTORY": str(self.folder)}
        with (self.folder / "log.txt").open("ab") as log:
            return subprocess.Popen(
                [sys.executable, "-m", "distributed.cli.dask_" + module, *arguments],
                env={**os.environ, **own},
                stdout=log,
                stderr=log,
            )


def _address(file: Path) -> str:
    while True:
        try:
            return str(json.loads(file.read_text())["address"])
        except ValueError:
            time.sleep(0.05)
