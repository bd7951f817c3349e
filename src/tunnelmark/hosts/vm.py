"""Hosts inside a machine: the machine itself, and a network namespace in it."""

from contextlib import suppress
from functools import cached_property
from pathlib import Path, PurePosixPath
from typing import Final

from tunnelmark.hosts.agent_host import AgentHost
from tunnelmark.hosts.undoing import do_all
from tunnelmark.hosts.vm_features import has_feature
from tunnelmark.hosts.vm_machine import Machine
from tunnelmark.model.suites import DEFAULT_SUITE, Suite
from tunnelmark.vmimage.suites import SUITES

_ROOT: Final = PurePosixPath("/tunnelmark")


class VmHost(AgentHost):
    """A machine as a host; implements ``Host``, ``FixedHost``. Whoever booted it closes it."""

    def __init__(
        self,
        machine: Machine,
        *,
        name: str,
        unique: str,
        log_dir: Path,
        root: PurePosixPath = _ROOT,
        pid_base: int = 0,
        suite: Suite = DEFAULT_SUITE,
    ) -> None:
        """Take a machine of a suite that has booted; see ``AgentHost``."""
        super().__init__(
            machine, name=name, unique=unique, log_dir=log_dir, root=root, pid_base=pid_base
        )
        self.machine = machine
        self._suite: Suite = suite

    def lacking(self, package: str) -> str:
        """Return that the image of the suite has no such package, with the reason if it has one."""
        reason = SUITES[self._suite].absent.get(package)
        return f"not in the image of {self._suite}" + (f": {reason}" if reason else "")

    def has_kernel(self, feature: str) -> bool:
        """Say whether the machine's kernel has a feature, by its modules and what is built in."""
        return has_feature(self._modules, feature)

    @cached_property
    def _modules(self) -> tuple[str, ...]:
        root = PurePosixPath("/lib/modules") / self.machine.kernel
        found = []
        for index, separator in (("modules.dep", ":"), ("modules.builtin", "\n")):
            text = self.get(root / index, limit_bytes=16 << 20).decode("utf-8", "replace")
            found += [line.split(separator, 1)[0] for line in text.splitlines()]
        return tuple(found)


_HOLDER: Final = ("sh", "-c", "echo; exec sleep infinity")


class VmNetnsHost(VmHost):
    """A network namespace inside a machine, made with its loopback up; gone with the machine."""

    def __init__(
        self,
        machine: Machine,
        *,
        name: str,
        unique: str,
        log_dir: Path,
        root: PurePosixPath = _ROOT,
    ) -> None:
        """Make the namespace, which is called ``unique``."""
        super().__init__(machine, name=name, unique=unique, log_dir=log_dir, root=root)
        self._removed = False
        try:
            self.run(["ip", "netns", "add", unique])
            # It holds the namespace's own /sys, which ``ip`` mounts and every program here sees.
            self._hold(["ip", "netns", "exec", unique, *_HOLDER])
        except BaseException:
            # The machine and the name are those of the next attempt, too.
            with suppress(Exception):
                self.remove()
            raise

    @property
    def namespace(self) -> str:
        """Name of the network namespace in the machine."""
        return self.unique

    def remove(self) -> None:
        """Remove the namespace, so that another of its name can be made; idempotent."""
        do_all(super().remove, self._delete)

    def _delete(self) -> None:
        if not self._removed and self.machine.alive():
            self.run(["ip", "netns", "delete", self.unique])
            self._removed = True
