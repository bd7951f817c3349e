"""What a study may not ask of two real hosts, and how much it sends over their line at most."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, get_args

from tunnelmark.devices.registry import is_limited
from tunnelmark.engine.link import LinkSpec
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
from tunnelmark.workloads.loads import RateParams
from tunnelmark.workloads.registry import workload_kinds
from tunnelmark.workloads.udp_echo import UdpEchoParams
from tunnelmark.workloads.voip import VoipParams

_MOST_HEADERS_BYTES: Final = 200
"""More than any tunnel adds to a datagram, with the headers of both packets where it is cut."""
_CALL_BIT_S: Final = 200_000
"""A call each way: 64 kbit/s (G.711) in at most 100 packets a second, with those headers."""


@dataclass(frozen=True)
class Sent:
    """What a study sends at most over the line, each way."""

    bytes_most: int | None
    """In all; None where a workload sends as much as the line carries."""
    seconds: float
    """Of traffic, with the most repeats."""

    def describe(self) -> str:
        """Return one sentence for whoever shares the line."""
        if self.bytes_most is None:
            return (
                f"the study sends for at most {self.seconds / 60:.0f} min, with workloads that "
                "use all that the line carries (max_rate in the inventory limits that)"
            )
        return (
            f"the study sends at most {self.bytes_most / 1e6:.0f} MB each way, in "
            f"at most {self.seconds / 60:.0f} min of traffic"
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
        if tunnel.params.get("mss_clamp") is not None:
            raise _refused(
                study, f"tunnel {tunnel.label}: mss_clamp would change a real host's firewall"
            )
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
    tunnels = (make(tunnel_kinds(), tunnel) for tunnel in study.tunnels)
    loads = [load for workload in study.workloads for load in _drivers(workload)]
    return hosts_nat.forwarded(tunnels, loads)


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
    total: float | None = 0.0
    seconds = 0.0
    counts = (tunnel.params.get("count", 1) for tunnel in study.tunnels)
    paths = max((count for count in counts if isinstance(count, int)), default=1)
    # A tunnel's trials and those of the baseline that is paired with them.
    repeats = study.precision.max_repeats * 2 * max(1, len(study.tunnels))
    for link, workload in ((one, other) for one in study.links for other in study.workloads):
        rate = _rate(link, workload, paths)
        limit = inventory.max_rate
        if limit is not None and (rate is None or rate > limit):
            what = "as much as the line carries" if rate is None else f"{rate / 1e6:g} Mbit/s"
            raise _refused(
                study,
                f"workload {workload.label} sends {what} over link {link.label}, max_rate is "
                f"{limit / 1e6:g} Mbit/s (a [[link]] of that rate would keep it below)",
            )
        lasts_s = make(workload_kinds(), workload).expected_s * repeats
        seconds += lasts_s
        total = None if rate is None or total is None else total + rate * lasts_s / 8
    return Sent(None if total is None else int(total), seconds)


def _rate(link: DriverSpec, workload: DriverSpec, paths: int) -> float | None:
    """Return the most bits per second on the line, each way; None where nothing bounds them."""
    spec = make(link_kinds(), link).spec(0)
    if isinstance(spec, LinkSpec):
        rates = [way.rate_bit_s for way in (spec.a_to_b, spec.b_to_a)]
        if (most := _most(rates)) is not None:
            return most  # whatever is sent, no more passes the emulator
    return _sum([_of_workload(driver, paths) for driver in _drivers(workload)])


def _drivers(workload: DriverSpec) -> Iterator[Workload]:
    yield make(workload_kinds(), workload)
    for load in workload.background:
        yield make(workload_kinds(), DriverSpec(load.kind, load.label, load.params))


def _of_workload(workload: Workload, paths: int) -> float | None:
    """Return what a workload sends at most over so many paths, without a link's rate to rest on."""
    match workload.params:
        case UdpEchoParams(gap=gap, payload_bytes=payload):
            return paths * (payload + _MOST_HEADERS_BYTES) * 8e9 / gap
        case RateParams(load=None) as params:
            return paths * params.rate(None, 1500) * 8 * (params.payload + _MOST_HEADERS_BYTES)
        case VoipParams(calls=calls):
            return float(calls * _CALL_BIT_S)
        case _:
            return None


def _most(rates: list[int | None]) -> float | None:
    known = [rate for rate in rates if rate is not None]
    return float(max(known)) if len(known) == len(rates) else None


def _sum(rates: list[float | None]) -> float | None:
    known = [rate for rate in rates if rate is not None]
    return sum(known) if len(known) == len(rates) else None


def _refused(study: Study, why: str) -> StudyError:
    return StudyError(f"{study.source}: cannot run on real hosts: {why}")
