"""nginx with the files of a trial, for every workload that speaks HTTP."""

import ipaddress
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import PurePosixPath
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from tunnelmark.model.host import Process
from tunnelmark.model.tunnel import TrafficPath
from tunnelmark.workloads.base import TrialContext
from tunnelmark.workloads.curl import Tls
from tunnelmark.workloads.programs import Bench

PROGRAMS: Final = {
    "nginx": "nginx-light",
    "curl": "curl",
    "ss": "iproute2",
    "sha256sum": "coreutils",
    "setpriv": "util-linux",
    "find": "findutils",
}
_LIFETIME: Final = timedelta(days=30)
_CLOCK_SLACK: Final = timedelta(days=1)
_PLACES: Final = ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")


@dataclass(frozen=True)
class WebServer:
    """nginx that listens."""

    process: Process
    certificate: PurePosixPath | None
    """On the client, if there is TLS."""


def ports(paths: Sequence[TrafficPath], first_port: int) -> list[int]:
    """Return a port for each path: paths beside each other on one address need several."""
    used: Counter[str] = Counter()
    found = []
    for path in paths:
        found.append(first_port + used[path.server_address])
        used[path.server_address] += 1
    return found


def start_web_server(
    context: TrialContext,
    bench: Bench,
    files: PurePosixPath,
    *,
    tls: Tls | None,
    http2: bool = False,
    pace_bytes_s: int | None = None,
) -> WebServer:
    """Serve a directory on all paths, uploads included, and wait until it listens."""
    folder = bench.directory(context.server)
    certificate = None
    if tls is not None:
        shown, key = certify([path.server_address for path in context.paths], datetime.now(UTC))
        context.server.put(folder / "certificate.pem", shown)
        context.server.put(folder / "key.pem", key)
        certificate = bench.directory(context.client) / "certificate.pem"
        context.client.put(certificate, shown)
    numbers = ports(context.paths, context.first_port)
    listen = [
        (path.server_listens, port) for path, port in zip(context.paths, numbers, strict=True)
    ]
    text = configuration(folder, files, listen, tls=tls, http2=http2, pace_bytes_s=pace_bytes_s)
    context.server.put(folder / "nginx.conf", text.encode())
    process = bench.start(
        context.server,
        ["nginx", "-e", "stderr", "-p", str(folder), "-c", str(folder / "nginx.conf")],
        name="nginx",
    )
    for address, port in listen:
        bench.listening(context.server, process, address, port)
    return WebServer(process, certificate)


def configuration(
    folder: PurePosixPath,
    files: PurePosixPath,
    listen: Sequence[tuple[str, int]],
    *,
    tls: Tls | None,
    http2: bool,
    pace_bytes_s: int | None = None,
) -> str:
    """Return the configuration: one process, nothing outside the folder, no cache, no gzip.

    ``pace_bytes_s`` is what a connection gets at most.
    """
    words = (" ssl" if tls else "") + (" http2" if http2 else "")
    sockets = [
        f"    listen {f'[{address}]' if ':' in address else address}:{port}{words};"
        for address, port in listen
    ]
    secure = []
    if tls is not None:
        secure = [
            f"    ssl_certificate {folder / 'certificate.pem'};",
            f"    ssl_certificate_key {folder / 'key.pem'};",
            f"    ssl_protocols TLSv{tls.version};",
            *([f"    ssl_ciphers {tls.cipher};"] if tls.cipher and tls.version == "1.2" else []),
            # Every connection does the whole handshake.
            "    ssl_session_cache off;",
            "    ssl_session_tickets off;",
        ]
    return "\n".join(
        [
            "daemon off;",
            "master_process off;",
            f"pid {folder / 'nginx.pid'};",
            "error_log stderr warn;",
            "events { worker_connections 2048; }",
            "http {",
            "  access_log off;",
            "  types { }",
            "  default_type application/octet-stream;",
            *(f"  {name}_temp_path {folder / name};" for name in _PLACES),
            "  client_max_body_size 0;",
            "  client_body_buffer_size 64k;",
            "  keepalive_requests 1000000;",
            "  gzip off;",
            "  sendfile on;",
            *([f"  limit_rate {pace_bytes_s};"] if pace_bytes_s is not None else ()),
            "  server {",
            *sockets,
            *secure,
            f"    root {files};",
            "    location / { dav_methods PUT; }",
            "  }",
            "}",
            "",
        ]
    )


def certify(addresses: Sequence[str], now: datetime) -> tuple[bytes, bytes]:
    """Return a certificate that signs itself, good for the addresses, and its key, both PEM."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "tunnelmark")])
    names = [x509.IPAddress(ipaddress.ip_address(a)) for a in dict.fromkeys(addresses)]
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        # The clock of a device without a battery may be behind.
        .not_valid_before(now - _CLOCK_SLACK)
        .not_valid_after(now + _LIFETIME)
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(key, hashes.SHA256())
    )
    return (
        certificate.public_bytes(serialization.Encoding.PEM),
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        ),
    )
