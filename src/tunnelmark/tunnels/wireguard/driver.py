"""WireGuard: in the kernel where the kernel has it, else wireguard-go, else boringtun."""

import base64
import secrets
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Annotated, ClassVar, Final, Literal, Self

from pydantic import Field, model_validator

from tunnelmark.model.errors import RefusedError, TunnelError
from tunnelmark.model.host import Host, Need, Process
from tunnelmark.model.names import unique_name
from tunnelmark.model.overhead import Encapsulation, Layer, ip_layer, padding, udp_layer
from tunnelmark.model.quantity import DurationNs
from tunnelmark.model.tunnel import (
    CipherLibrary,
    DataPath,
    Encryption,
    Milestone,
    Negotiated,
    ServerPorts,
    Side,
    Site,
    TrafficPath,
    TunnelUp,
    WireRule,
)
from tunnelmark.tunnels.addressing import (
    alone,
    check_inner_mtu,
    gateway_address,
    inner_addresses,
    no_dad,
    outer_version,
    reached_addresses,
    with_port,
)
from tunnelmark.tunnels.base import Tunnel, TunnelParams
from tunnelmark.tunnels.protocols import UDP
from tunnelmark.tunnels.support import (
    Watched,
    first_problem,
    first_through,
    inner_interface,
    interfaces,
    quieten,
    wait_until,
)
from tunnelmark.tunnels.wireguard.end import (
    LOG_LINES,
    PROGRAM,
    TWO_KEYS,
    End,
    Implementation,
    Keys,
    daemon_words,
    handshake_s,
    last_words_of,
    new_keys,
    version_of,
)

FIRST_PORT: Final = 51820
"""Tunnel i listens on this plus i on the server."""
OVERHEAD_BYTES: Final = 80
"""What wg-quick takes off the link's MTU: outer IPv6 40, UDP 8, data header 16, tag 16."""

_S_NS: Final = 10**9
_LIBRARY: Final[dict[Implementation, CipherLibrary]] = {"wireguard-go": "Go", "boringtun": "ring"}
_PACKAGE: Final[dict[Implementation, str]] = {
    "wireguard-go": "wireguard-go",
    "boringtun": "boringtun-cli",
}
# Both daemons make their control socket in /var/run/wireguard, for the whole machine. It need not
# exist, /run does: a private one of the daemon leaves nothing behind on the machine.
_PRIVATE_DIR: Final = "/run"
_START_LIMIT_S: Final = 15.0
# A lost handshake packet is repeated after 5 s (WireGuard whitepaper section 6.1).
_HANDSHAKE_LIMIT_S: Final = 20.0
_SHOWN_LIMIT_S: Final = 5.0


class WireGuardParams(TunnelParams):
    """What a study can set."""

    implementation: Literal["auto", "kernel", "wireguard-go", "boringtun"] = Field(
        "auto",
        description="auto: the kernel's where it has one, else wireguard-go, else boringtun; on a "
        "device whose limit the kernel escapes, one of the latter two",
    )
    psk: bool = Field(
        False, description="a preshared secret in the handshake, in addition to the keys"
    )
    keepalive: Annotated[DurationNs, Field(ge=10**9, le=65535 * 10**9)] | None = Field(
        None,
        description="PersistentKeepalive: each end sends an empty packet after this much silence, "
        "in whole seconds; WireGuard's own default is never",
    )
    mtu_bytes: int | None = Field(
        None,
        ge=100,
        le=65535,
        description="MTU of the inner interface; default: the link's minus 80, as wg-quick does",
    )

    @model_validator(mode="after")
    def _whole_seconds(self) -> Self:
        if self.keepalive is not None and self.keepalive % _S_NS:
            raise ValueError("keepalive has a part of a second, must be whole seconds")
        return self


class WireGuardTunnel(Tunnel):
    """``count`` pairs of interfaces with keys of their own, made for this run.

    With ``clients`` one interface of the server with so many peers.
    """

    kind: ClassVar[str] = "wireguard"
    title: ClassVar[str] = "WireGuard"
    params_type: ClassVar[type[TunnelParams]] = WireGuardParams
    programs: ClassVar[Mapping[str, str]] = MappingProxyType(
        {"wireguard-go": "wireguard-go", "boringtun-cli": "boringtun-cli", "wg": "wg"}
    )
    gateway: ClassVar[bool] = True
    joins: ClassVar[bool] = True
    tells_set_up: ClassVar[bool] = True
    params: WireGuardParams

    def __init__(self, params: TunnelParams) -> None:
        """Take the parameters of the study."""
        super().__init__(params)
        self._ends: list[End] = []
        self._psks = [
            base64.b64encode(secrets.token_bytes(32)).decode() for _ in range(self.params.paths)
        ]
        """Of each tunnel, and so of each peer of a gateway."""
        self._kernel_interfaces: list[tuple[Host, str]] = []
        self._left: dict[int, Keys] = {}
        """Of clients that left: those by which the gateway knows them."""

    def need(self, host: Host) -> Need:
        """Need wg(8) and the implementation that the parameters, or the host, choose."""
        chosen = self._choose(host)
        programs = {"wg": "wireguard-tools", "ip": "iproute2", "ping": "iputils-ping"}
        if chosen == "kernel":
            return Need(programs=programs, kernel=("wireguard",))
        programs |= {"nsenter": "util-linux", "ss": "iproute2"}
        programs[PROGRAM[chosen]] = _PACKAGE[chosen]
        boringtun = PROGRAM["boringtun"]
        return Need(
            programs=programs,
            kernel=("tun",),
            install={boringtun: f"cargo install --locked {boringtun}"},
        )

    def no_set_up(self) -> str | None:
        """Return also that the first packet is not the first that the tunnel carries."""
        return self._early() or super().no_set_up()

    def no_joins(self) -> str | None:
        """Return also that the first packet is not the first that the client sends."""
        return self._early() or super().no_joins()

    def _early(self) -> str | None:
        if self.params.keepalive is None:
            return None
        return "keepalive begins the handshake before any packet: leave it out"

    def bring_up(self, site: Site) -> TunnelUp:
        """Make the interfaces, exchange keys by standard input, verify a handshake on both ends."""
        check_inner_mtu(self.kind, self.params.inner, self._mtu_bytes(site))
        paths, negotiated = [], []
        # All daemons first: they start at the same time, however many there are.
        pairs = self._pairs(site)
        for end in self._ends:
            if end.process is not None:
                self._wait_for_daemon(end, end.process)
        if self.params.clients is not None:
            self._configure(site, pairs[0][1], *(client for client, _ in pairs))
        for client, server in pairs:
            if self.params.clients is None:
                self._configure(site, server, client)
            self._configure(site, client, server)
            path = self._path(site, client, server)
            site.reached(Milestone.DIALING)
            self._shake_hands(site, client, server, path)
            paths.append(path)
            negotiated.append(self._negotiated(client, server, path.mtu_bytes))
        ports = tuple(FIRST_PORT + number for number in range(self.params.count))
        shown = str(ports[0]) if len(ports) == 1 else f"{ports[0]} to {ports[-1]}"
        return TunnelUp(
            paths=tuple(paths),
            negotiated=tuple(negotiated),
            wire=WireRule(
                encrypted=True,
                describe=f"UDP to or from port {shown}",
                ip_protocols=(UDP,),
                udp_ports=ports,
                ip_version=outer_version(self.params),
            ),
            processes=self.processes(),
        )

    def processes(self) -> tuple[tuple[str, Process], ...]:
        """Return the daemons of both ends of all tunnels; of the kernel's there are none."""
        ends = ((end.endpoint.host.name, end.process) for end in self._ends)
        return tuple((name, process) for name, process in ends if process is not None)

    def leave(self, site: Site, number: int) -> None:  # noqa: ARG002 - its ends know their names
        """End a client's interface; its peer at the gateway stays, as WireGuard has it."""
        client = self._end("client", number)
        self._left[number] = client.keys
        self._ends.remove(client)
        if client.process is not None:
            client.process.stop()
            return
        self._kernel_interfaces.remove((client.endpoint.host, client.interface))
        client.endpoint.host.run(["ip", "link", "delete", "dev", client.interface])

    def start_client(self, site: Site, number: int) -> Callable[[], None]:
        """Make a client's interface again; the packet that is waited for begins the handshake."""
        server = self._end("server", 0)
        client = self._start(site, "client", number, self._left.pop(number))
        if client.process is not None:
            self._wait_for_daemon(client, client.process)
        self._configure(site, client, server)
        path = self._path(site, client, server)
        site.reached(Milestone.DIALING)
        return lambda: self._shake_hands(site, client, server, path)

    def _end(self, side: Side, number: int) -> End:
        return next(end for end in self._ends if (end.side, end.number) == (side, number))

    def _shake_hands(self, site: Site, client: End, server: End, path: TrafficPath) -> None:
        """Send the packet that begins the handshake, and see that both ends had it."""
        words = first_through(site, path, limit_s=_HANDSHAKE_LIMIT_S)
        self._check_handshake(client, server, words)
        self._check_handshake(server, client, words)
        if words:
            raise TunnelError(
                f"no echo through wireguard tunnel {client.number} within "
                f"{_HANDSHAKE_LIMIT_S:g} s, though both ends had a handshake: {words}"
            )

    def _pairs(self, site: Site) -> list[tuple[End, End]]:
        """Start all ends; a gateway is the server of each of its clients."""
        if self.params.clients is not None:
            server = self._start(site, "server", 0)
            return [(self._start(site, "client", n), server) for n in range(self.params.clients)]
        return [
            (self._start(site, "client", number), self._start(site, "server", number))
            for number in range(self.params.count)
        ]

    def problem(self) -> str | None:
        """Return which daemon died or which interface vanished."""
        return first_problem(
            [
                Watched(
                    end.endpoint.host,
                    end.interface,
                    end.process,
                    lambda process: last_words_of(process.log_tail(LOG_LINES)),
                )
                for end in self._ends
            ]
        )

    def down(self) -> None:
        """Stop the daemons, whose interfaces go with them, and delete the kernel's interfaces."""
        while self._ends:
            process = self._ends.pop().process
            if process is not None:
                process.stop()
        while self._kernel_interfaces:
            host, interface = self._kernel_interfaces.pop()
            # It may be gone already: half-up, or deleted by someone else: not a failure here.
            host.run(["ip", "link", "delete", "dev", interface], check=False)

    def default_mtu_bytes(self, link_mtu_bytes: int, implementation: str) -> int:  # noqa: ARG002 - the same for all
        """Return the link's less 80, as wg-quick(8) does: IPv6 outside fits as well."""
        return link_mtu_bytes - OVERHEAD_BYTES

    @property
    def packet_cipher(self) -> str:
        """WireGuard whitepaper section 5.4.6: the one there is, nothing to negotiate."""
        return "CHACHA20-POLY1305"

    def encryption(self, host: Host | None) -> Encryption:
        """Return the library of the program that runs where nothing else is chosen."""
        own = self.params.implementation
        chosen = _program(host) if own == "auto" else own
        return Encryption(self.packet_cipher, _LIBRARY.get(chosen))

    def encapsulation(self, agreed: Negotiated) -> Encapsulation:
        """Return the layers of a transport data message (WireGuard whitepaper section 5.4.6)."""
        pads = "boringtun" not in agreed.implementation

        def layers(inner_bytes: int) -> tuple[Layer, ...]:
            # Padded to 16, yet never beyond the MTU; boringtun leaves the padding out.
            padded = min(inner_bytes + padding(inner_bytes, 16), agreed.mtu_bytes)
            pad = Layer("padding", padded - inner_bytes, "whitepaper section 5.4.6")
            return (
                ip_layer(outer_version(self.params)),
                udp_layer(),
                Layer("type, receiver and counter", 16, "whitepaper section 5.4.6"),
                *((pad,) if pads else ()),
                Layer("authentication tag", 16, "RFC 8439 section 2.8"),
            )

        return Encapsulation(layers, agreed.mtu_bytes, outer_ip=outer_version(self.params))

    def _choose(self, host: Host) -> Implementation:
        if self.params.implementation != "auto":
            return self.params.implementation
        if host.has_kernel("wireguard") and not self.confined:
            return "kernel"
        return _program(host)

    def _start(self, site: Site, side: Side, number: int, keys: Keys | None = None) -> End:
        endpoint = site.client_of(number) if side == "client" else site.server
        host = endpoint.host
        chosen = self._choose(host)
        interface = inner_interface(site, "w", number, side)
        process = None
        if chosen == "kernel":
            self._kernel_interfaces.append((host, interface))
            host.run(["ip", "link", "add", "dev", interface, "type", "wireguard"])
        else:
            process = host.spawn(
                daemon_words(chosen, interface),
                name=unique_name(f"{chosen}-{side}-{number}"),
                # verbose names each handshake and its failure, never single packets.
                env={"LOG_LEVEL": "verbose", "WG_LOG_LEVEL": "info"},
                private_dirs=(_PRIVATE_DIR,),
            )
        own = keys or self._keys(side)
        end = End(side, number, endpoint, interface, chosen, process, own)
        self._ends.append(end)
        return end

    def _wait_for_daemon(self, end: End, process: Process) -> None:
        def ready() -> bool | None:
            status = process.poll()
            if status is not None:
                raise TunnelError(
                    f"{end.place}: {PROGRAM[end.implementation]} ended with status {status} at "
                    f"its start: {last_words_of(process.log_tail(LOG_LINES))}"
                )
            # Not by asking wg: it takes a socket that is bound and does not listen yet for a dead
            # one, and removes it.
            listening = end.endpoint.host.run(["ss", "-xlnH"]).text().splitlines()
            ours = f"/{end.interface}.sock"
            words = (word for line in listening for word in line.split())
            return True if any(word.endswith(ours) for word in words) else None

        wait_until(
            ready,
            limit_s=_START_LIMIT_S,
            poll_s=0.03,
            late=lambda: (
                f"{end.place}: {PROGRAM[end.implementation]} did not open its control socket "
                f"within {_START_LIMIT_S:g} s: {end.last_words()}"
            ),
        )

    def forwarded(self) -> tuple[ServerPorts, ...]:
        """Return the port of each pair."""
        return (ServerPorts("udp", FIRST_PORT, self.params.count),)

    def _configure(self, site: Site, end: End, *peers: End) -> None:
        client = end.side == "client"
        port = FIRST_PORT + (end.number if self.params.clients is None else 0)
        _, reached = reached_addresses(site, self.params)
        # The client's port too: the link counts by ports, and each set-up would have another.
        lines = ["[Interface]", f"PrivateKey = {end.keys.private}", f"ListenPort = {port}"]
        for peer in peers:
            number = (end if client else peer).number
            ours = inner_addresses(site, number, self.params)
            here, there = ours if client else ours[::-1]
            lines += ["[Peer]", f"PublicKey = {peer.keys.public}", f"AllowedIPs = {alone(there)}"]
            if self.params.psk:
                lines += [f"PresharedKey = {self._psks[number]}"]
            if self.params.keepalive is not None:
                lines += [f"PersistentKeepalive = {self.params.keepalive // _S_NS}"]
            lines += [f"Endpoint = {with_port(reached, port)}"] if client else []
        # By standard input: a private key on a command line is readable by everyone.
        said = end.wg(
            "setconf", end.interface, "/dev/stdin", stdin="\n".join([*lines, ""]).encode()
        )
        if isinstance(said, str):
            raise TunnelError(f"{end.place}: wg refused the configuration: {said}")
        host = end.endpoint.host
        mtu_bytes = self._mtu_bytes(site)
        quieten(host, end.interface)
        host.run(["ip", "link", "set", "dev", end.interface, "mtu", str(mtu_bytes), "up"])
        # Not before: of an interface that is down, IPv6 forgets the route to the peer.
        gateway = self.params.clients is not None and not client
        words = [gateway_address(here)] if gateway else [here, "peer", alone(there)]
        address = ["ip", "address", "add", *words]
        host.run([*address, "dev", end.interface, *no_dad(here)])
        state = interfaces(host).get(end.interface)
        if state is None or state.mtu_bytes != mtu_bytes or not state.up:
            raise TunnelError(
                f"{end.place}: interface {end.interface} is {state}, wanted up with MTU {mtu_bytes}"
            )

    def _check_handshake(self, end: End, peer: End, words: str | None) -> None:
        """Raise unless wg shows a handshake; ``words`` are ping's when nothing came through."""

        def shown() -> bool | None:
            said = end.wg("show", end.interface, "latest-handshakes")
            lines = said if isinstance(said, list) else []
            if self.params.clients is not None:
                lines = [line for line in lines if line.startswith(peer.keys.public)]
            return True if any(map(handshake_s, lines)) else None

        def late() -> str:
            return (
                f"{end.place}: wg shows no handshake (ping: {words or 'answered'}); last "
                f"messages of the {end.side}: {end.last_words()}; of the {peer.side}: "
                f"{peer.last_words()}"
            )

        # boringtun shows the seconds since the handshake instead of its time: 0 in the first one.
        wait_until(shown, limit_s=0.0 if words else _SHOWN_LIMIT_S, late=late, poll_s=0.1)

    def _has_psk(self, end: End) -> bool:
        """Say what wg says; raise if it is not what the study asks for."""
        said = end.wg("show", end.interface, "preshared-keys")
        # The peer's key, and behind a tab the secret or "(none)".
        has = isinstance(said, list) and bool(said) and all(map(TWO_KEYS.fullmatch, said))
        if has != self.params.psk:
            raise RefusedError(
                f"{end.place} runs {'with' if has else 'without'} a preshared key, the study asks "
                f"for {'one' if self.params.psk else 'none'}"
            )
        return has

    def _keys(self, side: Side) -> Keys:  # noqa: ARG002 - for drivers that want others by side
        """Return a new pair of keys."""
        return new_keys()

    def _mtu_bytes(self, site: Site) -> int:
        if self.params.mtu_bytes is not None:
            return self.params.mtu_bytes
        link = min(site.client.mtu_bytes, site.server.mtu_bytes)
        return self.default_mtu_bytes(link, self.params.implementation)

    def _path(self, site: Site, client: End, server: End) -> TrafficPath:
        client_address, server_address = inner_addresses(site, client.number, self.params)
        return TrafficPath(
            name=str(client.number),
            client_address=client_address,
            server_address=server_address,
            client_interface=client.interface,
            server_interface=server.interface,
            mtu_bytes=self._mtu_bytes(site),
            client=site.clients[client.number] if site.clients else None,
        )

    def _negotiated(self, client: End, server: End, mtu_bytes: int) -> Negotiated:
        ends = (client, server)
        chosen = dict.fromkeys(end.implementation for end in ends)
        versions = dict.fromkeys(version_of(end) for end in ends)
        tools = client.endpoint.host.run(["wg", "--version"], check=False).text()
        return Negotiated(
            cipher=self.packet_cipher,
            version=" / ".join(versions),
            implementation=" / ".join(chosen),
            mtu_bytes=mtu_bytes,
            data_path=DataPath.KERNEL_THREADS if "kernel" in chosen else DataPath.USER_SPACE,
            details={
                "key_exchange": "Noise_IKpsk2_25519_ChaChaPoly_BLAKE2s",
                "preshared_key": "yes" if self._has_psk(client) and self._has_psk(server) else "no",
                "tools": (tools.splitlines() or ["unknown"])[0].split(" - ")[0],
            },
        )


def _program(host: Host | None) -> Implementation:
    """Return which program runs where the kernel's WireGuard does not."""
    if (
        host is not None
        and host.has(PROGRAM["wireguard-go"]) is None
        and host.has(PROGRAM["boringtun"])
    ):
        return "boringtun"
    return "wireguard-go"
