"""What every tunnel driver is: parameters, needs, up, problem, down."""

import json
import shlex
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Annotated, ClassVar, Self

from pydantic import Field, model_validator

from tunnelmark.engine.link import AnyLinkSpec
from tunnelmark.model.congestion import CongestionName, lacking
from tunnelmark.model.errors import RefusedError
from tunnelmark.model.host import Host, Need, Process
from tunnelmark.model.overhead import Encapsulation, IpName
from tunnelmark.model.params import Params
from tunnelmark.model.topology import MOST_CLIENTS, Router
from tunnelmark.model.tunnel import (
    CipherLibrary,
    Encryption,
    Negotiated,
    ServerPorts,
    Side,
    Site,
    TunnelUp,
)
from tunnelmark.tunnels.tailored import (
    FileName,
    Option,
    ProgramName,
    ProgramPath,
    TailoredHost,
    Tailoring,
    reported,
)


class TunnelParams(Params):
    """Parameters that every tunnel has.

    A driver that cannot do both IP versions inside or outside narrows the field to those it can.
    """

    count: int = Field(
        1,
        ge=1,
        le=64,
        description="number of simultaneous tunnels; the traffic is spread over them",
    )
    clients: int | None = Field(
        None,
        ge=1,
        le=MOST_CLIENTS,
        description="clients of one gateway, each with an address, keys and a link of its own; "
        "without it, each of the count tunnels has a server of its own",
    )
    shared: bool = Field(
        False,
        description="all clients are on one link, whose rate, queue and loss they share, instead "
        "of one each",
    )
    inner: IpName = Field("ipv4", description="IP version of the traffic inside the tunnel")
    outer: IpName = Field("ipv4", description="IP version of the tunnel's own packets on the link")
    program: ProgramPath | dict[ProgramName, ProgramPath] | None = Field(
        None,
        description="path of the program to start instead of the one on the PATH; a table names "
        'several: { openvpn = "/opt/openvpn-2.7/sbin/openvpn" }',
    )
    options: tuple[Option, ...] | dict[ProgramName, tuple[Option, ...]] = Field(
        (),
        description='extra command-line options: ["--fragment 1300"]; a table names '
        "the programs. There is then no overhead model, only the capture",
    )
    append: dict[FileName, Annotated[str, Field(max_length=20_000)]] = Field(
        {},
        description="lines appended to a file that the tunnel writes, by the file's name: "
        '{ "tinc.conf" = "ReplayWindow = 64" }. There is then no overhead model either',
        json_schema_extra={"additionalProperties": False},
    )
    mss_clamp: Annotated[int, Field(ge=88, le=65495)] | None = Field(
        None,
        description="largest TCP segment in bytes that both ends offer inside the tunnel, as where "
        "a gateway clamps the MSS; none: what the hosts offer by themselves",
    )
    congestion: CongestionName | None = Field(
        None,
        description="congestion control of both ends of the TCP connections that carry the tunnel, "
        "such as cubic or reno; none: the kernel's own choice, which the report names",
    )

    @model_validator(mode="after")
    def _clients_or_count(self) -> Self:
        if self.clients is not None and self.count > 1:
            raise ValueError(
                f"clients is {self.clients} and count is {self.count}: a gateway has clients, "
                "separate tunnels have a count; leave out one of the two"
            )
        if self.shared and self.clients is None:
            raise ValueError(
                "shared is for the clients of a gateway: give clients, or leave it out"
            )
        return self

    @property
    def paths(self) -> int:
        """Number of simultaneous ways for traffic."""
        return self.count if self.clients is None else self.clients

    def columns(self) -> dict[str, object]:
        """Return all values; what a study gives of its own only where it does, as words."""
        columns = super().columns()
        for name in ("mss_clamp", "congestion"):
            if columns[name] is None:
                del columns[name]
        if self.clients is None:
            del columns["clients"]
        if not self.shared:
            del columns["shared"]
        for name in ("program", "options", "append"):
            value = columns.pop(name)
            if value:
                columns[name] = value if isinstance(value, str) else json.dumps(value)
        return columns


class Tunnel(ABC):
    """A driver: one file, one class, found by ``kind``.

    One object serves one block. ``up`` and ``down`` are called once each, ``down`` also after an
    ``up`` that failed half-way. Daemons are started with ``Host.spawn`` and so end with the lab at
    the latest.
    """

    kind: ClassVar[str]
    title: ClassVar[str]
    params_type: ClassVar[type[TunnelParams]]
    gateway: ClassVar[bool] = False
    """Whether one server of it serves the ``clients`` of a study."""
    library: ClassVar[CipherLibrary | None] = None
    """Whose code encrypts data packets where a program does; None: not known."""
    routers: ClassVar[tuple[Router, ...]] = ("none", "routed", "nat")
    """What may stand between the two ends; narrowed by what cannot pass one."""
    nat_of_lab: ClassVar[bool] = False
    """Whether the only NAT that it passes is a lab's, whose address the server is set up for and
    which follows what has no ports."""
    is_link: ClassVar[bool] = False
    """The tunnel is on a medium of its own, made by what the study's link says: the lab then starts
    no emulator, and ``TunnelUp.medium`` stands in for it."""

    joins: ClassVar[bool] = False
    """Whether a client of its gateway can leave and join again while the others stay."""
    tells_set_up: ClassVar[bool] = False
    """Whether it comes up by a handshake and tells ``Site.reached`` how far that is."""
    deviations: ClassVar[Mapping[str, str]] = MappingProxyType({})
    """What is set although the study does not ask for it and the program's own default is another:
    setting to reason, for docs/drivers.md."""

    programs: ClassVar[Mapping[str, str]] = MappingProxyType({})
    """Programs of which a study may give its own, the main one first: name to the word that starts
    it."""
    lead: ClassVar[frozenset[str]] = frozenset()
    """Those of them that take options before all others."""

    params: TunnelParams
    """A driver says here which its own are: those of ``params_type``."""

    def __init__(self, params: TunnelParams) -> None:
        """Take the parameters of the study; nothing is touched yet."""
        if not isinstance(params, self.params_type):
            raise TypeError(f"{type(params).__name__} are not the parameters of {self.kind}")
        self.params = params
        self.confined = False
        self._tailoring = self._of_the_study()

    def confine(self) -> None:
        """Choose, from now on, as where a CPU limit holds programs and no kernel.

        It is called before all else.

        A driver that has the choice (``implementation = "auto"``) then takes a program.
        """
        self.confined = True

    @property
    def chooses(self) -> bool:
        """Whether the study leaves it to the driver which implementation runs."""
        return getattr(self.params, "implementation", None) == "auto"

    @property
    def modelled(self) -> bool:
        """Whether ``encapsulation`` knows what stands around a packet; else only the capture."""
        return not (self._tailoring.options or self._tailoring.append)

    @property
    def compresses(self) -> bool:
        """Whether packets may get smaller; ``encapsulation`` is of those that do not."""
        compression: str = getattr(self.params, "compression", "none")
        return compression != "none" or bool(getattr(self.params, "ipcomp", False))

    @property
    def packet_cipher(self) -> str | None:
        """Cipher of its data packets by the parameters alone; None: none that they decide."""
        cipher: str | None = getattr(self.params, "cipher", None)
        return cipher

    def encryption(self, host: Host | None) -> Encryption:  # noqa: ARG002 - it may decide
        """Return what encrypts data packets on a host where a program does it."""
        return Encryption(self.packet_cipher, self.library)

    @abstractmethod
    def need(self, host: Host) -> Need:
        """Say what each of the two hosts must have; may look at the host to choose."""

    def unavailable(self, host: Host) -> str | None:
        """Return why this tunnel cannot run on the host, with the remedy, or None."""
        if self.params.mss_clamp is not None and host.has("nft") is None:
            return "nft, which mss_clamp needs, is not installed (apt-get install nftables)"
        if (wanted := self.params.congestion) is not None and (reason := lacking(host, wanted)):
            return reason
        own = self._tailored(host)
        reason = own.missing() if isinstance(own, TailoredHost) else None
        return reason or self.need(own).missing(own, behind=host)

    def _tailored(self, host: Host) -> Host:
        """Return the host with what the study gives of its own, if it gives something."""
        return TailoredHost(host, self._tailoring) if self._tailoring else host

    def unfit(self, link: AnyLinkSpec | None, mtu_bytes: int) -> str | None:  # noqa: ARG002
        """Return why this tunnel cannot be on a link with such an MTU, or None; touches nothing."""
        return self._tailoring.unknown()

    def no_gateway(self) -> str | None:
        """Return that it has no gateway for the ``clients`` that are asked for, or None."""
        if self.params.clients is None or self.gateway:
            return None
        return f"{self.kind} cannot be a gateway: leave out clients, or set count"

    def no_carrier(self) -> str | None:
        """Return that no TCP has the ``congestion`` that is asked for, or None."""
        if self.params.congestion is None or self.carriers():
            return None
        return (
            f"congestion is {self.params.congestion!r}, but no TCP connection carries {self.title} "
            "with these parameters: leave it out"
        )

    def no_set_up(self) -> str | None:
        """Return why no handshake of it can be timed, or None."""
        if not self.tells_set_up:
            return f"{self.kind} has no handshake that can be timed"
        if self.params.count > 1 or self.params.clients is not None:
            return "a handshake is timed with one tunnel: leave out count and clients"
        return None

    def no_joins(self) -> str | None:
        """Return why no client of it can leave and join again, or None."""
        if self.params.clients is None:
            return "it has no clients that could join: set clients"
        return None if self.joins else f"clients of {self.kind} cannot leave and join again"

    def up(self, site: Site) -> TunnelUp:
        """Bring all ``count`` tunnels up and return when traffic can pass.

        Raises ``TunnelError`` with the program's own last words if one does not come up, or if
        what was negotiated is not what the parameters ask for.
        """
        if reason := self.no_gateway():
            raise RefusedError(reason)
        return _with_details(self._as_tailored(site), self._clients())

    def leave(self, site: Site, number: int) -> None:  # noqa: ARG002 - for drivers whose clients leave
        """End a client of a gateway that is up; the gateway and the other clients stay."""
        raise RefusedError(f"client {number} of {self.kind} cannot leave and join again")

    def join(self, site: Site, number: int) -> Callable[[], None]:
        """Start a client that left, with the keys that it had, and do not wait for the gateway.

        What is returned waits until an answer has come through; it starts no process, so it may be
        called on any thread. ``site.reached`` hears how far this client is. Raises
        ``TunnelError`` if the client does not start, as what is returned does if it does not join.
        """
        return self.start_client(self._tailored_site(site), number)

    def start_client(self, site: Site, number: int) -> Callable[[], None]:  # noqa: ARG002 - for drivers whose clients join
        """Do what ``join`` says; the hosts of the site start the programs that the study gives."""
        raise RefusedError(f"client {number} of {self.kind} cannot leave and join again")

    def processes(self) -> tuple[tuple[str, Process], ...]:
        """Return (host name, daemon) of what carries it now."""
        return ()

    def _clients(self) -> dict[str, str]:
        """Return what a result says of the clients of a gateway."""
        clients = self.params.clients
        if clients is None:
            return {}
        number = f"{clients} client{'s' * (clients != 1)}"
        return {"clients": number + (" on one link" if self.params.shared else "")}

    def _as_tailored(self, site: Site) -> TunnelUp:
        """Bring all tunnels up with what the study gives of its own."""
        if not self._tailoring:
            return self.bring_up(site)
        if reason := self._tailoring.unknown():
            raise RefusedError(f"{self.kind}: {reason}")
        tailored = self._tailored_site(site)
        up = self.bring_up(tailored)
        hosts = [end.host for end in (tailored.client, tailored.server)]
        own = [host for host in hosts if isinstance(host, TailoredHost)]
        return _with_details(up, reported(self._tailoring, own))

    def _tailored_site(self, site: Site) -> Site:
        """Return the site with what the study gives of its own on all hosts."""
        client, server = (self._tailored(end.host) for end in (site.client, site.server))
        return replace(
            site,
            client=replace(site.client, host=client),
            server=replace(site.server, host=server),
            clients=tuple(
                replace(end, host=self._tailored(end.host) if place else client)
                for place, end in enumerate(site.clients)
            ),
        )

    @abstractmethod
    def bring_up(self, site: Site) -> TunnelUp:
        """Do what ``up`` says; the hosts of the site start the programs that the study gives."""

    def _of_the_study(self) -> Tailoring:
        params, words = self.params, self._words()
        main = next(iter(words), "")
        programs = {main: params.program} if isinstance(params.program, str) else params.program
        options = params.options if isinstance(params.options, dict) else {main: params.options}
        return Tailoring(
            words=words,
            programs=programs or {},
            options={
                name: tuple(word for line in given for word in shlex.split(line))
                for name, given in options.items()
                if given
            },
            lead=self.lead,
            append=params.append,
        )

    def _words(self) -> Mapping[str, str]:
        """Return the programs of which the study may give its own."""
        return self.programs

    @abstractmethod
    def problem(self) -> str | None:
        """Return what is wrong with a tunnel that was up (a dead daemon, a lost peer), or None."""

    def check_agreed(self) -> None:
        """Hold what both ends say now, of a tunnel that is up, to what the parameters ask for.

        Called beside each trial: a cipher may be renegotiated, a connection fall back to another
        transport. Raises ``TunnelError`` as ``up`` does. Without anything negotiated that can
        change while the tunnel is up there is nothing to ask.
        """
        return

    @abstractmethod
    def down(self) -> None:
        """End everything ``up`` started; tolerates half-up and being called twice."""

    def default_mtu_bytes(self, link_mtu_bytes: int, implementation: str) -> int:  # noqa: ARG002 - for drivers with several
        """Return the MTU that an implementation's inner interface has where the study sets none.

        The implementation is an argument: a tunnel that is not brought up has chosen none yet.
        """
        return link_mtu_bytes

    def by_model(self, link_mtu_bytes: int, implementation: str = "") -> Negotiated:
        """Return what the parameters alone decide, of a tunnel that is not brought up.

        ``implementation`` is what stands for ``auto``; the kernel's if none is given.
        """
        own: str | None = getattr(self.params, "implementation", None)
        chosen = (implementation if own is None or own == "auto" else own) or "kernel"
        mtu_bytes: int | None = getattr(self.params, "mtu_bytes", None)
        return Negotiated(
            cipher=self.packet_cipher,
            version="by model",
            implementation=chosen,
            mtu_bytes=mtu_bytes or self.default_mtu_bytes(link_mtu_bytes, chosen),
            data_path=None,
        )

    def on_air(self, medium: Mapping[str, object]) -> Mapping[str, object]:
        """Return a WLAN, in the engine's form, with what the tunnel adds to each of its frames.

        Only a tunnel that is the link itself adds anything.
        """
        return medium

    def router_problem(self, router: Router) -> str | None:
        """Return why the tunnel cannot pass a router of this kind, or None."""
        if router in self.routers:
            return None
        nat = " with NAT" if router == "nat" and "routed" in self.routers else ""
        return f"{self.title} cannot pass a router{nat}"

    def forwarded(self) -> tuple[ServerPorts, ...] | None:
        """Return what a NAT before the server must forward to it; None: it cannot be behind one.

        Only where the client alone opens every connection, and to ports that are known before.
        """
        return None

    def carriers(self) -> tuple[ServerPorts, ...]:
        """Return the ports of TCP connections that carry packets; none where TCP carries none.

        Where UDP carries them, TCP that is there too is for agreeing on them.
        """
        ports = self.forwarded() or ()
        return () if any(one.protocol == "udp" for one in ports) else ports

    def nat_problem(self, side: Side) -> str | None:
        """Return why the tunnel cannot work with this end behind NAT, or None."""
        if side == "client" and self.nat_of_lab:
            return f'{self.title} passes no NAT but the one of a lab (router = "nat")'
        if side == "client":
            return self.router_problem("nat")
        if self.forwarded() is None:
            return f"{self.title} cannot have its server behind NAT: no port forwarding carries it"
        return None

    def encapsulation(self, agreed: Negotiated) -> Encapsulation | None:
        """Return the model of how inner packets are wrapped; None: they go as they are.

        The proof by wire is compared with it. ``agreed`` is what ``up`` returned. Raises
        ``TunnelError`` where a driver has no model.
        """
        raise RefusedError(
            f"there is no overhead model of {self.kind} ({agreed.version or 'unknown version'})"
        )


def _with_details(up: TunnelUp, details: Mapping[str, str]) -> TunnelUp:
    """Return it with more said of each of its tunnels."""
    if not details:
        return up
    negotiated = (
        replace(agreed, details={**agreed.details, **details}) for agreed in up.negotiated
    )
    return replace(up, negotiated=tuple(negotiated))
