"""VXLAN: Ethernet in UDP, nothing encrypted; a reference point for tunnels of layer 2."""

from collections.abc import Mapping
from typing import ClassVar, Final

from tunnelmark.model.overhead import Encapsulation, Layer, ip_layer, udp_layer
from tunnelmark.model.topology import Router
from tunnelmark.model.tunnel import DataPath, Negotiated, WireRule
from tunnelmark.tunnels.addressing import outer_version
from tunnelmark.tunnels.base import TunnelParams
from tunnelmark.tunnels.kernel_link import KernelLinkParams, KernelLinkTunnel, LinkEnd
from tunnelmark.tunnels.protocols import UDP

PORT: Final = 4789
"""RFC 7348 section 5."""

_FIRST_VNI: Final = 1
_LAYERS: Final = (
    udp_layer(),
    Layer("VXLAN header", 8, "RFC 7348 section 5"),
    Layer(
        "inner Ethernet header", 14, "IEEE 802.3 section 3.1.1, without FCS (RFC 7348 section 5)"
    ),
)


class VxlanParams(KernelLinkParams):
    """What a study can set."""


class VxlanTunnel(KernelLinkTunnel):
    """Interfaces of type vxlan to one peer; tunnel i has the network identifier i plus 1."""

    kind: ClassVar[str] = "vxlan"
    title: ClassVar[str] = "VXLAN (not encrypted)"
    params_type: ClassVar[type[TunnelParams]] = VxlanParams
    params: VxlanParams
    # Likewise of GRE: the far end is known by its address.
    routers: ClassVar[tuple[Router, ...]] = ("none", "routed")
    feature: ClassVar[str] = "vxlan"
    letter: ClassVar[str] = "v"
    ethernet: ClassVar[bool] = True

    @property
    def overhead_bytes(self) -> int:
        """IP, UDP, VXLAN and the inner Ethernet header."""
        return sum(layer.bytes for layer in self._layers())

    def make(self, end: LinkEnd) -> None:
        """Make the interface; it learns no addresses, since there is one peer."""
        own, peer = end.outer(self.params)
        end.own.host.run(
            [
                *("ip", "link", "add", "name", end.interface, "type", "vxlan"),
                *("id", str(_FIRST_VNI + end.number), "dstport", str(PORT), "nolearning"),
                *("local", own, "remote", peer, "dev", end.own.interface),
            ]
        )

    def wanted(self, end: LinkEnd) -> Mapping[str, object]:
        """Return addresses, port and network identifier."""
        own, peer = end.outer(self.params)
        six = "6" if self.params.outer == "ipv6" else ""
        return {
            "id": _FIRST_VNI + end.number,
            f"local{six}": own,
            f"remote{six}": peer,
            "port": PORT,
        }

    def wire(self) -> WireRule:
        """Everything is UDP to its port, and readable."""
        return WireRule(
            encrypted=False,
            describe=f"UDP to or from port {PORT}, readable",
            ip_protocols=(UDP,),
            udp_ports=(PORT,),
            ip_version=outer_version(self.params),
        )

    def agreed(self, kernel: str, mtu_bytes: int) -> Negotiated:
        """Nothing is negotiated."""
        return Negotiated(
            cipher=None,
            version=f"VXLAN of {kernel}",
            implementation="kernel",
            mtu_bytes=mtu_bytes,
            data_path=DataPath.KERNEL,
            details={"encryption": "none"},
        )

    def encapsulation(self, agreed: Negotiated) -> Encapsulation:
        """Return the layers of RFC 7348."""
        layers = self._layers()
        version = outer_version(self.params)
        return Encapsulation(lambda _inner_bytes: layers, agreed.mtu_bytes, outer_ip=version)

    def _layers(self) -> tuple[Layer, ...]:
        return (ip_layer(outer_version(self.params)), *_LAYERS)
