"""Security associations as an IKE daemon shows them, in IANA's names."""

from dataclasses import dataclass


@dataclass(frozen=True)
class ChildSa:
    """A pair of ESP associations, one each way."""

    name: str
    state: str
    mode: str
    """``TUNNEL``, ``TRANSPORT``, ``IPTFS`` or ``BEET``."""
    protocol: str
    udp_encapsulation: bool
    ipcomp: bool
    """Whether a compression parameter index was agreed both ways."""
    spi_in: str
    spi_out: str
    encryption: str
    """IANA's name of the transform: ``AES_GCM_16``, ``3DES_CBC``, ``NULL``."""
    key_bits: int | None
    integrity: str | None
    local: tuple[str, ...]
    remote: tuple[str, ...]
    esn: bool = False
    group: str | None = None
    """Of the key exchange that these keys had for themselves."""


@dataclass(frozen=True)
class IkeSa:
    """An IKE association with what was negotiated under it."""

    name: str
    version: int
    state: str
    suite: str
    """Encryption, integrity, PRF and group, joined by slashes."""
    local_addresses: tuple[str, ...]
    """Virtual addresses that the peer assigned to this end."""
    children: tuple[ChildSa, ...]
