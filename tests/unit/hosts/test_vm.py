"""The hosts of a machine against its true agent; only the machine around it is missing."""

import os
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

import pytest

from tunnelmark.hosts import vm_payload
from tunnelmark.hosts.vm import VmHost, VmNetnsHost
from tunnelmark.hosts.vm_accel import Choice
from tunnelmark.hosts.vm_channel import Channel
from tunnelmark.hosts.vm_machine import Machine, MachineFacts
from tunnelmark.hosts.vm_payload import Payload
from tunnelmark.hosts.vm_qemu import MachineSpec
from tunnelmark.model.errors import LabError
from tunnelmark.model.faults import UnwritableError
from tunnelmark.model.host import Host, Need
from tunnelmark.vmimage import cpio
from tunnelmark.vmimage.cache import Image

AGENT = vm_payload.installed().programs[vm_payload.AGENT]


class Agent:
    """The agent as a process of this computer, in QEMU's place."""

    argv = ("tunnelmark-agent", "serve")
    name = "machine-a"

    def __init__(self) -> None:
        self.socket, theirs = socket.socketpair()
        assert AGENT is not None
        with theirs:
            self._process = subprocess.Popen([str(AGENT), "serve"], stdin=theirs.fileno())

    @property
    def pid(self) -> int:
        return self._process.pid

    host_pid = pid

    def poll(self) -> int | None:
        return self._process.poll()

    def wait(self, timeout_s: float) -> int:
        try:
            return self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            raise TimeoutError from None

    def stop(self, grace_s: float = 2.0) -> int:
        self._process.terminate()
        return self._process.wait(grace_s)

    def kill(self) -> None:
        self._process.kill()

    def read_line(self, timeout_s: float) -> str | None:
        raise TimeoutError(timeout_s)

    def log_tail(self, lines: int = 5) -> str:
        return "" if lines else "none"


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Machine]:
    agent = Agent()
    channel = Channel(agent.socket, name="machine a", lost=lambda: "lost")
    channel.ready(10)
    image = Image(tmp_path, "0" * 16, "6.1", {}, (), {}, {}, 0, 0)
    facts = MachineFacts(
        name="a",
        image=image,
        choice=Choice("tcg", "a test"),
        spec=MachineSpec(),
        kernel="none-such",
        boot_s=0.0,
        qemu_pid=agent.pid,
    )
    machine = Machine(agent, channel, tmp_path / "console", facts)
    yield machine
    machine.close()
    assert not machine.alive()


@pytest.fixture
def host(machine: Machine, tmp_path: Path) -> VmHost:
    return VmHost(
        machine,
        name="client",
        unique="tm0client",
        log_dir=tmp_path / "logs",
        root=PurePosixPath(tmp_path / "guest"),
    )


class TestHost:
    def test_it_is_a_host(self, host: VmHost) -> None:
        as_host: Host = host
        assert (as_host.name, as_host.unique) == ("client", "tm0client")
        assert as_host.run(["stat", "-c", "%a", str(as_host.work_dir)]).text() == "700\n"

    def test_what_is_not_there_is_not_in_the_image(self, host: VmHost) -> None:
        need = Need(programs={"no-vpnserver": "softether-vpnserver"})
        assert need.missing(host) == "no-vpnserver is not in the image of bookworm"
        host._suite = "trixie"
        assert need.missing(host) == (
            "no-vpnserver is not in the image of trixie: Debian has no such package since 13"
        )

    def test_a_program_runs_to_its_end(self, host: VmHost) -> None:
        done = host.run(["sh", "-c", 'cat; echo "$WORD" >&2'], stdin=b"in", env={"WORD": "err"})
        assert (done.returncode, done.stdout, done.stderr) == (0, b"in", b"err\n")

    def test_what_a_program_wrote_is_not_kept(self, host: VmHost) -> None:
        channel = host.machine._channel
        host.run(["echo", "words"])
        with pytest.raises(LabError, match="not done after"):
            host.run(["sleep", "60"], timeout_s=0.1)
        with pytest.raises(LabError):
            host.run(["/nothing"])
        assert (channel._listeners, channel._early) == ({}, {})

    def test_a_full_disk_here_is_not_the_machine_s_end(self, host: VmHost, tmp_path: Path) -> None:
        process = host.spawn(["sh", "-c", "sleep 0.5; echo words; sleep 60"], name="talks")
        log = tmp_path / "logs" / "client" / "talks.log"
        log.unlink()
        log.symlink_to("/dev/full")
        begun = time.monotonic()
        with pytest.raises(UnwritableError, match=r"talks\.log: cannot be written: No space left"):
            process.wait(30)
        assert time.monotonic() - begun < 20
        assert host.machine.alive()
        assert host.run(["echo", "still here"]).text() == "still here\n"
        process.stop()

    def test_large_input_and_output_pass_whole(self, host: VmHost) -> None:
        data = os.urandom(3_000_001)
        assert host.run(["cat"], stdin=data).stdout == data

    def test_a_failure_is_quoted_unless_it_is_asked_for(self, host: VmHost) -> None:
        argv = ["sh", "-c", "echo why >&2; exit 4"]
        with pytest.raises(LabError, match=r"^client: sh: why$"):
            host.run(argv)
        assert host.run(argv, check=False).returncode == 4

    def test_a_program_that_takes_too_long_is_ended_later_on_an_emulated_cpu(
        self, host: VmHost
    ) -> None:
        with pytest.raises(LabError, match=r"client: sh: not done after 1\.2 s \(nearly\)"):
            host.run(["sh", "-c", "echo nearly; exec sleep 1000"], timeout_s=0.3)

    def test_a_program_that_is_not_there_is_named(self, host: VmHost) -> None:
        with pytest.raises(LabError, match="tm-no-such-program"):
            host.run(["tm-no-such-program"])
        assert host.has("tm-no-such-program") is None
        assert host.has("sh") in {"/usr/bin/sh", "/bin/sh"}

    def test_files_go_in_and_out(self, host: VmHost) -> None:
        path = host.work_dir / "a" / "secret"
        data = os.urandom((1 << 20) + 17)
        host.put(path, data)
        assert host.get(path) == data
        assert Path(path).stat().st_mode & 0o777 == 0o600
        host.put(path, b"", mode=0o644)
        assert host.get(path) == b""
        host.put(path, b"four")
        with pytest.raises(LabError, match="is larger than 3 bytes"):
            host.get(path, limit_bytes=3)
        with pytest.raises(LabError, match="No such file"):
            host.get(host.work_dir / "none")

    def test_files_of_proc_are_read_at_one_moment(self, machine: Machine) -> None:
        stat, none, again = machine.read_files(
            [PurePosixPath(p) for p in ("/proc/stat", "/proc/none", "/proc/self/comm")]
        )
        assert stat is not None
        assert stat.startswith(b"cpu ")
        assert (none, again) == (None, b"tunnelmark-agent"[:15] + b"\n")

    def test_cpu_of_all_processes_is_read_at_one_moment(
        self, host: VmHost, machine: Machine
    ) -> None:
        process = host.spawn(["sleep", "1000"], name="sleeper")
        snapshot = machine.cpu()
        assert snapshot.stat.startswith("cpu ")
        assert snapshot.processes[process.pid].parent == machine.facts.qemu_pid
        assert dict(snapshot.processes[os.getpid()].threads)[os.getpid()] > 0
        assert snapshot.time_ns > 0
        assert not snapshot.processes[process.pid].stopped
        process.signal(signal.SIGSTOP)
        while not machine.cpu().processes[process.pid].stopped:
            time.sleep(0.01)

    def test_lines_are_read_while_the_program_runs(self, host: VmHost) -> None:
        argv = ["sh", "-c", "echo ready; read line; echo $line; read line"]
        process = host.spawn(argv, name="echo", lines=True, stdin=b"word\n")
        assert process.read_line(10) == "ready"
        assert process.read_line(10) == "word"
        assert process.read_line(10) is None
        assert process.wait(10) == 1

    def test_a_daemon_is_logged_and_ended_with_the_host(self, host: VmHost, tmp_path: Path) -> None:
        process = host.spawn(["sh", "-c", "echo up >&2; exec sleep 1000"], name="daemon-0")
        assert process.poll() is None
        assert Path(f"/proc/{process.pid}").exists()
        while process.log_tail() != "up":  # pytest's own limit ends this if it never comes
            host.run(["sleep", "0.02"])
        host.stop_all()
        assert process.wait(0) == -15
        assert (tmp_path / "logs/client/daemon-0.log").read_text() == "up\n"
        assert process.log_tail() == "up"

    def test_a_log_stays_in_its_directory(self, host: VmHost) -> None:
        with pytest.raises(LabError, match="not a log name"):
            host.spawn(["true"], name="../outside")
        with pytest.raises(LabError, match="is not an absolute path"):
            host.spawn(["true"], name="x", private_dirs=["/run/../etc"])

    def test_a_machine_that_dies_ends_its_programs(self, host: VmHost, machine: Machine) -> None:
        process = host.spawn(["sleep", "1000"], name="daemon-0")
        machine.process.kill()
        assert process.wait(10) == -9
        assert process.stop() == -9
        with pytest.raises(LabError, match="machine a: lost"):
            host.run(["true"])

    def test_kernel_features_come_from_the_machines_own_modules(
        self, host: VmHost, machine: Machine, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        files = {
            "/lib/modules/none-such/modules.dep": b"kernel/a/wireguard.ko: kernel/b.ko\n",
            "/lib/modules/none-such/modules.builtin": b"kernel/drivers/tun.ko\n",
        }
        monkeypatch.setattr(machine, "get", lambda path, _limit: files[str(path)])
        assert host.has_kernel("wireguard")
        assert host.has_kernel("tun")
        assert not host.has_kernel("esp")

    def test_a_process_that_is_not_there_is_named_and_the_agent_stays_where_it_is(
        self, machine: Machine, host: VmHost
    ) -> None:
        def namespace() -> str:
            return host.run(["readlink", "/proc/self/ns/net"]).text()

        before = namespace()
        with pytest.raises(LabError, match="spawn: within process 4194305: No such file"):
            machine.start(["true"], {}, stdin=False, within=(1 << 22) + 1)
        assert namespace() == before

    def test_names_are_checked(self, machine: Machine, tmp_path: Path) -> None:
        with pytest.raises(LabError, match="starts with tm"):
            VmHost(machine, name="a", unique="other", log_dir=tmp_path)
        with pytest.raises(LabError, match="is not a host name"):
            VmHost(machine, name="../a", unique="tm1", log_dir=tmp_path)
        with pytest.raises(LabError, match="starts with tm"):
            VmNetnsHost(machine, name="a", unique="-all", log_dir=tmp_path)


def test_the_payload_stands_where_the_first_program_looks(tmp_path: Path) -> None:
    (tmp_path / "agent").write_bytes(b"\x7fELF")
    payload = Payload({"tunnelmark-agent": tmp_path / "agent"})
    assert payload.archive() == cpio.archive(
        {"payload/tunnelmark-agent": cpio.Member(b"\x7fELF", 0o755)}
    )
    with pytest.raises(LabError, match="none: No such file"):
        Payload({"tunnelmark-agent": tmp_path / "none"}).archive()


def test_the_agent_stands_beside_the_engine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("tunnelmark-engine", "tunnelmark-agent"):
        (tmp_path / name).touch(mode=0o755)
    monkeypatch.setenv("TUNNELMARK_ENGINE", str(tmp_path / "tunnelmark-engine"))
    assert vm_payload.installed().programs["tunnelmark-agent"] == tmp_path / "tunnelmark-agent"
    (tmp_path / "tunnelmark-agent").unlink()
    monkeypatch.setenv("PATH", "/nonexistent")
    with pytest.raises(LabError, match=r"tunnelmark-agent is missing \(run: make setup\)"):
        vm_payload.installed()
