"""What each header of a tunnel takes of the packets that the proof by wire saw."""

from collections.abc import Callable, Sequence
from typing import Final

from tunnelmark.model.block import Layered, WireProof, WireSample
from tunnelmark.model.overhead import IP_VERSIONS, Wire, datagram
from tunnelmark.model.tunnel import Negotiated
from tunnelmark.model.validity import Check
from tunnelmark.tunnels.base import Tunnel

_MOST_PAYLOADS: Final = 64


def layers_seen(
    tunnel: Tunnel, agreed: Negotiated, proof: WireProof, link_mtu_bytes: int
) -> tuple[Layered, ...]:
    """Return the headers around each payload of a proof, and whether the capture agrees.

    Of a tunnel without a model nothing is known of them: its overhead is the capture's.
    """
    if not tunnel.modelled:
        return ()
    found = []
    for sample in proof.samples[:_MOST_PAYLOADS]:
        wire = _modelled(tunnel, agreed, sample.payload_bytes, link_mtu_bytes)
        equal = wire.outer_packet_bytes == sample.outer_packet_bytes
        found.append(Layered(sample.payload_bytes, wire.layers, equal))
    return tuple(found)


def held_to(
    tunnel: Tunnel, agreed: Negotiated, link_mtu_bytes: int
) -> Callable[[int], tuple[int, ...] | None]:
    """Return what the model says that a payload, in bytes, takes on the link.

    None for payloads that are not held to it. In a stream TCP puts packets together and cuts them
    as it likes, and where packets share others the parts of a longer payload may: there those of
    one packet are held to it. Of a tunnel without a model none is.
    """
    model = tunnel.encapsulation(agreed) if tunnel.modelled else None
    loose = model is not None and (model.stream or model.shares)

    def lengths(payload_bytes: int) -> tuple[int, ...] | None:
        if not tunnel.modelled:
            return None
        found = _modelled(tunnel, agreed, payload_bytes, link_mtu_bytes).outer_packet_bytes
        return None if loose and len(found) > 1 else found

    return lengths


def model_check(
    tunnel: Tunnel, agreed: Negotiated, samples: Sequence[WireSample], link_mtu_bytes: int
) -> Check:
    """Judge whether packets on the link are as long as what was agreed makes them.

    Where they are not, something else was agreed, or the model is wrong: figures of overhead then
    rest on nothing. In a stream it is enough that payloads can be as long as the model says.
    """
    if not tunnel.modelled:
        return Check(
            "wire_as_modelled",
            ok=True,
            message="this tunnel has no model: its overhead is the captured one",
        )
    model = tunnel.encapsulation(agreed)
    stream = model is not None and model.stream
    expected = held_to(tunnel, agreed, link_mtu_bytes)
    judged = [
        (sample, modelled)
        for sample in samples[:_MOST_PAYLOADS]
        if (modelled := expected(sample.payload_bytes)) is not None
    ]
    other = [pair for pair in judged if pair[0].outer_packet_bytes != pair[1]]
    most = max(0, len(judged) - 1) if stream else 0
    message = (
        f"{len(judged) - len(other)} of {len(judged)} payloads took as many bytes on the link as "
        "the model of the tunnel says"
        if judged
        else "no payload was seen on the link by itself, so none is held to the model of the tunnel"
    )
    if other:
        sample, modelled = other[0]
        message += (
            f"; the one of {sample.payload_bytes} bytes took {_as_sum(sample.outer_packet_bytes)}, "
            f"not {_as_sum(modelled)}"
        )
    return Check(
        "wire_as_modelled",
        ok=len(other) <= most,
        message=message,
        value=float(len(other)),
        limit=float(most),
    )


def _as_sum(lengths: Sequence[int]) -> str:
    return " + ".join(map(str, lengths))


def _modelled(tunnel: Tunnel, agreed: Negotiated, payload_bytes: int, link_mtu_bytes: int) -> Wire:
    return datagram(
        payload_bytes,
        link_mtu_bytes=link_mtu_bytes,
        encapsulation=tunnel.encapsulation(agreed),
        inner_ip=IP_VERSIONS[tunnel.params.inner],
    )
