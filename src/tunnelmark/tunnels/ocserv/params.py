"""What a study can set of OpenConnect."""

from typing import Literal, Self

from pydantic import Field, model_validator

from tunnelmark.tunnels.base import TunnelParams


class OcservParams(TunnelParams):
    """What a study can set."""

    transport: Literal["dtls", "tls"] = Field(
        "dtls", description="how packets go: DTLS 1.2 over UDP, or inside the TLS 1.3 session"
    )
    cipher: Literal["AES-256-GCM", "AES-128-GCM", "CHACHA20-POLY1305"] = Field(
        "AES-256-GCM", description="cipher of both sessions"
    )
    compression: Literal["none", "lz4"] = Field(
        "none",
        description="lz4 compresses each packet of 256 bytes or more by itself, in DTLS; none is "
        "ocserv's own default",
    )
    mtu_bytes: int = Field(
        1400,
        ge=576,
        le=1472,
        description="MTU of the inner interface, given to the client by the server; with DTLS, "
        "AES-GCM and IPv4 outside, 1434 is the longest that a link of 1500 carries whole",
    )

    @model_validator(mode="after")
    def _reported(self) -> Self:
        if self.compression != "none" and self.transport == "tls":
            raise ValueError(
                f"compression is {self.compression} with transport tls, of which the server "
                "reports no compression: set transport to dtls, or compression to none"
            )
        return self
