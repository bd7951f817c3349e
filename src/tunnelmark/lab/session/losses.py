"""Where the packets of a trial were lost: counters of both hosts and the link, before and after."""

from collections.abc import Mapping
from functools import partial
from typing import Any, Final

from tunnelmark.lab.emulators import LinkCounters
from tunnelmark.lab.lab import Lab
from tunnelmark.model.errors import LabError
from tunnelmark.model.host import Host
from tunnelmark.model.together import together
from tunnelmark.model.tunnel import TunnelUp
from tunnelmark.model.validity import Check
from tunnelmark.probes.places import (
    PLACES,
    PROC_FILES,
    UNKNOWN,
    Assigned,
    HostCounts,
    assign,
    parse_counts,
    way_drops,
)

WAYS: Final = ("forward", "reverse")
_LINK_INTERFACE: Final = "eth0"
_BETWEEN: Final = "\n--\n"
_COUNTS: Final = f"""\
cat {" ".join(PROC_FILES)}
printf '\\n--\\n'
exec tc -s -j qdisc show
"""
"""One program for all: starting one costs an emulated CPU 50 ms."""


class LossWatch:
    """Reads the counters of both hosts at the start and at the end of a trial."""

    def __init__(self, lab: Lab, up: TunnelUp) -> None:
        """Read for the first time; ``up`` is what the trial's traffic goes through."""
        self._hosts = {"client": lab.client_hosts, "server": (lab.server_host,)}
        wires = [f"eth{number}" for number in range(lab.wires)]
        self._interfaces = {
            "client": [_LINK_INTERFACE, *(path.client_interface for path in up.paths)],
            "server": [*wires, *(path.server_interface for path in up.paths)],
        }
        self._before = self._read()

    def stop(
        self,
        details: Mapping[str, object],
        before: LinkCounters | None,
        after: LinkCounters | None,
    ) -> "Losses":
        """Read again and give a place to every packet that ``details`` report as lost."""
        grown = {}
        for name, now in self._read().items():
            then = self._before[name]
            if then is None or now is None:
                return Losses({})
            grown[name] = now.since(then, self._interfaces[name])
        found = {}
        for way, lost in lost_packets(details).items():
            sender, receiver = ("client", "server")[:: 1 if way == "forward" else -1]
            link = None
            if before is not None and after is not None:
                link = getattr(before, way), getattr(after, way)
            found[way] = assign(lost, way_drops(grown[sender], link, grown[receiver]))
        return Losses(found)

    def _read(self) -> dict[str, HostCounts | None]:
        hosts = [(name, host) for name, hosts in self._hosts.items() for host in hosts]
        counts = together(*(partial(_counts, host) for _, host in hosts))
        found: dict[str, HostCounts | None] = {}
        for (name, _), one in zip(hosts, counts, strict=True):
            known = found.get(name, HostCounts())
            found[name] = None if known is None or one is None else known.plus(one)
        return found


class Losses:
    """What was lost each way, and where."""

    def __init__(self, ways: Mapping[str, Assigned]) -> None:
        """``ways`` are those of which it is known how much was lost."""
        self._ways = ways

    def metrics(self, sent: Mapping[str, int]) -> dict[str, float | None]:
        """Return the share of what was sent that each place lost, by direction."""
        return {
            f"lost_{way}_{place}_ratio": assigned.by_place[place] / sent[way]
            for way, assigned in self._ways.items()
            if sent.get(way)
            for place in (*PLACES, UNKNOWN)
        }

    def checks(self) -> list[Check]:
        """Hold the places to the sum."""
        checks = []
        for way, assigned in self._ways.items():
            places = {place: n for place, n in assigned.by_place.items() if n}
            words = " + ".join(f"{place} {n}" for place, n in places.items()) or "0"
            checks.append(
                Check(
                    f"losses_{way}",
                    ok=sum(places.values()) == assigned.lost
                    and min(places.values(), default=0) >= 0,
                    message=f"{way}: lost {assigned.lost} = {words}".replace("_", " "),
                    value=float(assigned.lost),
                    unit="packet",
                )
            )
        return checks

    def reported(self) -> dict[str, object]:
        """Return all of it for the trial's details."""
        return {
            way: {
                "lost": assigned.lost,
                "places": dict(assigned.by_place),
                "dropped": dict(assigned.dropped),
            }
            for way, assigned in self._ways.items()
        }


def sent_packets(details: Mapping[str, object]) -> dict[str, int]:
    """Return by direction what was sent, as far as the engine's summaries in ``details`` report."""
    return {way: sent for way, (sent, _) in _ends(details).items()}


def lost_packets(details: Mapping[str, object]) -> dict[str, int]:
    """Return by direction what was sent and not received; nothing for other workloads."""
    return {way: max(0, sent - came) for way, (sent, came) in _ends(details).items()}


def _ends(details: Mapping[str, object]) -> dict[str, tuple[int, int]]:
    """Return (sent, received) by direction of streams and of loads each way."""
    apart = {way: details[way] for way in WAYS if isinstance(details.get(way), dict)}
    found: dict[str, tuple[int, int]] = {}
    for way, one in (apart or {"forward": details}).items():
        assert isinstance(one, Mapping)  # noqa: S101 - for the type checker
        for direction, ends in _stream_ends(one).items():
            turned = direction if way == "forward" else WAYS[direction == "forward"]
            found.setdefault(turned, ends)
    return found


def _stream_ends(details: Mapping[str, Any]) -> dict[str, tuple[int, int]]:
    # As the figures of loss have it: what came after the waiting time is lost.
    seen = details.get("within_wait")
    if not isinstance(seen, dict):
        return {}
    found = {"forward": (seen["sent"], seen["received"])}
    if seen["answered"]:
        found["reverse"] = (seen["answered"], seen["returned"])
    return found


def _counts(host: Host) -> HostCounts | None:
    try:
        # cat goes on where there is no IPv6; a host without tc has no disciplines to ask.
        done = host.run(["sh", "-c", _COUNTS], check=False)
    except LabError:
        return None
    proc, _, qdiscs = done.text().partition(_BETWEEN)
    return parse_counts(proc, qdiscs)
