"""L2TP over IPsec: xl2tpd and pppd with MS-CHAPv2 inside ESP in transport mode, keyed by IKEv1."""

import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from types import MappingProxyType
from typing import ClassVar, Final, Literal

from pydantic import Field

from tunnelmark.model.errors import RefusedError, TunnelError
from tunnelmark.model.esp import ESP_SUITES, esp
from tunnelmark.model.host import Host, Need, Process
from tunnelmark.model.names import unique_name
from tunnelmark.model.overhead import (
    Encapsulation,
    Layer,
    best_inner_mtu,
    ip_layer,
    udp_layer,
)
from tunnelmark.model.topology import Router
from tunnelmark.model.tunnel import DataPath, Endpoint, Negotiated, Side, Site, TunnelUp, WireRule
from tunnelmark.tunnels.addressing import check_inner_mtu, client_ends
from tunnelmark.tunnels.base import TunnelParams
from tunnelmark.tunnels.esp.daemon import settled_sas
from tunnelmark.tunnels.esp.sas import ChildSa, IkeSa
from tunnelmark.tunnels.esp.suites import (
    NAT_NEEDS_UDP,
    SUITE_NAMES,
    Agreement,
    Suite,
    check_pair,
    esp_rule,
)
from tunnelmark.tunnels.ikev1 import no_ikev1
from tunnelmark.tunnels.l2tp_ipsec.files import client_config, server_config
from tunnelmark.tunnels.ppp import pppd
from tunnelmark.tunnels.ppp.call import LOG_LINES, Call, PppTunnel
from tunnelmark.tunnels.ppp.check import negotiated
from tunnelmark.tunnels.ppp.log import last_words
from tunnelmark.tunnels.ppp.pppd import PppAccount, PppEnd, PppFraming, PppSetup
from tunnelmark.tunnels.protocols import UDP
from tunnelmark.tunnels.strongswan.charon import CHARON, PROGRAMS, Charon
from tunnelmark.tunnels.strongswan.config import Settings, child, connection, connection_name
from tunnelmark.tunnels.support import (
    Watched,
    inner_interface,
    wait_until,
)

PORT: Final = 1701
"""RFC 2661 section 8.1."""

_START_LIMIT_S: Final = 20.0
_INITIATE_LIMIT_S: Final = 30
# Further clients need addresses of their own on the link: from so far up that no tunnel has them.
_FIRST_LINK_ADDRESS: Final = 1 << 13
_KERNEL_WORDS: Final = "Using l2tp kernel support"


class L2tpIpsecParams(TunnelParams):
    """What a study can set."""

    outer: Literal["ipv4"] = Field("ipv4", description="IP version outside; xl2tpd has no other")
    ipsec: bool = Field(
        True,
        description="off: L2TP without encryption, which the proof by wire then reports",
    )
    suite: Suite = Field("AES-128-CBC-SHA1", description="encryption and integrity of ESP")
    udp_encapsulation: bool = Field(False, description="ESP inside UDP port 4500 as through a NAT")
    mtu_bytes: int = Field(
        1400,
        ge=128,
        le=16000,
        description="MTU of the inner interface; 1400 is common for clients",
    )


@dataclass
class _End:
    """One place at which tunnels end: its IKE daemon, and what must be undone."""

    side: Side
    endpoint: Endpoint
    numbers: Sequence[int]
    """The tunnels that end here: all of them, or the one of a gateway's client."""
    charon: Charon | None = None
    undo: list[list[str]] = field(default_factory=list)


class _Call(Call):
    """One end of one tunnel; the process is xl2tpd, that of the server is there for all."""

    kind: ClassVar[str] = "l2tp_ipsec"

    def last_words(self) -> str:
        """Return why this end does not serve: pppd says little where xl2tpd ended it."""
        own, carrier = super().last_words(), last_words(self.process.log_tail(LOG_LINES))
        return own if carrier in own else f"{own}; xl2tpd: {carrier}"


class L2tpIpsecTunnel(PppTunnel):
    """One server and ``count`` clients; each client has an address of its own on the link.

    The kernel distinguishes the tunnels between two hosts by their sockets, so two clients on one
    address and port would get each other's packets. The first has the link's address. With
    ``clients`` each is on a host of its own, with an IKE daemon and a secret of its own.
    """

    kind: ClassVar[str] = "l2tp_ipsec"
    title: ClassVar[str] = "L2TP/IPsec"
    params_type: ClassVar[type[TunnelParams]] = L2tpIpsecParams
    programs: ClassVar[Mapping[str, str]] = MappingProxyType(
        {"xl2tpd": "xl2tpd", "charon": CHARON, "swanctl": "swanctl"}
    )
    gateway: ClassVar[bool] = True
    params: L2tpIpsecParams
    # The server is set up for clients whose addresses it knows: that of the lab's NAT is known.
    nat_of_lab: ClassVar[bool] = True

    def __init__(self, params: TunnelParams) -> None:
        """Take the parameters of the study."""
        super().__init__(params)
        self._ends: list[_End] = []
        self._nat: tuple[str, str] | None = None
        """The client's address, and that which the server sees."""

    def need(self, host: Host) -> Need:  # noqa: ARG002 - the same on every host
        """Need xl2tpd, pppd, the kernel's L2TP, and strongSwan with the kernel's ESP."""
        programs = {**pppd.PROGRAMS, "xl2tpd": "xl2tpd", "ping": "iputils-ping", "ss": "iproute2"}
        if not self.params.ipsec:
            return Need(programs=programs, kernel=("ppp", "l2tp_ppp"))
        return Need(programs={**programs, **PROGRAMS}, kernel=("ppp", "l2tp_ppp", "esp"))

    def unavailable(self, host: Host) -> str | None:
        """Return also that the host's strongSwan has no IKEv1, by which ESP is keyed."""
        if (reason := super().unavailable(host)) or not self.params.ipsec:
            return reason
        return no_ikev1(self._tailored(host))

    def bring_up(self, site: Site) -> TunnelUp:
        """Bring ESP up first, then L2TP inside it; check what all programs say was agreed."""
        check_inner_mtu(self.kind, self.params.inner, self.params.mtu_bytes)
        self._check_mtu(site)
        numbers = range(self.params.paths)
        self._nat = (site.client.ipv4, site.nat_ipv4) if site.nat_ipv4 else None
        server = _End("server", site.server, numbers)
        clients = [
            _End("client", endpoint, numbers if number is None else (number,))
            for endpoint, number in client_ends(site)
        ]
        self._ends = [*clients, server]
        for client in clients:
            for number in client.numbers:
                self._make_link_address(site, client, server, number)
        # Before a single packet of L2TP: without its associations it would go out readable.
        agreed_esp = self._bring_up_esp(site, clients, server) if self.params.ipsec else None
        accounts = [pppd.new_account(f"{site.prefix}-{number}") for number in numbers]
        daemon = self._start_server(site, accounts)
        pairs = [self._call(site, number, accounts[number], daemon) for number in numbers]
        paths, agreed = [], []
        for own, peer in pairs:
            link_address = _link_address(site, own.number)
            paths.append(self._settle(site, own, peer, link_address=link_address))
            agreed.append(self._negotiated(own, agreed_esp))
        return TunnelUp(
            paths=tuple(paths),
            negotiated=tuple(agreed),
            wire=self._rule(),
            processes=(
                *((e.endpoint.host.name, e.charon.process) for e in self._ends if e.charon),
                *((own.endpoint.host.name, own.process) for own, _ in pairs),
                (site.server.host.name, daemon),
            ),
        )

    def router_problem(self, router: Router) -> str | None:
        """Behind NAT, ESP has no ports, and two tunnels are one address and port to the server."""
        if router != "none" and self.params.paths > 1:
            # Each has addresses of its own on the link, which no router knows.
            return f"{self.title} passes a router with one tunnel, not with {self.params.paths}"
        if router != "nat":
            return super().router_problem(router)
        if self.params.ipsec and not self.params.udp_encapsulation:
            return NAT_NEEDS_UDP
        return None

    def check_agreed(self) -> None:
        """Read the associations of all ends and what pppd says again."""
        if self.params.ipsec:
            self._associations()
        super().check_agreed()

    def down(self) -> None:
        """Hang up, end the server, then ESP; the interfaces go with their pppd."""
        super().down()
        while self._ends:
            end = self._ends.pop()
            if end.charon is not None:
                end.charon.stop()
            while end.undo:
                end.endpoint.host.run(end.undo.pop(), check=False)

    @property
    def packet_cipher(self) -> str | None:
        """Suite of ESP; None: nothing encrypts."""
        return self.params.suite if self.params.ipsec else None

    def encapsulation(self, agreed: Negotiated) -> Encapsulation:
        """Return the layers of a data packet of the kernel's L2TP, with ESP around if it is on."""
        inside = (
            udp_layer(),
            Layer("L2TP header", 6, "RFC 2661 section 3.1: flags, tunnel, session"),
            # The kernel's pppol2tp puts both fields before every packet, whatever was agreed.
            *PppFraming(address_and_control_bytes=2, protocol_bytes=2, mppe=False).layers(),
        )
        if not self.params.ipsec:
            return Encapsulation(lambda _inner_bytes: (ip_layer(4), *inside), agreed.mtu_bytes)
        inside_bytes = sum(layer.bytes for layer in inside)
        around = esp(
            ESP_SUITES[self.params.suite],
            mode="transport",
            inner_mtu_bytes=agreed.mtu_bytes,
            udp_encapsulation=self.params.udp_encapsulation,
        )

        def layers(inner_bytes: int) -> tuple[Layer, ...]:
            found = around.layers(inner_bytes + inside_bytes)
            # Padding, trailer and ICV stand behind what is wrapped, the others before it.
            return (*found[:-3], *inside, *found[-3:])

        return Encapsulation(layers, agreed.mtu_bytes)

    def _check_mtu(self, site: Site) -> None:
        link = min(site.client.mtu_bytes, site.server.mtu_bytes)
        wanted = self.params.mtu_bytes
        model = self.encapsulation(Negotiated(None, "", "kernel", link, DataPath.KERNEL))
        fits = best_inner_mtu(link_mtu_bytes=link, encapsulation=model)
        if wanted > fits:
            raise RefusedError(
                f"l2tp_ipsec: mtu_bytes is {wanted}, at most {fits} go whole over a link of "
                f"{link} bytes"
            )

    def _rule(self) -> WireRule:
        if self.params.ipsec:
            return esp_rule(self.params.suite, udp_encapsulation=self.params.udp_encapsulation)
        return WireRule(
            encrypted=False,
            describe=f"L2TP, which is UDP to or from port {PORT}",
            ip_protocols=(UDP,),
            udp_ports=(PORT,),
        )

    def _make_link_address(self, site: Site, client: _End, server: _End, number: int) -> None:
        address = _link_address(site, number)
        if address == client.endpoint.ipv4:
            return
        ways = (
            (client, ["address", "add", f"{address}/32", "dev", site.client.interface]),
            (
                server,
                [
                    *("route", "add", f"{address}/32", "via", site.client.ipv4),
                    *("dev", site.server.interface),
                ],
            ),
        )
        for end, words in ways:
            end.undo.append(["ip", words[0], "del", *words[2:]])
            end.endpoint.host.run(["ip", *words])

    def _bring_up_esp(
        self, site: Site, clients: Sequence[_End], server: _End
    ) -> tuple[Settings, ...]:
        """Return what was agreed, by tunnel, for the report."""
        passwords = [secrets.token_hex(24) for _ in clients]
        charons = []
        for end in (*clients, server):
            end.undo += [["ip", "xfrm", "state", "flush"], ["ip", "xfrm", "policy", "flush"]]
            end.charon = Charon(end.side, end.endpoint.host)
            charons.append((end, end.charon))
        for end, charon in charons:
            charon.wait_ready()
            charon.load(self._document(site, end, passwords))
        *calling, (_, theirs) = charons
        for end, ours in calling:
            for number in end.numbers:
                ours.initiate(_child(number), limit_s=_INITIATE_LIMIT_S, peer=theirs)
        # All clients run the same program.
        version = theirs.version()
        found = []
        for ike, sa in self._associations():
            found.append(
                {
                    "ike_daemon": version,
                    "key_exchange": f"IKEv{ike.version} {ike.suite}, pre-shared key",
                    "esp": f"{sa.mode.lower()} mode, {sa.encryption} {sa.key_bits or ''}".strip(),
                    "esp_integrity": sa.integrity or "in the cipher",
                    "udp_encapsulation": "on" if sa.udp_encapsulation else "off",
                    "selectors": f"{' '.join(sa.local)} to {' '.join(sa.remote)}",
                }
            )
        return tuple(found)

    def _associations(self) -> list[tuple[IkeSa, ChildSa]]:
        """Return the client's of each tunnel, held to the study and to the server's."""
        wanted = Agreement(
            ike_version=1,
            mode="transport",
            suite=self.params.suite,
            udp_encapsulation=self.params.udp_encapsulation,
            ipcomp=False,
            nat=self._nat,
        )
        ends = [
            (end.charon, [_child(number) for number in end.numbers])
            for end in self._ends
            if end.charon is not None
        ]
        *clients, server = settled_sas(ends)
        return [
            check_pair(wanted, name, client, server)
            for client, (_, names) in zip(clients, ends[:-1], strict=True)
            for name in names
        ]

    def _document(self, site: Site, end: _End, passwords: Sequence[str]) -> Settings:
        """Return what swanctl.conf says of one end; each client host has one of ``passwords``."""
        connections: dict[str, Settings] = {}
        for number in end.numbers:
            client, server = _link_address(site, number), site.server.ipv4
            own, other = (client, server) if end.side == "client" else (server, client)
            seen = _seen_address(site, number)
            selector = f"dynamic[udp/{PORT}]"
            connections[connection_name(number)] = connection(
                version=1,
                addresses=(own, server) if end.side == "client" else (own, seen),
                udp_encapsulation=self.params.udp_encapsulation,
                local={"auth": "psk", "id": own},
                remote={"auth": "psk", "id": other},
                children={
                    _child(number): child(
                        mode="transport",
                        esp_proposals=SUITE_NAMES[self.params.suite].proposal,
                        more={"local_ts": selector, "remote_ts": selector},
                    )
                },
            )
        if not site.clients:
            return {"connections": connections, "secrets": {"ike-tm": {"secret": passwords[0]}}}
        shared: Settings = {
            f"ike-{n}": {"id": _link_address(site, n), "secret": passwords[n]} for n in end.numbers
        }
        return {"connections": connections, "secrets": shared}

    def _start_server(self, site: Site, accounts: list[PppAccount]) -> Process:
        host, folder = site.server.host, self._folder(site.server.host, "server")
        pppd.put_etc(host, folder / "etc", accounts)
        clients = []
        for number, account in enumerate(accounts):
            options = folder / f"options-{number}"
            pppd.put_options(host, options, self._setup(site, "server", number), account)
            clients.append((_seen_address(site, number), site.inner_ipv4(number), str(options)))
        daemon = self._spawn(host, folder, "server", server_config(site.server.ipv4, clients))
        self._server = daemon

        def ready() -> bool | None:
            if (status := daemon.poll()) is not None:
                raise TunnelError(
                    f"xl2tpd on {host.name} ended with status {status} before it could listen: "
                    f"{last_words(daemon.log_tail(LOG_LINES))}"
                )
            listening = host.run(["ss", "-Hlun", "sport", "=", f":{PORT}"]).text()
            return True if listening.strip() else None

        wait_until(
            ready,
            limit_s=_START_LIMIT_S,
            poll_s=0.1,
            late=lambda: (
                f"xl2tpd on {host.name} does not listen on port {PORT} after {_START_LIMIT_S:g} s: "
                f"{last_words(daemon.log_tail(LOG_LINES))}"
            ),
        )
        return daemon

    def _call(
        self, site: Site, number: int, account: PppAccount, daemon: Process
    ) -> tuple[_Call, _Call]:
        endpoint = site.client_of(number)
        host, folder = endpoint.host, self._folder(endpoint.host, f"client-{number}")
        setup = self._setup(site, "client", number)
        pppd.put_etc(host, folder / "etc", [])
        pppd.put_options(host, folder / "options", setup, account)
        config = client_config(
            _link_address(site, number), site.server.ipv4, str(folder / "options")
        )
        process = self._spawn(host, folder, f"client-{number}", config)
        own = _Call("client", number, endpoint, PppEnd(host, setup), process)
        answer = PppEnd(site.server.host, self._setup(site, "server", number))
        peer = _Call("server", number, site.server, answer, daemon)
        self._calls += [own, peer]
        return own, peer

    def _spawn(self, host: Host, folder: PurePosixPath, name: str, config: str) -> Process:
        host.put(folder / "xl2tpd.conf", config.encode())
        # Secrets of L2TP itself: none, the ends prove who they are by IKE and by PPP.
        host.put(folder / "l2tp-secrets", b"")
        argv = [
            *("xl2tpd", "-D", "-c", str(folder / "xl2tpd.conf"), "-p", "/run/xl2tpd.pid"),
            *("-C", str(folder / "control"), "-s", str(folder / "l2tp-secrets")),
        ]
        return host.spawn(
            pppd.in_own_etc(folder / "etc", argv),
            name=unique_name(f"xl2tpd-{name}"),
            private_dirs=("/run",),
        )

    def _setup(self, site: Site, side: Side, number: int) -> PppSetup:
        endpoint = site.client_of(number) if side == "client" else site.server
        client, server = site.inner_ipv4(number)
        return PppSetup(
            side=side,
            interface=inner_interface(site, "l", number, side),
            mtu_bytes=self.params.mtu_bytes,
            log=self._folder(endpoint.host, side) / f"pppd-{number}.log",
            ipv6=self.params.inner == "ipv6",
            more=(
                # The kernel sends both fields always, so nothing else is agreed on.
                *("noaccomp", "nopcomp"),
                *((f"{client}:{server}",) if side == "client" else ()),
            ),
        )

    def _watched(self) -> list[Watched]:
        # The causes first: pppd ends because xl2tpd did, a client because its server did.
        ike = [
            end.charon.watched(end.endpoint.interface)
            for end in self._ends
            if end.charon is not None
        ]
        return [*ike, *super()._watched()]

    def _require_others(self, what: str) -> None:
        for end in self._ends:
            if end.charon is not None:
                end.charon.require_alive(what)

    def _gave_up(self, call: Call) -> bool:
        return "Connection terminated" in call.ppp.log()

    def _negotiated(self, own: _Call, agreed_esp: tuple[Settings, ...] | None) -> Negotiated:
        if _KERNEL_WORDS not in own.process.log_tail(LOG_LINES):
            raise RefusedError(
                f"{own.place}: xl2tpd does not use the kernel's L2TP: "
                f"{last_words(own.process.log_tail(LOG_LINES))}"
            )
        done = own.endpoint.host.run(["xl2tpd", "-v"], check=False)
        words = (done.text() + done.stderr.decode("utf-8", "replace")).split()
        version = words[-1].removeprefix("xl2tpd-") if words else "of unknown version"
        said = negotiated(
            own.ppp,
            own.ppp.report(),
            programs=[f"xl2tpd {version}"],
            carried_by="L2TP and PPP in the kernel"
            + (", ESP in the kernel" if self.params.ipsec else ", nothing encrypts"),
        )
        details = {"ppp_encryption" if k == "encryption" else k: v for k, v in said.details.items()}
        esp_said = {} if agreed_esp is None else dict(agreed_esp[own.number])
        return Negotiated(
            cipher=self.packet_cipher,
            version=" / ".join(
                [*([str(esp_said.pop("ike_daemon"))] if esp_said else []), said.version]
            ),
            implementation="kernel",
            mtu_bytes=said.mtu_bytes,
            data_path=DataPath.KERNEL,
            details={**details, **{key: str(value) for key, value in esp_said.items()}},
        )


def _seen_address(site: Site, number: int) -> str:
    """Return the address from which the server sees a client call."""
    return site.nat_ipv4 or _link_address(site, number)


def _link_address(site: Site, number: int) -> str:
    """Return the address on the link from which a client calls."""
    if site.clients or number == 0:
        return site.client_of(number).ipv4
    return site.inner_ipv4(_FIRST_LINK_ADDRESS + number)[0]


def _child(number: int) -> str:
    """Return what the associations of a tunnel are called in the daemons."""
    return f"l2tp{number}"
