"""Tailscale: two nodes, with a control server, a relay (DERP) and STUN on the server's host."""

import json
import re
import secrets
from collections.abc import Mapping
from functools import partial
from pathlib import PurePosixPath
from types import MappingProxyType
from typing import Any, ClassVar, Final, Literal

from pydantic import Field, field_validator

from tunnelmark.model.errors import LabError, RefusedError, TunnelError
from tunnelmark.model.host import Host, Need
from tunnelmark.model.names import unique_name
from tunnelmark.model.overhead import (
    Encapsulation,
    Layer,
    ip_layer,
    padding,
    tcp_layer,
    udp_layer,
)
from tunnelmark.model.together import together
from tunnelmark.model.tunnel import (
    CipherLibrary,
    DataPath,
    Negotiated,
    ServerPorts,
    Side,
    Site,
    TunnelUp,
    WireRule,
)
from tunnelmark.tunnels.addressing import (
    check_inner_mtu,
    inner_addresses,
    outer_version,
    reached_addresses,
    with_port,
)
from tunnelmark.tunnels.base import TunnelParams
from tunnelmark.tunnels.daemon import (
    Daemon,
    DaemonTunnel,
    check_interface,
    last_complaint,
    prove_path,
    shown_ports,
    traffic_path,
    wait_for,
)
from tunnelmark.tunnels.protocols import TCP, UDP
from tunnelmark.tunnels.support import check_socket, inner_interface, quieten, wait_until

PROGRAM: Final = "tailscaled"
CLIENT: Final = "tailscale"
CONTROL: Final = "tunnelmark-tailscale-control"
"""Control server, relay and STUN server in one, for the time of the tunnel: programs/tailscale."""
FIRST_PORT: Final = 41641
"""Both nodes of tunnel i have this UDP port plus i; Tailscale's packages have it as default."""
CONTROL_PORT: Final = 8443
"""TCP, TLS: of control server and relay."""
STUN_PORT: Final = 3478
MTU_BYTES: Final = 1280
"""Tailscale's own (net/tstun/mtu.go, safeTUNMTU)."""
LARGEST_MTU_BYTES: Final = 1420
"""What goes through an Ethernet without fragments, over IPv6 too."""

_AT_ONCE: Final = 8
"""Nodes that join at a time."""
_START_LIMIT_S: Final = 20.0
_JOIN_LIMIT_S: Final = 30.0
_PATH_LIMIT_S: Final = 30.0
# The rules that tailscaled sets (wgengine/router/osrouter/router_linux.go, baseIPRules).
_RULE_PRIORITIES: Final = (5210, 5230, 5250, 5270)
_INSTALL: Final = "scripts/programs build tailscale, in a checkout of Tunnelmark, with Go"
_NOISE: Final = re.compile(
    r"health\(|\[v\d\]|logpolicy|dns: |linuxfw: |iptables|TPM|netcheck: |profile data directory"
)


class TailscaleParams(TunnelParams):
    """What a study can set."""

    path: Literal["direct", "derp"] = Field(
        "direct",
        description="direct: UDP from node to node, which the nodes find by STUN and the relay; "
        "derp: all packets go through the relay on the server's host, over TLS",
    )
    mode: Literal["tun"] = Field(
        "tun",
        description="tun: an interface of the kernel; Tailscale's userspace networking has no "
        "interface that traffic could enter",
    )
    mtu_bytes: int = Field(
        MTU_BYTES,
        ge=576,
        le=LARGEST_MTU_BYTES,
        description="MTU of the inner interface, 1280 is Tailscale's own; more than 1420 would be "
        "fragmented on an Ethernet",
    )

    @field_validator("mode", mode="before")
    @classmethod
    def _has_an_interface(cls, value: object) -> object:
        if value == "userspace":
            raise ValueError(
                "userspace networking carries connections of SOCKS and HTTP proxies, no IP "
                'packets: it has no interface for the workloads, use mode = "tun"'
            )
        return value


class TailscaleTunnel(DaemonTunnel):
    """``count`` pairs of nodes; each node sees its partner only."""

    kind: ClassVar[str] = "tailscale"
    title: ClassVar[str] = "Tailscale"
    library: ClassVar[CipherLibrary] = "Go"
    params_type: ClassVar[type[TunnelParams]] = TailscaleParams
    programs: ClassVar[Mapping[str, str]] = MappingProxyType(
        {name: name for name in (PROGRAM, CLIENT, CONTROL)}
    )
    deviations: ClassVar[Mapping[str, str]] = MappingProxyType(
        {
            "TS_DEBUG_OMIT_LOCAL_ADDRS": "a node offers only the address that STUN shows, which is "
            "of the study's outer IP version; it would choose among all",
            "TS_DISABLE_PORTMAPPER": "no router is asked to open a port",
            "TS_NO_LOGS_NO_SUPPORT": "no log is sent to Tailscale",
            "--netfilter-mode=off": "a node adds no rules to the firewall",
            "--accept-dns=false": "a node does not change the resolver",
            "--encrypt-state=false": "keys of one run need no TPM",
        }
    )
    params: TailscaleParams

    def __init__(self, params: TunnelParams) -> None:
        """Take the parameters of the study."""
        super().__init__(params)
        self._folder_name = unique_name("ts")
        self._pairs: list[tuple[Daemon, Daemon]] = []
        self._there: list[str] = []
        """Where each server is reached, as its client says it."""

    def need(self, host: Host) -> Need:  # noqa: ARG002 - the same on every host
        """Need Tailscale, the control server and a TUN device."""
        return Need(
            programs={**self.programs, "ip": "iproute2", "ping": "iputils-ping"},
            kernel=("tun",),
            install=dict.fromkeys(self.programs, _INSTALL),
        )

    def bring_up(self, site: Site) -> TunnelUp:
        """Start control server and nodes, have them join, and see which way packets take."""
        params = self.params
        check_inner_mtu(self.kind, params.inner, params.mtu_bytes)
        numbers = range(params.count)
        for host in (site.server.host, site.client.host):
            _check_alone(host)
        self._start_control(site)
        for number in numbers:
            server, client = (self._start(site, side, number) for side in ("server", "client"))
            self._pairs.append((client, server))
            _, reached = reached_addresses(site, params)
            self._there.append(with_port(reached, FIRST_PORT + number))
        wait_for(
            [node for pair in self._pairs for node in pair],
            "start",
            _listens,
            limit_s=_START_LIMIT_S,
        )
        together(
            *(
                partial(self._join, site, node, f"{side}-{number}")
                for number in numbers
                for side, node in zip(("client", "server"), self._pairs[number], strict=True)
            ),
            at_once=_AT_ONCE,
        )
        paths, negotiated = [], []
        for number, (client, server) in enumerate(self._pairs):
            for node in (client, server):
                quieten(node.endpoint.host, node.interface)
                check_interface(node, mtu_bytes=params.mtu_bytes)
            path = traffic_path(
                site, number, client, server, params=params, mtu_bytes=params.mtu_bytes
            )
            prove_path(site, path, client, server)
            self._await_path(number)
            paths.append(path)
            negotiated.append(self._negotiated(client))
        return TunnelUp(
            paths=tuple(paths),
            negotiated=tuple(negotiated),
            wire=self._rule(),
            processes=self.processes(),
        )

    def check_agreed(self) -> None:
        """Ask both ends again: a node that hears nothing from the other goes over the relay."""
        for number in range(len(self._pairs)):
            if wrong := self._other_path(number):
                raise TunnelError(wrong)

    def down(self) -> None:
        """Stop nodes, then the control server; rules of a node that was killed go too."""
        self._pairs.clear()
        self._there.clear()
        # The control server, started first, is stopped last.
        ends = [(one.endpoint.host, one.process.stop()) for one in reversed(self._daemons)]
        killed = {host.unique: host for host, status in ends if status}
        super().down()
        for host in killed.values():
            for family, priority in ((f, p) for f in ("-4", "-6") for p in _RULE_PRIORITIES):
                rule = ["ip", family, "rule", "delete", "priority", str(priority)]
                host.run(rule, check=False)

    @property
    def packet_cipher(self) -> str:
        """WireGuard whitepaper section 5.4.6: the one there is, through a relay too."""
        return "CHACHA20-POLY1305"

    def carriers(self) -> tuple[ServerPorts, ...]:
        """Return the port of the relay, where all packets go through it."""
        return (ServerPorts("tcp", CONTROL_PORT),) if self.params.path == "derp" else ()

    def encapsulation(self, agreed: Negotiated) -> Encapsulation:
        """Return the layers of WireGuard's data message, which the relay is sent in a frame."""
        version, relayed = outer_version(self.params), self.params.path == "derp"
        carrier = (
            (
                ip_layer(version),
                tcp_layer(),
                Layer("TLS record", 22, "RFC 8446 section 5.2: header, type, tag"),
                Layer("DERP frame header", 5, "tailscale derp/derp.go, FrameHeaderLen"),
                Layer("key of the receiver", 32, "tailscale derp/derp.go, FrameSendPacket"),
            )
            if relayed
            else (ip_layer(version), udp_layer())
        )

        def layers(inner_bytes: int) -> tuple[Layer, ...]:
            padded = min(inner_bytes + padding(inner_bytes, 16), agreed.mtu_bytes)
            return (
                *carrier,
                Layer("type, receiver and counter", 16, "whitepaper section 5.4.6"),
                Layer("padding", padded - inner_bytes, "whitepaper section 5.4.6"),
                Layer("authentication tag", 16, "RFC 8439 section 2.8"),
            )

        return Encapsulation(layers, agreed.mtu_bytes, outer_ip=version, stream=relayed)

    def _start_control(self, site: Site) -> None:
        host = site.server.host
        key = self._folder(host) / "join-key"
        join_key = secrets.token_hex(16).encode()
        for end in (host, site.client.host):
            end.put(self._folder(end) / "join-key", join_key)
        certificate = self._folder(host) / "control.crt"
        words = [
            *(CONTROL, "-address", site.server.own(self.params.outer)),
            *("-port", str(CONTROL_PORT), "-stun", str(STUN_PORT)),
            *("-join-key", str(key), "-certificate", str(certificate)),
        ]
        for number in range(self.params.count):
            client, server = inner_addresses(site, number, self.params)
            words += ["-pair", f"client-{number}={client},server-{number}={server}"]
        process = host.spawn(words, name=unique_name("tailscale-control"))
        control = Daemon(
            "tailscale control server", site.server, site.server.interface, process, last_complaint
        )
        self._daemons.append(control)
        wait_for(
            [control], "start", lambda log: ": control and DERP on " in log, limit_s=_START_LIMIT_S
        )
        data = host.get(certificate, limit_bytes=1 << 16)
        other = site.client.host
        other.put(self._folder(other) / "control.crt", data)

    def _start(self, site: Site, side: Side, number: int) -> Daemon:
        endpoint = site.client if side == "client" else site.server
        host, place = endpoint.host, f"tailscale {side} of tunnel {number}"
        interface = inner_interface(site, "k", number, side)
        folder = self._folder(host) / f"{side}-{number}"
        # A file that is there makes its folder; tailscaled takes another one for logs if it lacks.
        host.put(folder / "run", f"{site.prefix}\n".encode())
        check_socket(place, folder / "socket")
        process = host.spawn(
            [
                *(PROGRAM, "--tun", interface, "--port", str(FIRST_PORT + number)),
                *("--statedir", str(folder), "--state", str(folder / "state")),
                *("--socket", str(folder / "socket"), "--encrypt-state=false"),
                "--no-logs-no-support",
            ],
            name=unique_name(f"tailscaled-{side}-{number}"),
            env=self._environment(host, folder),
        )
        daemon = Daemon(place, endpoint, interface, process, _last_words)
        self._daemons.append(daemon)
        return daemon

    def _environment(self, host: Host, folder: PurePosixPath) -> dict[str, str]:
        switches = ["TS_DEBUG_OMIT_LOCAL_ADDRS", "TS_DISABLE_PORTMAPPER", "TS_NO_LOGS_NO_SUPPORT"]
        if self.params.path == "derp":
            switches.append("TS_DEBUG_NEVER_DIRECT_UDP")
        return {
            # Of the control server; the folder has no certificate, and hides those of the system.
            "SSL_CERT_FILE": str(self._folder(host) / "control.crt"),
            "SSL_CERT_DIR": str(folder),
            "TS_LOGS_DIR": str(folder),
            "TS_DEBUG_MTU": str(self.params.mtu_bytes),
            **dict.fromkeys(switches, "true"),
        }

    def _join(self, site: Site, node: Daemon, name: str) -> None:
        """Have a node join the network of its pair; raise with the words of both programs."""
        _, server = reached_addresses(site, self.params)
        key = self._folder(node.endpoint.host) / "join-key"
        try:
            node.endpoint.host.run(
                [
                    *self._client(node, name),
                    *("up", "--login-server", f"https://{with_port(server, CONTROL_PORT)}"),
                    *(
                        f"--auth-key=file:{key}",
                        "--hostname",
                        name,
                        "--timeout",
                        f"{_JOIN_LIMIT_S:.0f}s",
                    ),
                    *("--accept-dns=false", "--accept-routes=false", "--netfilter-mode=off"),
                ],
                timeout_s=_JOIN_LIMIT_S + 10,
            )
        except LabError as error:
            raise TunnelError(
                f"{node.place} could not join: {error}; its daemon: {node.last_words()}"
            ) from error

    def _client(self, node: Daemon, name: str) -> list[str]:
        return [CLIENT, "--socket", str(self._folder(node.endpoint.host) / name / "socket")]

    def _folder(self, host: Host) -> PurePosixPath:
        return host.work_dir / self._folder_name

    def _await_path(self, number: int) -> None:
        """Wait until packets take the way that the study asks for: at first they are relayed."""
        wait_until(
            lambda: None if self._other_path(number) else True,
            limit_s=_PATH_LIMIT_S,
            late=lambda: f"{self._other_path(number)}, after {_PATH_LIMIT_S:g} s",
            poll_s=0.1,
        )

    def _other_path(self, number: int) -> str | None:
        """Return which node says that packets take another way than the study asks for."""
        for side, node in zip(("client", "server"), self._pairs[number], strict=True):
            found = self._peer(node, f"{side}-{number}")
            direct, relay = found.get("CurAddr"), found.get("Relay")
            if self.params.path == "derp":
                right = not direct and bool(relay)
            else:
                # A NAT before the client decides where the server sees it.
                right = direct == self._there[number] if side == "client" else bool(direct)
            if not right:
                seen = f"directly, to {direct}" if direct else f"over relay {relay or 'unknown'}"
                return (
                    f"{node.place} on {node.endpoint.host.name} sends {seen}, the study asks for "
                    f"path {self.params.path!r}"
                )
        return None

    def _peer(self, node: Daemon, name: str) -> dict[str, Any]:
        """Return what a node says of its peer."""
        done = node.endpoint.host.run([*self._client(node, name), "status", "--json"], check=False)
        try:
            peers = json.loads(done.stdout)["Peer"] or {}
            (peer,) = peers.values()
        except (ValueError, KeyError, TypeError, AttributeError):
            raise TunnelError(
                f"{node.place}: tailscale status does not show one peer: {done.last_words()}"
            ) from None
        return dict(peer)

    def _negotiated(self, client: Daemon) -> Negotiated:
        host = client.endpoint.host
        said = host.run([PROGRAM, "--version"], check=False).text().splitlines()
        control = host.run([CONTROL, "--version"], check=False).text().splitlines()
        if not said:
            raise RefusedError(f"{PROGRAM} on {host.name} does not report its version")
        return Negotiated(
            cipher=self.packet_cipher,
            # What a build out of a module adds, which has no history of the repository.
            version=f"{PROGRAM} {said[0].strip().removesuffix('-ERR-BuildInfo')}",
            implementation=PROGRAM,
            mtu_bytes=self.params.mtu_bytes,
            data_path=DataPath.USER_SPACE,
            details={
                "path": self.params.path,
                "key_exchange": "Noise_IKpsk2_25519_ChaChaPoly_BLAKE2s",
                "control": (control or ["unknown"])[0],
            },
        )

    def _rule(self) -> WireRule:
        """Return the rule: nodes also talk to the control server, the relay and STUN meanwhile."""
        ports = tuple(FIRST_PORT + number for number in range(self.params.count))
        udp = (STUN_PORT,) if self.params.path == "derp" else (*ports, STUN_PORT)
        direct = "" if self.params.path == "derp" else f"{shown_ports(ports)} or "
        return WireRule(
            encrypted=True,
            describe=f"UDP to or from port {direct}{STUN_PORT}, or TCP to or from port "
            f"{CONTROL_PORT}",
            ip_protocols=(UDP, TCP),
            udp_ports=udp,
            tcp_ports=(CONTROL_PORT,),
            ip_version=outer_version(self.params),
        )


def _check_alone(host: Host) -> None:
    """Raise if the host has rules of Tailscale: a node deletes those of any other there."""
    rule = ["ip", "rule", "show", "priority", str(_RULE_PRIORITIES[-1])]
    if found := host.run(rule, check=False).text().strip():
        raise RefusedError(
            f"{host.name} has a rule of Tailscale ({' '.join(found.split())}): a Tailscale of its "
            "own is up there (tailscale down), or one was killed (ip rule delete)"
        )


def _listens(log: str) -> bool:
    return "Switching ipn state NoState -> " in log


def _last_words(log: str) -> str:
    return last_complaint(log, noise=_NOISE)
