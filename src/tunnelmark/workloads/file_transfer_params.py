"""What a study says of a file transfer."""

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from tunnelmark.engine.link import AnyLinkSpec
from tunnelmark.model.quantity import DurationNs, RateBitS, SizeBytes
from tunnelmark.workloads import curl, ssh_server
from tunnelmark.workloads.congestion import TcpParams
from tunnelmark.workloads.corpus import LARGEST_BYTES, Kind
from tunnelmark.workloads.pace import SSH_KBIT
from tunnelmark.workloads.patience import patience_s


class FileTransferParams(TcpParams):
    """A corpus that is transferred once, file after file."""

    protocol: Literal["http", "https", "scp", "sftp"] = Field(
        "https", description="scp is the legacy protocol (scp -O), sftp that of newer programs"
    )
    direction: Literal["download", "upload"] = Field(
        "download", description="download: from the server to the client"
    )
    corpus: Kind = Field("binary", description="kind of the files: how they compress, how many")
    size: Annotated[SizeBytes, Field(ge=1, le=LARGEST_BYTES)] = Field(
        100_000_000, description="bytes of all files together, on each path"
    )
    corpus_seed: Annotated[int, Field(ge=0, lt=1 << 32)] = Field(
        1, description="the files are generated from it, the same in every trial"
    )
    connections: Literal["each", "one"] = Field(
        "each",
        description="a new connection, with its handshakes, for each file, or one for all of them",
    )
    tls: curl.TlsVersion = Field("1.3", description="TLS version of https")
    tls_cipher: str | None = Field(
        None, description="cipher suite of https by OpenSSL's name; none: the first both have"
    )
    ssh_cipher: ssh_server.SshCipher = Field(
        "CHACHA20-POLY1305",
        description="cipher of scp and sftp, the first is OpenSSH's own choice; CTR is "
        "authenticated by HMAC-SHA2-256",
    )
    pace: RateBitS | None = Field(None, description="highest rate on each path; none: no limit")
    limit: Annotated[DurationNs, Field(ge=10**9)] | None = Field(
        None,
        description="longest duration of a trial; none: a minute, 5 s per file, and ten times what "
        "the link needs",
    )

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.protocol == "scp" and self.connections == "one":
            raise ValueError("connections is 'one', scp makes one for each file: use sftp")
        known = curl.TLS_CIPHERS[self.tls]
        if self.tls_cipher is not None and self.tls_cipher not in known:
            raise ValueError(
                f"tls_cipher is {self.tls_cipher!r}, TLS {self.tls} has {', '.join(known)}"
            )
        return self

    @property
    def secure(self) -> curl.Tls | None:
        """What is asked of TLS."""
        return curl.Tls(self.tls, self.tls_cipher) if self.protocol == "https" else None

    @property
    def ssh(self) -> bool:
        """Whether it is one of OpenSSH's protocols."""
        return self.protocol in {"scp", "sftp"}

    @property
    def pace_bytes_s(self) -> int | None:
        """The pace as curl and nginx take it."""
        return max(1, self.pace // 8) if self.pace else None

    @property
    def pace_kbit_s(self) -> int | None:
        """The pace as scp and sftp take it: their kbit has 1024 bits."""
        return max(1, self.pace // SSH_KBIT) if self.pace else None

    def limit_s(self, link: AnyLinkSpec | None, files: int, paths: int) -> float:
        """Return seconds after which a trial over so many paths at once has failed."""
        if self.limit is not None:
            return self.limit / 1e9
        # Who has a pace keeps to it on each path, the link is shared by all.
        return patience_s(
            link,
            self.size * paths,
            things=files,
            pace_s=self.size * 8 / self.pace if self.pace else 0.0,
        )
