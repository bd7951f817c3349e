"""No tunnel, and a known time of the kernel for each packet that the client sends."""

import math
from pathlib import Path
from typing import Annotated, ClassVar

from pydantic import Field

from tunnelmark.model.errors import LabError
from tunnelmark.model.host import Host, Need
from tunnelmark.model.names import unique_name
from tunnelmark.model.quantity import DurationNs
from tunnelmark.model.topology import MACS
from tunnelmark.model.tunnel import DataPath, Negotiated, Site, TrafficPath, TunnelUp, WireRule
from tunnelmark.tunnels.addressing import alone, inner_addresses
from tunnelmark.tunnels.base import Tunnel, TunnelParams
from tunnelmark.tunnels.daemon import Daemon, last_complaint, wait_for
from tunnelmark.tunnels.support import first_packet

_UDP = 17
_BURN = Path(__file__).parents[1] / "burn.py"


class KnownKernelParams(TunnelParams):
    """What it costs."""

    packet_cost: Annotated[DurationNs, Field(le=20_000_000)] = Field(
        0, description="time that the kernel burns for each packet of the client's"
    )


class KnownKernel(Tunnel):
    """Addresses of their own on the bare link; packets from the client's cost what was chosen.

    It differs from the baseline in nothing but that cost.
    """

    kind: ClassVar[str] = "known_kernel"
    title: ClassVar[str] = "known kernel cost"
    params_type: ClassVar[type[TunnelParams]] = KnownKernelParams
    params: KnownKernelParams

    def __init__(self, params: TunnelParams) -> None:
        """Take the parameters of the study."""
        super().__init__(params)
        self._burning: list[Daemon] = []

    def need(self, host: Host) -> Need:  # noqa: ARG002 - the same on every host
        """Need ip(8)."""
        programs = {"ip": "iproute2", "ping": "iputils-ping", "tc": "iproute2"}
        return Need(programs={**programs, "python3": "python3"})

    def bring_up(self, site: Site) -> TunnelUp:
        """Add the addresses and attach the program."""
        here, there = inner_addresses(site, 0, self.params)
        for end, own, peer, at in (
            (site.client, here, there, "server"),
            (site.server, there, here, "client"),
        ):
            words = ["address", "add", own, "peer", alone(peer), "dev", end.interface]
            end.host.run(["ip", *words])
            words = ["replace", peer, "lladdr", MACS[at], "dev", end.interface, "nud", "permanent"]
            end.host.run(["ip", "neighbour", *words])
        script = site.client.host.work_dir / _BURN.name
        site.client.host.put(script, _BURN.read_bytes())
        process = site.client.host.spawn(
            ["python3", str(script), site.client.interface, here, str(self.params.packet_cost)],
            name=unique_name("burn"),
        )
        daemon = Daemon("burn client", site.client, site.client.interface, process, last_complaint)
        self._burning.append(daemon)
        wait_for([daemon], "attach its program", lambda log: "ready" in log, limit_s=20.0)
        self._check(daemon.log())
        mtu = site.client.mtu_bytes
        path = TrafficPath(
            "0", here, there, site.client.interface, site.server.interface, mtu, link_address=here
        )
        if words_of := first_packet(site.client.host, path, limit_s=10.0):
            raise AssertionError(words_of)
        return TunnelUp(
            paths=(path,),
            negotiated=(
                Negotiated(None, daemon.log().strip(), "TCX", mtu, data_path=DataPath.KERNEL),
            ),
            wire=WireRule(
                encrypted=False, describe="UDP, readable", ip_protocols=(_UDP,), ip_version=4
            ),
            # Its CPU is none of the tunnel's: it sleeps.
            processes=(("client", process),),
        )

    def _check(self, log: str) -> None:
        """Refuse a cost that the kernel's own measurement of the program does not find.

        The verifier bounds how often the clock may be read, and a clock may be coarse.
        """
        measured = int(log.split("ready ")[1].split(maxsplit=1)[0])
        if not math.isclose(measured, self.params.packet_cost, rel_tol=0.02, abs_tol=1000):
            raise LabError(f"burn: {measured} ns of {self.params.packet_cost} ns")

    def problem(self) -> str | None:
        """Return that the program is gone."""
        ended = any(daemon.process.poll() is not None for daemon in self._burning)
        return "the program is gone" if ended else None

    def down(self) -> None:
        """Take the program off."""
        while self._burning:
            self._burning.pop().process.stop()

    def encapsulation(self, agreed: Negotiated) -> None:
        """Return that datagrams go as they are."""
