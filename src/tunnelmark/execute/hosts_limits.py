"""What a study may not ask of two real hosts, and how much it sends over their line at most."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, get_args

from tunnelmark.devices.registry import is_limited
from tunnelmark.execute.hosts_rates import Rates, longest_s, most_bits, rates
from tunnelmark.hosts.inventory import Inventory
from tunnelmark.lab import hosts_nat
from tunnelmark.links.registry import link_kinds
from tunnelmark.model.errors import StudyError
from tunnelmark.model.overhead import IP_SHOWN, IpName
from tunnelmark.model.registry import make
from tunnelmark.model.trial import BASELINE, DriverSpec
from tunnelmark.model.tunnel import ServerPorts
from tunnelmark.study.study import Study
from tunnelmark.tunnels.registry import tunnel_kinds
from tunnelmark.workloads.base import Workload
from tunnelmark.workloads.registry import workload_kinds


@dataclass(frozen=True)
class Sent:
    """What a study sends at most over the line, each way."""

    bytes_most: int | None
    """By its workloads; None where one sends as much as the line carries."""
    seconds: float
    """Of their traffic, with the most repeats and invalid attempts at each."""

    def describe(self) -> str:
        """Return one sentence for whoever shares the line."""
        if self.bytes_most is None:
            return (
                f"the study sends for at most {self.seconds / 60:.0f} min, with workloads that "
                "use all that the line carries (max_rate in the inventory limits that)"
            )
        return (
            f"the study sends at most {self.bytes_most / 1e6:.0f} MB each way, in "
            f"at most {self.seconds / 60:.0f} min of traffic, without set-ups, proofs by wire, "
            "warm-ups and what compares the clocks"
        )


def check_study(study: Study, inventory: Inventory) -> Sent:
    """Refuse what real hosts cannot do or the inventory forbids; return what will be sent.

    Raises ``StudyError`` that names the part of the study, its value and the limit.
    """
    _nothing_emulated(study)
    if inventory.ip == "ipv6" and not study.tunnels:
        why = 'a study without a tunnel measures IPv4 ([[tunnel]] kind = "none", inner = "ipv6")'
        raise _refused(study, f"the line carries IPv6: {why}")
    for tunnel in study.tunnels:
        if reason := version_problem(tunnel, inventory.ip):
            raise _refused(study, f"tunnel {tunnel.label}: {reason}")
        driver = make(tunnel_kinds(), tunnel)
        if driver.is_link:
            raise _refused(study, f"tunnel {tunnel.label}: it is itself a link")
        if driver.params.clients is not None:
            why = "a gateway's clients are network namespaces"
            raise _refused(study, f"tunnel {tunnel.label}: {why}")
    return _sent(study, inventory)


def _nothing_emulated(study: Study) -> None:
    """Refuse what only a lab has."""
    if study.topology.router != "none":
        raise _refused(study, f"topology.router is {study.topology.router}, which is emulated")
    if study.place.system.is_named:
        system = study.place.system.describe()
        raise _refused(study, f"place.suite is {system}, which is of a virtual machine")
    for device in study.devices:
        if is_limited(device):
            raise _refused(study, f"device {device.label}: a real host has its own CPU")


def forwarded(study: Study) -> tuple[ServerPorts, ...]:
    """Return the ports of a study that a NAT before the server must forward to it."""
    tunnels = [make(tunnel_kinds(), tunnel) for tunnel in study.tunnels]
    loads = [load for workload in study.workloads for load in drivers_of(workload)]
    most = max((len(workload.background) for workload in study.workloads), default=0)
    return hosts_nat.forwarded(tunnels, loads, most_loads=most)


def version_problem(tunnel: DriverSpec, line: IpName) -> str | None:
    """Return why a tunnel and its baseline cannot be on a line of this IP version, or None."""
    driver = make(tunnel_kinds(), tunnel)
    name = IP_SHOWN[line]
    # Without a tunnel there is no outer packet.
    for key in ("inner",) if tunnel.kind == BASELINE else ("outer", "inner"):
        if getattr(driver.params, key) == line:
            continue
        allowed = get_args(type(driver.params).model_fields[key].annotation)
        if line not in allowed:
            return f"{driver.title} has no {name} {_WHERE[key]}, and the line has no other"
        return f'the line carries {name} only, bare and in tunnels (set {key} = "{line}")'
    return None


_WHERE: Final = {"outer": "outside", "inner": "inside"}


def _sent(study: Study, inventory: Inventory) -> Sent:
    bits = seconds = 0.0
    counts = (tunnel.params.get("count", 1) for tunnel in study.tunnels)
    paths = max((count for count in counts if isinstance(count, int)), default=1)
    # A tunnel's trials and those of the baseline that is paired with them, and each may be invalid
    # as often as a point is not given up for it.
    precision = study.precision
    attempts = precision.max_repeats * (1 + precision.max_invalid)
    attempts *= 2 * max(1, len(study.tunnels))
    for link, workload in ((one, other) for one in study.links for other in study.workloads):
        model = make(link_kinds(), link)
        line = (model.spec(0), model.mtu_bytes, paths)
        drivers = list(drivers_of(workload))
        found = rates(drivers, *line)
        if (limit := inventory.max_rate) is not None and (why := _excess(found, link, limit)):
            raise _refused(study, f"workload {workload.label} {why}")
        seconds += longest_s(drivers[0], *line) * attempts
        bits += most_bits(drivers, *line) * attempts
    return Sent(None if math.isinf(bits) else int(bits / 8), seconds)


def _excess(found: Rates, link: DriverSpec, limit: float) -> str | None:
    """Return which end would send more than a limit, with the remedy, or None."""
    ways = (
        (found.forward, "", "a [[link]] of that rate would keep it below"),
        (
            found.reverse,
            " to the client",
            "no [[link]] holds it, which stands at the client's end of the line",
        ),
    )
    for rate, end, remedy in ways:
        if rate > limit:
            unbounded = math.isinf(rate)
            what = "as much as the line carries" if unbounded else f"{rate / 1e6:g} Mbit/s"
            return (
                f"sends {what}{end} over link {link.label}, max_rate is {limit / 1e6:g} Mbit/s "
                f"({remedy})"
            )
    return None


def drivers_of(workload: DriverSpec) -> Iterator[Workload]:
    """Return a workload's driver, and those of the loads beside it."""
    yield make(workload_kinds(), workload)
    for load in workload.background:
        yield make(workload_kinds(), DriverSpec(load.kind, load.label, load.params))


def _refused(study: Study, why: str) -> StudyError:
    return StudyError(f"{study.source}: cannot run on real hosts: {why}")
