"""sshd for file transfers, with keys of its own, and how scp and sftp reach it."""

import re
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Final, Literal

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from tunnelmark.model.host import Process
from tunnelmark.workloads.base import TrialContext
from tunnelmark.workloads.programs import Bench
from tunnelmark.workloads.web_server import ports

PROGRAMS: Final = {
    "sshd": "openssh-server",
    "ssh": "openssh-client",
    "scp": "openssh-client",
    "sftp": "openssh-client",
    "ss": "iproute2",
    "setpriv": "util-linux",
    "sha256sum": "coreutils",
    "find": "findutils",
}
SERVER: Final = "server"
"""What the client's configuration calls the other end."""

SshCipher = Literal["CHACHA20-POLY1305", "AES-128-GCM", "AES-256-GCM", "AES-128-CTR", "AES-256-CTR"]
CIPHERS: Final[dict[SshCipher, str]] = {
    "CHACHA20-POLY1305": "chacha20-poly1305@openssh.com",
    "AES-128-GCM": "aes128-gcm@openssh.com",
    "AES-256-GCM": "aes256-gcm@openssh.com",
    "AES-128-CTR": "aes128-ctr",
    "AES-256-CTR": "aes256-ctr",
}
_MAC: Final = "hmac-sha2-256-etm@openssh.com"
_CONNECT_LIMIT_S: Final = 20
_ALIVE_S: Final = 10
_ALIVE_TIMES: Final = 3
PATIENCE_S: Final = _ALIVE_S * (_ALIVE_TIMES + 1)
"""After so long without a word from the other end ssh gives up (ssh_config(5))."""
_KEX: Final = re.compile(r"kex: (?:client->server|server->client) cipher: (\S{1,60}) MAC")
_NOISE: Final = re.compile(
    r"^(debug\d: |Warning: Permanently added|scp: Connection closed|Connection closed\.?\s*$"
    r"|sftp> |Transferred: |Bytes per second: |Authenticated |OpenSSH_|Executing:|Sink: |Sending )"
)


@dataclass(frozen=True)
class SshServer:
    """sshd that listens, and the client's configuration for each path."""

    process: Process
    configurations: tuple[PurePosixPath, ...]


def start_ssh_server(context: TrialContext, bench: Bench, cipher: SshCipher) -> SshServer:
    """Make keys for this trial, serve all paths, and wait until it listens."""
    server, client = context.server, context.client
    there, here = bench.directory(server), bench.directory(client)
    user = server.run(["id", "-un"]).text().strip()
    login, machine = Ed25519PrivateKey.generate(), Ed25519PrivateKey.generate()
    server.put(there / "host_key", _private(machine))
    server.put(there / "authorized_keys", _public(login) + b"\n")
    client.put(here / "id", _private(login))
    numbers = ports(context.paths, context.first_port)
    pairs = list(zip(context.paths, numbers, strict=True))
    known = ((f"[{path.server_address}]:{port}".encode(), _public(machine)) for path, port in pairs)
    client.put(here / "known_hosts", b"".join(b"%s %s\n" % pair for pair in known))
    lines = [
        *(f"ListenAddress [{path.server_listens}]:{port}" for path, port in pairs),
        f"HostKey {there / 'host_key'}",
        f"AuthorizedKeysFile {there / 'authorized_keys'}",
        f"AllowUsers {user}",
        "PermitRootLogin prohibit-password",
        "AuthenticationMethods publickey",
        *("AllowTcpForwarding no", "AllowAgentForwarding no", "X11Forwarding no", "PermitTTY no"),
        *("UsePAM no", "UseDNS no", "PrintMotd no", "PrintLastLog no"),
        # The directory of the trial is its owner's alone, whoever that is to sshd.
        "StrictModes no",
        # scp starts through the login's shell. What the user's own start files do there would count
        # as the transfer's time, and a lock of theirs would stay where the trial ends them.
        f"SetEnv HOME={there}",
        "PermitUserRC no",
        "PidFile none",
        "Compression no",
        "MaxStartups 200",
        f"ClientAliveInterval {_ALIVE_S}",
        f"ClientAliveCountMax {_ALIVE_TIMES}",
        f"Ciphers {CIPHERS[cipher]}",
        f"MACs {_MAC}",
        "Subsystem sftp internal-sftp",
    ]
    server.put(there / "sshd.conf", "\n".join([*lines, ""]).encode())
    process = bench.start(
        server,
        # It starts itself again for each connection and so wants its full path.
        [server.has("sshd") or "/usr/sbin/sshd", "-D", "-e", "-f", str(there / "sshd.conf")],
        name="sshd",
        # sshd insists on an empty directory /run/sshd, which only its service makes.
        private_dirs=("/run", "/run/sshd") if user == "root" else (),
    )
    for path, port in pairs:
        bench.listening(server, process, path.server_listens, port)
    configurations = []
    for number, path in enumerate(context.paths):
        file = here / f"ssh-{number}.conf"
        client.put(
            file,
            "\n".join(
                [
                    f"HostName {path.server_address}",
                    f"Port {numbers[number]}",
                    f"BindAddress {path.client_address}",
                    f"User {user}",
                    f"IdentityFile {here / 'id'}",
                    f"UserKnownHostsFile {here / 'known_hosts'}",
                    *("IdentitiesOnly yes", "IdentityAgent none", "GlobalKnownHostsFile none"),
                    *("StrictHostKeyChecking yes", "BatchMode yes", "RequestTTY no"),
                    *("PreferredAuthentications publickey", "ControlMaster no", "Compression no"),
                    f"ConnectTimeout {_CONNECT_LIMIT_S}",
                    f"ServerAliveInterval {_ALIVE_S}",
                    f"ServerAliveCountMax {_ALIVE_TIMES}",
                    f"Ciphers {CIPHERS[cipher]}",
                    f"MACs {_MAC}",
                    "LogLevel DEBUG1",
                    "",
                ]
            ).encode(),
        )
        configurations.append(file)
    return SshServer(process, tuple(configurations))


def negotiated(log: str) -> set[str]:
    """Return every cipher that ssh says it used, in either direction."""
    return set(_KEX.findall(log))


def complaint(log: str) -> str | None:
    """Return the last thing that ssh, scp or sftp said and that is a complaint."""
    said = [line.strip() for line in log.splitlines() if line.strip()]
    reported = [line for line in said if not _NOISE.match(line)]
    return reported[-1][:300] if reported else None


def _private(key: Ed25519PrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.OpenSSH,
        serialization.NoEncryption(),
    )


def _public(key: Ed25519PrivateKey) -> bytes:
    return key.public_key().public_bytes(
        serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH
    )
