"""WireGuard: in the kernel where the kernel has it, else wireguard-go, else boringtun."""

import base64
import re
from dataclasses import dataclass
from typing import ClassVar, Final, Literal

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from pydantic import Field

from tunnelmark.model.errors import TunnelError
from tunnelmark.model.host import Host, Need, Process
from tunnelmark.model.overhead import Encapsulation, Layer, ip_layer, padding, udp_layer
from tunnelmark.model.tunnel import (
    DataPath,
    Endpoint,
    Negotiated,
    Site,
    TrafficPath,
    TunnelUp,
    WireRule,
)
from tunnelmark.tunnels.addressing import (
    alone,
    check_inner_mtu,
    inner_addresses,
    no_dad,
    outer_addresses,
    outer_version,
    with_port,
)
from tunnelmark.tunnels.base import Tunnel, TunnelParams
from tunnelmark.tunnels.support import (
    Watched,
    daemon_name,
    first_packet,
    first_problem,
    inner_interface,
    interfaces,
    quieten,
    wait_until,
)

Implementation = Literal["kernel", "wireguard-go", "boringtun"]
Side = Literal["client", "server"]

FIRST_PORT: Final = 51820
"""Tunnel i listens on this plus i on the server."""
OVERHEAD_BYTES: Final = 80
"""What wg-quick takes off the link's MTU: outer IPv6 40, UDP 8, data header 16, tag 16."""

_UDP: Final = 17
_PROGRAM: Final[dict[Implementation, str]] = {
    "wireguard-go": "wireguard-go",
    "boringtun": "boringtun-cli",
}
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
_LOG_LINES: Final = 200


class WireGuardParams(TunnelParams):
    """What a study can set."""

    implementation: Literal["auto", "kernel", "wireguard-go", "boringtun"] = Field(
        "auto",
        description="auto: the kernel's where it has one, else wireguard-go, else boringtun; on a "
        "device whose limit the kernel escapes, one of the latter two",
    )
    mtu_bytes: int | None = Field(
        None,
        ge=100,
        le=65535,
        description="MTU of the inner interface; without it the link's minus 80, as wg-quick does",
    )


@dataclass(frozen=True)
class _Keys:
    private: str
    public: str


@dataclass(frozen=True)
class _End:
    """One end of one tunnel."""

    side: Side
    number: int
    endpoint: Endpoint
    interface: str
    implementation: Implementation
    process: Process | None
    keys: _Keys

    @property
    def place(self) -> str:
        return f"wireguard {self.side} of tunnel {self.number} on {self.endpoint.host.name}"

    def last_words(self) -> str:
        """Return what the daemon says itself; the kernel says nothing."""
        if self.process is None:
            return "none, it is the kernel"
        return _last_words(self.process.log_tail(_LOG_LINES))

    def wg(self, *arguments: str, stdin: bytes | None = None) -> list[str] | str:
        """Run wg where the control socket of the daemon is; return its lines, or its last words."""
        argv = ["wg", *arguments]
        if self.process is not None:
            # The daemon has a private copy of the socket directory: enter its mount namespace.
            argv = ["nsenter", f"--mount=/proc/{self.process.pid}/ns/mnt", *argv]
        done = self.endpoint.host.run(argv, stdin=stdin, check=False)
        return done.text().splitlines() if done.returncode == 0 else done.last_words()


class WireGuardTunnel(Tunnel):
    """``count`` pairs of interfaces with keys of their own, made for this run."""

    kind: ClassVar[str] = "wireguard"
    title: ClassVar[str] = "WireGuard"
    params_type: ClassVar[type[TunnelParams]] = WireGuardParams
    params: WireGuardParams

    def __init__(self, params: TunnelParams) -> None:
        """Take the parameters of the study."""
        super().__init__(params)
        self._ends: list[_End] = []
        self._kernel_interfaces: list[tuple[Host, str]] = []

    def need(self, host: Host) -> Need:
        """Need wg(8) and the implementation that the parameters, or the host, choose."""
        chosen = self._choose(host)
        programs = {"wg": "wireguard-tools", "ip": "iproute2", "ping": "iputils-ping"}
        if chosen == "kernel":
            return Need(programs=programs, kernel=("wireguard",))
        programs |= {"nsenter": "util-linux", "ss": "iproute2"}
        programs[_PROGRAM[chosen]] = _PACKAGE[chosen]
        return Need(programs=programs, kernel=("tun",))

    def unavailable(self, host: Host) -> str | None:
        """Return why not, and the command that mends it: boringtun is no Debian package."""
        reason = super().unavailable(host)
        boringtun = _PROGRAM["boringtun"]
        if reason is not None and reason.startswith(boringtun):
            return f"{boringtun} is not installed (cargo install --locked {boringtun})"
        return reason

    def up(self, site: Site) -> TunnelUp:
        """Make the interfaces, exchange keys by standard input, verify a handshake on both ends."""
        check_inner_mtu(self.kind, self.params.inner, self._mtu_bytes(site))
        paths, negotiated = [], []
        # All daemons first: they start at the same time, however many there are.
        pairs = [
            (self._start(site, "client", number), self._start(site, "server", number))
            for number in range(self.params.count)
        ]
        for end in self._ends:
            if end.process is not None:
                self._wait_for_daemon(end, end.process)
        for number, (client, server) in enumerate(pairs):
            self._configure(site, server, client)
            self._configure(site, client, server)
            path = self._path(site, client, server)
            words = first_packet(site.client.host, path, limit_s=_HANDSHAKE_LIMIT_S)
            self._check_handshake(client, server, words)
            self._check_handshake(server, client, words)
            if words:
                raise TunnelError(
                    f"no echo through wireguard tunnel {number} within "
                    f"{_HANDSHAKE_LIMIT_S:g} s, though both ends had a handshake: {words}"
                )
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
                ip_protocols=(_UDP,),
                udp_ports=ports,
                ip_version=outer_version(self.params),
            ),
            processes=tuple(
                (end.endpoint.host.name, end.process)
                for end in self._ends
                if end.process is not None
            ),
        )

    def problem(self) -> str | None:
        """Return which daemon died or which interface vanished."""
        return first_problem(
            [
                Watched(
                    end.endpoint.host,
                    end.interface,
                    end.process,
                    lambda process: _last_words(process.log_tail(_LOG_LINES)),
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
            # It may be gone already: half-up, or deleted by someone else, which is no failure here.
            host.run(["ip", "link", "delete", "dev", interface], check=False)

    def default_mtu_bytes(self, link_mtu_bytes: int) -> int:
        """Return the link's less 80, as wg-quick(8) does: IPv6 outside fits as well."""
        return link_mtu_bytes - OVERHEAD_BYTES

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
        if host.has(_PROGRAM["wireguard-go"]) is None and host.has(_PROGRAM["boringtun"]):
            return "boringtun"
        return "wireguard-go"

    def _start(self, site: Site, side: Side, number: int) -> _End:
        endpoint = site.client if side == "client" else site.server
        host = endpoint.host
        chosen = self._choose(host)
        interface = inner_interface(site, "w", number, side)
        process = None
        if chosen == "kernel":
            self._kernel_interfaces.append((host, interface))
            host.run(["ip", "link", "add", "dev", interface, "type", "wireguard"])
        else:
            process = host.spawn(
                _daemon(chosen, interface),
                name=daemon_name(f"{chosen}-{side}-{number}"),
                # verbose names each handshake and its failure, never single packets.
                env={"LOG_LEVEL": "verbose", "WG_LOG_LEVEL": "info"},
                private_dirs=(_PRIVATE_DIR,),
            )
        keys = self._keys(side)
        end = _End(side, number, endpoint, interface, chosen, process, keys)
        self._ends.append(end)
        return end

    def _wait_for_daemon(self, end: _End, process: Process) -> None:
        def ready() -> bool | None:
            status = process.poll()
            if status is not None:
                raise TunnelError(
                    f"{end.place}: {_PROGRAM[end.implementation]} ended with status {status} at "
                    f"its start: {_last_words(process.log_tail(_LOG_LINES))}"
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
                f"{end.place}: {_PROGRAM[end.implementation]} did not open its control socket "
                f"within {_START_LIMIT_S:g} s: {end.last_words()}"
            ),
        )

    def _configure(self, site: Site, end: _End, peer: _End) -> None:
        addresses = inner_addresses(site, end.number, self.params)
        port = FIRST_PORT + end.number
        here, there = addresses if end.side == "client" else addresses[::-1]
        _, outer = outer_addresses(site, self.params)
        lines = ["[Interface]", f"PrivateKey = {end.keys.private}"]
        lines += [f"ListenPort = {port}"] if end.side == "server" else []
        lines += ["[Peer]", f"PublicKey = {peer.keys.public}", f"AllowedIPs = {alone(there)}"]
        lines += [f"Endpoint = {with_port(outer, port)}"] if end.side == "client" else []
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
        address = ["ip", "address", "add", here, "peer", alone(there), "dev", end.interface]
        host.run([*address, *no_dad(here)])
        state = interfaces(host).get(end.interface)
        if state is None or state.mtu_bytes != mtu_bytes or not state.up:
            raise TunnelError(
                f"{end.place}: interface {end.interface} is {state}, wanted up with MTU {mtu_bytes}"
            )

    def _check_handshake(self, end: _End, peer: _End, words: str | None) -> None:
        """Raise unless wg shows a handshake; ``words`` are ping's when nothing came through."""

        def shown() -> bool | None:
            said = end.wg("show", end.interface, "latest-handshakes")
            return True if isinstance(said, list) and any(map(_handshake_s, said)) else None

        def late() -> str:
            return (
                f"{end.place}: wg shows no handshake (ping: {words or 'answered'}); last words of "
                f"the {end.side}: {end.last_words()}; of the {peer.side}: {peer.last_words()}"
            )

        # boringtun shows the seconds since the handshake instead of its time: 0 in the first one.
        wait_until(shown, limit_s=0.0 if words else _SHOWN_LIMIT_S, late=late, poll_s=0.1)

    def _keys(self, side: Side) -> _Keys:  # noqa: ARG002 - for drivers that want others by side
        """Return a new pair of keys (RFC 7748), as wg(8) writes them."""
        private = X25519PrivateKey.generate()
        raw = private.private_bytes(
            serialization.Encoding.Raw,
            serialization.PrivateFormat.Raw,
            serialization.NoEncryption(),
        )
        public = private.public_key().public_bytes(
            serialization.Encoding.Raw, serialization.PublicFormat.Raw
        )
        return _Keys(base64.b64encode(raw).decode(), base64.b64encode(public).decode())

    def _mtu_bytes(self, site: Site) -> int:
        if self.params.mtu_bytes is not None:
            return self.params.mtu_bytes
        return self.default_mtu_bytes(min(site.client.mtu_bytes, site.server.mtu_bytes))

    def _path(self, site: Site, client: _End, server: _End) -> TrafficPath:
        client_address, server_address = inner_addresses(site, client.number, self.params)
        return TrafficPath(
            name=str(client.number),
            client_address=client_address,
            server_address=server_address,
            client_interface=client.interface,
            server_interface=server.interface,
            mtu_bytes=self._mtu_bytes(site),
        )

    def _negotiated(self, client: _End, server: _End, mtu_bytes: int) -> Negotiated:
        ends = (client, server)
        chosen = dict.fromkeys(end.implementation for end in ends)
        versions = dict.fromkeys(_version(end) for end in ends)
        tools = client.endpoint.host.run(["wg", "--version"], check=False).text()
        return Negotiated(
            # WireGuard whitepaper section 5.4.6: the one cipher there is, nothing to negotiate.
            cipher="CHACHA20-POLY1305",
            version=" / ".join(versions),
            implementation=" / ".join(chosen),
            mtu_bytes=mtu_bytes,
            data_path=DataPath.KERNEL_THREADS if "kernel" in chosen else DataPath.USER_SPACE,
            details={
                "key_exchange": "Noise_IKpsk2_25519_ChaChaPoly_BLAKE2s",
                "tools": (tools.splitlines() or ["unknown"])[0].split(" - ")[0],
            },
        )


def _daemon(implementation: Implementation, interface: str) -> list[str]:
    if implementation == "boringtun":
        # Giving up root would take the right to open the TUN device in a user namespace with it.
        return ["boringtun-cli", "--foreground", "--disable-drop-privileges", interface]
    return ["wireguard-go", "--foreground", interface]


def _version(end: _End) -> str:
    host = end.endpoint.host
    if end.implementation == "kernel":
        return f"WireGuard of {host.run(['uname', '-sr']).text().strip()}"
    done = host.run([_PROGRAM[end.implementation], "--version"], check=False)
    lines = done.text().splitlines()
    return lines[0].strip() if lines else f"{end.implementation} of unknown version"


def _handshake_s(line: str) -> int:
    match = re.fullmatch(r"[A-Za-z0-9+/=]{44}\t([0-9]{1,12})", line)
    return int(match.group(1)) if match else 0


_COLOUR: Final = re.compile(r"\x1b\[[0-9;]*m")


def _last_words(log: str) -> str:
    """Return the line of a daemon's log that says best what went wrong."""
    # wireguard-go draws a box around a recommendation at every start.
    # boringtun colours its log and puts the place in its source on a line of its own.
    lines = [_COLOUR.sub("", line).strip() for line in log.splitlines()]
    lines = [line for line in lines if line and line[0] not in "┌│└" and not line.startswith("at ")]
    for line in reversed(lines):
        if re.search(
            r"error|fail|invalid|did not complete|cannot|panic|denied", line, re.IGNORECASE
        ):
            return line
    return lines[-1] if lines else "nothing in its log"
