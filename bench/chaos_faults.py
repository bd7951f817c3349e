"""What is done to a run of ``make chaos``: drawn from a seed, and carried out."""

import contextlib
import os
import random
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, Literal

from chaos_run import ITSELF, Run
from chaos_study import TUNNELS

from tunnelmark.hosts.cgroup import Controller, Quota, find_controller, own_group
from tunnelmark.hosts.ledger import start_time
from tunnelmark.model.errors import LabError

Fault = Literal["killed", "stopped", "starved", "disk filled", "clock stepped"]
Beside = Literal["nothing", "another run", "clean"]
PHASES: Final = ("lab", "tunnel", "proof", "warm", "trials", "down")
_FAULTS: Final[dict[Fault, float]] = {
    "killed": 0.35,
    "stopped": 0.25,
    "starved": 0.15,
    "disk filled": 0.15,
    "clock stepped": 0.1,
}
_BESIDE: Final[dict[Beside, float]] = {"nothing": 0.6, "another run": 0.2, "clean": 0.2}
_MOST_DELAY_S: Final = 1.5
_LONGEST_S: Final = 30.0
_CONTROLLER_SHARE: Final = 0.25
_FARTHEST_S: Final = 30 * 86_400
_DISK_MIB: Final = 48
_HUNGER: Final = Quota(2000, 100_000)
_DISK: Final = "the disk"
_WHOLE: Final = "all of it"
_NO_TUNNEL: Final = frozenset(
    {
        *("", ITSELF, _DISK, "tunnelmark-engi", "tcpdump", "python", "python3"),
        *("ip", "sh", "setpriv", "unshare", "sysctl"),
    }
)
"""What may be struck without a delay that is a tunnel's own; the kernel cuts names off."""


@dataclass(frozen=True)
class Strike:
    """What is done to a run, and when."""

    tunnels: tuple[str, str]
    repeats: int
    phase: str
    """In the phase of this name …"""
    occurrence: int
    """… when it comes for this time (1-based), each bring-up having its own …"""
    delay_s: float
    """… after so long."""
    fault: Fault
    lasts_s: float
    """Not of what is killed."""
    controller: bool
    """The run itself is struck (starved: all of it), else one of its programs."""
    which: float
    """Place of that program among all, from 0 to 1."""
    beside: Beside
    clean_first: bool
    """After a kill of the run itself: ``clean`` twice at once before the resume, else none."""
    clock_s: int
    """By how much the clock since boot jumps before the resume."""

    @property
    def reported(self) -> str:
        """One line."""
        words = {
            "killed": "killed",
            "clock stepped": f"killed, its resume {self.clock_s} s ahead",
            "disk filled": f"filled for {self.lasts_s:.1f} s",
        }
        what = words.get(self.fault, f"{self.fault} for {self.lasts_s:.1f} s")
        beside = "" if self.beside == "nothing" else f", {self.beside} beside"
        return (
            f"{what}, {self.delay_s:.1f} s into phase {self.phase} number {self.occurrence} of "
            f"{' and '.join(self.tunnels)}{beside}"
        )


def draw(dice: random.Random) -> Strike:
    """Draw one."""
    repeats = dice.choice((1, 2))
    first, second = dice.sample(sorted(TUNNELS), 2)
    fault = dice.choices(list(_FAULTS), list(_FAULTS.values()))[0]
    return Strike(
        tunnels=(first, second),
        repeats=repeats,
        phase=dice.choice(PHASES),
        occurrence=dice.randint(1, 2 * repeats),
        delay_s=dice.uniform(0, _MOST_DELAY_S),
        fault=fault,
        lasts_s=_LONGEST_S ** dice.random(),
        # A clock is stepped between a run that died and its resume, as by a reboot.
        controller=dice.random() < _CONTROLLER_SHARE or fault == "clock stepped",
        which=dice.random(),
        beside=dice.choices(list(_BESIDE), list(_BESIDE.values()))[0],
        clean_first=dice.choice((True, False)),
        clock_s=dice.randint(1, _FARTHEST_S),
    )


@dataclass(frozen=True)
class Struck:
    """What was struck; nothing if the run had ended before."""

    victim: str = ""
    """Name of the program."""
    pid: int = 0
    phase: str = ""
    """That the run was in; empty in records of before: it is then the one that was drawn."""
    began: float = 0.0
    ended: float = 0.0
    """Wall clock, s since 1970."""

    @property
    def tunnel(self) -> bool:
        """Whether that may have been a tunnel's own program."""
        return self.victim not in _NO_TUNNEL


def strike(run: Run, what: Strike) -> Struck:
    """Carry it out; return when it is over."""
    run.catch_up()
    phase, began = run.phase, time.time()
    struck = _strike(run, what)
    return replace(struck, phase=phase, began=began, ended=time.time()) if struck.victim else struck


def _strike(run: Run, what: Strike) -> Struck:
    if what.fault == "disk filled":
        return _fill(run, what.lasts_s)
    for _ in range(20):
        assert run.process is not None  # noqa: S101 - it was started
        if run.process.poll() is not None:
            return Struck()
        victims = _victims(run)
        pid = run.process.pid
        if not what.controller and victims:
            pid = victims[min(int(what.which * len(victims)), len(victims) - 1)]
        started = run.seen.get(pid)
        try:
            name = ITSELF if pid == run.process.pid else _name(pid)
            if started is None or not _done(run, what, pid, started):
                continue
        except OSError:
            continue  # it has ended meanwhile
        # What starts a daemon has become it, unless it has ended.
        if name != ITSELF and start_time(pid) == started:
            with contextlib.suppress(OSError):
                name = _name(pid)
        return Struck(_WHOLE if _whole(what) else name, pid)
    return Struck()


@contextmanager
def small_disk(folder: Path) -> Iterator[None]:
    """Give a run's results a file system of their own."""
    size = f"size={_DISK_MIB}m"
    subprocess.run(["mount", "-t", "tmpfs", "-o", size, "tmpfs", str(folder)], check=True)
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


def stepped_clock(seconds: int) -> list[str]:
    """Return the words that start a program whose clocks since boot are ahead."""
    return ["unshare", "--time", "--monotonic", str(seconds), "--boottime", str(seconds)]


def _victims(run: Run) -> list[int]:
    """Return the programs of a run in an order that is the same each time, by their words."""
    assert run.process is not None  # noqa: S101 - it was started
    found = []
    for pid in run.processes():
        with contextlib.suppress(OSError):
            found.append((Path(f"/proc/{pid}/cmdline").read_bytes(), pid))
    return [pid for _, pid in sorted(found) if pid != run.process.pid]


def _name(pid: int) -> str:
    return Path(f"/proc/{pid}/comm").read_text(encoding="utf-8").strip()


def _whole(what: Strike) -> bool:
    return what.fault == "starved" and what.controller


def _done(run: Run, what: Strike, pid: int, started: int) -> bool:
    """Strike one process; say whether it was there."""
    if what.fault in {"killed", "clock stepped"}:
        return _signal(pid, started, signal.SIGKILL)
    if what.fault == "stopped":
        if not _signal(pid, started, signal.SIGSTOP):
            return False
        time.sleep(what.lasts_s)
        _signal(pid, started, signal.SIGCONT)
    elif start_time(pid) != started:
        return False
    else:
        _starve(run, list(run.processes()) if _whole(what) else [pid], what.lasts_s)
    return True


def _signal(pid: int, started: int, number: int) -> bool:
    """Signal a process if it is still the one that started then: its id may be another's."""
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return False
    try:
        if start_time(pid) != started:
            return False
        signal.pidfd_send_signal(descriptor, number)
    except ProcessLookupError:
        return False
    finally:
        os.close(descriptor)
    return True


def _starve(run: Run, pids: list[int], lasts_s: float) -> None:
    """Leave processes 2 % of a core; those that they start too."""
    controller = find_controller()
    group = controller.group(f"{run.of('run_started')[0]['run_id']}-starved")
    homes = {}
    for pid in pids:
        with contextlib.suppress(FileNotFoundError):
            homes[pid] = _home(controller, pid)
    group.make()
    try:
        group.limit(_HUNGER)
        for pid in homes:
            with contextlib.suppress(LabError):  # ended meanwhile
                group.add(pid)
        time.sleep(lasts_s)
    finally:
        group.limit(None)
        while inside := group.procs_file.read_text(encoding="ascii").split():
            for word in inside:
                with contextlib.suppress(OSError):
                    home = homes.get(int(word), controller.root)
                    (home / "cgroup.procs").write_text(word, encoding="ascii")
        group.path.rmdir()


def _home(controller: Controller, pid: int) -> Path:
    """Return the group in which a process is, in the hierarchy of the CPU controller."""
    name = "cpu" if controller.version == 1 else ""
    return own_group(name, own=Path(f"/proc/{pid}/cgroup")) or controller.root


def _fill(run: Run, lasts_s: float) -> Struck:
    filler = run.results / "filler"
    with contextlib.suppress(OSError), filler.open("wb", buffering=0) as file:
        while True:
            file.write(bytes(1 << 16))
    time.sleep(lasts_s)
    filler.unlink()
    return Struck(_DISK)
