"""MACsec: encryption of the link itself (IEEE 802.1AE), with keys set by hand."""

import json
import secrets
from collections.abc import Mapping
from typing import ClassVar, Final, Literal

from pydantic import Field

from tunnelmark.model.errors import RefusedError, TunnelError
from tunnelmark.model.overhead import Encapsulation, Layer
from tunnelmark.model.topology import Router
from tunnelmark.model.tunnel import DataPath, Endpoint, Negotiated, Side, Site, TunnelUp, WireRule
from tunnelmark.tunnels.base import TunnelParams
from tunnelmark.tunnels.kernel_link import KernelLinkParams, KernelLinkTunnel, LinkEnd

ETHER_TYPE: Final = 0x88E5
"""IEEE 802.1AE-2018 table 9-1."""

_KEY_BYTES: Final = {"GCM-AES-128": 16, "GCM-AES-256": 32}
_KEY_ID_BYTES: Final = 16
_LAYERS: Final = (
    Layer("MACsec SecTAG", 6, "IEEE 802.1AE section 9.3, without its EtherType"),
    Layer("MACsec SCI", 8, "IEEE 802.1AE section 9.9"),
    Layer("EtherType of the packet inside", 2, "IEEE 802.1AE section 9.10"),
    Layer("MACsec ICV", 16, "IEEE 802.1AE section 9.11, 14.5"),
)


class MacsecParams(KernelLinkParams):
    """What a study can set."""

    outer: Literal["ipv4"] = Field(
        "ipv4", description="has no effect: the outer packet is an Ethernet frame without IP"
    )
    cipher: Literal["GCM-AES-128", "GCM-AES-256"] = Field(
        "GCM-AES-128", description="cipher suite of IEEE 802.1AE section 14"
    )
    encrypt: bool = Field(
        True,
        description="false authenticates frames but leaves them readable",
    )


class MacsecTunnel(KernelLinkTunnel):
    """Interfaces of type macsec upon the link's own; tunnel i is the secure channel i plus 1."""

    kind: ClassVar[str] = "macsec"
    title: ClassVar[str] = "MACsec"
    params_type: ClassVar[type[TunnelParams]] = MacsecParams
    params: MacsecParams
    # It secures one wire: a router ends it.
    routers: ClassVar[tuple[Router, ...]] = ("none",)
    feature: ClassVar[str] = "macsec"
    letter: ClassVar[str] = "m"
    ethernet: ClassVar[bool] = True

    @property
    def overhead_bytes(self) -> int:
        """SecTAG with SCI, the inner EtherType and the ICV."""
        return sum(layer.bytes for layer in _LAYERS)

    def bring_up(self, site: Site) -> TunnelUp:
        """Make new keys, one for each direction of each tunnel, then the interfaces."""
        size = _KEY_BYTES[self.params.cipher]
        self._keys = {
            (number, side): secrets.token_hex(size)
            for number in range(self.params.count)
            for side in ("client", "server")
        }
        return super().bring_up(site)

    def make(self, end: LinkEnd) -> None:
        """Make the interface and its secure associations; the keys go by standard input."""
        host, device, port = end.own.host, end.interface, str(end.number + 1)
        other: Side = "server" if end.side == "client" else "client"
        cipher = self.params.cipher.lower()
        host.run(
            [
                *("ip", "link", "add", "link", end.own.interface, "name", device),
                *("type", "macsec", "port", port, "cipher", cipher),
                *("encrypt", "on" if self.params.encrypt else "off"),
            ]
        )
        own_key = f"{_key_id(end.number, end.side)} {self._keys[end.number, end.side]}"
        peer_key = f"{_key_id(end.number, other)} {self._keys[end.number, other]}"
        peer = f"address {_mac(end.peer)} port {port}"
        lines = [
            f"macsec add {device} tx sa 0 pn 1 on key {own_key}",
            f"macsec add {device} rx {peer}",
            f"macsec add {device} rx {peer} sa 0 pn 1 on key {peer_key}",
            "",
        ]
        # Not by arguments: a key on a command line is readable by everyone.
        done = host.run(["ip", "-batch", "-"], stdin="\n".join(lines).encode(), check=False)
        if done.returncode != 0:
            raise RefusedError(
                f"macsec {end.side} of tunnel {end.number} on {host.name}: ip refused the secure "
                f"associations: {done.last_words()}"
            )

    def wanted(self, end: LinkEnd) -> Mapping[str, object]:
        """Return cipher, encryption and secure channel."""
        return {
            "cipher_suite": self.params.cipher,
            "encrypt": self.params.encrypt,
            "protect": True,
            "validation": "strict",
            "inc_sci": True,
            "sci": f"{_mac(end.own).replace(':', '')}{end.number + 1:04x}",
        }

    def wire(self) -> WireRule:
        """Everything is a frame of MACsec."""
        readable = "" if self.params.encrypt else ", readable"
        return WireRule(
            encrypted=self.params.encrypt,
            describe=f"frames of MACsec{readable}",
            ip_protocols=(),
            ether_types=(ETHER_TYPE,),
        )

    def agreed(self, kernel: str, mtu_bytes: int) -> Negotiated:
        """Nothing is negotiated: the keys are set."""
        return Negotiated(
            cipher=self.packet_cipher,
            version=f"MACsec of {kernel}",
            implementation="kernel",
            mtu_bytes=mtu_bytes,
            data_path=DataPath.KERNEL,
            details={
                "integrity": self.params.cipher,
                "encryption": self.params.cipher if self.params.encrypt else "none",
                "keys": "set by hand, no MKA",
            },
        )

    @property
    def packet_cipher(self) -> str | None:
        """Cipher suite; None: frames are authenticated only."""
        return self.params.cipher if self.params.encrypt else None

    def encapsulation(self, agreed: Negotiated) -> Encapsulation:
        """Return the layers behind the Ethernet header, which is that of any other packet."""
        return Encapsulation(lambda _inner_bytes: _LAYERS, agreed.mtu_bytes)


def _mac(end: Endpoint) -> str:
    """Return the MAC address of an end on the link: of a real host it is the run's own."""
    done = end.host.run(["ip", "-j", "link", "show", "dev", end.interface])
    try:
        (shown,) = json.loads(done.stdout)
        return str(shown["address"])
    except (ValueError, TypeError, KeyError) as error:
        raise TunnelError(f"ip says nothing of {end.interface} on {end.host.name}") from error


def _key_id(number: int, side: str) -> str:
    """Return the name of a key, the same on both ends (IEEE 802.1AE section 9.8)."""
    return (number * 2 + (side == "server")).to_bytes(_KEY_ID_BYTES, "big").hex()
