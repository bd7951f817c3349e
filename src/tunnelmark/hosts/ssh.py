"""An agent on a host over SSH: OpenSSH carries it, nothing of it stays there.

One connection does all of it: a few words of shell on the host take the agent from standard input,
compare its digest and start it in namespaces of its own for mounts and processes. So whatever ends
the agent (its connection, its watchdog, kill -9) ends every program of the run there, and the
network namespaces with them. The directory is removed by the shell that waits for the agent.
"""

import contextlib
import hashlib
import os
import shlex
import shutil
import socket
import subprocess
import threading
import time
from pathlib import Path, PurePosixPath
from typing import IO, Final

from tunnelmark.hosts.agent import Agent
from tunnelmark.hosts.inventory import HostEntry
from tunnelmark.hosts.ledger import Ledger, start_time
from tunnelmark.hosts.ssh_programs import programs_for
from tunnelmark.hosts.ssh_refusals import refusal
from tunnelmark.hosts.vm_channel import Channel, Ready
from tunnelmark.hosts.vm_payload import AGENT, ENGINE, Payload
from tunnelmark.model.child import Child
from tunnelmark.model.errors import LabError

SILENCE_S: Final = 60
"""So long after the last word from here the agent ends everything there."""
SILENCE_VARIABLE: Final = "TUNNELMARK_HOST_SILENCE_S"
"""Environment variable with another number of seconds."""
_SILENCES_S: Final = range(4, 3601)
_CONNECT_LIMIT_S: Final = 60.0
_CONNECT_TIMEOUT_S: Final = 15
_SIGNS: Final = 4
"""Signs of life in the time of silence that is allowed."""
_PATIENT_RTT_S: Final = 0.2
"""With such a round trip programs get twice the time, with twice of it three times."""
_END_S: Final = 5.0
_LONGEST_LINE: Final = 200
"""Of the host's words on its system."""
_DIRECTORY: Final = PurePosixPath("/tmp")  # noqa: S108 - below it a directory of root's alone is made

# As root, or by sudo without a question. Words come as arguments, nothing is put together.
_AS_ROOT: Final = (
    'if [ "$(id -u)" = 0 ]; then exec sh -c "$@"; fi; '
    "sudo -n true >/dev/null 2>&1 || exit 91; "
    'exec sudo -n sh -c "$@"'
)
# Arguments: directory and silence. The host says what system it is and then reads the digest and
# size of the agent for it, and the agent.
# The host's processes stay visible below the directory, for the CPU time of others.
_START: Final = (
    "PATH=$PATH:/usr/local/sbin:/usr/sbin:/sbin; export PATH; umask 077; "
    "for program in unshare mount ip sha256sum; do "
    'command -v "$program" >/dev/null || { echo "$program" >&2; exit 92; }; done; '
    "uname -sm; read -r digest size || exit 95; "
    'mkdir "$1" || exit 94; '
    'head -c "$size" >"$1/tunnelmark-agent"; '
    'echo "$digest  $1/tunnelmark-agent" | sha256sum -c >/dev/null 2>&1 || '
    '{ rm -rf "$1"; exit 93; }; '
    'chmod 700 "$1/tunnelmark-agent"; mkdir "$1/proc"; '
    "unshare --mount sh -c '"
    'mount --rbind /proc "$1/proc" && '
    'exec unshare --pid --fork --mount-proc --kill-child "$1/tunnelmark-agent" stdio "$2"'
    '\' sh "$1" "$2"; status=$?; rmdir "$1/proc" && rm -rf "$1"; exit "$status"'
)


def silence() -> int:
    """Return after how many seconds without a word from here hosts undo everything."""
    text = os.environ.get(SILENCE_VARIABLE, str(SILENCE_S))
    if not (text.isascii() and text.isdecimal() and len(text) <= 4 and int(text) in _SILENCES_S):  # noqa: PLR2004 - digits of the limit
        raise LabError(
            f"{SILENCE_VARIABLE}: is {text!r:.20}, must be a whole number of seconds from "
            f"{_SILENCES_S.start} to {_SILENCES_S.stop - 1}"
        )
    return int(text)


def directory_of(name: str) -> str:
    """Return the path there of a connection's own directory."""
    return str(_DIRECTORY / name)


class SshAgent(Agent):
    """The agent of a host that the user named. Use ``connect``; ``close`` leaves nothing there."""

    def __init__(
        self,
        channel: Channel,
        ssh: Child,
        errors: Path,
        *,
        name: str,
        directory: PurePosixPath,
        silence_s: int,
    ) -> None:
        """Take the parts; use ``connect``."""
        super().__init__(channel, name)
        self._ssh = ssh
        self._errors = errors
        self._ready = Ready("", 0.0)
        self._patience = 1.0
        self._silence_s = silence_s
        self._closed = threading.Event()
        self.directory = directory
        """Its own there; the engine is in it."""

    @classmethod
    def connect(
        cls,
        entry: HostEntry,
        *,
        role: str,
        ledger: Ledger,
        payload: Payload,
        directory: str | None = None,
        ssh_config: str | None = None,
        silence_s: int = SILENCE_S,
    ) -> "SshAgent":
        """Connect, copy the agent and the engine, and return when the agent answers.

        ``directory`` is the name of its own there, without one that of the run. The connection ends
        with the thread that makes it. Raises ``LabError``, one line that says what is in
        the way: the key of the host, a port, a route, sudo, the architecture, a program.
        """
        if shutil.which("ssh") is None:
            raise LabError("ssh is not installed here (apt-get install openssh-client)")
        name = f"{role} ({entry.ssh})"
        where = PurePosixPath(directory_of(directory or ledger.run_id))
        words = ["sh", "-c", _AS_ROOT, "sh", _START, "sh", str(where), str(silence_s)]
        errors = ledger.work_dir / f"ssh-{role}.log"
        ours, theirs = socket.socketpair()
        with theirs, errors.open("wb") as log:
            ssh = _started(_command(entry, words, ssh_config, silence_s), theirs, log)
        ledger.enter("process", str(ssh.pid), start_time(ssh.pid) or 0)

        def lost() -> str:
            return refusal(_status(ssh), _text(errors))

        try:
            ours.settimeout(_CONNECT_LIMIT_S)
            try:
                payload = _hand_over(ours, name, payload)
            except TimeoutError:
                raise LabError(
                    f"{name}: the login there took longer than {_CONNECT_LIMIT_S:g} s: see what "
                    f"its shell does at start (ssh {entry.ssh} true)"
                ) from None
            except OSError:
                pass  # what the host does not say or take it has refused: its status says why
            ours.settimeout(None)
            made = cls(
                Channel(ours, name=name, lost=lost),
                ssh,
                errors,
                name=name,
                directory=where,
                silence_s=silence_s,
            )
        except BaseException:
            ours.close()
            _end(ssh)
            raise
        try:
            made._begin(payload)
        except BaseException:
            made.close()
            raise
        return made

    @property
    def kernel(self) -> str:
        """Release of its kernel."""
        return self._ready.kernel

    @property
    def patience(self) -> float:
        """More, the longer a round trip takes."""
        return self._patience

    @property
    def engine(self) -> PurePosixPath:
        """The engine there."""
        return self.directory / ENGINE

    def alive(self) -> bool:
        """Whether the connection is there."""
        return self._ssh.poll() is None

    def last_words(self) -> str:
        """Return why the connection is not there."""
        return refusal(_status(self._ssh), _text(self._errors))

    def close(self) -> None:
        """End all that runs there and remove what was copied; idempotent."""
        self._closed.set()
        if self.alive():
            with contextlib.suppress(LabError):
                self._channel.ask("power_off", {}, timeout_s=_END_S)
                # The shell there removes the directory, then the connection ends.
                with contextlib.suppress(subprocess.TimeoutExpired):
                    self._ssh.wait(_END_S * self._patience)
        self._channel.close()
        _end(self._ssh)

    def _begin(self, payload: Payload) -> None:
        try:
            self._ready = self._channel.ready(_CONNECT_LIMIT_S)
        except LabError as error:
            raise LabError(str(error)) from None  # a refusal is not gone in another attempt
        asked = time.monotonic()
        self.which("sh")
        self._patience = 1.0 + (time.monotonic() - asked) / _PATIENT_RTT_S
        self.put(self.engine, payload.programs[ENGINE].read_bytes(), 0o700)
        threading.Thread(target=self._live, name=f"{self._name} alive", daemon=True).start()

    def _live(self) -> None:
        """Give signs of life, which the watchdog there waits for.

        One without an answer is not the last: a line that was cut for a moment works again.
        """
        while not self._closed.wait(self._silence_s / _SIGNS) and self.alive():
            with contextlib.suppress(LabError):
                self.which("sh")


def _command(
    entry: HostEntry, words: list[str], ssh_config: str | None, silence_s: int
) -> list[str]:
    every_s = max(1, silence_s // _SIGNS)
    options = {
        "BatchMode": "yes",
        "Compression": "yes",
        "ConnectTimeout": str(_CONNECT_TIMEOUT_S),
        # A connection that the user shares is used; none of ours stays behind as one.
        "ControlMaster": "no",
        "ControlPersist": "no",
        "ForwardAgent": "no",
        "ForwardX11": "no",
        "ClearAllForwardings": "yes",
        "PermitLocalCommand": "no",
        "RequestTTY": "no",
        "RemoteCommand": "none",
        "ServerAliveInterval": str(every_s),
        "ServerAliveCountMax": str(_SIGNS),
    }
    return [
        *("setpriv", "--pdeathsig", "KILL", "ssh", "-T"),
        *(() if ssh_config is None else ("-F", ssh_config)),
        *(word for name, value in options.items() for word in ("-o", f"{name}={value}")),
        *("--", entry.ssh, shlex.join(words)),
    ]


def _started(argv: list[str], pipe: socket.socket, log: IO[bytes]) -> Child:
    try:
        return Child(
            argv,
            stdin=pipe.fileno(),
            stdout=pipe.fileno(),
            stderr=log,
            env={**os.environ, "LC_ALL": "C"},
            start_new_session=True,
        )
    except OSError as error:
        raise LabError(f"cannot start {argv[0]}: {error.strerror}") from error


def _hand_over(pipe: socket.socket, name: str, own: Payload) -> Payload:
    """Read what system the host is, send it the agent for that; return the programs for it."""
    if not (system := _line(pipe)):
        return own
    try:
        payload = programs_for(system, own)
    except LabError as error:
        raise LabError(f"{name}: {error}") from None
    agent = payload.programs[AGENT].read_bytes()
    pipe.sendall(f"{hashlib.sha256(agent).hexdigest()} {len(agent)}\n".encode() + agent)
    return payload


def _line(pipe: socket.socket) -> str:
    """Return the first line, without a byte of what follows it; empty if there is none."""
    line = bytearray()
    while (byte := pipe.recv(1)) not in {b"", b"\n"} and len(line) < _LONGEST_LINE:
        line += byte
    return line.decode("ascii", "replace") if byte == b"\n" else ""


def _status(ssh: Child) -> int | None:
    """Return the exit status of ssh, which is that of the host's shell; None while it runs."""
    try:
        return ssh.wait(_END_S)
    except subprocess.TimeoutExpired:
        return None


def _end(ssh: Child) -> None:
    if ssh.poll() is None:
        ssh.terminate()
        try:
            ssh.wait(_END_S)
        except subprocess.TimeoutExpired:
            ssh.kill()
            ssh.wait()


def _text(path: Path) -> str:
    try:
        with path.open("rb") as file:
            file.seek(max(0, path.stat().st_size - (1 << 16)))
            return file.read().decode("utf-8", "replace")
    except OSError:
        return ""
