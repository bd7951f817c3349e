"""Captures of a monitor interface: radiotap and 802.11, read strictly, what protects each frame.

Ciphers are distinguished by the header that each puts before the encrypted body; clauses are those
of IEEE Std 802.11-2020. That is independent of what the programs under test say.
"""

import struct
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from tunnelmark.model.air import (
    AIR_HOUSEKEEPING,
    AIR_TYPES,
    AIR_UNKNOWN,
    FCS_BYTES,
    AirCipher,
)
from tunnelmark.model.tunnel import WireRule
from tunnelmark.probes.pcap import MAX_PACKETS, OtherFrame, read_records

HOUSEKEEPING: Final = (
    WireRule(
        encrypted=False,
        describe="802.11 management and control",
        ip_protocols=(),
        ether_types=(AIR_HOUSEKEEPING,),
    ),
)
"""What every WLAN sends of its own accord: beacons, acknowledgements, frames without data."""


def read_air(
    data: bytes, *, max_packets: int = MAX_PACKETS, place: str = "capture"
) -> tuple[OtherFrame, ...]:
    """Return the frames of a pcap file with radiotap headers, whole, with an empty FCS put back.

    ``ether_type`` is one of ``model.air``, ``source`` the transmitter. Raises ``LabError`` as
    ``read_pcap`` does.
    """
    parsed = [
        _parse(time_ns, frame)
        for time_ns, frame in read_records(
            data, max_packets=max_packets, place=place, link_type=_LINKTYPE_RADIOTAP
        )
    ]
    ciphers = _ciphers([one for one in parsed if one.shapes])
    return tuple(
        OtherFrame(
            time_ns=one.time_ns,
            ether_type=AIR_TYPES[ciphers[one.transmitter]]
            if one.shapes and ciphers[one.transmitter] in one.shapes
            else one.air_type,
            reason=one.what,
            payload=one.mpdu + bytes(FCS_BYTES),
            source=one.transmitter,
        )
        for one in parsed
    )


_LINKTYPE_RADIOTAP: Final = 127
_RADIOTAP_BYTES: Final = 8
_ADDRESSES_BYTES: Final = 16
_HEADER_BYTES: Final = 24
_FOURTH_ADDRESS_BYTES: Final = 6
_QOS_BYTES: Final = 2
_HT_CONTROL_BYTES: Final = 4
_CIPHER_HEADER_BYTES: Final = 4
_DATA: Final = 2
_FCS_AT_END: Final = 0x10


@dataclass(frozen=True, slots=True)
class _Parsed:
    time_ns: int
    transmitter: str
    air_type: int
    """What it is where it is not encrypted."""
    what: str
    mpdu: bytes
    shapes: tuple[AirCipher, ...] = ()
    """Ciphers whose header the frame may have."""


def _parse(time_ns: int, frame: bytes) -> _Parsed:
    mpdu = _without_radiotap(frame)
    if mpdu is None:
        return _Parsed(time_ns, "", AIR_UNKNOWN, "no radiotap header", frame)
    if len(mpdu) < _ADDRESSES_BYTES:
        # Ack and CTS have but one address (9.3.1.3, 9.3.1.4).
        return _Parsed(time_ns, "", AIR_HOUSEKEEPING, "802.11 control", mpdu)
    transmitter = mpdu[10:16].hex(":")
    kind, subtype, flags = mpdu[0] >> 2 & 3, mpdu[0] >> 4, mpdu[1]
    if mpdu[0] & 3:
        return _Parsed(time_ns, transmitter, AIR_UNKNOWN, "unknown 802.11 version", mpdu)
    # Bit 2 of the subtype of data: there is no body (9.2.4.1.3, Table 9-1).
    if kind != _DATA or subtype & 4:
        return _Parsed(time_ns, transmitter, AIR_HOUSEKEEPING, "802.11 management", mpdu)
    at = _HEADER_BYTES
    at += _FOURTH_ADDRESS_BYTES if flags & 3 == 3 else 0  # noqa: PLR2004 - both DS bits
    if subtype & 8:
        at += _QOS_BYTES
        at += _HT_CONTROL_BYTES if flags & 0x80 else 0
    if not flags & 0x40:
        return _Parsed(time_ns, transmitter, AIR_TYPES["open"], "802.11 data, open", mpdu)
    shapes = _shapes(mpdu[at : at + _CIPHER_HEADER_BYTES])
    return _Parsed(time_ns, transmitter, AIR_UNKNOWN, "802.11 data, protected", mpdu, shapes)


def _without_radiotap(frame: bytes) -> bytes | None:
    """Return what follows the radiotap header, without an FCS where flags say that there is one."""
    if len(frame) < _RADIOTAP_BYTES:
        return None
    version, _, length, present = struct.unpack_from("<BBHI", frame)
    if version != 0 or not _RADIOTAP_BYTES <= length <= len(frame):
        return None
    body = frame[length:]
    # radiotap.org: fields in the order of their bits; TSFT of 8 bytes, aligned to 8, then flags.
    at, word = _RADIOTAP_BYTES, present
    while word & 1 << 31:
        if at + 4 > length:
            return None
        (word,) = struct.unpack_from("<I", frame, at)
        at += 4
    if present & 1:
        at = -(-at // 8) * 8 + 8
    if present & 2 and at < length and frame[at] & _FCS_AT_END:
        return body[:-FCS_BYTES]
    return body


def _shapes(header: bytes) -> tuple[AirCipher, ...]:
    """Return the ciphers that put such bytes before the body (12.3.2.2, 12.5.2.2, 12.5.3.2)."""
    if len(header) < _CIPHER_HEADER_BYTES:
        return ()
    # Bit 5 of the octet with the key ID: four more octets of initialization vector follow.
    if not header[3] & 0x20:
        return ("wep",)
    found: list[AirCipher] = []
    # TKIP: TSC1, then (TSC1 | 0x20) & 0x7f; CCMP: the third octet is reserved and zero.
    if header[1] == (header[0] | 0x20) & 0x7F:
        found.append("tkip")
    if header[2] == 0:
        found.append("ccmp")
    return tuple(found)


def _ciphers(frames: Sequence[_Parsed]) -> dict[str, AirCipher]:
    """Return for each transmitter the cipher that most of its frames may have.

    A single frame may have the shape of two ciphers by chance; the frames of a station together
    have not.
    """
    votes: defaultdict[str, Counter[AirCipher]] = defaultdict(Counter)
    for one in frames:
        votes[one.transmitter].update(one.shapes)
    return {transmitter: counter.most_common(1)[0][0] for transmitter, counter in votes.items()}
