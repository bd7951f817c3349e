"""SoftEther's programs, started and set up in folders of the run.

Two drivers use them: SoftEther's own protocol, and SSTP with SoftEther's server.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from secrets import token_hex
from typing import Final, Literal

from tunnelmark.model.errors import RefusedError, TunnelError
from tunnelmark.model.host import Host, Process
from tunnelmark.model.names import unique_name
from tunnelmark.model.tunnel import Side
from tunnelmark.tunnels.softether.log import last_words, loaded, refusal
from tunnelmark.tunnels.support import wait_until

TlsVersion = Literal["1.2", "1.3"]

SERVER: Final = "/usr/libexec/softether/vpnserver/vpnserver"
CLIENT: Final = "/usr/libexec/softether/vpnclient/vpnclient"
COMMAND: Final = "vpncmd"
USER: Final = "tunnelmark"
"""The one user of each hub."""
START_LIMIT_S: Final = 30.0
STOP_LIMIT_S: Final = 6.0

_COMMAND_LIMIT_S: Final = 60.0
_LOG_LINES: Final = 60
WAIT: Final = "n=0; until {}; do n=$((n+1)); [ $n -lt 20 ] || exit 1; sleep 0.1; done"
"""Shell that waits for two seconds at most: ports and log files have to be asked, since nothing is
written."""
_PORT: Final = WAIT.format('ss -ltnH sport = ":$1" | grep -q .')
# Where they keep state and logs is compiled in: Debian's in /var, others beside the program, where
# they need hamcore.se2. They see folders of the run there instead, in mount namespaces that only
# they are in.
_IN_OWN_DIRECTORIES: Final = """\
set -e
own=$1; shift
mount --bind "$own/lib" /var/lib
mount --bind "$own/log" /var/log
beside=$(dirname "$(readlink -f "$(command -v "$1")")")
case $beside in /usr/libexec/softether/*) exec "$@" ;; esac
if [ -e "$beside/hamcore.se2" ]; then
    find "$beside" -mindepth 1 -maxdepth 1 ! -name '*.config' ! -name '*_log' ! -name '.*' \\
        -exec cp -RPn {} "$own/lib/softether" \\;
    mount --bind "$own/lib/softether" "$beside"
fi
exec "$@"
"""


@dataclass(frozen=True)
class SoftEtherProgram:
    """A vpnserver or vpnclient, and vpncmd that sets it up."""

    host: Host
    folder: PurePosixPath
    """Of the run; the program has its state and logs below it."""
    side: Side
    port: int
    """Where it listens: to vpncmd, the server to clients, too."""

    def start(self, config: str | None = None) -> Process:
        """Start it, the server with this configuration."""
        state = self.folder / "lib" / "softether"
        for place in (state, self.folder / "log" / "softether"):
            self.host.put(place / "README", b"Made by Tunnelmark for one run.\n")
        if config is not None:
            self.host.put(state / "vpn_server.config", config.encode())
        return self.host.spawn(
            # It watches over a child that does the work, and that would outlive it otherwise.
            [
                *("unshare", "--pid", "--fork", "--kill-child"),
                *self._in_own_directories([SERVER if self.side == "server" else CLIENT, "execsvc"]),
            ],
            name=unique_name(f"softether-{self.side}"),
            private_dirs=("/run", "/run/softether"),
        )

    def command(self, lines: Sequence[str]) -> str:
        """Give commands; raise ``RefusedError`` with the words of the first that is refused."""
        # In a file, since they hold passwords; never shown, since vpncmd writes them out again.
        file = self.folder / "commands"
        self.host.put(file, "\n".join([*lines, ""]).encode())
        where = f"localhost:{self.port}" if self.side == "server" else "localhost"
        done = self.host.run(
            [
                *("unshare", "--mount", "--propagation", "private"),
                *self._in_own_directories(
                    [COMMAND, where, f"/{self.side.upper()}", "/CSV", f"/IN:{file}"]
                ),
            ],
            stdin=b"",
            timeout_s=_COMMAND_LIMIT_S,
            check=False,
        )
        if refused := refusal(done.text()):
            raise RefusedError(
                f"softether {self.side} on {self.host.name} refused a command: {refused}"
            )
        return done.text()

    def logs(self) -> str:
        """Return the ends of its log files: it writes nothing else."""
        tail = ["tail", "-q", "-n", str(_LOG_LINES), "{}", "+"]
        found = ["find", str(self.folder), "-name", "*.log", "-exec", *tail]
        return self.host.run(found, check=False).text()

    def check_configuration(self) -> None:
        """Raise unless the server read the configuration that it was started with.

        Where it cannot, it starts with its own: four ports, and searches for its public address.
        """

        def read() -> bool | None:
            return loaded(self.logs())

        words = f"the softether server on {self.host.name}"
        if not wait_until(
            read,
            limit_s=START_LIMIT_S,
            late=lambda: f"{words} does not say that it read its configuration",
        ):
            raise TunnelError(f"{words} did not read its configuration")

    def listens(self, port: int) -> bool:
        """Wait for two seconds at most, and say whether anything listens on a port by then."""
        return self.host.run(["sh", "-c", _PORT, "wait", str(port)], check=False).returncode == 0

    def await_port(self, process: Process, place: str) -> None:
        """Wait until it listens; raise ``TunnelError`` with its last words if it never does."""

        def listens() -> bool | None:
            if (status := process.poll()) is not None:
                raise TunnelError(
                    f"{place} on {self.host.name} ended with status {status} before it could "
                    f"listen: {self.last_words(process)}"
                )
            return True if self.listens(self.port) else None

        wait_until(
            listens,
            limit_s=START_LIMIT_S,
            late=lambda: (
                f"{place} on {self.host.name} does not listen on port {self.port} after "
                f"{START_LIMIT_S:g} s: {self.last_words(process)}"
            ),
        )

    def last_words(self, process: Process) -> str:
        """Return the line of its logs that says best what went wrong."""
        return last_words(f"{process.log_tail(_LOG_LINES)}\n{self.logs()}")

    def _in_own_directories(self, argv: Sequence[str]) -> list[str]:
        return ["sh", "-c", _IN_OWN_DIRECTORIES, "softether", str(self.folder), *argv]


def server_config(port: int, tls: TlsVersion) -> str:
    """Return what of a server's configuration is not SoftEther's default: one port, one TLS.

    It has no byte order mark, though SoftEther writes one before a comment: before ``declare``, a
    mark hides the word, and the whole configuration is passed over.
    """
    other = "1_2" if tls == "1.3" else "1_3"
    return f"""\
declare root
{{
\tdeclare DDnsClient
\t{{
\t\tbool Disabled true
\t}}
\tdeclare ListenerList
\t{{
\t\tdeclare Listener0
\t\t{{
\t\t\tbool DisableDos true
\t\t\tbool Enabled true
\t\t\tuint Port {port}
\t\t}}
\t}}
\tdeclare ServerConfiguration
\t{{
\t\tbool DisableJsonRpcWebApi true
\t\tbool DisableNatTraversal true
\t\tstring PortsUDP $
\t\tuint ServerLogSwitchType 0
\t\tbool Tls_Disable1_0 true
\t\tbool Tls_Disable1_1 true
\t\tbool Tls_Disable{other} true
\t\tbool UseKeepConnect false
\t\tstring UsernameHubSeparator @
\t}}
}}
"""


def hub_commands(hub: str, *, device: str, password: str) -> list[str]:
    """Return what makes a hub with a tap device and the one user, and enters it."""
    return [
        f"HubCreate {hub} /PASSWORD:{token_hex(16)}",
        f"BridgeCreate {hub} /DEVICE:{device} /TAP:yes",
        f"Hub {hub}",
        f"UserCreate {USER} /GROUP:none /REALNAME:none /NOTE:none",
        f"UserPasswordSet {USER} /PASSWORD:{password}",
        "LogDisable packet",
    ]
