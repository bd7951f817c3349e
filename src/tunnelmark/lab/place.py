"""Where a lab stands: what makes its three hosts and joins them.

The same lab stands in network namespaces of this computer, in namespaces inside one machine, or
(endpoints.py) with each endpoint in a machine of its own. A place is asked once for each lab.
"""

import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Final, Protocol

from tunnelmark.hosts.cgroup import Throttled
from tunnelmark.hosts.ledger import Ledger
from tunnelmark.hosts.local import NetnsHost
from tunnelmark.hosts.undoing import do_all
from tunnelmark.hosts.vm import VmNetnsHost
from tunnelmark.hosts.vm_machine import Machine
from tunnelmark.hosts.vm_payload import ENGINE, PROGRAMS_DIR
from tunnelmark.lab.devices import GroupLimit
from tunnelmark.lab.machine_cpu import MachineCpu
from tunnelmark.model.block import Stratum
from tunnelmark.model.errors import LabError
from tunnelmark.model.host import Host, Process
from tunnelmark.model.together import together
from tunnelmark.model.topology import Topology
from tunnelmark.probes.cpu import CpuSource
from tunnelmark.probes.proc import ProcCpu, cores_now

_OFFLOADS: Final = ("tso", "gso", "gro", "lro", "tx", "rx", "sg", "rxvlan", "txvlan")
_ETHTOOL_SOME_FIXED: Final = 1
"""Exit status of ethtool when a feature cannot be changed; veth has no lro, for one."""
NETNS_DIR: Final = "/run/netns"
"""Where ip-netns(8) keeps what it has named."""
_AT_ONCE: Final = 8
"""So many namespaces of a machine are made at a time: each takes some programs there."""
INIT_PID: Final = 1
"""The agent of a machine: whatever watches it ends with the machine."""


class LabProcess(Process, Protocol):
    """A process that can be sent a signal without its children."""

    def signal(self, number: int) -> None:
        """Send a signal to the process alone."""


class LabHost(Host, Protocol):
    """A host that the lab made and removes."""

    @property
    def spawned(self) -> Sequence[Process]:
        """Processes started so far, oldest first."""

    def spawn(
        self,
        argv: Sequence[str],
        *,
        name: str,
        stdin: bytes | None = None,
        env: Mapping[str, str] = ...,
        private_dirs: Sequence[str] = (),
        lines: bool = False,
    ) -> LabProcess:
        """Start a program that runs until it is stopped."""

    def stop_all(self) -> None:
        """End every process that was started here, newest first."""

    def remove(self) -> None:
        """Remove the host with all that making it made; tolerates being called twice."""


class NamespaceHost(LabHost, Protocol):
    """A host that is a network namespace beside those of the other hosts of its lab."""

    @property
    def namespace(self) -> str:
        """Name by which ip-netns(8) knows it."""


class DeviceLimit(Protocol):
    """The limit of an endpoint's CPU, as the run sees it."""

    @property
    def capacity(self) -> float:
        """Cores of this computer that the whole device is worth."""

    @property
    def cpus(self) -> Sequence[int]:
        """Cores of this computer that its programs are held to; empty: no such ones."""

    @property
    def engine_wait_ns(self) -> int:
        """How long the engine may wait for the device's CPU; 0 where it is not on the device."""

    def describe(self) -> str:
        """Return how it was calibrated, for the report."""

    def applies(self, argv: Sequence[str]) -> bool:
        """Say whether a program is held back; one that measures is not."""

    def run_ns(self) -> int | None:
        """Return what the device has run since it was made; None: ask its processes."""

    def remove(self) -> None:
        """End what is left under it and remove it; tolerates being called twice."""

    def settle(self) -> None:
        """Look at what runs under it before a trial, and share it out."""

    def throttled(self) -> Mapping[str, Throttled]:
        """Return how often the device's CPU was used up, by the paths of its control groups."""


NO_LIMITS: Final[Mapping[str, DeviceLimit]] = MappingProxyType({})


@dataclass(frozen=True)
class Joined:
    """Three hosts, joined: ``eth0`` of each endpoint is at the other's end, or at the link.

    With a link, its interfaces are ``a`` (the client's side) and ``b``, up, without offloads.
    """

    client: LabHost
    server: LabHost
    link: LabHost
    on_line: "OnLine | None" = None
    """Where the place has addressed the ends by itself, since the line between them is real."""
    router: LabHost | None = None
    """Where one was asked for: ``eth0`` towards the client, ``eth1`` towards the server."""
    more_clients: tuple[LabHost, ...] = ()
    """Of a gateway: ``eth0`` of client i is at ``eth<i>`` of the server, or at ``a<i>`` of the
    link, whose other side is ``b<i>``; where all share a link, at ``a`` as the first is."""
    netns: Mapping[str, str] = field(default_factory=dict)
    """Path of the network namespace of a host by its name, where all see each other's."""


@dataclass(frozen=True)
class LineAddress:
    """Where an end is on a line that is not the lab's, IPv4 or IPv6."""

    own: str
    reached: str | None = None
    """Where the other end reaches it, if that is not its own: behind NAT."""


@dataclass(frozen=True)
class OnLine:
    """Addresses of both ends on a line that is not the lab's, of one IP version."""

    client: LineAddress
    server: LineAddress


class Place(Protocol):
    """Makes the hosts of a lab."""

    @property
    def engine(self) -> str:
        """Path of ``tunnelmark-engine`` on both endpoints."""

    @property
    def owner_pid(self) -> int:
        """Process, as the endpoints see it, with whose end everything there ends."""

    @property
    def link_engine(self) -> str:
        """Path of ``tunnelmark-engine`` on the link's host."""

    @property
    def link_owner_pid(self) -> int:
        """Process, as the link's host sees it, with whose end everything there ends."""

    @property
    def placed_on(self) -> str:
        """One phrase for the report: where, and on what kind of CPU."""

    @property
    def stratum(self) -> Stratum:
        """Where its figures come from."""

    @property
    def one_clock(self) -> bool:
        """Whether client and server read one clock; without it no one-way delay is known."""

    @property
    def limits(self) -> Mapping[str, "DeviceLimit"]:
        """Limits of the endpoints' CPUs by role, of the lab that was made last."""

    @property
    def limits_kernel(self) -> bool:
        """Whether ``limits`` hold for what the endpoints' kernels do, too."""

    @property
    def cpu(self) -> CpuSource:
        """Where the CPU time of the hosts' processes is read."""

    def allow_congestion(self, name: str) -> bool:
        """Let the endpoints use a congestion control that was refused; return whether they may."""

    def make(self, topology: Topology, *, through_link: bool, offloads: bool = False) -> Joined:
        """Make the hosts and join them; what was made is removed if it cannot be finished.

        Of a gateway each client has a host, and a wire of its own unless they share the link.
        ``LabError`` if a gateway or a router cannot stand here.
        """


class LocalPlace:
    """Network namespaces of this computer."""

    stratum = Stratum.NAMESPACES
    one_clock = True
    limits_kernel = False
    placed_on = "network namespaces of this machine, native CPU"

    def __init__(
        self,
        ledger: Ledger,
        *,
        engine: str,
        logs: Path | None = None,
        limits: Callable[[], Mapping[str, GroupLimit]] = dict,
    ) -> None:
        """Namespaces are named after the ledger's run and stand in it.

        ``limits`` makes those of the endpoints' CPUs, by role; they go with the hosts.
        """
        self.limits: Mapping[str, DeviceLimit] = NO_LIMITS
        self._make_limits = limits
        self.engine = self.link_engine = engine
        self.owner_pid = self.link_owner_pid = os.getpid()
        self.cpu: CpuSource = ProcCpu()
        self._ledger = ledger
        self._logs = logs

    def allow_congestion(self, name: str) -> bool:
        """Put it into this computer's list until the run ends."""
        return self._ledger.switch_on("tcp_allowed", name)

    def make(self, topology: Topology, *, through_link: bool, offloads: bool = False) -> Joined:
        """Make one namespace for each host."""
        self.limits = NO_LIMITS
        limits = self._make_limits()
        made: dict[str, NetnsHost] = {}
        try:
            for name in _names(topology):
                limit = limits.get(name)
                made[name] = NetnsHost(self._ledger, name, logs=self._logs, limit=limit)
            joined = _joined(made, topology, through_link=through_link, offloads=offloads)
        except BaseException:
            # Names are the run's: what stays would be in the way of the next attempt.
            with suppress(Exception):
                do_all(
                    *(host.remove for host in made.values()),
                    *(unused.remove for unused in limits.values()),
                )
            raise
        self.limits = limits
        return joined


class MachinePlace:
    """Network namespaces inside one machine: needs no privilege on this computer."""

    one_clock = True
    limits_kernel = False

    def __init__(self, machine: Machine, run_id: str, *, logs: Path) -> None:
        """Take a machine that the caller booted and closes; labs come and go in it."""
        self.engine = self.link_engine = str(PROGRAMS_DIR / ENGINE)
        self.owner_pid = self.link_owner_pid = INIT_PID
        self.placed_on = f"network namespaces of a {machine.facts.describe()}"
        emulated = machine.facts.emulated
        self.stratum = Stratum.EMULATED if emulated else Stratum.VIRTUALIZED
        self.limits: Mapping[str, DeviceLimit] = NO_LIMITS
        self.cpu: CpuSource = MachineCpu(machine, underlying=cores_now)
        self._machine = machine
        self._run_id = run_id
        self._logs = logs

    def allow_congestion(self, name: str) -> bool:  # noqa: ARG002 - as places have it
        """Leave the machine's kernel as it was built."""
        return False

    def make(self, topology: Topology, *, through_link: bool, offloads: bool = False) -> Joined:
        """Make one namespace inside for each host."""
        made: dict[str, VmNetnsHost] = {}

        def make(name: str) -> None:
            unique = f"{self._run_id}-{name}"
            made[name] = VmNetnsHost(self._machine, name=name, unique=unique, log_dir=self._logs)

        try:
            together(*(partial(make, name) for name in _names(topology)), at_once=_AT_ONCE)
            return _joined(made, topology, through_link=through_link, offloads=offloads)
        except BaseException:
            with suppress(Exception):
                do_all(*(host.remove for host in made.values()))
            raise


def quieten(host: Host, interface: str) -> None:
    """Switch off what would cut, join or sum frames behind the link's back."""
    words = [word for offload in _OFFLOADS for word in (offload, "off")]
    done = host.run(["ethtool", "-K", interface, *words], check=False)
    if done.returncode not in (0, _ETHTOOL_SOME_FIXED):
        raise LabError(f"{host.name}: ethtool -K {interface}: {done.last_words()}")


def carry_only(link: Host, interface: str) -> None:
    """Bring up an interface of the link, which has no addresses of its own."""
    # A kernel without IPv6 has no IPv6 settings, and needs none (-e).
    link.run(["sysctl", "-eqw", f"net.ipv6.conf.{interface}.disable_ipv6=1"])
    quieten(link, interface)
    link.run(["ip", "link", "set", "dev", interface, "up"])


def _names(topology: Topology) -> tuple[str, ...]:
    """Return the names of a lab's hosts, those of a gateway's further clients last, in order."""
    router = ("router",) if topology.behind_router else ()
    more = (f"client{number}" for number in range(1, topology.clients or 1))
    return ("client", "server", "link", *router, *more)


def _joined(
    made: Mapping[str, NamespaceHost], topology: Topology, *, through_link: bool, offloads: bool
) -> Joined:
    """Join hosts that see each other's namespaces, whatever computer or machine these are of."""
    more = (f"client{number}" for number in range(1, len(made)))
    joined = Joined(
        made["client"],
        made["server"],
        made["link"],
        router=made.get("router"),
        more_clients=tuple(made[name] for name in more if name in made),
        netns={name: f"{NETNS_DIR}/{host.namespace}" for name, host in made.items()},
    )
    namespaces = {name: host.namespace for name, host in made.items()}
    _join_by_veth(joined, namespaces, topology, through_link=through_link, offloads=offloads)
    return joined


def _join_by_veth(
    joined: Joined,
    namespaces: Mapping[str, str],
    topology: Topology,
    *,
    through_link: bool,
    offloads: bool,
) -> None:
    """Make pairs directly inside their namespaces: nothing appears outside."""
    # What is at the far end of the client's link, and at its other side what the server is at.
    far = joined.router or joined.server
    if topology.shared:
        _gather(joined, namespaces, topology.mtu_bytes)
        pairs = [(far, "eth0", joined.link, "b")]
    elif through_link:
        pairs = [(joined.client, "eth0", joined.link, "a"), (far, "eth0", joined.link, "b")]
    else:
        pairs = [(joined.client, "eth0", far, "eth0")]
    if joined.router is not None:
        pairs.append((joined.server, "eth0", joined.router, "eth1"))
    for number, client in enumerate(() if topology.shared else joined.more_clients, 1):
        at_server = f"eth{number}"
        if through_link:
            pairs.append((client, "eth0", joined.link, f"a{number}"))
            pairs.append((joined.server, at_server, joined.link, f"b{number}"))
        else:
            pairs.append((client, "eth0", joined.server, at_server))
    for own, end, other, interface in pairs:
        mtu, namespace = str(topology.mtu_bytes), namespaces[other.name]
        own.run(
            [
                *("ip", "link", "add", "name", end, "mtu", mtu, "type", "veth", "peer"),
                *("name", interface, "mtu", mtu, "netns", namespace),
            ]
        )
        if offloads:
            continue
        ends = carry_only if other is joined.link else quieten
        together(partial(quieten, own, end), partial(ends, other, interface))


_HUB: Final = "hub"


def _gather(joined: Joined, namespaces: Mapping[str, str], mtu_bytes: int) -> None:
    """Put all clients on the client's side of the link, each by a MACVLAN interface.

    It finds a client by its address without learning, and has no queue. Private: no frame goes
    from one client to another.
    """
    link, mtu = joined.link, str(mtu_bytes)
    link.run(
        [
            *("ip", "link", "add", "name", "a", "mtu", mtu, "type", "veth", "peer"),
            *("name", _HUB, "mtu", mtu),
        ]
    )
    for end in ("a", _HUB):
        carry_only(link, end)
    for client in (joined.client, *joined.more_clients):
        link.run(
            [
                *("ip", "link", "add", "link", _HUB, "name", "eth0", "mtu", mtu),
                *("netns", namespaces[client.name], "type", "macvlan", "mode", "private"),
            ]
        )
        # What it does not cut itself is cut before the hub, which has no offloads.
        quieten(client, "eth0")
