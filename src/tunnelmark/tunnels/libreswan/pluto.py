"""Libreswan's pluto as a tunnel uses it: configured by ipsec.conf, asked by whack."""

import re
from typing import ClassVar, Final

from tunnelmark.model.errors import RefusedError, TunnelError
from tunnelmark.model.host import Completed, Host, Process
from tunnelmark.model.names import unique_name
from tunnelmark.model.tunnel import Side
from tunnelmark.tunnels.esp.daemon import IkeDaemon
from tunnelmark.tunnels.esp.sas import IkeSa
from tunnelmark.tunnels.libreswan.sas import read_sas

PLUTO: Final = "/usr/libexec/ipsec/pluto"
PROGRAMS: Final = {
    PLUTO: "libreswan",
    "/usr/libexec/ipsec/whack": "libreswan",
    "/usr/libexec/ipsec/addconn": "libreswan",
    "certutil": "libnss3-tools",
}
"""What a tunnel of Libreswan starts, with its Debian packages."""

_WHACK, _ADDCONN = "/usr/libexec/ipsec/whack", "/usr/libexec/ipsec/addconn"
_COMMAND_LIMIT_S: Final = 30.0
_SET_UP: Final = """\
config setup
    dnssec-enable=no
    dumpdir={folder}
"""


class Pluto(IkeDaemon):
    """Libreswan's."""

    program: ClassVar[str] = "pluto"
    readiness: ClassVar[str] = "listen"
    # The last that it says when it listens on the addresses of its host.
    ready_words: ClassVar[str] = "loading secrets from "

    def __init__(self, side: Side, host: Host) -> None:
        """Start it, with a database of keys that is empty."""
        super().__init__(side, host, folder="pluto", socket="pluto.ctl")
        self._secrets = self._folder / "ipsec.secrets"
        keys = self._folder / "nss"
        # Not in the file of the connections, to which a study may append.
        set_up = self._folder / "setup.conf"
        host.put(set_up, _SET_UP.format(folder=self._folder).encode())
        host.put(self._secrets, b"")
        host.run(["mkdir", "-p", "-m", "0700", str(keys)])
        # pluto makes no database itself. There are no private keys for a password to protect.
        host.run(["certutil", "-N", "-d", f"sql:{keys}", "--empty-password"])
        self.process: Process = host.spawn(
            [
                *(PLUTO, "--nofork", "--stderrlog", "--log-no-time"),
                *("--config", str(set_up), "--secretsfile", str(self._secrets)),
                *("--nssdir", str(keys), "--ipsecdir", str(self._folder)),
                *("--rundir", str(self._folder)),
            ],
            name=unique_name(f"pluto-{side}"),
        )

    def load(self, connections: str, names: tuple[str, ...], secret_lines: str) -> None:
        """Hand it connections in the form of ipsec.conf, and secrets of ipsec.secrets."""
        conf = self._folder / "ipsec.conf"
        self.host.put(conf, connections.encode())
        self.host.put(self._secrets, secret_lines.encode())
        add = [_ADDCONN, "--config", str(conf), "--ctlsocket", str(self._socket), *names]
        for argv in (add, [*self._whack(), "--listen"]):
            done = self._command(argv)
            if done.returncode != 0:
                self.require_alive("load its configuration")
                raise RefusedError(
                    f"{self.place} refused its configuration: "
                    f"{_telling(done.text()) or self.last_words()}"
                )

    def initiate(self, child: str, *, limit_s: int, peer: IkeDaemon) -> None:
        """Bring one child up, by the connection of its name; raise as ``_not_established``."""
        # It ends with status 0 when the peer refuses, too, so its words decide.
        done = self._command([*self._whack(), "--initiate", "--name", child], limit_s=limit_s + 10)
        if _ESTABLISHED not in done.text():
            raise self._not_established(child, _telling(done.text()) or done.last_words(), peer)

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

    def words(self, log: str) -> str:
        """Return what ``last_words`` does."""
        return last_words(log)

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
