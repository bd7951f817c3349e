"""Sizes of OpenVPN's data channel: what stands around one inner packet. Pure."""

from typing import Final

from tunnelmark.model.overhead import Layer

AEAD: Final = frozenset({"AES-128-GCM", "AES-256-GCM", "CHACHA20-POLY1305"})
BLOCK_BYTES: Final = {"BF-CBC": 8, "AES-128-CBC": 16, "AES-256-CBC": 16}
HMAC_BYTES: Final = {"SHA1": 20, "SHA256": 32, "SHA512": 64}


def data_channel(
    inner_bytes: int,
    *,
    cipher: str,
    auth: str,
    lzo: bool,
    static_key: bool,
    tcp: bool,
    epoch: bool = False,
) -> tuple[Layer, ...]:
    """Return the layers between the transport header and an inner packet, outermost first.

    With ``lzo`` they are those of a packet that does not get smaller by it. With ``epoch`` keys
    change by epochs, as two ends of OpenVPN 2.7 agree.
    """
    # Packets in a stream have to be distinguished.
    length = (Layer("packet length", 2, "openvpn-rfc, TCP packet format"),) * tcp
    # src/openvpn/lzo.h: a packet that did not get smaller has one byte that says so.
    header = (Layer("compression header", 1, "openvpn lzo.h"),) * lzo
    # Without TLS there are no keys to choose from, so no opcode; the packet id holds a time too,
    # since nothing else distinguishes two sessions with the same key.
    opcode = () if static_key else (Layer("opcode and peer id", 4, "openvpn-rfc, P_DATA_V2"),)
    packet_id = (
        Layer("packet id with time", 8, "openvpn-rfc, long form of the packet id")
        if static_key
        else Layer("packet id", 4, "openvpn-rfc, data channel packet format")
    )
    if cipher in AEAD:
        if epoch:
            packet_id = Layer("packet id with epoch", 8, "openvpn crypto_epoch.h, 16 and 48 bits")
        tag = Layer("authentication tag", 16, "RFC 5116 section 5.1, RFC 8439 section 2.8")
        return (*length, *opcode, packet_id, tag, *header)
    block_bytes = BLOCK_BYTES[cipher]
    encrypted = packet_id.bytes + len(header) + inner_bytes
    return (
        *length,
        *opcode,
        Layer("HMAC", HMAC_BYTES[auth], f"RFC 2104 with {auth}, not truncated"),
        Layer("IV", block_bytes, "NIST SP 800-38A section 6.2"),
        packet_id,
        *header,
        # A full block when nothing is missing, so that the padding can be distinguished.
        Layer("padding", block_bytes - encrypted % block_bytes, "RFC 5652 section 6.3"),
    )
