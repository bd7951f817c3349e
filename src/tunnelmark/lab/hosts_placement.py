"""Real hosts as the place of a whole run: connected once, and again when a connection was lost."""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final, Self

from tunnelmark.hosts.inventory import ROLES, Inventory, Role
from tunnelmark.hosts.ledger import Ledger
from tunnelmark.hosts.ssh_host import SshHost
from tunnelmark.lab import hosts_nat
from tunnelmark.lab.computers import Computer, Computers
from tunnelmark.lab.hosts_check import LAB_NEED, examine_ports
from tunnelmark.lab.hosts_place import NO_GATEWAY, HostsPlace
from tunnelmark.lab.line_ends import Ends, find_ends
from tunnelmark.lab.place import Place
from tunnelmark.lab.placement import HOST
from tunnelmark.model.errors import LabError, LabFailedError, TunnelmarkError
from tunnelmark.model.host import Host
from tunnelmark.model.trial import DriverSpec
from tunnelmark.model.tunnel import Encryption, ServerPorts
from tunnelmark.tunnels.base import Tunnel
from tunnelmark.workloads.base import Workload

ON_HOSTS: Final = "hosts attached by"
"""In the environment of every result from real hosts."""
RECONNECT_S: Final = 300.0
"""So long a run waits for hosts that it had before."""
_AGAIN_S: Final = 5.0


class HostsPlacement:
    """Every tunnel of the run stands on the two hosts of an inventory.

    Use as a context manager: leaving ends all that runs there.
    """

    def __init__(
        self,
        ledger: Ledger,
        inventory: Inventory,
        *,
        forwarded: Sequence[ServerPorts] = (),
        say: Callable[[str], None] = lambda _step: None,
        reconnect_s: float = RECONNECT_S,
    ) -> None:
        """``say`` is called with what takes time.

        ``forwarded`` are the ports of the study that a NAT before the server must forward.
        """
        self._ledger = ledger
        self._inventory = inventory
        self._say = say
        self._reconnect_s = reconnect_s
        self._forwarded = forwarded
        self._computers = Computers(inventory, ledger)
        self._ends: Ends | None = None
        self._tried = False

    def __enter__(self) -> Self:
        """Return the placement."""
        return self

    def __exit__(self, *_: object) -> None:
        """End the connections."""
        self._computers.close()

    def choose(self, label: str, unavailable: Callable[[Host], str | None]) -> str | None:
        """Return why a tunnel cannot run on both hosts, with the remedy, or None."""
        for host in self.hosts(label):
            if reason := unavailable(host):
                return f"{host.name}: {reason}"
        return None

    def tunnel_problem(self, tunnel: Tunnel) -> str | None:
        """Return why a tunnel cannot work between these ends, or None."""
        return hosts_nat.tunnel_problem(tunnel, self._found_ends())

    def workload_problem(self, workload: Workload) -> str | None:
        """Return why a workload cannot be measured between these ends, or None."""
        return hosts_nat.workload_problem(workload, self._found_ends())

    def gateway_problem(self, _label: str, _devices: Iterable[DriverSpec]) -> str | None:
        """Return that no gateway with its clients can stand on two hosts."""
        return NO_GATEWAY

    def gather(self, unavailable: Mapping[str, Callable[[Host], str | None]]) -> None:
        """Leave all where they are: there is one place."""

    def hosts(self, _label: str) -> tuple[SshHost, ...]:
        """Return both computers; ``LabError`` if one lacks what every lab needs."""
        connected = self._computers.connected
        if not connected:
            self._say("connecting to both hosts")
        hosts = tuple(self._computers.both()[role].host for role in ROLES)
        if not connected:
            for host in hosts:
                if reason := LAB_NEED.missing(host):
                    raise LabError(f"{host.name}: {reason}")
        return hosts

    def check_device(self, spec: DriverSpec, tunnels: Mapping[str, Encryption]) -> None:
        """Refuse a limited device: a real host is the one it is."""
        raise LabError(f"device {spec.label}: a real host has its own CPU ({next(iter(tunnels))})")

    def place(self, _label: str, logs: Path, _device: DriverSpec = HOST) -> Place:
        """Return where a lab stands; waits for hosts whose connection was lost."""
        deadline = time.monotonic() + self._reconnect_s
        while True:
            try:
                computers = self._computers.both()
                for computer in computers.values():
                    # A line that is cut leaves ssh waiting for a minute before it gives up.
                    computer.agent.which("sh")
                self._computers.check_left()
                place = HostsPlace(computers, self._found_ends(), self._ledger.run_id, logs=logs)
                self._try_ports(computers, place)
            except LabError as error:
                if time.monotonic() > deadline:
                    raise LabFailedError(str(error)) from None
                self._say(f"waiting for the hosts: {error}")
                time.sleep(_AGAIN_S)
            else:
                return place

    def _try_ports(self, computers: Mapping[Role, Computer], place: HostsPlace) -> None:
        """Say once which ports of the inventory do not pass, by direction.

        A study may do without one of them, and what else is wrong its first lab will meet.
        """
        listed = any(self._inventory.entry(role).ports for role in ROLES)
        if self._tried or not (listed or place.ends["server"].behind_nat):
            return
        self._tried = True
        try:
            findings = examine_ports(computers, self._inventory, place, self._forwarded)
        except TunnelmarkError as error:
            self._say(f"the ports could not be tried: {error}")
            return
        for finding in findings:
            if not finding.ok:
                self._say(finding.message)

    def describe(self) -> dict[str, str]:
        """Return what the environment of a result says of both hosts."""
        computers = self._computers.both()
        found = {f"{role} host": _described(computers[role].host) for role in ROLES}
        for role, end in self._found_ends().items():
            found[f"{role} address"] = end.describe()
        found[ON_HOSTS] = ", ".join(f"{r} {self._inventory.entry(r).attach}" for r in ROLES)
        return found

    def _found_ends(self) -> Ends:
        """Return the ends' addresses: found once, so that a run has the same from start to end."""
        if self._ends is None:
            self._ends = find_ends(self._computers.both(), self._inventory)
        return self._ends


def _described(host: SshHost) -> str:
    words = (["uname", "-srm"], ["nproc"])
    system, cores = (host.run(one, check=False).text().strip() for one in words)
    model = next(
        (
            line.partition(":")[2].strip()
            for line in host.run(["cat", "/proc/cpuinfo"]).text().splitlines()
            if line.startswith(("model name", "Model"))
        ),
        "CPU not identified",
    )
    return f"{system}, {cores} cores, {model}"
