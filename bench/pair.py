"""Two namespaces joined by a veth pair, or by two pairs with the link emulator between them."""

import json
import secrets
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from tunnelmark.hosts.ledger import Ledger, start_time

CLIENT, SERVER = "198.18.0.1", "198.18.0.2"
PORT = 7700
_OFFLOADS = ("tso", "gso", "gro", "tx", "rx", "sg")
# It ends with the bench, however that ends.
_INSIDE = ("setpriv", "--pdeathsig", "KILL", "ip", "netns", "exec")


@dataclass
class Pair:
    """A client and a server namespace; ``link`` stands between them when there is an emulator."""

    engine: str
    ledger: Ledger
    client: str
    server: str
    link: str
    processes: list[subprocess.Popen[str]] = field(default_factory=list)

    @property
    def directory(self) -> Path:
        """For files of the bench."""
        return self.ledger.work_dir

    def run(self, namespace: str, argv: Sequence[str], *, timeout_s: float = 120) -> str:
        """Run a program to its end and return its standard output, whatever its status."""
        done = subprocess.run(  # noqa: PLW1510 - peers exit non-zero when they lose packets
            [*_INSIDE, namespace, *argv],
            capture_output=True,
            text=True,
            timeout=timeout_s,
        )
        return done.stdout or done.stderr

    def start(self, namespace: str, argv: Sequence[str]) -> subprocess.Popen[str]:
        """Start a program that is stopped with the pair at the latest."""
        process = subprocess.Popen(
            [*_INSIDE, namespace, *argv],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self.ledger.enter("process", str(process.pid), start_time(process.pid) or 0)
        self.processes.append(process)
        return process

    def end(self) -> None:
        """End every program that was started and still runs."""
        for process in self.processes:
            process.kill()
            process.wait()
            if process.stdout is not None:
                process.stdout.close()
        self.processes.clear()

    def start_engine(
        self, namespace: str, command: str, config: Mapping[str, object]
    ) -> subprocess.Popen[str]:
        """Start a subcommand of the engine and wait until it says that it is ready."""
        path = self.directory / f"{command}-{secrets.token_hex(4)}.json"
        path.write_text(json.dumps(config), encoding="utf-8")
        process = self.start(namespace, [self.engine, command, str(path)])
        self.event(process, "ready")
        return process

    def event(self, process: subprocess.Popen[str], wanted: str) -> dict[str, object]:
        """Read events until the wanted one."""
        assert process.stdout is not None  # noqa: S101 - started with a pipe
        for line in process.stdout:
            event: dict[str, object] = json.loads(line)
            if event["event"] == wanted:
                return event
            if event["event"] == "error":
                sys.exit(f"bench: engine: {event['message']}")
        sys.exit(f"bench: the engine ended before its event {wanted!r}")

    def summary(self, process: subprocess.Popen[str], *, stop: bool) -> dict[str, object]:
        """Return the summary of an engine process, which is asked to end with ``stop``."""
        if stop:
            process.terminate()
        event = self.event(process, "summary")
        process.wait(30)
        return event


@contextmanager
def pair(engine: str, *, emulated: bool = False, mtu_bytes: int = 1500) -> Iterator[Pair]:
    """Make the namespaces, and remove them and every process started in them.

    What a bench that was killed left of them, `tunnelmark clean` removes.
    """
    with Ledger() as ledger:
        stem = ledger.run_id
        made = Pair(engine, ledger, f"{stem}-c", f"{stem}-s", f"{stem}-l")
        names = [made.client, made.server, *([made.link] if emulated else [])]
        try:
            for name in names:
                ledger.enter("netns", name)
                _ip("netns", "add", name)
                _ip("-n", name, "link", "set", "lo", "up")
            if emulated:
                _veth((made.client, "eth0"), (made.link, "a"), mtu_bytes)
                _veth((made.server, "eth0"), (made.link, "b"), mtu_bytes)
            else:
                _veth((made.client, "eth0"), (made.server, "eth0"), mtu_bytes)
            for name, address in ((made.client, CLIENT), (made.server, SERVER)):
                _ip("-n", name, "address", "add", f"{address}/24", "dev", "eth0")
            yield made
        finally:
            made.end()


def _veth(one: tuple[str, str], other: tuple[str, str], mtu_bytes: int) -> None:
    (netns, name), (peer_netns, peer) = one, other
    _ip(
        *("link", "add", name, "mtu", str(mtu_bytes), "netns", netns, "type", "veth"),
        *("peer", "name", peer, "mtu", str(mtu_bytes), "netns", peer_netns),
    )
    for namespace, interface in (one, other):
        sysctl = f"net.ipv6.conf.{interface}.disable_ipv6=1"
        subprocess.run(["ip", "netns", "exec", namespace, "sysctl", "-qw", sysctl], check=True)
        subprocess.run(
            ["ip", "netns", "exec", namespace, "ethtool", "-K", interface]
            + [word for offload in _OFFLOADS for word in (offload, "off")],
            check=False,
            capture_output=True,
        )
        _ip("-n", namespace, "link", "set", "dev", interface, "up")


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True)
