"""What each header of a tunnel takes of the packets that the proof by wire saw."""

from typing import Final

from tunnelmark.model.block import Layered, WireProof
from tunnelmark.model.overhead import IP_VERSIONS, datagram
from tunnelmark.model.tunnel import Negotiated
from tunnelmark.tunnels.base import Tunnel

_MOST_PAYLOADS: Final = 64


def layers_seen(
    tunnel: Tunnel, agreed: Negotiated, proof: WireProof, link_mtu_bytes: int
) -> tuple[Layered, ...]:
    """Return the headers around each payload of a proof, and whether the capture agrees."""
    found = []
    for sample in proof.samples[:_MOST_PAYLOADS]:
        wire = datagram(
            sample.payload_bytes,
            link_mtu_bytes=link_mtu_bytes,
            encapsulation=tunnel.encapsulation(agreed),
            inner_ip=IP_VERSIONS[tunnel.params.inner],
        )
        equal = wire.outer_packet_bytes == sample.outer_packet_bytes
        found.append(Layered(sample.payload_bytes, wire.layers, equal))
    return tuple(found)
