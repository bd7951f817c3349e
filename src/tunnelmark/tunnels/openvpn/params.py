"""What a study can set of OpenVPN, and what OpenVPN itself would refuse of it."""

from typing import Annotated, Final, Literal, Self

from pydantic import Field, model_validator

from tunnelmark.model.quantity import DurationNs, SizeBytes
from tunnelmark.tunnels.base import TunnelParams
from tunnelmark.tunnels.openvpn.wire import AEAD

Cipher = Literal[
    "BF-CBC", "AES-128-CBC", "AES-256-CBC", "AES-128-GCM", "AES-256-GCM", "CHACHA20-POLY1305"
]

S_NS: Final = 10**9


class OpenVpnParams(TunnelParams):
    """What a study can set."""

    cipher: Cipher = Field("AES-256-GCM", description="data channel cipher")
    auth: Literal["SHA1", "SHA256", "SHA512"] = Field(
        "SHA256", description="packet authentication of the CBC ciphers; AEAD ciphers ignore it"
    )
    compression: Literal["none", "lzo"] = Field(
        "none", description="lzo compresses every packet that it makes smaller"
    )
    transport: Literal["udp", "tcp"] = Field(
        "udp",
        description="tcp carries packets in a stream: a lost segment delays all packets after it",
    )
    key_exchange: Literal["tls", "static"] = Field(
        "tls",
        description="static: one secret of the run on both ends, no handshake, no forward secrecy; "
        "CBC ciphers only",
    )
    tls_groups: Literal["default", "X25519", "secp256r1", "X25519MLKEM768"] = Field(
        "default",
        description="the one group of the TLS key exchange; X25519MLKEM768 is hybrid, against "
        "quantum computers too, and needs OpenSSL 3.5: where it is not there the tunnel is "
        "refused. default is the TLS library's own choice",
    )
    control: Literal["plain", "tls-crypt", "tls-crypt-v2"] = Field(
        "plain",
        description="tls-crypt encrypts the handshake with a key of the run, tls-crypt-v2 with one "
        "of the client's own that the server unwraps; data packets are the same",
    )
    offload: Literal["off", "kernel"] = Field(
        "off", description="kernel: data packets pass through the kernel's data-channel offload"
    )
    mssfix: Literal["default", "off"] | Annotated[int, Field(ge=100, le=65535)] = Field(
        "default",
        description="largest packet on the link that a TCP connection inside should make, in "
        "bytes with encapsulation, by clamping its MSS; OpenVPN's own default is 1492 at an MTU "
        "of 1500, else the MTU itself without encapsulation; the kernel offload clamps nothing",
    )
    fragment: int | None = Field(
        None,
        ge=100,
        le=65535,
        description="longest UDP payload on the link; OpenVPN itself cuts up what is longer, with "
        "4 more bytes in every packet. There is then no overhead model",
    )
    keepalive: Annotated[DurationNs, Field(ge=10**9, le=3600 * 10**9)] | None = Field(
        None,
        description="an end that has sent nothing for this time, in whole seconds, sends a ping; "
        "one that has heard nothing six times as long gives up. Without it neither happens",
    )
    sndbuf: Annotated[SizeBytes, Field(ge=4096, le=1 << 28)] | None = Field(
        None, description="send buffer of OpenVPN's socket; default: the system's own"
    )
    rcvbuf: Annotated[SizeBytes, Field(ge=4096, le=1 << 28)] | None = Field(
        None, description="receive buffer of OpenVPN's socket; default: the system's own"
    )
    txqueuelen: int | None = Field(
        None,
        ge=1,
        le=100_000,
        description="packets that wait in the TUN interface; default: the system's own, 500",
    )
    mtu_bytes: int = Field(
        1500,
        ge=100,
        le=65535,
        description="MTU of the inner interface; OpenVPN's own default is 1500, so that packets "
        "of full size are fragmented outside",
    )

    def columns(self) -> dict[str, object]:
        """Return all values, the group only where a study names one: it is newer than results."""
        columns = super().columns()
        if self.tls_groups == "default":
            del columns["tls_groups"]
        return columns

    @model_validator(mode="after")
    def _possible(self) -> Self:
        """Refuse what OpenVPN itself would refuse, before anything is made."""
        if self.key_exchange == "static":
            if self.cipher in AEAD:
                raise ValueError(
                    f"cipher {self.cipher} needs key_exchange tls; with a static key choose a CBC "
                    "cipher"
                )
            if self.control != "plain" or self.offload != "off":
                raise ValueError("key_exchange static has neither tls-crypt nor the kernel offload")
            if self.tls_groups != "default":
                raise ValueError("key_exchange static has no TLS, tls_groups cannot be set")
            if self.clients is not None:
                raise ValueError("key_exchange static is for two ends, it cannot have clients")
        if self.offload == "kernel" and (self.cipher not in AEAD or self.compression != "none"):
            raise ValueError(
                "offload kernel needs an AES-GCM cipher or CHACHA20-POLY1305 and no compression"
            )
        if self.fragment is not None and (self.transport == "tcp" or self.offload == "kernel"):
            raise ValueError("fragment is for transport udp without offload, it cannot be set")
        if self.keepalive is not None and self.keepalive % S_NS:
            raise ValueError("keepalive has a part of a second, must be whole seconds")
        return self
