"""CPU limits by control groups, version 1 or 2: made, set, read and removed.

Only groups named after a run of ours are made or removed. See cgroups(7), the kernel's
``Documentation/scheduler/sched-bwc.rst`` and ``Documentation/admin-guide/cgroup-v2.rst``.
"""

import contextlib
import math
import os
import re
import signal
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from tunnelmark.model.errors import LabError

GROUP_NAME: Final = re.compile(r"^tm[0-9a-f]{5}-[a-z0-9-]{1,40}$")

_LEAST_QUOTA_US: Final = 1000
"""The kernel takes no shorter quota and no shorter period."""
_LEAST_PERIOD_US: Final = 5000
_LONGEST_PERIOD_US: Final = 1_000_000
LEAST_SHARE: Final = _LEAST_QUOTA_US / _LONGEST_PERIOD_US
"""Of a core: the smallest limit that the kernel takes."""
_WEIGHT: Final = {1: ("cpu.shares", "20480"), 2: ("cpu.weight", "2000")}
"""Twenty times that of other work: what the quota grants is had on a busy machine too."""
_REMOVE_LIMIT_S: Final = 30.0


@dataclass(frozen=True)
class Quota:
    """CPU time that may be used in each period."""

    quota_us: int
    period_us: int

    @property
    def share(self) -> float:
        """Cores of this computer."""
        return self.quota_us / self.period_us

    @property
    def stall_ms(self) -> float:
        """How long a program waits that has used it up at once."""
        return max(0.0, self.period_us - self.quota_us) / 1000

    def times(self, cores: int) -> "Quota":
        """Return as much on each of several cores."""
        return Quota(self.quota_us * cores, self.period_us)


def quota_of(share: float) -> Quota:
    """Return the shortest period in which a share of one core can be granted.

    Raises ``LabError`` for a share so small that the kernel has no period for it.
    """
    if share < LEAST_SHARE:
        raise LabError(
            f"a CPU limit of {share:.3g} cores is too small, the kernel grants at least "
            f"{LEAST_SHARE:g}"
        )
    period = max(_LEAST_PERIOD_US, math.ceil(_LEAST_QUOTA_US / share))
    return Quota(max(_LEAST_QUOTA_US, round(share * period)), period)


@dataclass(frozen=True)
class Throttled:
    """What the kernel counted of a group since it was made."""

    periods: int
    throttled: int
    """Periods in which the quota was used up."""

    def since(self, earlier: "Throttled") -> "Throttled":
        """Return what was counted since an earlier reading."""
        return Throttled(self.periods - earlier.periods, self.throttled - earlier.throttled)


def busiest_since(now: Mapping[str, Throttled], then: Mapping[str, Throttled]) -> Throttled:
    """Return what was counted between two readings, of the group that was held back most.

    By the groups' paths; one that was made since the first counts from its beginning.
    """
    counts = [count.since(then.get(path, _NEVER)) for path, count in now.items()]
    return max(counts, key=lambda count: count.throttled, default=_NEVER)


_NEVER: Final = Throttled(0, 0)


@dataclass(frozen=True)
class Controller:
    """Where groups with a CPU limit are made."""

    version: Literal[1, 2]
    root: Path

    def group(self, name: str) -> "CpuGroup":
        """Return a group that is not made yet; names are those of a run."""
        if not GROUP_NAME.match(name):
            raise LabError(f"control group: {name!r} is not a name that a run uses")
        return CpuGroup(self.root / name, self.version)


def find_controller(
    mounts: Path = Path("/proc/self/mounts"), own: Path = Path("/proc/self/cgroup")
) -> Controller:
    """Return where CPU limits can be set; ``LabError`` with reason and remedy if nowhere."""
    second: Path | None = None
    for line in mounts.read_text(encoding="utf-8", errors="replace").splitlines():
        words = line.split()
        if len(words) < 4:  # noqa: PLR2004 - fstab(5)
            continue
        place, kind, options = Path(words[1]), words[2], words[3].split(",")
        if kind == "cgroup" and "cpu" in options:
            # A limit of a container around us stays above ours.
            return _writable(Controller(1, _standing(place, "cpu", own) or place))
        if kind == "cgroup2" and _has_cpu(place / "cgroup.controllers"):
            second = place
    if second is None:
        raise LabError(
            "CPU limits need a cpu control group and none is mounted "
            "(mount -t cgroup2 none /sys/fs/cgroup)"
        )
    # Only the topmost group may hold processes beside groups that are limited.
    return _writable(Controller(2, second))


class CpuGroup:
    """One control group."""

    def __init__(self, path: Path, version: Literal[1, 2]) -> None:
        """Name it; ``make`` makes it."""
        self.path = path
        self._version = version

    def make(self, *, threaded: bool = False) -> None:
        """Make it, weighty and without a limit yet; ``LabError`` if the kernel refuses.

        A ``threaded`` one stands within another and takes threads of that one's processes. Where
        it needs a ``switch``, that is on.
        """
        try:
            if self._version == 2 and GROUP_NAME.match(self.path.parent.name):  # noqa: PLR2004
                (self.path.parent / "cgroup.subtree_control").write_text("+cpu", encoding="ascii")
            self.path.mkdir()
        except OSError as error:
            raise LabError(
                f"cannot make the control group {self.path}: {error.strerror} (run as root)"
            ) from error
        if threaded and self._version == 2:  # noqa: PLR2004 - likewise
            self._write("cgroup.type", "threaded")
        name, weight = _WEIGHT[self._version]
        self._write(name, weight)

    def inner(self, number: int) -> "CpuGroup":
        """Return a group within this one, not made yet."""
        return CpuGroup(self.path / f"p{number}", self._version)

    def limit(self, quota: Quota | None) -> None:
        """Set how much CPU time all its processes together may use; None: no limit."""
        if self._version == 2:  # noqa: PLR2004 - of control groups
            self._write("cpu.max", f"{quota.quota_us} {quota.period_us}" if quota else "max")
            return
        # Without a quota any period is taken, whatever the one before was.
        self._write("cpu.cfs_quota_us", "-1")
        if quota is None:
            return
        self._write("cpu.cfs_period_us", str(quota.period_us))
        self._write("cpu.cfs_quota_us", str(quota.quota_us))

    def add(self, pid: int) -> None:
        """Put a process with all its threads into it; its children to come follow."""
        self._write("cgroup.procs", str(pid))

    def add_thread(self, thread: int) -> None:
        """Put one thread into it; the rest of its process stays where it is."""
        self._write("tasks" if self._version == 1 else "cgroup.threads", str(thread))

    @property
    def switch(self) -> Path | None:
        """Group in which the CPU controller must be switched on before this one is made."""
        return self.path.parent if self._version == 2 else None  # noqa: PLR2004 - of groups

    @property
    def procs_file(self) -> Path:
        """What a process writes its id to when it enters."""
        return self.path / "cgroup.procs"

    def threads(self) -> int:
        """Return how many threads are in it."""
        name = "tasks" if self._version == 1 else "cgroup.threads"
        return len(self._read(name).split())

    def throttled(self) -> Throttled:
        """Return how often it was held back since it was made."""
        values = {}
        for line in self._read("cpu.stat").splitlines():
            name, _, value = line.partition(" ")
            if value.strip().isdecimal():
                values[name] = int(value)
        return Throttled(values.get("nr_periods", 0), values.get("nr_throttled", 0))

    def remove(self) -> None:
        """End what is left in it and remove it; tolerates being called twice."""
        remove_group(self.path)

    def _write(self, name: str, value: str) -> None:
        try:
            (self.path / name).write_text(value, encoding="ascii")
        except OSError as error:
            raise LabError(f"{self.path / name}: cannot set {value}: {error.strerror}") from error

    def _read(self, name: str) -> str:
        try:
            return (self.path / name).read_text(encoding="ascii", errors="replace")
        except OSError as error:
            raise LabError(f"{self.path / name}: {error.strerror}") from error


def remove_group(path: Path) -> bool:
    """End what is in a group of a run and in those within it, and remove them.

    Returns whether it was there. Names that are no run's are left alone.
    """
    return GROUP_NAME.match(path.name) is not None and remove_tree(path)


def remove_tree(path: Path) -> bool:
    """End what is in a group and in those within it, whatever it is called, and remove them.

    Returns whether it was there.
    """
    if path.is_symlink() or not (path / "cgroup.procs").is_file():
        return False  # gone, or no control group
    deadline = time.monotonic() + _REMOVE_LIMIT_S
    while True:
        # Looked at each time: the run may be making more in it until it is dead.
        with contextlib.suppress(FileNotFoundError):
            groups = [*(inner for inner in path.iterdir() if inner.is_dir()), path]
            for group in groups:
                _end_inhabitants(group)
                with contextlib.suppress(OSError):
                    group.rmdir()  # never a tree: the kernel's files in it are no files
        if not path.exists():
            return True
        if time.monotonic() > deadline:
            return False
        time.sleep(0.01)


def own_group(
    controller: str,
    mounts: Path = Path("/proc/self/mounts"),
    own: Path = Path("/proc/self/cgroup"),
) -> Path | None:
    """Return where this process stands in the hierarchy of a controller of version 1.

    The empty name is version 2. None where it is not mounted, or where only a part that this
    process is not in.
    """
    for line in mounts.read_text(encoding="utf-8", errors="replace").splitlines():
        words = line.split()
        if len(words) < 4:  # noqa: PLR2004 - fstab(5)
            continue
        kind, options = words[2], words[3].split(",")
        if kind == "cgroup2" if not controller else kind == "cgroup" and controller in options:
            return _standing(Path(words[1]), controller, own)
    return None


def _end_inhabitants(group: Path) -> None:
    with contextlib.suppress(OSError):
        if (kill := group / "cgroup.kill").exists():  # version 2: what is forking now, too
            kill.write_text("1", encoding="ascii")
            return
    try:
        words = (group / "cgroup.procs").read_text(encoding="ascii").split()
    except OSError:
        return
    for word in words:
        if word.isdecimal() and int(word) > 1:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(int(word), signal.SIGKILL)


def _standing(place: Path, controller: str, own: Path) -> Path | None:
    for line in own.read_text(encoding="utf-8", errors="replace").splitlines():
        _, _, rest = line.partition(":")
        controllers, found, path = rest.partition(":")
        if found and controller in controllers.split(","):
            group = place / path.lstrip("/")
            if group.is_dir() and ".." not in group.parts:
                return group
    return None


def _has_cpu(path: Path) -> bool:
    try:
        return "cpu" in path.read_text(encoding="ascii").split()
    except OSError:
        return False


def _writable(controller: Controller) -> Controller:
    if not os.access(controller.root, os.W_OK):
        raise LabError(
            f"CPU limits need to write to {controller.root} (run as root, or have the control "
            "group delegated)"
        )
    return controller
