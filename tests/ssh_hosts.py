"""Two hosts that are reached by SSH alone: namespaces of network, mounts and processes.

Each has a ``/tmp`` and ``/run`` of its own and its own sshd, which ssh starts on a pipe; a pair of
veth is the line between them. Ends with its context, whatever happened.
"""

import contextlib
import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Final

SSHD: Final = "/usr/sbin/sshd"
SSHD_CONFIG: Final = "PermitRootLogin prohibit-password\nUsePAM no\nPidFile none\n"
ADDRESSES: Final = {"client": "192.0.2.1", "server": "192.0.2.2"}
"""Of the hosts themselves, at the line."""
OWN: Final = {"client": "192.0.2.11", "server": "192.0.2.12"}
"""Of the tunnels' ends."""
ADDRESSES_IPV6: Final = {"client": "2001:db8:77::1", "server": "2001:db8:77::2"}
OWN_IPV6: Final = {"client": "2001:db8:77::11", "server": "2001:db8:77::12"}
"""The same where the line carries IPv6."""
INSIDE: Final = "10.77.0.12"
"""Of the tunnel's end that is behind NAT."""
NAT: Final = "192.0.2.254"
"""Of the NAT, as the other host sees it."""
LINE: Final = "line0"
_INSIDE_HOST, _INSIDE_NAT = "10.77.0.2", "10.77.0.1"

EMPTY: Final[Mapping[str, Mapping[str, str]]] = MappingProxyType({})
# What this computer's user starts in each shell does not belong to a host: pyenv there holds a
# lock, and after a login that was killed every other one waits 60 s for it.
_BE: Final = (
    "mount -t tmpfs tmpfs /tmp && mount -t tmpfs tmpfs /run && mkdir /run/sshd && "
    "{ [ ! -e ~/.bashrc ] || mount --bind /dev/null ~/.bashrc; } && echo ready && "
    "while :; do sleep 1000; done"
)


@dataclass(frozen=True)
class FakeHost:
    """One host: what a test may do to it beside ssh."""

    role: str
    pid: int
    """Its first process, seen from here."""
    address: str
    """Its own at the line, with prefix length."""

    @property
    def enter(self) -> list[str]:
        """Words that run a program on it."""
        target = ["-t", str(self.pid), "--net", "--mount", "--pid", "--time"]
        return ["nsenter", *target, "--"]

    def run(self, *argv: str) -> str:
        done = subprocess.run(
            [*self.enter, *argv], capture_output=True, text=True, check=True, timeout=20
        )
        return done.stdout

    def leftovers(self) -> list[str]:
        """Files, interfaces and processes of a run that are there."""
        found = self.run("find", "/tmp", "/run", "-mindepth", "1", "-name", "tm*").split()  # noqa: S108
        links = self.run("ip", "-o", "link").splitlines()
        found += [line for line in links if not any(f" {n}" in line for n in ("lo:", LINE))]
        processes = self.run("ps", "-wweo", "pid=,stat=,args=").splitlines()
        found += [
            line
            for line in processes
            if int(line.split()[0]) > 1
            and line.split()[1][0] != "Z"
            and not any(word in line for word in ("sshd", "sleep 1000", "ps -wweo"))
        ]
        return found

    def processes(self, word: str) -> list[int]:
        """Process ids, as seen there, of those whose command line has a word."""
        lines = self.run("ps", "-wweo", "pid=,args=").splitlines()
        return [int(line.split()[0]) for line in lines if word in line and "ps -wweo" not in line]

    def reboot(self) -> None:
        """End every process but the first, empty the memory disks, set the network up again."""
        # The shell that says so is not among those that it ends.
        self.run("sh", "-c", "kill -9 -1; rm -rf /tmp/* /run/tm*")
        self.cut()
        self.join()

    def cut(self) -> None:
        """Take the line and its routes away."""
        self.run("ip", "link", "set", LINE, "down")
        self.run("ip", "address", "flush", "dev", LINE)

    def join(self) -> None:
        """Give the host its place on the line."""
        self.run("ip", "address", "add", self.address, "dev", LINE)
        self.run("ip", "link", "set", LINE, "up")

    def presents(self, machine: str, folder: Path) -> None:
        """Let ``uname`` say that it is another machine; ``folder`` is one that it sees."""
        real, script = folder / f"{self.role}.uname", folder / f"{self.role}.uname.sh"
        shutil.copy("/usr/bin/uname", real)
        script.write_text(f'#!/bin/sh\n{real} "$@" | sed s/x86_64/{machine}/\n', encoding="ascii")
        script.chmod(0o755)
        self.run("mount", "--bind", str(script), "/usr/bin/uname")

    def knows(self, file: Path, name: str, address: str) -> None:
        """Let it resolve a name; ``file`` is written to and then stands for its /etc/hosts."""
        file.write_text(f"{address} {name}\n", encoding="ascii")
        self.run("mount", "--bind", str(file), "/etc/hosts")


@dataclass(frozen=True)
class ByName:
    """The files by which ssh reaches a client and a server."""

    folder: Path

    @property
    def ssh_config(self) -> Path:
        """For ``ssh -F``."""
        return self.folder / "ssh_config"

    def inventory(
        self, extra: str = "", ends: Mapping[str, Mapping[str, str]] = EMPTY, **more: str
    ) -> Path:
        """Write ``hosts.toml``; ``more`` are lines of both hosts, ``extra`` those before them.

        ``ends`` has lines of one host, which come before all others.
        """
        lines = [f'ssh_config = "{self.ssh_config.name}"', extra]
        for role in ("client", "server"):
            usual = {"ssh": f'"{role}"', "address": f'"{OWN[role]}/24"', "interface": f'"{LINE}"'}
            found = {**usual, **more, **ends.get(role, {})}
            lines += [f"[{role}]", *(f"{key} = {value}" for key, value in found.items())]
        path = self.folder / "hosts.toml"
        path.write_text("\n".join(lines) + "\n", encoding="utf-8")
        return path

    def make_keys(self) -> None:
        """Make keys of a user and of both hosts, which nobody knows yet."""
        for name in ("user", "client", "server"):
            key = ["-C", "", "-f", str(self.folder / name)]
            words = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", *key]
            subprocess.run(words, check=True, timeout=20)
        (self.folder / "known_hosts").write_text("", encoding="ascii")
        (self.folder / "ssh_config").write_text("", encoding="ascii")

    def reach(self, role: str, *proxy: str) -> None:
        """Let ssh know a host, to which ``proxy`` (of ssh_config) leads."""
        with self.ssh_config.open("a", encoding="ascii") as file:
            words = "".join(f"  {line}\n" for line in proxy)
            file.write(
                f"Host {role}\n  User root\n  HostKeyAlias {role}\n{words}"
                f"  IdentityFile {self.folder / 'user'}\n  IdentitiesOnly yes\n"
                "  IdentityAgent none\n  StrictHostKeyChecking yes\n"
                f"  UserKnownHostsFile {self.folder / 'known_hosts'}\n"
                "  GlobalKnownHostsFile /dev/null\n"
            )
        kind, key = (self.folder / f"{role}.pub").read_text("ascii").split()[:2]
        with (self.folder / "known_hosts").open("a", encoding="ascii") as file:
            file.write(f"{role} {kind} {key}\n")


@dataclass(frozen=True)
class TwoHosts(ByName):
    """Both, as namespaces."""

    client: FakeHost
    server: FakeHost

    def route(self) -> None:
        """Let both hosts forward, and know the way to the other's own address."""
        for host, other in ((self.client, "server"), (self.server, "client")):
            host.run("sysctl", "-qw", "net.ipv4.ip_forward=1")
            host.run("ip", "route", "add", f"{OWN[other]}/32", "via", ADDRESSES[other])

    def address_ipv6(self) -> None:
        """Let the line carry IPv6, too."""
        for host in (self.client, self.server):
            own = f"{ADDRESSES_IPV6[host.role]}/64"
            host.run("ip", "address", "add", own, "dev", LINE, "nodad")


@contextlib.contextmanager
def two_hosts(
    *,
    server_ahead_s: int = 0,
    behind_nat: str | None = None,
    forwards: Sequence[str] = (),
) -> Iterator[TwoHosts]:
    """Make two hosts, joined by a line; the server's monotonic clock is ahead by so much.

    One of them may be behind NAT, which forwards ports to ``INSIDE``: ``udp dport 1194``.
    """
    # Not below /tmp, which they do not see.
    folder = Path(tempfile.mkdtemp(prefix="tmhosts-", dir="/var/tmp"))
    with contextlib.ExitStack() as stack:
        stack.callback(shutil.rmtree, folder, ignore_errors=True)
        ByName(folder).make_keys()
        client, server = (
            stack.enter_context(
                _host(role, ahead_s, _INSIDE_HOST if role == behind_nat else ADDRESSES[role])
            )
            for role, ahead_s in (("client", 0), ("server", server_ahead_s))
        )
        if behind_nat is None:
            _line((client, LINE), (server, LINE))
        else:
            inside, outside = (client, server) if behind_nat == "client" else (server, client)
            nat = stack.enter_context(_host("nat", 0, NAT))
            _line((inside, LINE), (nat, "inside"))
            _line((outside, LINE), (nat, "outside"))
            _translate(nat, forwards)
        for host in (client, server):
            host.join()
            _serve(ByName(folder), host)
        yield TwoHosts(folder, client, server)


@contextlib.contextmanager
def _host(role: str, ahead_s: int, address: str) -> Iterator[FakeHost]:
    process = subprocess.Popen(
        [
            *("unshare", "--net", "--mount", "--pid", "--fork", "--mount-proc", "--kill-child"),
            *("--time", "--monotonic", str(ahead_s), "--boottime", str(ahead_s)),
            *("sh", "-c", f"mount -t sysfs sysfs /sys; {_BE}"),
        ],
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert process.stdout is not None
    try:
        assert process.stdout.readline() == "ready\n"
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text("ascii")
        host = FakeHost(role, int(children.split()[0]), f"{address}/24")
        host.run("ip", "link", "set", "lo", "up")
        yield host
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait(10)
        process.stdout.close()


def _line(*ends: tuple[FakeHost, str]) -> None:
    (own, interface), (other, there) = ends
    peer = ["peer", "name", there, "netns", str(other.pid)]
    enter = ["nsenter", "-t", str(own.pid), "--net"]
    subprocess.run([*enter, "ip", "link", "add", interface, "type", "veth", *peer], check=True)
    for host, name in ends:
        # A cable carries whole frames with their checksums, whatever a card does for the kernel.
        off = [word for one in ("tso", "gso", "gro", "tx", "rx") for word in (one, "off")]
        host.run("ethtool", "-K", name, *off)


def _translate(nat: FakeHost, forwards: Sequence[str]) -> None:
    """Let a host be a router with NAT, as at the edge of most networks."""
    for interface, address in (("inside", f"{_INSIDE_NAT}/24"), ("outside", nat.address)):
        nat.run("ip", "address", "add", address, "dev", interface)
        nat.run("ip", "link", "set", interface, "up")
    nat.run("sysctl", "-qw", "net.ipv4.ip_forward=1")
    rules = [f"add rule ip nat pre iifname outside {one} dnat to {INSIDE}" for one in forwards]
    nat.run(
        "nft",
        "\n".join(
            [
                "add table ip nat",
                "add chain ip nat pre { type nat hook prerouting priority dstnat; }",
                "add chain ip nat post { type nat hook postrouting priority srcnat; }",
                "add rule ip nat post oifname outside masquerade",
                *rules,
            ]
        ),
    )


def _serve(made: ByName, host: FakeHost) -> None:
    """Say how sshd is started there, and how ssh reaches it."""
    config = made.folder / f"{host.role}.sshd"
    config.write_text(
        f"HostKey {made.folder / host.role}\nAuthorizedKeysFile {made.folder / 'user.pub'}\n"
        f"StrictModes no\n{SSHD_CONFIG}",
        encoding="ascii",
    )
    sshd = " ".join([*host.enter, SSHD, "-i", "-f", str(config)])
    made.reach(host.role, f"ProxyCommand {sshd}")
