"""What workloads over TCP share: which congestion control their connections use."""

from collections.abc import Iterable, Sequence
from typing import Final

from pydantic import Field

from tunnelmark.model.congestion import CongestionName, lacking, unmodelled
from tunnelmark.model.errors import LabError
from tunnelmark.model.host import Host
from tunnelmark.model.params import Params
from tunnelmark.workloads.base import Workload

_ALLOWED: Final = "/proc/sys/net/ipv4/tcp_allowed_congestion_control"
"""What namespaces may choose from; root of the first one may add to it, and a run does."""


class TcpParams(Params):
    """Parameters of every workload over TCP."""

    congestion: CongestionName | None = Field(
        None,
        description="congestion control of both ends, such as cubic or reno; none: the kernel's "
        "own choice, which the report names",
    )


class TcpWorkload(Workload):
    """A workload whose payload goes over TCP, at least with some parameters."""

    params: TcpParams

    @property
    def over_tcp(self) -> bool:
        """Whether it does with these."""
        return True

    @property
    def model_lacks(self) -> str | None:
        """What a simulation leaves out of its programs, in a clause; None: nothing to name."""
        return None

    def unmodelled(self, paths: int) -> str | None:  # noqa: ARG002 - for drivers that have one
        """Virtual time has some congestion controls."""
        return unmodelled(self.params.congestion)

    def unavailable(self, host: Host) -> str | None:
        """Beside the programs, namespaces must be able to use the congestion control."""
        if (reason := super().unavailable(host)) or (wanted := self.params.congestion) is None:
            return reason
        if reason := lacking(host, wanted):
            return reason
        allowed = host.run(["cat", _ALLOWED], check=False).text().split()
        if not allowed or wanted in allowed:
            return None
        if host.run(["test", "-w", _ALLOWED], check=False).returncode == 0:
            return None
        return (
            f"congestion is {wanted!r}, the kernel lets namespaces use {', '.join(allowed)} "
            f"(as root: sysctl -w net.ipv4.tcp_allowed_congestion_control="
            f"'{' '.join([*allowed, wanted])}')"
        )


def wanted_by(loads: Sequence[Workload]) -> str | None:
    """Return the congestion control that loads of one trial want, if they name one.

    Raises ``LabError`` where they name several: they share the hosts.
    """
    found = (load.params.congestion for load in over_tcp(loads))
    names = {name for name in found if name is not None}
    if len(names) > 1:
        raise LabError(
            f"the workload and its background want different congestion controls "
            f"({', '.join(sorted(names))}), but a host can have only one at a time"
        )
    return next(iter(names), None)


def over_tcp(loads: Iterable[Workload]) -> list[TcpWorkload]:
    """Return those of some loads whose payload goes over TCP."""
    return [load for load in loads if isinstance(load, TcpWorkload) and load.over_tcp]
