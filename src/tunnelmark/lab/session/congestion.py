"""Which congestion control the TCP of a trial's workloads uses: set where they say so, reported."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from tunnelmark.model.congestion import available, default
from tunnelmark.model.errors import LabError
from tunnelmark.model.host import Host
from tunnelmark.model.validity import Check
from tunnelmark.workloads.base import Workload
from tunnelmark.workloads.congestion import over_tcp, wanted_by

_NAME: Final = "net.ipv4.tcp_congestion_control"
_MOST_TRIES: Final = 3
"""Of setting what was refused: another run that ends may take it back in between."""


@dataclass(frozen=True)
class InForce:
    """What new connections of each host use; empty where the trial has none."""

    names: Mapping[str, str]
    """By role."""
    wanted: str | None
    """What the study asks for; None: the kernel's own."""

    def check(self, details: Mapping[str, object]) -> list[Check]:
        """Hold what a program says of its own connections (``details``) to what was in force."""
        if not self.names:
            return []
        said = details.get("congestion")
        used = set(self.names.values()) | (set(said) if isinstance(said, list) else set())
        whose = "as the study requires" if self.wanted else "the kernel's default"
        words = ", ".join(sorted(used))
        ok = len(used) == 1
        message = f"TCP used the congestion control {words}, {whose}"
        return [
            Check(
                "congestion_control",
                ok,
                message if ok else f"TCP used more than one congestion control: {words}",
            )
        ]

    def reported(self) -> dict[str, object]:
        """Return it for the trial's details."""
        if not self.names:
            return {}
        return {"congestion_control": {**self.names, "chosen": self.wanted is not None}}


@contextmanager
def congestion(
    hosts: Mapping[str, Host], loads: Sequence[Workload], allow: Callable[[str], bool]
) -> Iterator[InForce]:
    """Set what the loads of a trial want on both hosts, and what was there before at the end.

    Connections that carry a tunnel have their own (``lab.carrier``). ``allow`` is asked for what is
    refused, and says whether to try again. Raises ``LabError`` where the
    kernel refuses it, or loads that share the hosts want different ones.
    """
    if not over_tcp(loads):
        yield InForce({}, None)
        return
    name = wanted_by(loads)
    before = {role: default(host) for role, host in hosts.items()}
    try:
        if name is not None:
            for host in hosts.values():
                _set(host, name, allow)
        yield InForce({role: default(host) for role, host in hosts.items()}, name)
    finally:
        if name is not None:
            for role, host in hosts.items():
                _set(host, before[role], allow)


def _set(host: Host, name: str, allow: Callable[[str], bool]) -> None:
    for _ in range(_MOST_TRIES):
        done = host.run(["sysctl", "-qw", f"{_NAME}={name}"], check=False)
        # sysctl ends well where the kernel refuses a name.
        if done.returncode == 0 and default(host) == name:
            return
        if name not in available(host) or not allow(name):
            break
    raise LabError(f"congestion is {name!r}, which the kernel refuses here: {done.last_words()}")
