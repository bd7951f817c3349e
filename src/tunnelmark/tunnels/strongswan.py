"""strongSwan's charon as IPsec tunnels use it: configured by files, asked by swanctl."""

import re
from collections.abc import Sequence
from typing import Final

from tunnelmark.model.errors import RefusedError, TunnelError
from tunnelmark.model.host import Completed, Host, Process
from tunnelmark.model.names import unique_name
from tunnelmark.model.tunnel import Side
from tunnelmark.tunnels.ike_sas import IkeSa
from tunnelmark.tunnels.pki import Identity
from tunnelmark.tunnels.strongswan_config import Settings, render
from tunnelmark.tunnels.strongswan_sas import read_sas
from tunnelmark.tunnels.support import check_socket, wait_until

CHARON: Final = "/usr/lib/ipsec/charon"
PROGRAMS: Final = {CHARON: "strongswan-charon", "swanctl": "strongswan-swanctl"}
"""What every tunnel of this family starts, with its Debian packages."""
LIBIPSEC_PROGRAMS: Final = {"/usr/lib/ipsec/lookip": "libcharon-extra-plugins"}
"""The plugin kernel-libipsec cannot be executed; this one comes in the same package."""

_SWANCTL_LIMIT_S: Final = 30.0
"""Of one call of swanctl: it waits for ever for a charon that hangs."""
_START_LIMIT_S: Final = 30.0
_LOG_LINES: Final = 400
_READY: Final = "[JOB] spawning "
"""What it says when all plugins, that of the control socket among them, are loaded."""
_PLUGINS: Final = (
    *("random", "nonce", "openssl", "hmac", "kdf", "gcm", "chapoly", "pem", "x509", "pubkey"),
    *("pkcs1", "pkcs8", "constraints"),
)
_PLUGINS_AFTER: Final = ("kernel-netlink", "socket-default", "vici", "updown")
# Its pid file is compiled in; a private /run lets several daemons stand side by side.
_PRIVATE_DIRS: Final = ("/run",)


class Charon:
    """One IKE daemon on one host, with files of its own."""

    def __init__(
        self,
        side: Side,
        host: Host,
        *,
        plugins: Sequence[str] = (),
        settings: Settings | None = None,
    ) -> None:
        """Start it; ``plugins`` are loaded beside the usual ones, ``settings`` go to ``charon``."""
        self.side = side
        self.host = host
        self._folder = host.work_dir / unique_name("ike")
        self._socket = self._folder / "vici"
        check_socket(f"charon on {host.name}", self._socket)
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

    @property
    def place(self) -> str:
        """How error messages call it."""
        return f"charon of the {self.side} on {self.host.name}"

    def wait_ready(self) -> None:
        """Wait until it listens on its control socket, and libipsec has made its TUN device."""

        def ready() -> bool | None:
            self.require_alive("open its control socket")
            return True if _READY in self.process.log_tail(_LOG_LINES) else None

        wait_until(
            ready,
            limit_s=_START_LIMIT_S,
            poll_s=0.05,
            late=lambda: (
                f"{self.place} did not open its control socket within {_START_LIMIT_S:g} s: "
                f"{self.last_words()}"
            ),
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

    def initiate(self, child: str, *, limit_s: int, peer: "Charon") -> None:
        """Bring one child up; ``TunnelError`` has the last messages of both daemons."""
        done = self._swanctl(
            "--initiate", "--child", child, "--timeout", str(limit_s), limit_s=limit_s + 10
        )
        if done.returncode != 0:
            self.require_alive(f"establish {child}", peer)
            peer.require_alive(f"establish {child}", self)
            words = (_refusal(done), self.last_words(), peer.last_words())
            error = RefusedError if any(map(_DISAGREED.search, words)) else TunnelError
            raise error(
                f"{self.place} could not establish {child} ({words[0]}); last messages of the "
                f"{self.side}: {words[1]}; of the {peer.side}: {words[2]}"
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

    def last_words(self) -> str:
        """Return the line of its log that says best what went wrong."""
        return last_words_of(self.process)

    def require_alive(self, what: str, peer: "Charon | None" = None) -> None:
        """Raise ``TunnelError`` if it has ended."""
        if (status := self.process.poll()) is not None:
            more = f"; last messages of the {peer.side}: {peer.last_words()}" if peer else ""
            raise TunnelError(
                f"{self.place} ended with status {status} before it could {what}: "
                f"{self.last_words()}{more}"
            )

    def stop(self) -> None:
        """End it; what it put into the kernel goes with it, or by ``flush``."""
        self.process.stop()

    def _swanctl(self, *arguments: str, limit_s: float = _SWANCTL_LIMIT_S) -> Completed:
        self.require_alive(f"do swanctl {arguments[0]}")
        return self.host.run(
            ["swanctl", *arguments, "--uri", f"unix://{self._socket}"],
            env=self._env,
            timeout_s=limit_s,
            check=False,
        )


def last_words_of(charon: Process) -> str:
    """Return what a daemon's log says best."""
    return last_words(charon.log_tail(_LOG_LINES))


def last_words(log: str) -> str:
    """Return the last line of a log of charon that reports a failure, else the last line."""
    lines = [_THREAD.sub("", line).strip() for line in log.splitlines()]
    lines = [line for line in lines if line]
    for line in reversed(lines):
        if _TELLING.search(line) and not _HARMLESS.search(line):
            return line
    return lines[-1] if lines else "nothing in its log"


# RFC 7296 section 3.10.1: what another attempt of the same peers ends with again.
_DISAGREED: Final = re.compile(
    r"AUTHENTICATION_FAILED|NO_PROPOSAL_CHOSEN|TS_UNACCEPTABLE|INVALID_KE_PAYLOAD"
)
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
