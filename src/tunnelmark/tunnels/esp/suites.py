"""ESP suites as strongSwan names them, and what must stand in the associations of both ends."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, Literal

from tunnelmark.model.errors import RefusedError, TunnelError
from tunnelmark.model.overhead import IpVersion
from tunnelmark.model.tunnel import WireRule
from tunnelmark.tunnels.esp.sas import ChildSa, IkeSa
from tunnelmark.tunnels.protocols import ESP, UDP

Suite = Literal[
    "3DES-SHA1",
    "AES-128-CBC-SHA1",
    "AES-256-CBC-SHA256",
    "AES-128-GCM",
    "AES-256-GCM",
    "CHACHA20-POLY1305",
    "NULL-SHA1",
]
Mode = Literal["transport", "tunnel"]
AgreedMode = Literal["transport", "tunnel", "iptfs"]
"""The same as charon names it: with AGGFRAG payloads (RFC 9347) tunnel mode is one of its own."""

IKE_PORTS: Final = (500, 4500)
"""RFC 7296 section 2, RFC 3948 section 2.1."""


@dataclass(frozen=True)
class SuiteNames:
    """A suite in strongSwan's words."""

    proposal: str
    encryption: str
    key_bits: tuple[int | None, ...]
    """What charon may say: it leaves out lengths that cannot vary."""
    integrity: str | None


SUITE_NAMES: Final[dict[Suite, SuiteNames]] = {
    "3DES-SHA1": SuiteNames("3des-sha1", "3DES_CBC", (None, 192), "HMAC_SHA1_96"),
    "AES-128-CBC-SHA1": SuiteNames("aes128-sha1", "AES_CBC", (128,), "HMAC_SHA1_96"),
    "AES-256-CBC-SHA256": SuiteNames("aes256-sha256", "AES_CBC", (256,), "HMAC_SHA2_256_128"),
    "AES-128-GCM": SuiteNames("aes128gcm16", "AES_GCM_16", (128,), None),
    "AES-256-GCM": SuiteNames("aes256gcm16", "AES_GCM_16", (256,), None),
    "CHACHA20-POLY1305": SuiteNames("chacha20poly1305", "CHACHA20_POLY1305", (None, 256), None),
    "NULL-SHA1": SuiteNames("null-sha1", "NULL", (None, 0), "HMAC_SHA1_96"),
}
NAT_NEEDS_UDP: Final = "ESP passes NAT only inside UDP (udp_encapsulation = true)"


@dataclass(frozen=True)
class Agreement:
    """What the parameters of a study ask of each pair of associations."""

    ike_version: int
    mode: AgreedMode
    suite: Suite
    udp_encapsulation: bool
    ipcomp: bool
    esn: bool = False
    group: str | None = None
    """Of a key exchange of ESP's own."""
    group_needed: bool = False
    """Whether the first keys have it, too."""
    nat: tuple[str, str] | None = None
    """The client's address and what the server sees in its place, where NAT is between them."""

    def faults(self, ike: IkeSa, child: ChildSa) -> list[str]:
        """Return what differs, as ``is …, the study asks for …``."""
        names = SUITE_NAMES[self.suite]
        bits = names.key_bits[-1] if child.key_bits not in names.key_bits else child.key_bits
        rows: list[tuple[str, object, object]] = [
            ("the IKE version", ike.version, self.ike_version),
            ("the state of IKE", ike.state, "ESTABLISHED"),
            ("the state of ESP", child.state, "INSTALLED"),
            ("the protocol", child.protocol, "ESP"),
            ("the mode", child.mode, self.mode.upper()),
            ("the encryption", child.encryption, names.encryption),
            ("the key length", child.key_bits, bits),
            ("the integrity", child.integrity, names.integrity),
            ("UDP encapsulation", child.udp_encapsulation, self.udp_encapsulation),
            ("compression", child.ipcomp, self.ipcomp),
            ("whether sequence numbers are of 64 bits", child.esn, self.esn),
        ]
        if self.group_needed or child.group is not None:
            rows.append(("the group of ESP's key exchange", child.group, self.group))
        return [
            f"{what} is {is_!r}, the study asks for {wanted!r}"
            for what, is_, wanted in rows
            if is_ != wanted
        ]


def find_child(sas: Iterable[IkeSa], child: str, place: str) -> tuple[IkeSa, ChildSa]:
    """Return the one installed child of a name; ``TunnelError`` if there is none or a second.

    One whose keys were replaced is kept for some seconds, for packets that are still under way.
    """
    named = [(ike, one) for ike in sas for one in ike.children if one.name == child]
    found = [(ike, one) for ike, one in named if one.state == "INSTALLED"] or named
    if len(found) != 1:
        raise TunnelError(f"{place} has {len(found)} associations {child}, must have 1")
    return found[0]


def check_pair(
    wanted: Agreement,
    child: str,
    client: tuple[str, Iterable[IkeSa]],
    server: tuple[str, Iterable[IkeSa]],
) -> tuple[IkeSa, ChildSa]:
    """Hold both ends' (place, associations) to what is wanted and to each other.

    Returns the client's. Raises ``TunnelError`` naming the end, the value and what is asked for.
    """
    pairs = [find_child(sas, child, place) for place, sas in (client, server)]
    for (place, _), (ike, one) in zip((client, server), pairs, strict=True):
        if faults := wanted.faults(ike, one):
            raise RefusedError(f"{place}, association {child}: {'; '.join(faults)}")
    (ike, ours), (_, theirs) = pairs
    if (ours.spi_in, ours.spi_out) != (theirs.spi_out, theirs.spi_in):
        raise TunnelError(
            f"association {child} of the client (SPI {ours.spi_in} in, {ours.spi_out} out) is not "
            f"that of the server (SPI {theirs.spi_in} in, {theirs.spi_out} out)"
        )
    if (_seen(ours.local, wanted), ours.remote) != (theirs.remote, theirs.local):
        raise RefusedError(
            f"association {child}: the client's selectors {ours.local} to {ours.remote} are not "
            f"the server's {theirs.remote} to {theirs.local}"
        )
    return ike, ours


def _seen(selectors: tuple[str, ...], wanted: Agreement) -> tuple[str, ...]:
    """Return selectors of the client as they are behind the NAT between the ends."""
    if wanted.nat is None:
        return selectors
    own, seen = (f"{address}/" for address in wanted.nat)
    return tuple(
        seen + selector.removeprefix(own) if selector.startswith(own) else selector
        for selector in selectors
    )


def esp_rule(
    suite: Suite, *, udp_encapsulation: bool, ip_version: IpVersion | None = None
) -> WireRule:
    """Return how every packet of ESP, and of IKE beside it, looks on the link."""
    return WireRule(
        encrypted=suite != "NULL-SHA1",
        describe="ESP in UDP on port 4500, or IKE" if udp_encapsulation else "ESP or IKE",
        ip_protocols=(UDP,) if udp_encapsulation else (ESP, UDP),
        udp_ports=IKE_PORTS,
        ip_version=ip_version,
    )
