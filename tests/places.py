"""Where tests bring real tunnels up: in namespaces of this computer if they can run there, else in
the machine.

The decision is the product's own (``lab/placement.py``). What it comes to is asked while tests are
collected, too: those that need the machine are kept on one worker, which boots it once.
"""

import itertools
import os
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any, Final

import pytest

from tunnelmark.engine.link import AnyLinkSpec
from tunnelmark.hosts.ledger import Ledger
from tunnelmark.hosts.local import LocalHost
from tunnelmark.lab.lab import Lab
from tunnelmark.lab.place import MachinePlace, Place
from tunnelmark.lab.placement import Placement
from tunnelmark.model.host import Completed, Host
from tunnelmark.model.topology import Topology
from tunnelmark.tunnels.base import Tunnel
from tunnelmark.tunnels.registry import tunnel_kinds

Params = Mapping[str, object]
FULL_KERNEL_GATEWAYS: Final = ("l2tp_ipsec", "pptp", "sstp")
"""Kinds of gateways that have no form in user space: tests/lab/test_machine_gateways.py."""
_EVERYWHERE: Final = {"gre0", "gretap0", "erspan0", "ip6gre0", "ip6tnl0"}
_IN_A_MACHINE: Final = (pytest.mark.machine, pytest.mark.slow)


class Places:
    """Makes labs, each gone with its test; the machine that some of them need stays."""

    def __init__(self, ledger: Ledger, engine: str, logs: Path) -> None:
        self._ledger = ledger
        self._engine = engine
        self._logs = logs
        self._numbers = itertools.count()
        self.placement = self._placement()

    def close(self) -> None:
        """End the machine; who asks for one again gets another."""
        self.placement.close()
        self.placement = self._placement()

    def _placement(self) -> Placement:
        return Placement(self._ledger, engine=self._engine)

    def machine(self) -> MachinePlace:
        """Return the machine as the place of a lab."""
        self._only_here()
        machine = self.placement.machine_host().machine
        return MachinePlace(machine, self._ledger.run_id, logs=self._logs)

    def fits(self, tunnel: Tunnel) -> Place:
        """Return the place where a run would measure the tunnel; skip if there is none."""
        label = str(next(self._numbers))
        if reason := self.placement.choose(label, tunnel.unavailable):
            pytest.skip(reason)
        place = self.placement.place(label, self._logs)
        if isinstance(place, MachinePlace):
            self._only_here()
        return place

    def _only_here(self) -> None:
        """Fail if another worker has a machine too: each takes a good part of a core for itself."""
        # Workers have folders of their own beside each other.
        workers = os.environ.get("PYTEST_XDIST_WORKER", "")
        if not workers:
            return
        owner = self._logs.parent.parent / "machine-of"
        with suppress(FileExistsError), owner.open("x") as file:
            file.write(workers)
        first = owner.read_text("ascii")
        assert first == workers, f"the machine is worker {first}'s: this test lacks its group"

    def lab(
        self, stack: ExitStack, place: Place, link: AnyLinkSpec | None = None, **more: Any
    ) -> Lab:
        """Make a lab that is gone when the stack is closed."""
        more = {"topology": Topology(), **more}
        lab = Lab(self._ledger, link=link, engine=self._engine, place=place, **more)
        return stack.enter_context(lab)


def interfaces(host: Host) -> set[str]:
    """Return what a host has, without what a kernel that has GRE shows in every namespace."""
    lines = host.run(["ip", "-o", "link", "show"]).text().splitlines()
    return {line.split(":")[1].split("@")[0].strip() for line in lines} - _EVERYWHERE


def driven(kind: str, params: Params, driver: type[Tunnel] | None = None) -> Tunnel:
    """Make a driver from what a study would say."""
    chosen = driver or tunnel_kinds()[kind]
    return chosen(chosen.params_type.model_validate(params))


def placed(case: Any, kind: str, params: Params) -> Any:
    """Return a case of ``parametrize``, marked where its tunnel cannot run on this computer."""
    return pytest.param(case, marks=() if runs_here(kind, params) else _IN_A_MACHINE)


def runs_here(kind: str, params: Params) -> bool:
    """Say whether a tunnel needs no machine."""
    here: Any = _Here()
    return driven(kind, params).unavailable(here) is None


class _Here:
    """This computer as ``Tunnel.unavailable`` sees it, before there is a ledger."""

    name = "here"
    has = LocalHost.has

    def run(self, argv: Sequence[str], *, check: bool = True) -> Completed:
        done = subprocess.run([*argv], capture_output=True, timeout=10, check=check)
        return Completed(tuple(argv), done.returncode, done.stdout, done.stderr)

    has_kernel = LocalHost.has_kernel
