"""The program of the tunnel masque by itself: who is let in, what it says, how it ends."""

import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path, PurePosixPath

import pytest

from places import driven
from skips import masque_program
from tunnelmark.engine.binary import find_engine
from tunnelmark.hosts.ledger import Ledger
from tunnelmark.hosts.local import NetnsHost
from tunnelmark.lab.lab import Lab
from tunnelmark.model.host import Host, Process
from tunnelmark.model.topology import Topology
from tunnelmark.tunnels.pki import RunAuthority

PROGRAM = masque_program() or "tunnelmark-masque"
# Some of the options: the rest is not looked at before these are right.
SOME = ("-device", "x", "-mtu", "1400", "-certificate", "c", "-key", "k", "-ca", "a", "-peer", "p")
ALL = (*SOME, "-address", "198.18.0.2", "-port", "4433")
PARENT = """
import subprocess, sys, time
child = subprocess.Popen(sys.argv[1:])
print(child.pid, flush=True)
time.sleep(60)
"""

pytestmark = [
    pytest.mark.lab,
    pytest.mark.skipif(masque_program() is None, reason=f"{PROGRAM} is not installed"),
]


@pytest.fixture(scope="module")
def lab() -> Iterator[Lab]:
    with Ledger() as ledger, Lab(ledger, Topology(), None, engine=find_engine()) as lab:
        yield lab


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((), "the first argument must be server, client or --version"),
        (("client", "-x"), "flag provided but not defined: -x"),
        (("client", *SOME, "-port", "4433"), "-address must be set, as all options of client"),
        (("client", *ALL, "more"), '"more" is not an option'),
        (("client", *ALL, "-assign", "198.19.0.2"), "flag provided but not defined: -assign"),
        (("client", *ALL, "-mtu", "1414"), "-mtu is 1414, must be 576 to 1413"),
        (("client", *ALL, "-port", "65536"), "-port is 65536, must be 1 to 65535"),
        (("client", *ALL, "-address", "nowhere"), 'invalid value "nowhere" for flag -address'),
    ],
)
def test_what_is_wrong_is_one_line(words: tuple[str, ...], said: str) -> None:
    done = subprocess.run([PROGRAM, *words], capture_output=True, text=True, check=False)
    (line,) = done.stderr.splitlines()
    assert (done.returncode, done.stdout) == (1, "")
    assert line.startswith(f"tunnelmark-masque: error: {said}")


class End:
    """What an end of a tunnel is started with."""

    def __init__(self, host: Host, authority: RunAuthority, trusted: RunAuthority) -> None:
        self.host = host
        self.folder = host.work_dir / f"masque-{len(getattr(host, 'spawned', ()))}"
        identity = authority.issue(host.name, "server" if host.name == "server" else "client")
        host.put(self.folder / "own.crt", identity.certificate)
        host.put(self.folder / "own.key", identity.key)
        host.put(self.folder / "ca.crt", trusted.certificate)

    def argv(self, peer: str) -> list[str]:
        server = self.host.name == "server"
        inside = ("-assign", "198.19.0.2", "-advertise", "198.19.0.1") if server else ()
        return [
            *(PROGRAM, self.host.name, "-device", f"masque-{self.host.name}", "-mtu", "1413"),
            *("-certificate", str(self.folder / "own.crt"), "-key", str(self.folder / "own.key")),
            *("-ca", str(self.folder / "ca.crt"), "-peer", peer),
            *("-address", "198.18.0.2", "-port", "4433", *inside),
        ]

    def start(self, peer: str) -> Process:
        return self.host.spawn(self.argv(peer), name=PurePosixPath(self.folder).name)


def authority(name: str) -> RunAuthority:
    return RunAuthority(name, datetime.now(UTC))


def waited(process: Process, words: str) -> str:
    for _ in range(200):
        if process.poll() is not None or words in process.log_tail(50):
            break
        time.sleep(0.05)
    return process.log_tail(50)


@pytest.mark.parametrize(
    ("trusted", "peer", "said"),
    [
        (True, "server", "connected: assigned"),
        (True, "other", 'the peer is "server", must be "other"'),
        (False, "server", "x509: certificate signed by unknown authority"),
    ],
)
def test_a_client_verifies_its_server(lab: Lab, trusted: bool, peer: str, said: str) -> None:
    ours = authority("ours")
    server = End(lab.server_host, ours, ours).start("client")
    client: Process | None = None
    try:
        assert "listening on" in waited(server, "listening on")
        end = End(lab.client_host, ours, ours if trusted else authority("another"))
        client = end.start(peer)
        log = waited(client, "connected: ")
        assert said in log
        assert client.poll() == (None if "connected: " in log else 1)
    finally:
        if client is not None:
            client.stop()
        server.stop()
    if said.startswith("connected"):
        # Both were asked to end, and did so.
        assert (client.poll(), server.poll()) == (0, 0)


def test_a_server_lets_no_stranger_in(lab: Lab) -> None:
    ours = authority("ours")
    server = End(lab.server_host, ours, ours).start("client")
    client: Process | None = None
    try:
        assert "listening on" in waited(server, "listening on")
        client = End(lab.client_host, authority("another"), ours).start("server")
        waited(client, "connection lost")
        assert client.poll() == 1
        assert "connected: " not in server.log_tail(50)
    finally:
        if client is not None:
            client.stop()
        server.stop()


def test_a_later_client_takes_over(lab: Lab) -> None:
    ours, hosts = authority("ours"), (lab.server_host, lab.client_host)
    server, first = (End(host, ours, ours) for host in hosts)
    started = [server.start("client")]
    try:
        assert "listening on" in waited(started[0], "listening on")
        _addressed(lab.server_host, "198.19.0.1", "198.19.0.2")
        started.append(first.start("server"))
        assert "connected: " in waited(started[1], "connected: ")
        _addressed(lab.client_host, "198.19.0.2", "198.19.0.1")
        assert _answered(lab)
        started[1].kill()
        started[1].wait(10)
        # What the server sends now reaches nobody.
        lab.server_host.run(["ping", "-n", "-c", "1", "-W", "1", "198.19.0.2"], check=False)
        started.append(End(lab.client_host, ours, ours).start("server"))
        assert "connected: " in waited(started[2], "connected: ")
        _addressed(lab.client_host, "198.19.0.2", "198.19.0.1")
        assert _answered(lab)
        assert started[0].poll() is None
    finally:
        while started:
            started.pop().stop()


def _addressed(host: Host, own: str, peer: str) -> None:
    device = f"masque-{host.name}"
    host.run(["ip", "address", "add", own, "peer", peer, "dev", device])
    host.run(["ip", "link", "set", "dev", device, "up"])


def _answered(lab: Lab) -> bool:
    words = ["ping", "-n", "-c", "1", "-W", "5", "198.19.0.1"]
    return lab.client_host.run(words, check=False).returncode == 0


def test_it_ends_with_its_parent(lab: Lab) -> None:
    host = lab.server_host
    assert isinstance(host, NetnsHost)
    ours = authority("ours")
    argv = [sys.executable, "-c", PARENT, *End(host, ours, ours).argv("client")]
    with subprocess.Popen(
        ["ip", "netns", "exec", host.namespace, *argv],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as parent:
        assert parent.stdout is not None
        child = Path("/proc") / parent.stdout.readline().strip() / "stat"
        listens = ["ss", "-Hlnu", "sport = :4433"]
        while not host.run(listens).text().strip():
            assert parent.poll() is None
        parent.kill()
        parent.wait(10)
    for _ in range(200):
        # A process that ended may wait to be reaped.
        if not child.exists() or child.read_text().rpartition(")")[2].split()[0] == "Z":
            return
        time.sleep(0.05)
    pytest.fail("the program runs on after its parent has ended")


def test_a_packet_that_no_datagram_holds_is_answered_with_icmp(lab: Lab) -> None:
    tunnel = driven("masque", {"mtu_bytes": 1300})
    try:
        (path,) = tunnel.up(lab.site).paths
        client = lab.client_host
        client.run(["ip", "link", "set", "dev", path.client_interface, "mtu", "1500"])
        sized = ["ping", "-n", "-c", "1", "-W", "2", "-M", "do", "-s", "1472", path.server_address]
        done = client.run(sized, check=False)
        # connect-ip-go names the least MTU of IPv6, whatever would fit.
        assert "mtu = 1280" in done.text()
    finally:
        tunnel.down()
