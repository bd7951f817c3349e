"""Hosts over SSH: what runs there ends there, whatever ends it; what is in the way is one line."""

import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

from ssh_hosts import ADDRESSES, FakeHost, TwoHosts, two_hosts
from tunnelmark.hosts import ssh
from tunnelmark.hosts.inventory import load_inventory
from tunnelmark.hosts.ledger import Ledger
from tunnelmark.hosts.ssh import SshAgent
from tunnelmark.hosts.ssh_host import SshHost, SshNetnsHost
from tunnelmark.hosts.ssh_programs import programs_for
from tunnelmark.hosts.ssh_refusals import refusal
from tunnelmark.hosts.vm_payload import AGENT, ENGINE, installed
from tunnelmark.model.errors import LabError
from tunnelmark.model.host import Host

pytestmark = [
    pytest.mark.lab,
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root: namespaces stand for hosts"),
    pytest.mark.skipif(not Path("/usr/sbin/sshd").exists(), reason="needs openssh-server"),
]


@pytest.fixture(scope="module")
def hosts() -> Iterator[TwoHosts]:
    with two_hosts() as made:
        yield made


@pytest.fixture
def connect(hosts: TwoHosts, ledger: Ledger) -> Iterator[Callable[..., SshAgent]]:
    made: list[SshAgent] = []

    def connect(**more: object) -> SshAgent:
        inventory = load_inventory(hosts.inventory())
        words: dict[str, object] = {
            "payload": installed(),
            "ssh_config": inventory.ssh_config,
            **more,
        }
        made.append(SshAgent.connect(inventory.client, role="client", ledger=ledger, **words))  # type: ignore[arg-type]
        return made[-1]

    yield connect
    for agent in made:
        agent.close()
    assert clean(hosts.client) == []


def clean(host: FakeHost, limit_s: float = 20.0) -> list[str]:
    """Wait until nothing of a run is there; return what stays."""
    deadline = time.monotonic() + limit_s
    while (left := host.leftovers()) and time.monotonic() < deadline:
        time.sleep(0.05)
    return left


def host(agent: SshAgent, ledger: Ledger) -> SshNetnsHost:
    unique = f"{ledger.run_id}-client"
    return SshNetnsHost(agent, name="client", unique=unique, log_dir=ledger.work_dir)


def test_it_is_a_host_with_a_network_of_its_own(
    connect: Callable[..., SshAgent], ledger: Ledger, hosts: TwoHosts
) -> None:
    agent = connect()
    made: Host = host(agent, ledger)
    assert made.run(["ls", "/sys/class/net"]).text().split() == ["lo"]
    assert made.run(["cat"], stdin=b"x" * 100_000).stdout == b"x" * 100_000
    with pytest.raises(LabError, match="No such file"):
        made.run(["ls", "/no/such/place"])
    made.put(made.work_dir / "deep" / "secret", b"\x00\xff")
    assert made.get(made.work_dir / "deep" / "secret") == b"\x00\xff"
    process = made.spawn(["sh", "-c", "echo one; exec sleep 99"], name="reader", lines=True)
    assert process.read_line(20.0) == "one"
    assert process.stop() != 0
    # The computer itself, and what was copied there.
    computer = SshHost(agent, name="all", unique=f"{ledger.run_id}-all", log_dir=ledger.work_dir)
    assert "line0" in computer.run(["ls", "/sys/class/net"]).text()
    assert computer.has_kernel("veth")
    assert not computer.has_kernel("no_such_feature")
    assert '"version"' in computer.run([str(agent.engine), "version"]).text()
    assert hosts.client.leftovers() != []


def kill_ssh(agent: SshAgent, _host: FakeHost) -> None:
    os.kill(agent._ssh.pid, signal.SIGKILL)


def kill_agent(_agent: SshAgent, host: FakeHost) -> None:
    (pid,) = [n for n in host.processes("tunnelmark-agent stdio") if "unshare" not in args(host, n)]
    host.run("kill", "-9", str(pid))


def fall_silent(agent: SshAgent, _host: FakeHost) -> None:
    """The connection stands and nothing comes: a cable was pulled, a controller lost its power."""
    os.kill(agent._ssh.pid, signal.SIGSTOP)


def args(host: FakeHost, pid: int) -> str:
    return host.run("ps", "-wwo", "args=", "-p", str(pid)).split(maxsplit=1)[0]


@pytest.mark.parametrize("end", [kill_ssh, kill_agent, fall_silent])
def test_nothing_is_left_whatever_ends_it(
    end: Callable[[SshAgent, FakeHost], None],
    connect: Callable[..., SshAgent],
    ledger: Ledger,
    hosts: TwoHosts,
) -> None:
    agent = connect(silence_s=4 if end is fall_silent else 60)
    made = host(agent, ledger)
    # A daemon that has left its group and its parent.
    made.run(["sh", "-c", "setsid sleep 777 >/dev/null 2>&1 </dev/null &"])
    peer = ["peer", "name", "eth0", "netns", str(made.holder_pid)]
    names = f"{ledger.run_id}-all"
    computer = SshHost(agent, name="all", unique=names, log_dir=ledger.work_dir)
    computer.run(["ip", "link", "add", "tmveth", "type", "veth", *peer])
    assert hosts.client.processes("sleep 777")
    end(agent, hosts.client)
    assert clean(hosts.client) == []
    if end is fall_silent:
        os.kill(agent._ssh.pid, signal.SIGCONT)


def test_a_quiet_run_is_not_taken_for_a_lost_one(
    connect: Callable[..., SshAgent], ledger: Ledger
) -> None:
    agent = connect(silence_s=5)
    made = host(agent, ledger)
    time.sleep(6)
    assert made.run(["echo", "here"]).text() == "here\n"


def test_a_connection_that_ends_is_said(connect: Callable[..., SshAgent], ledger: Ledger) -> None:
    agent = connect()
    made = host(agent, ledger)
    process = made.spawn(["sleep", "99"], name="sleeper")
    os.kill(agent._ssh.pid, signal.SIGKILL)
    assert process.wait(20.0) != 0
    with pytest.raises(LabError, match="client") as caught:
        made.run(["true"])
    assert "\n" not in str(caught.value)


def refused(connect: Callable[..., SshAgent], **more: object) -> str:
    with pytest.raises(LabError) as caught:
        connect(**more)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_another_host_key_is_refused(
    connect: Callable[..., SshAgent], hosts: TwoHosts, tmp_path: Path
) -> None:
    known = (hosts.folder / "known_hosts").read_text("ascii").splitlines()
    client, server = (line.split(maxsplit=1) for line in known)
    for name, text, words in (
        ("changed", f"{client[0]} {server[1]}\n", "key is not the one that is known"),
        ("unknown", "", "key is not known yet"),
    ):
        (tmp_path / name).write_text(text, encoding="ascii")
        config = hosts.ssh_config.read_text("ascii")
        config = config.replace(str(hosts.folder / "known_hosts"), str(tmp_path / name))
        (tmp_path / f"{name}.config").write_text(config, encoding="ascii")
        assert words in refused(connect, ssh_config=str(tmp_path / f"{name}.config"))


def test_a_key_that_is_not_taken_is_no_question(
    connect: Callable[..., SshAgent], hosts: TwoHosts, tmp_path: Path
) -> None:
    config = hosts.ssh_config.read_text("ascii").replace("IdentityFile", "#IdentityFile")
    (tmp_path / "config").write_text(config, encoding="ascii")
    assert "accepts none of the keys" in refused(connect, ssh_config=str(tmp_path / "config"))


@pytest.fixture
def says(hosts: TwoHosts) -> Iterator[Callable[[str], None]]:
    """Have ``uname -sm`` on the client say something."""
    script = hosts.folder / "uname"  # the hosts have a /tmp of their own

    def say(system: str) -> None:
        script.write_text(f"#!/bin/sh\necho {system}\n", encoding="ascii")
        script.chmod(0o755)
        hosts.client.run("mount", "--bind", str(script), "/usr/bin/uname")

    yield say
    hosts.client.run("umount", "/usr/bin/uname")


def test_an_unknown_architecture_is_named(
    connect: Callable[..., SshAgent], says: Callable[[str], None]
) -> None:
    says("Linux riscv64")
    words = refused(connect)
    assert words.endswith("the host is Linux riscv64, and there is no agent and engine for it here")


def test_a_board_gets_the_programs_for_its_architecture(
    connect: Callable[..., SshAgent],
    ledger: Ledger,
    says: Callable[[str], None],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The programs have marks, which what runs there must have; they are this computer's still."""
    says("Linux aarch64")
    monkeypatch.setattr(ssh, "programs_for", partial(programs_for, folder=tmp_path))
    assert "(run: scripts/engines arm64)" in refused(connect)
    (tmp_path / "aarch64").mkdir()
    for name, file in installed().programs.items():
        (tmp_path / "aarch64" / name).write_bytes(file.read_bytes() + b"for aarch64")
    agent = connect()
    computer = SshHost(agent, name="all", unique=f"{ledger.run_id}-all", log_dir=ledger.work_dir)
    for name in (AGENT, ENGINE):
        mark = computer.run(["tail", "-c", "11", str(agent.directory / name)])
        assert mark.text() == "for aarch64"
    assert '"version"' in computer.run([str(agent.engine), "version"]).text()


def test_a_directory_that_is_there_is_not_taken(
    connect: Callable[..., SshAgent], ledger: Ledger, hosts: TwoHosts
) -> None:
    hosts.client.run("mkdir", f"/tmp/{ledger.run_id}")  # noqa: S108
    try:
        assert "File exists" in refused(connect)
    finally:
        hosts.client.run("rmdir", f"/tmp/{ledger.run_id}")  # noqa: S108


def test_a_full_disk_is_reported_and_nothing_stays_on_it(
    connect: Callable[..., SshAgent], hosts: TwoHosts
) -> None:
    hosts.client.run("mount", "-o", "remount,size=1m", "/tmp")  # noqa: S108
    try:
        assert "the disk there may be full" in refused(connect)
        assert clean(hosts.client) == []
        # Room for the agent, none for the engine.
        hosts.client.run("mount", "-o", "remount,size=3m", "/tmp")  # noqa: S108
        assert "No space left on device" in refused(connect)
    finally:
        hosts.client.run("mount", "-o", "remount,size=50%", "/tmp")  # noqa: S108


@pytest.mark.parametrize("value", ["", "0", "3", "3601", "60 s", "-5", "1e3", "٦٠"])
def test_a_time_of_silence_that_is_none_is_refused(
    value: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(ssh.SILENCE_VARIABLE, value)
    with pytest.raises(LabError, match="must be a whole number of seconds from 4 to 3600"):
        ssh.silence()
    monkeypatch.setenv(ssh.SILENCE_VARIABLE, "8")
    assert ssh.silence() == 8


def test_a_user_without_sudo_is_reported() -> None:
    words = ["sh", "-c", ssh._AS_ROOT, "sh", "exit 0", "sh"]
    as_root = subprocess.run(words, check=False)
    nobody = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]
    as_nobody = subprocess.run([*nobody, *words], check=False)
    assert (as_root.returncode, as_nobody.returncode) == (0, 91)
    assert "may use sudo without a password" in refusal(as_nobody.returncode, "")


@pytest.mark.parametrize(
    ("address", "words"),
    [
        (ADDRESSES["server"], "the ssh port is closed"),
        ("192.0.2.99", "there is no route to the host"),
        ("203.0.113.1", "there is no route to the host's network"),
        ("no-such-name.invalid", "the name is not known"),
    ],
)
def test_a_host_that_is_not_reached_is_reported(address: str, words: str, hosts: TwoHosts) -> None:
    done = subprocess.run(
        [*hosts.client.enter, "ssh", "-Fnone", "-oConnectTimeout=9", "-oBatchMode=yes", address],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert words in refusal(done.returncode, done.stderr)


def test_a_computer_without_ssh_is_reported(
    connect: Callable[..., SshAgent], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    assert refused(connect).endswith("(apt-get install openssh-client)")
