"""Whether one end of PPP is what the study asks for, and how that is put in words."""

from collections.abc import Sequence
from typing import Final

from tunnelmark.model.errors import RefusedError
from tunnelmark.model.tunnel import DataPath, Negotiated
from tunnelmark.tunnels.ppp.log import PppReport
from tunnelmark.tunnels.ppp.pppd import PppEnd
from tunnelmark.tunnels.support import interfaces

MPPE_CIPHERS: Final = {
    "128-stateless": "MPPE-128 (RC4, stateless)",
    "128-stateful": "MPPE-128 (RC4, stateful)",
    "40": "MPPE-40 (RC4, stateless)",
}
"""Cipher by what a study asks of MPPE; RFC 3078."""
_ONLY_STATELESS = "; pppd accepts stateful MPPE and never asks for it, so two of them use stateless"


def check(end: PppEnd, *, place: str, addresses: tuple[str, str]) -> None:
    """Raise ``TunnelError`` if pppd, or the kernel, says anything else than what was asked for.

    ``addresses`` are this end's own IPv4 address and the peer's; ``place`` starts the message.
    """
    setup, report = end.setup, end.report()
    state = interfaces(end.host).get(setup.interface)
    wanted: list[tuple[str, object, object, str]] = [
        ("authentication", report.authentication, "MS-CHAPv2", ""),
        (
            *("encryption", report.mppe, setup.mppe),
            _ONLY_STATELESS if setup.mppe == "128-stateful" else "",
        ),
        ("compression", report.compression, setup.compression, ""),
        ("own address", report.local_ipv4, addresses[0], ""),
        ("peer's address", report.remote_ipv4, addresses[1], ""),
        ("interface", report.interface, setup.interface, ""),
        ("MTU", state.mtu_bytes if state else None, setup.mtu_bytes, ""),
    ]
    for what, is_, want, fix in wanted:
        if is_ != want:
            raise RefusedError(
                f"{place} runs with {what} {is_!r}, the study asks for {want!r}{fix}"
            )


def negotiated(
    end: PppEnd, report: PppReport, *, programs: Sequence[str], carried_by: str
) -> Negotiated:
    """Return what was agreed, in pppd's own words where it has some."""
    done = end.host.run(["pppd", "--version"], check=False)
    words = (done.text() + done.stderr.decode("utf-8", "replace")).split()
    pppd = f"pppd {words[-1]}" if words else "pppd of unknown version"
    compression = report.compression
    if compression != "none":
        compression += " (RFC 1977, RFC 1979), a stand-in for MPPC, which Linux does not have"
    return Negotiated(
        cipher=MPPE_CIPHERS.get(report.mppe),
        version=" / ".join([*programs, pppd]),
        implementation="pppd",
        mtu_bytes=end.setup.mtu_bytes,
        # What pppd hands to the kernel's PPP is ciphered and compressed there.
        data_path=DataPath.USER_SPACE
        if report.mppe == "none" and compression == "none"
        else DataPath.KERNEL,
        details={
            "carried_by": carried_by,
            "authentication": report.authentication or "none",
            "encryption": "none" if report.mppe == "none" else f"MPPE {report.mppe}",
            "compression": compression,
            "address_and_control_field": (
                "left out" if report.sends_without_address else "2 bytes"
            ),
            "protocol_field": "1 byte" if report.sends_short_protocol else "2 bytes",
            **{f"warning_{n}": text for n, text in enumerate(report.warnings, 1)},
        },
    )
