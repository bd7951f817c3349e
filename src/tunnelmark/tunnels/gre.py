"""GRE: IP in IP with a small header, nothing encrypted; the reference point of all tunnels."""

from collections.abc import Mapping
from typing import ClassVar, Final, Literal

from pydantic import Field, model_validator

from tunnelmark.model.overhead import Encapsulation, Layer, ip_layer
from tunnelmark.model.topology import Router
from tunnelmark.model.tunnel import Negotiated, WireRule
from tunnelmark.tunnels.base import TunnelParams
from tunnelmark.tunnels.kernel_link import KernelLinkTunnel, LinkEnd

_GRE: Final = 47
_TTL: Final = 64
_IPV4_BYTES: Final = 20
_HEADER_BYTES: Final = 4
_KEY_BYTES: Final = 4


class GreParams(TunnelParams):
    """What a study can set."""

    inner: Literal["ipv4"] = Field("ipv4", description="IP version inside; IPv4 alone so far")
    outer: Literal["ipv4"] = Field("ipv4", description="IP version outside; IPv4 alone so far")
    keyed: bool = Field(
        False,
        description="put a key into every packet that tells tunnels apart; needed for several",
    )
    mtu_bytes: int | None = Field(
        None,
        ge=68,
        le=65535,
        description="MTU of the inner interface; without it what the link leaves",
    )

    @model_validator(mode="after")
    def _told_apart(self) -> "GreParams":
        if self.count > 1 and not self.keyed:
            raise ValueError(
                f"count is {self.count}: between two addresses there is one GRE tunnel without "
                "a key, set keyed to true"
            )
        return self


class GreTunnel(KernelLinkTunnel):
    """Interfaces of type gre; tunnel i has the key i plus 1."""

    kind: ClassVar[str] = "gre"
    title: ClassVar[str] = "GRE (not encrypted)"
    params_type: ClassVar[type[TunnelParams]] = GreParams
    # The far end is known by its address, which NAT replaces.
    routers: ClassVar[tuple[Router, ...]] = ("none", "routed")
    feature: ClassVar[str] = "gre"
    letter: ClassVar[str] = "g"
    ethernet: ClassVar[bool] = False

    @property
    def _params(self) -> GreParams:
        assert isinstance(self.params, GreParams)  # noqa: S101 - checked when it was made
        return self.params

    @property
    def overhead_bytes(self) -> int:
        """IPv4, GRE and the key."""
        return _IPV4_BYTES + _HEADER_BYTES + _KEY_BYTES * self._params.keyed

    @property
    def mtu_bytes(self) -> int | None:
        """What the study sets."""
        return self._params.mtu_bytes

    def make(self, end: LinkEnd) -> None:
        """Make the interface."""
        key = ["key", str(end.number + 1)] if self._params.keyed else []
        end.own.host.run(
            [
                *("ip", "link", "add", "name", end.interface, "type", "gre"),
                *("local", end.own.ipv4, "remote", end.peer.ipv4, "ttl", str(_TTL), *key),
            ]
        )

    def wanted(self, end: LinkEnd) -> Mapping[str, object]:
        """Return addresses and keys."""
        key = f"0.0.0.{end.number + 1}" if self._params.keyed else None
        return {"local": end.own.ipv4, "remote": end.peer.ipv4, "ikey": key, "okey": key}

    def wire(self) -> WireRule:
        """Everything is GRE, and readable."""
        return WireRule(encrypted=False, describe="GRE, readable", ip_protocols=(_GRE,))

    def agreed(self, kernel: str, mtu_bytes: int) -> Negotiated:
        """Nothing is negotiated."""
        return Negotiated(
            cipher=None,
            version=f"GRE of {kernel}",
            implementation="kernel",
            mtu_bytes=mtu_bytes,
            details={"data_path": "kernel", "encryption": "none", "keyed": str(self._params.keyed)},
        )

    def encapsulation(self, agreed: Negotiated) -> Encapsulation:
        """Return the layers of RFC 2784 and RFC 2890."""
        key = Layer("GRE key", _KEY_BYTES, "RFC 2890 section 2.1")
        layers = (
            ip_layer(4),
            Layer("GRE header", _HEADER_BYTES, "RFC 2784 section 2.1"),
            *((key,) if self._params.keyed else ()),
        )
        return Encapsulation(lambda _inner_bytes: layers, agreed.mtu_bytes)
