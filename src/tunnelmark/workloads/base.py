"""What every workload is: parameters, needs, one trial."""

import math
import os
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar, Final

from tunnelmark.engine.config import ReceiveTime
from tunnelmark.engine.link import AnyLinkSpec
from tunnelmark.engine.records import Flow
from tunnelmark.model.host import Host, Need
from tunnelmark.model.params import Params
from tunnelmark.model.set_up import Again, Joining
from tunnelmark.model.trial import Measurement, Progress
from tunnelmark.model.tunnel import ServerPorts, TrafficPath
from tunnelmark.model.validity import Check
from tunnelmark.workloads.bulk import CarryBulk
from tunnelmark.workloads.exchanges import CarryClients

FIRST_PORT: Final = 7700
PORTS: Final = 16
"""So many from ``FIRST_PORT`` on are free on both hosts for a workload, or more (``ports_of``)."""


def ports_of(paths: int) -> int:
    """Return how many ports a workload has that uses two for each path at most."""
    return PORTS * math.ceil(max(1, 2 * paths) / PORTS)


@dataclass(frozen=True)
class TrialContext:
    """What a workload is handed for one trial."""

    client: Host
    server: Host
    paths: tuple[TrafficPath, ...]
    engine: str
    """Path of ``tunnelmark-engine``, valid on both hosts."""
    seed: int
    samples_dir: Path | None
    """Where to leave bulk records on the controlling machine; None with ``--no-samples``."""
    sample_stem: str
    """Start of the file names to use there, unique per trial and attempt."""
    progress: Callable[[Progress], None]
    cancelled: Callable[[], bool]
    """True when the trial should end early; the workload then returns what it has."""
    largest_records_bytes: int | None = None
    """Larger files with the records of single packets are not left there; None: all are."""
    measuring_processes: Callable[[str, int], None] = lambda _host, _pid: None
    """To be called with (host name, pid) of each process that measures, for the CPU probe."""
    waited_awake: Callable[[str, int], None] = lambda _host, _ns: None
    """To be called with (host name, ns): processor time that a sender spent awake for a packet's
    time."""
    lateness_floor_ns: int = 1_000_000
    """A sender whose 99th percentile of lateness is below this is on time, whatever the gap."""
    lateness_gap_ratio: float = 0.1
    """Likewise below this share of the gap."""
    begins: Callable[[], None] = lambda: None
    """To be called right before the first program that sends: changes of the link begin then."""
    owner_pid: int = field(default_factory=os.getpid)
    """Process on both hosts with whose end everything there ends, for programs that watch it."""
    link: AnyLinkSpec | None = None
    """What joins the two hosts, for loads that are a share of its rate; None: directly joined."""
    link_mtu_bytes: int = 1500
    """Longest IP packet of the link itself."""
    at_once: Callable[[int], None] = lambda _senders: None
    """Called with how many senders are to start together: virtual time waits for all of them."""
    end_when_lost: Callable[[int, int], None] = lambda _packets, _after_ns: None
    """Called with how many lost packets decide what a load is for, and after how long at the
    earliest: virtual time then ends it. A real sender does not know of them in time."""
    pause: Callable[[float], None] = time.sleep
    """Waits so many seconds of the time in which traffic is sent."""
    enough: Callable[[], bool] = lambda: False
    """True when no more is wanted of a load beside another one: it ends in order, as planned."""
    spin: bool = True
    """Whether senders wait awake for the last stretch before a packet is due."""
    receive_time: ReceiveTime = "kernel"
    """When a packet has arrived; ``user`` where the kernel's time is that of an outer packet."""
    one_clock: bool = True
    """Whether both hosts read one clock, so that a one-way delay is what it says."""
    to_one_clock: "Callable[[Host, Sequence[Flow]], OnOneClock | None] | None" = None
    """Called where there are two clocks, with the sending host and its flows, after their end;
    None where the offset of the clocks is unknown."""
    emulated: bool = False
    """Whether the hosts' CPUs are emulated: there a thread that waits for the host seems busy."""
    is_background: bool = False
    """Whether it is a load beside another workload, of which no figure is reported."""
    alone: bool = False
    """Whether it is known that nothing else is sent over the link meanwhile."""
    outside: tuple[TrafficPath, ...] = ()
    """Paths beside the tunnel, on the same link, for loads that do not go through it."""
    settle: Callable[[int], None] | None = None
    """Lets what runs beside go on alone for so many nanoseconds, before what is sent next: in
    virtual time, which does not pass by itself; else None."""
    beside: "Callable[[Callable[[TrialContext], Outcome]], Outcome] | None" = None
    """Runs something with the study's background beside it, for a ``wants_background``."""
    set_up: Again | None = None
    """Sets the tunnel up again, for workloads that ``restarts``; None for others."""
    joining: Joining | None = None
    """Lets clients of a gateway leave and join again, for workloads with ``joining``."""
    carry_bulk: CarryBulk | None = None
    """Carries bulk transfers where hosts have no programs: in virtual time; else None."""
    carry_clients: CarryClients | None = None
    """Likewise lets programs that ask over TCP run."""
    first_port: int = FIRST_PORT
    """Ports from here on, ``ports_of`` its paths, are free on both hosts for this workload."""


@dataclass(frozen=True)
class OnOneClock:
    """Flows whose times of both ends are those of the client's clock."""

    flows: tuple[Flow, ...]
    error_ns: float
    """No one-way delay is further from the truth, either way; the same for all packets."""


@dataclass(frozen=True)
class Outcome:
    """What one trial came to, before the run adds its own evidence."""

    measurements: tuple[Measurement, ...]
    checks: tuple[Check, ...]
    payload_bytes: int
    """Application bytes delivered in both directions, for the CPU cost."""
    payload_packets: int
    """Datagrams delivered in both directions, for the CPU cost."""
    measuring_s: float
    """Seconds during which traffic was under way: offered, or still coming."""
    details: Mapping[str, object] = field(default_factory=dict)
    samples: tuple[str, ...] = ()
    """Names of files left in ``samples_dir``."""
    outside_bytes: int = 0
    """Application bytes that loads beside the tunnel delivered: on the link, at no cost of its."""
    outside_packets: int = 0
    """Datagrams of such loads."""
    apart_ns: int | None = None
    """Gap between packets too few for a percentile beyond the median; None: they are not, or the
    time between them is not the study's."""


class Workload(ABC):
    """A driver: one file, one class, found by ``kind``. One object serves one point."""

    kind: ClassVar[str]
    title: ClassVar[str]
    params_type: ClassVar[type[Params]]
    metrics: ClassVar[tuple[str, ...]]
    """Names of ``METRICS`` that a trial gives, in the order of the report."""
    wants_background: ClassVar[bool] = False
    """Whether it starts the study's background itself, when it wants it, and cannot do without."""
    simulated: ClassVar[bool] = False
    """Whether virtual time can have it: its packets do not depend on a program."""
    many_clients: ClassVar[bool] = False
    """Whether its traffic begins at every client of a gateway, wherever that is."""
    may_be_background: ClassVar[bool] = True
    """Whether it is a load that others may have beside them; one that searches is none."""

    restarts: ClassVar[bool] = False
    """Whether it takes the tunnel down and sets it up again: nothing can be beside it then."""

    def __init__(self, params: Params) -> None:
        """Take the parameters of the point; nothing is touched yet."""
        self.params = params

    def need(self) -> Need:
        """Say what each of the two hosts must have beside the engine: nothing."""
        return Need()

    def unavailable(self, host: Host) -> str | None:
        """Return why this workload cannot run on the host, with the remedy, or None."""
        return self.need().missing(host)

    def conflict(self, paths: int) -> str | None:  # noqa: ARG002 - for drivers that have one
        """Return why these parameters cannot serve so many simultaneous tunnels, or None."""
        return None

    def unfit(self, link: AnyLinkSpec | None, mtu_bytes: int) -> str | None:  # noqa: ARG002
        """Return why these parameters cannot serve on a link with such an MTU, or None."""
        return None

    def unmodelled(self, paths: int) -> str | None:  # noqa: ARG002 - for drivers that have one
        """Return why virtual time cannot have a ``simulated`` kind with these, or None."""
        return None

    def withheld(self, metric: str, paths: int = 1) -> str | None:  # noqa: ARG002 - as above
        """Return why these never give a metric of the kind over so many paths, or None."""
        return None

    @property
    def content(self) -> str:
        """What its payload is for a tunnel that compresses; ``random`` gets no smaller."""
        return str(getattr(self.params, "content", "random"))

    @property
    def joining(self) -> int:
        """How many clients of a gateway it lets leave and join again."""
        return 0

    @property
    def server_begins(self) -> bool:
        """Whether the server sends what is no answer: no NAT before the client lets it in."""
        return False

    @property
    def line_ports(self) -> tuple[ServerPorts, ...]:
        """Ports of the server that it uses beside those from ``first_port`` on."""
        return ()

    @property
    def payload_sizes(self) -> tuple[int, ...]:
        """Sizes in bytes of datagrams whose packets on the wire are to be looked at."""
        size = getattr(self.params, "payload_bytes", None)
        return (size,) if isinstance(size, int) else ()

    @property
    @abstractmethod
    def expected_s(self) -> float:
        """Seconds one trial takes, for the time left."""

    @abstractmethod
    def run(self, context: TrialContext) -> Outcome:
        """Run one trial; a peer that dies ends it with a failed ``Check``, not an exception."""
