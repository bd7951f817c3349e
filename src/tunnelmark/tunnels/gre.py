"""GRE: IP in IP with a small header, nothing encrypted; the reference point of all tunnels."""

import dataclasses
from collections.abc import Mapping
from typing import ClassVar, Final

from pydantic import Field, model_validator

from tunnelmark.model.host import Host, Need
from tunnelmark.model.overhead import Encapsulation, Layer, ip_layer
from tunnelmark.model.tunnel import DataPath, Negotiated, WireRule
from tunnelmark.tunnels.addressing import outer_version
from tunnelmark.tunnels.base import TunnelParams
from tunnelmark.tunnels.kernel_link import KernelLinkParams, KernelLinkTunnel, LinkEnd
from tunnelmark.tunnels.protocols import GRE

_TTL: Final = 64
_HEADER_BYTES: Final = 4
_KEY_BYTES: Final = 4


class GreParams(KernelLinkParams):
    """What a study can set."""

    keyed: bool = Field(
        False,
        description="put a key into every packet to distinguish tunnels; needed for several",
    )

    @model_validator(mode="after")
    def _distinguished(self) -> "GreParams":
        if self.count > 1 and not self.keyed:
            raise ValueError(
                f"count is {self.count}: between two addresses there is one GRE tunnel without "
                "a key, set keyed to true"
            )
        return self


class GreTunnel(KernelLinkTunnel):
    """Interfaces of type gre, or ip6gre over IPv6; tunnel i has the key i plus 1."""

    kind: ClassVar[str] = "gre"
    title: ClassVar[str] = "GRE (not encrypted)"
    params_type: ClassVar[type[TunnelParams]] = GreParams
    params: GreParams
    # The far end is known by its address, which NAT replaces: that of the lab is known.
    nat_of_lab: ClassVar[bool] = True
    feature: ClassVar[str] = "gre"
    letter: ClassVar[str] = "g"
    ethernet: ClassVar[bool] = False

    def need(self, host: Host) -> Need:
        """Need the kernel's GRE over the IP version outside."""
        return dataclasses.replace(super().need(host), kernel=(self._type,))

    @property
    def overhead_bytes(self) -> int:
        """IP, GRE and the key."""
        return sum(layer.bytes for layer in self._layers())

    def make(self, end: LinkEnd) -> None:
        """Make the interface."""
        own, peer = end.outer(self.params)
        key = ["key", str(end.number + 1)] if self.params.keyed else []
        end.own.host.run(
            [
                *("ip", "link", "add", "name", end.interface, "type", self._type),
                *("local", own, "remote", peer, "ttl", str(_TTL), *key),
                # Linux would put an option of 8 bytes into every packet (RFC 2473 section 4.1.1).
                *(("encaplimit", "none") if self.params.outer == "ipv6" else ()),
            ]
        )

    def wanted(self, end: LinkEnd) -> Mapping[str, object]:
        """Return addresses and keys."""
        own, peer = end.outer(self.params)
        key = f"0.0.0.{end.number + 1}" if self.params.keyed else None
        return {"local": own, "remote": peer, "ikey": key, "okey": key}

    def wire(self) -> WireRule:
        """Everything is GRE, and readable."""
        return WireRule(
            encrypted=False,
            describe="GRE, readable",
            ip_protocols=(GRE,),
            ip_version=outer_version(self.params),
        )

    def agreed(self, kernel: str, mtu_bytes: int) -> Negotiated:
        """Nothing is negotiated."""
        return Negotiated(
            cipher=None,
            version=f"GRE of {kernel}",
            implementation="kernel",
            mtu_bytes=mtu_bytes,
            data_path=DataPath.KERNEL,
            details={"encryption": "none", "keyed": str(self.params.keyed)},
        )

    def encapsulation(self, agreed: Negotiated) -> Encapsulation:
        """Return the layers of RFC 2784 and RFC 2890."""
        layers = self._layers()
        version = outer_version(self.params)
        return Encapsulation(lambda _inner_bytes: layers, agreed.mtu_bytes, outer_ip=version)

    @property
    def _type(self) -> str:
        return "gre" if self.params.outer == "ipv4" else "ip6gre"

    def _layers(self) -> tuple[Layer, ...]:
        key = Layer("GRE key", _KEY_BYTES, "RFC 2890 section 2.1")
        return (
            ip_layer(outer_version(self.params)),
            Layer("GRE header", _HEADER_BYTES, "RFC 2784 section 2.1"),
            *((key,) if self.params.keyed else ()),
        )
