"""strongSwan's charon as IPsec tunnels use it: configured by files, asked by swanctl."""

import re
from collections.abc import Sequence
from typing import ClassVar, Final

from tunnelmark.model.errors import RefusedError, TunnelError
from tunnelmark.model.host import Completed, Host, Process
from tunnelmark.model.names import unique_name
from tunnelmark.model.tunnel import Side
from tunnelmark.tunnels.esp.daemon import IkeDaemon
from tunnelmark.tunnels.esp.sas import IkeSa
from tunnelmark.tunnels.pki import Identity
from tunnelmark.tunnels.strongswan.config import Settings, render
from tunnelmark.tunnels.strongswan.sas import read_sas

CHARON: Final = "/usr/lib/ipsec/charon"
PROGRAMS: Final = {CHARON: "strongswan-charon", "swanctl": "strongswan-swanctl"}
"""What every tunnel of this family starts, with its Debian packages."""
LIBIPSEC_PROGRAMS: Final = {"/usr/lib/ipsec/lookip": "libcharon-extra-plugins"}
"""The plugin kernel-libipsec cannot be executed; this one comes in the same package."""

_SWANCTL_LIMIT_S: Final = 30.0
"""Of one call of swanctl: it waits for ever for a charon that hangs."""
_GO_LIMIT_S: Final = 10
_PLUGINS: Final = (
    *("random", "nonce", "openssl", "hmac", "kdf", "gcm", "chapoly", "pem", "x509", "pubkey"),
    *("pkcs1", "pkcs8", "constraints"),
)
_PLUGINS_AFTER: Final = ("kernel-netlink", "socket-default", "vici", "updown")
# Its pid file is compiled in; a private /run lets several daemons stand side by side.
_PRIVATE_DIRS: Final = ("/run",)


class Charon(IkeDaemon):
    """strongSwan's; ready when libipsec has made its TUN device, too."""

    program: ClassVar[str] = "charon"
    readiness: ClassVar[str] = "open its control socket"
    # All plugins are loaded by then, that of the control socket among them.
    ready_words: ClassVar[str] = "[JOB] spawning "

    def __init__(
        self,
        side: Side,
        host: Host,
        *,
        plugins: Sequence[str] = (),
        settings: Settings | None = None,
    ) -> None:
        """Start it; ``plugins`` are loaded beside the usual ones, ``settings`` go to ``charon``."""
        super().__init__(side, host, folder="ike", socket="vici")
        self._env = {
            "STRONGSWAN_CONF": str(self._folder / "strongswan.conf"),
            "SWANCTL_DIR": str(self._folder),
        }
        document = _daemon_settings(str(self._socket), plugins, settings or {})
        host.put(self._folder / "strongswan.conf", render(document).encode())
        self.process: Process = host.spawn(
            [CHARON],
            name=unique_name(f"charon-{side}"),
            env=self._env,
            private_dirs=_PRIVATE_DIRS,
        )

    def put_identity(
        self, authority: bytes, identity: Identity | None, *, name: str = "own.pem"
    ) -> None:
        """Put certificates where swanctl looks for them; ``authority`` is the CA's, PEM."""
        self.host.put(self._folder / "x509ca" / "authority.pem", authority)
        if identity is not None:
            self.host.put(self._folder / "x509" / name, identity.certificate)
            self.host.put(self._folder / "private" / name, identity.key)

    def load(self, document: Settings) -> None:
        """Hand it connections, pools and secrets in the form of swanctl.conf."""
        path = self._folder / "swanctl.conf"
        self.host.put(path, render(document).encode())
        done = self._swanctl("--load-all", "--noprompt", "--file", str(path))
        if done.returncode != 0:
            self.require_alive("load its configuration")
            raise RefusedError(f"{self.place} refused its configuration: {_refusal(done)}")

    def initiate(self, child: str, *, limit_s: int, peer: IkeDaemon) -> None:
        """Bring one child up; ``TunnelError`` has the last messages of both daemons."""
        done = self._swanctl(
            "--initiate", "--child", child, "--timeout", str(limit_s), limit_s=limit_s + 10
        )
        if done.returncode != 0:
            raise self._not_established(child, _refusal(done), peer)

    def terminate(self, connection: str) -> None:
        """End a connection's association with its children, and tell the other end."""
        done = self._swanctl("--terminate", "--ike", connection, "--timeout", str(_GO_LIMIT_S))
        if done.returncode != 0:
            raise TunnelError(
                f"{self.place} could not end connection {connection}: {_refusal(done)}"
            )

    def sas(self) -> tuple[IkeSa, ...]:
        """Return the security associations as it sees them."""
        done = self._swanctl("--list-sas", "--raw")
        if done.returncode != 0:
            raise TunnelError(
                f"{self.place} does not list its security associations: {done.last_words()}"
            )
        return read_sas(done.text())

    def algorithms(self) -> tuple[str, ...]:
        """Return the names of all algorithms that its plugins have."""
        return tuple(_ALGORITHM.findall(self._swanctl("--list-algs").text()))

    def version(self) -> str:
        """Return for example ``strongSwan 5.9.8``."""
        done = self._swanctl("--version", "--daemon")
        match = re.match(r"strongSwan [0-9][\w.-]{0,30}", done.text())
        return match.group() if match else "strongSwan of unknown version"

    def words(self, log: str) -> str:
        """Return what ``last_words`` does."""
        return last_words(log)

    def _swanctl(self, *arguments: str, limit_s: float = _SWANCTL_LIMIT_S) -> Completed:
        self.require_alive(f"do swanctl {arguments[0]}")
        return self.host.run(
            ["swanctl", *arguments, "--uri", f"unix://{self._socket}"],
            env=self._env,
            timeout_s=limit_s,
            check=False,
        )


def last_words(log: str) -> str:
    """Return the last line of a log of charon that reports a failure, else the last line."""
    lines = [_THREAD.sub("", line).strip() for line in log.splitlines()]
    lines = [line for line in lines if line]
    for line in reversed(lines):
        if _TELLING.search(line) and not _HARMLESS.search(line):
            return line
    return lines[-1] if lines else "nothing in its log"


_ALGORITHM: Final = re.compile(r"\b([A-Z][A-Z0-9_]{1,40})\[[a-z0-9-]{1,40}\]")
_THREAD: Final = re.compile(r"^[0-9]{2,3}(?=\[)")
_TELLING: Final = re.compile(
    r"\b[A-Z]+_[A-Z_]+ (?:notify|error)|no \w+ (?:proposal|config|key|match)"
    r"|no matching|no acceptable"
    r"|MAC mismatch|mismatched|decrypt|inacceptable|unacceptable|untrusted|constraint"
    r"|\bfailed\b|failure|\berror\b|unable|not found|not supported|unsupported|giving up"
    r"|[Ii]nvalid|denied|refused|no issuer|expired",
)
# What only says that what a line before it reports has consequences.
_HARMLESS: Final = re.compile(
    r"keeping IKE_SA|processing failed|message parsing failed|unable to install IPsec policies"
    r"|Algorithms? \[|ignored"
)


# What swanctl says of any call, and of all connections together: no reason.
_SUMMARY: Final = re.compile(r"opening directory|^loaded [0-9]+ of [0-9]+ ")


def _refusal(done: Completed) -> str:
    lines = [
        line.strip()
        for line in (done.stderr + b"\n" + done.stdout).decode("utf-8", "replace").splitlines()
    ]
    telling = [line for line in lines if "failed" in line and not _SUMMARY.search(line)]
    return telling[-1] if telling else done.last_words()


def _daemon_settings(socket: str, plugins: Sequence[str], settings: Settings) -> Settings:
    known: dict[str, str | int | Settings] = {
        "load_modular": "no",
        "load": " ".join([*_PLUGINS, *plugins, *_PLUGINS_AFTER]),
        # With 8 threads libipsec's own workers leave none for swanctl, which then hangs for ever.
        "threads": 24,
        "install_routes": "no",
        "install_virtual_ip": "no",
        # Nothing of its own accord on the link while a workload runs.
        "keep_alive": 0,
        "retransmit_timeout": 2,
        "retransmit_base": "1.5",
        "retransmit_tries": 4,
        "filelog": {"stderr": {"default": 1, "flush_line": "yes"}},
        # Without this it writes to the log of the user's own system too.
        "syslog": {"daemon": {"default": -1}, "auth": {"default": -1}},
        "plugins": {"vici": {"socket": f"unix://{socket}"}},
    }
    return {"charon": known | dict(settings)}
