"""What sing-box reads: one end's configuration, as its own documentation names the keys."""

import base64
import secrets
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any, Final, Self

_KEY_BYTES: Final = {
    "2022-blake3-aes-128-gcm": 16,
    "2022-blake3-aes-256-gcm": 32,
    "2022-blake3-chacha20-poly1305": 32,
}
QUIC: Final = frozenset({"hysteria2", "tuic"})


@dataclass(frozen=True)
class Protocol:
    """A protocol with the secrets of one tunnel, which both ends know."""

    name: str
    method: str
    user: str
    password: str

    @classmethod
    def new(cls, name: str, method: str) -> Self:
        """Make new secrets."""
        key = base64.b64encode(secrets.token_bytes(_KEY_BYTES[method])).decode("ascii")
        return cls(name, method, str(uuid.UUID(bytes=secrets.token_bytes(16), version=4)), key)

    def inbound(self) -> dict[str, Any]:
        """Return how the listener knows its peer."""
        match self.name:
            case "shadowsocks":
                return {"method": self.method, "password": self.password}
            case "vless":
                return {"users": [{"uuid": self.user}]}
            case "tuic":
                return {"users": [{"uuid": self.user, "password": self.password}]}
            case _:
                return {"users": [{"password": self.password}]}

    def outbound(self) -> dict[str, Any]:
        """Return how the caller proves itself."""
        match self.name:
            case "shadowsocks":
                return {"method": self.method, "password": self.password}
            case "vless":
                return {"uuid": self.user}
            case "tuic":
                return {"uuid": self.user, "password": self.password}
            case _:
                return {"password": self.password}


@dataclass(frozen=True)
class Peer:
    """Where an end listens."""

    address: str
    port: int
    name: str
    """What its certificate says."""


def configuration(
    protocol: Protocol, *, here: Peer, there: Peer, folder: PurePosixPath, tun: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the configuration of one end; certificates are read from ``folder``.

    What enters the device goes to the peer; what the peer sends goes on from this host.
    """
    listener: dict[str, Any] = {
        "type": protocol.name,
        "tag": "peer",
        "listen": here.address,
        "listen_port": here.port,
        **protocol.inbound(),
    }
    caller: dict[str, Any] = {
        "type": protocol.name,
        "tag": "tunnel",
        "server": there.address,
        "server_port": there.port,
        **protocol.outbound(),
    }
    if protocol.name == "shadowsocks":
        listener["udp_fragment"] = caller["udp_fragment"] = True
    else:
        alpn = {"alpn": ["h3"]} if protocol.name in QUIC else {}
        common = {"enabled": True, "min_version": "1.3", **alpn}
        own = {"certificate_path": str(folder / "own.crt"), "key_path": str(folder / "own.key")}
        listener["tls"] = {**common, "server_name": here.name, **own}
        authority = str(folder / "ca.crt")
        caller["tls"] = {**common, "server_name": there.name, "certificate_path": authority}
    device = {"type": "tun", "tag": "device", "auto_route": False, **tun}
    return {
        "log": {"level": "info", "timestamp": False},
        "inbounds": [listener, device],
        "outbounds": [caller, {"type": "direct", "tag": "here"}],
        "route": {"rules": [{"inbound": ["peer"], "outbound": "here"}], "final": "tunnel"},
    }
