"""Libreswan's pluto as a tunnel uses it: configured by ipsec.conf, asked by whack."""

import re
from typing import Final

from tunnelmark.model.errors import RefusedError, TunnelError
from tunnelmark.model.host import Completed, Host, Process
from tunnelmark.model.names import unique_name
from tunnelmark.model.tunnel import Side
from tunnelmark.tunnels.ike_sas import IkeSa
from tunnelmark.tunnels.pluto_sas import read_sas
from tunnelmark.tunnels.support import check_socket, wait_until

PLUTO: Final = "/usr/libexec/ipsec/pluto"
PROGRAMS: Final = {
    PLUTO: "libreswan",
    "/usr/libexec/ipsec/whack": "libreswan",
    "/usr/libexec/ipsec/addconn": "libreswan",
    "certutil": "libnss3-tools",
}
"""What a tunnel of Libreswan starts, with its Debian packages."""

_WHACK, _ADDCONN = "/usr/libexec/ipsec/whack", "/usr/libexec/ipsec/addconn"
_START_LIMIT_S: Final = 30.0
_COMMAND_LIMIT_S: Final = 30.0
_LOG_LINES: Final = 400
_READY: Final = "loading secrets from "
"""What it says last when it listens on the addresses of its host."""
_SET_UP: Final = """\
config setup
    dnssec-enable=no
    dumpdir={folder}
"""


class Pluto:
    """One IKE daemon on one host, with files of its own."""

    def __init__(self, side: Side, host: Host) -> None:
        """Start it, with a database of keys that is empty."""
        self.side = side
        self.host = host
        self._folder = host.work_dir / unique_name("pluto")
        self._socket = self._folder / "pluto.ctl"
        check_socket(f"pluto on {host.name}", self._socket)
        self._conf = self._folder / "ipsec.conf"
        self._secrets = self._folder / "ipsec.secrets"
        keys = self._folder / "nss"
        self._put_connections("")
        host.put(self._secrets, b"")
        host.run(["mkdir", "-p", "-m", "0700", str(keys)])
        # pluto makes no database itself. There are no private keys for a password to protect.
        host.run(["certutil", "-N", "-d", f"sql:{keys}", "--empty-password"])
        self.process: Process = host.spawn(
            [
                *(PLUTO, "--nofork", "--stderrlog", "--log-no-time"),
                *("--config", str(self._conf), "--secretsfile", str(self._secrets)),
                *("--nssdir", str(keys), "--ipsecdir", str(self._folder)),
                *("--rundir", str(self._folder)),
            ],
            name=unique_name(f"pluto-{side}"),
        )

    @property
    def place(self) -> str:
        """How error messages call it."""
        return f"pluto of the {self.side} on {self.host.name}"

    def wait_ready(self) -> None:
        """Wait until it listens."""

        def ready() -> bool | None:
            self.require_alive("listen")
            return True if _READY in self.process.log_tail(_LOG_LINES) else None

        wait_until(
            ready,
            limit_s=_START_LIMIT_S,
            poll_s=0.05,
            late=lambda: (
                f"{self.place} did not listen within {_START_LIMIT_S:g} s: {self.last_words()}"
            ),
        )

    def load(self, connections: str, names: tuple[str, ...], secret_lines: str) -> None:
        """Hand it connections in the form of ipsec.conf, and secrets of ipsec.secrets."""
        self._put_connections(connections)
        self.host.put(self._secrets, secret_lines.encode())
        add = [_ADDCONN, "--config", str(self._conf), "--ctlsocket", str(self._socket), *names]
        for argv in (add, [*self._whack(), "--listen"]):
            done = self._command(argv)
            if done.returncode != 0:
                self.require_alive("load its configuration")
                raise RefusedError(
                    f"{self.place} refused its configuration: "
                    f"{_telling(done.text()) or self.last_words()}"
                )

    def initiate(self, connection: str, *, limit_s: int, peer: "Pluto") -> None:
        """Bring one connection up; ``TunnelError`` has the last messages of both daemons."""
        # It ends with status 0 when the peer refuses, too, so its words decide.
        done = self._command(
            [*self._whack(), "--initiate", "--name", connection], limit_s=limit_s + 10
        )
        if _ESTABLISHED in done.text():
            return
        self.require_alive(f"establish {connection}", peer)
        peer.require_alive(f"establish {connection}", self)
        words = (_telling(done.text()) or done.last_words(), self.last_words(), peer.last_words())
        error = RefusedError if any(map(_DISAGREED.search, words)) else TunnelError
        raise error(
            f"{self.place} could not establish {connection} ({words[0]}); last messages of the "
            f"{self.side}: {words[1]}; of the {peer.side}: {words[2]}"
        )

    def sas(self) -> tuple[IkeSa, ...]:
        """Return the security associations as it and the kernel see them."""
        status = self._command([*self._whack(), "--status"])
        if status.returncode != 0:
            raise TunnelError(
                f"{self.place} does not list its security associations: {status.last_words()}"
            )
        kernel = self.host.run(["ip", "xfrm", "state", "list", "nokeys"])
        return read_sas(status.text(), kernel.text())

    def version(self) -> str:
        """Return for example ``Libreswan 4.10``."""
        match = re.match(r"Libreswan [0-9][\w.-]{0,30}", self._command([PLUTO, "--version"]).text())
        return match.group() if match else "Libreswan of unknown version"

    def last_words(self) -> str:
        """Return the line of its log that says best what went wrong."""
        return last_words(self.process.log_tail(_LOG_LINES))

    def require_alive(self, what: str, peer: "Pluto | None" = None) -> None:
        """Raise ``TunnelError`` if it has ended."""
        if (status := self.process.poll()) is not None:
            more = f"; last messages of the {peer.side}: {peer.last_words()}" if peer else ""
            raise TunnelError(
                f"{self.place} ended with status {status} before it could {what}: "
                f"{self.last_words()}{more}"
            )

    def stop(self) -> None:
        """End it; it takes its interfaces and associations with it."""
        self.process.stop()

    def _put_connections(self, text: str) -> None:
        self.host.put(self._conf, (_SET_UP.format(folder=self._folder) + text).encode())

    def _whack(self) -> list[str]:
        return [_WHACK, "--rundir", str(self._folder)]

    def _command(self, argv: list[str], *, limit_s: float = _COMMAND_LIMIT_S) -> Completed:
        self.require_alive(f"do {argv[0].rpartition('/')[2]}")
        return self.host.run(argv, timeout_s=limit_s, check=False)


def last_words(log: str) -> str:
    """Return the last line of a log of pluto that reports a failure, else the last line."""
    lines = [line for line in _lines(log) if line]
    return _telling(log) or (lines[-1] if lines else "nothing in its log")


def _lines(text: str) -> list[str]:
    return [_BEFORE.sub("", line).strip() for line in text.splitlines()]


def _telling(text: str) -> str:
    found = [line for line in _lines(text) if _TELLING.search(line) and not _HARMLESS.search(line)]
    return found[-1] if found else ""


_ESTABLISHED: Final = "established Child SA"
# RFC 7296 section 3.10.1: what another attempt of the same peers ends with again.
_DISAGREED: Final = re.compile(
    r"AUTHENTICATION_FAILED|NO_PROPOSAL_CHOSEN|TS_UNACCEPTABLE|INVALID_KE_PAYLOAD"
)
# The code of a message to whack, the time of one in the log.
_BEFORE: Final = re.compile(r"^(?:[0-9]{3} |[A-Z][a-z]{2} +[0-9]+ [0-9:.]+: )")
_TELLING: Final = re.compile(
    r"\bfailed\b|failure|\berror\b|unable|not found|not supported|unsupported|cannot|conflict"
    r"|[Ii]nvalid|denied|refused|rejected|no connection|No IKEv2 connection|notification [A-Z_]+"
    r"|did not load|FATAL|ERROR|does not allow|duplicate key|mismatch"
)
# What it says of itself at each start, and what only reports that a line before has consequences.
_HARMLESS: Final = re.compile(
    r"seccomp security|chdir\(|netlink_expire|state transition|FIPS|not enabled"
    r"|encountered fatal error"
)
