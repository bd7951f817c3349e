"""Real machines. One is shared by all tests; a few more boot, some seconds each, emulated."""

import json
import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import textwrap
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path, PurePosixPath
from typing import Any

import pytest

from places import Places
from skips import nobody_reads_this
from tunnelmark.hosts.ledger import Ledger, dead_ledgers
from tunnelmark.hosts.local import LocalHost
from tunnelmark.hosts.vm import VmHost, VmNetnsHost
from tunnelmark.hosts.vm_accel import Choice
from tunnelmark.hosts.vm_machine import Booting, Machine
from tunnelmark.hosts.vm_payload import Payload
from tunnelmark.model.errors import LabError
from tunnelmark.model.host import Host, Process
from tunnelmark.vmimage import cache
from tunnelmark.vmimage.cache import Image

pytestmark = [pytest.mark.lab, pytest.mark.machine]

EMULATED = Choice("tcg", "a test")
PROGRAMS = (
    *("ip", "ethtool", "tcpdump", "ping", "sysctl", "tc", "unshare", "chrt", "python3"),
    *("openvpn", "wg", "wireguard-go", "swanctl", "/usr/lib/ipsec/charon", "xl2tpd"),
    *("/usr/libexec/ipsec/pluto", "/usr/libexec/ipsec/addconn", "certutil"),
    *("pptpd", "pptp", "pppd", "sstpc", "hostapd", "wpa_supplicant", "iw", "ocserv"),
    *("openconnect", "tincd", "nebula", "vpnserver", "vpnclient", "vpncmd", "sshd", "ssh"),
    *("iperf3", "irtt", "nginx", "curl", "nft", "iptables", "openssl", "modprobe"),
)


@pytest.fixture(scope="module")
def ledger() -> Iterator[Ledger]:
    with Ledger() as ledger:
        yield ledger


@pytest.fixture(scope="module")
def base(ledger: Ledger) -> LocalHost:
    return LocalHost(ledger)


@pytest.fixture
def machine(places: Places) -> Machine:
    """The shared one, booted as a study does: with whatever works here."""
    return places.placement.machine_host().machine


@pytest.fixture
def host(machine: Machine, ledger: Ledger) -> VmHost:
    logs = ledger.work_dir / "vm-logs"
    return VmHost(machine, name="client", unique=f"{ledger.run_id}-client", log_dir=logs)


def test_the_machine_says_what_it_is(machine: Machine, host: VmHost, image: Image) -> None:
    release = host.run(["uname", "-r"]).text().strip()
    assert release == image.kernel_release == machine.facts.kernel
    assert f"Linux {release}" in machine.facts.describe()
    assert machine.facts.emulated == ("emulated" in machine.facts.describe())
    assert 0 < machine.facts.boot_s < 60
    assert host.run(["nproc"]).text().strip() == "2"


def test_the_programs_of_the_tunnels_are_there_with_their_libraries(host: VmHost) -> None:
    """No package's script ran: what it would have linked or made must not be missing."""
    assert [program for program in PROGRAMS if host.has(program) is None] == []
    script = """
        import shutil, subprocess, sys
        from pathlib import Path
        files = [shutil.which(name) for name in sys.argv[1:]]
        files += sorted(Path("/usr/lib/ipsec/plugins").iterdir())
        for file in files:
            if Path(file).read_bytes()[:4] == b"\\x7fELF":
                out = subprocess.run(["/lib64/ld-linux-x86-64.so.2", "--list", file],
                                     capture_output=True, text=True)
                if out.returncode or "not found" in out.stdout:
                    print(file, out.stdout, out.stderr)
        """
    argv = ["python3", "-c", textwrap.dedent(script), *PROGRAMS]
    assert host.run(argv, timeout_s=120).text() == ""


@pytest.mark.parametrize(
    ("feature", "module"),
    [
        ("esp", "esp4"),
        ("gre", "ip_gre"),
        ("ipcomp", "ipcomp"),
        ("l2tp", "l2tp_ppp"),
        ("macsec", "macsec"),
        ("ppp", "ppp_async"),
        ("ppp_mppe", "ppp_mppe"),
        ("sch_netem", "sch_netem"),
        ("tun", "tun"),
        ("veth", "veth"),
        ("vxlan", "vxlan"),
        ("wireguard", "wireguard"),
        ("wlan", "mac80211_hwsim"),
    ],
)
def test_features_are_there_and_load(host: VmHost, feature: str, module: str) -> None:
    assert host.has_kernel(feature)
    host.run(["modprobe", module])
    loaded = host.get(PurePosixPath("/proc/modules")).decode().split("\n")
    assert any(line.startswith(f"{module} ") for line in loaded)


def test_a_feature_that_is_not_there_is_not_claimed(host: VmHost) -> None:
    assert not host.has_kernel("no_such_feature")


def test_files_of_any_size_go_in_and_out(host: VmHost) -> None:
    data = os.urandom((8 << 20) + 5)
    path = host.work_dir / "files" / "data"
    host.put(path, data, mode=0o640)
    assert host.get(path) == data
    assert host.run(["stat", "-c", "%a %s", str(path)]).text() == f"640 {len(data)}\n"


def test_output_streams_while_the_program_runs(host: VmHost) -> None:
    process = host.spawn(
        ["sh", "-c", "echo one; read x; echo two"], name="s", stdin=b"", lines=True
    )
    assert process.read_line(10) == "one"
    endless = host.spawn(["sh", "-c", "echo up; exec sleep 1000"], name="endless", lines=True)
    assert endless.read_line(10) == "up"
    assert endless.poll() is None
    assert endless.stop() == -signal.SIGTERM
    assert not host.run(["ps", "-o", "comm=", "-p", str(endless.pid)], check=False).stdout


def test_a_daemon_sees_private_directories_and_others_do_not(host: VmHost) -> None:
    script = "touch /run/mine /etc/ppp/mine; ls -A /run; echo; ls -A /etc/ppp; echo; exec sleep 100"
    process = host.spawn(
        ["sh", "-c", script], name="private", private_dirs=["/run", "/etc/ppp"], lines=True
    )

    def listing() -> set[str | None]:
        return set(iter(lambda: process.read_line(10), ""))

    # State starts empty, configuration is a copy.
    state = listing()
    assert "mine" in state
    assert "netns" not in state
    assert {"mine", "options", "peers"} <= listing()
    process.stop()
    outside = host.run(["ls", "-A", "/run", "/etc/ppp"]).text().split()
    assert "mine" not in outside
    assert {"netns", "options"} <= set(outside)


def test_a_whole_lab_fits_inside(machine: Machine, ledger: Ledger) -> None:
    logs = ledger.work_dir / "vm-logs"
    a, b = (
        VmNetnsHost(machine, name=name, unique=f"{ledger.run_id}-{name}", log_dir=logs)
        for name in ("a", "b")
    )
    veth = ["ip", "link", "add", "tma", "type", "veth", "peer", "name", "tmb"]
    a.run([*veth, "netns", b.namespace])
    for place, device, address in ((a, "tma", "198.18.0.1/30"), (b, "tmb", "198.18.0.2/30")):
        place.run(["ip", "address", "add", address, "dev", device])
        place.run(["ip", "link", "set", device, "up"])
    done = a.run(["ping", "-c", "3", "-i", "0.05", "-W", "5", "198.18.0.2"])
    assert " 0% packet loss" in done.text()
    stays = VmHost(machine, name="out", unique=f"{ledger.run_id}-out", log_dir=ledger.work_dir)
    places = [one.run(["readlink", "/proc/self/ns/net"]).text() for one in (a, b, stays)]
    assert len(set(places)) == 3
    # Nothing leads anywhere else.
    assert a.run(["ip", "route", "show", "default"]).text() == ""
    as_host: Host = a
    assert as_host.unique == f"{ledger.run_id}-a"
    for place in (a, b):
        place.remove()
        place.remove()
    assert ledger.run_id not in machine_namespaces(machine, ledger)


def machine_namespaces(machine: Machine, ledger: Ledger) -> str:
    outside = VmHost(machine, name="all", unique=f"{ledger.run_id}-all", log_dir=ledger.work_dir)
    return outside.run(["ip", "netns", "list"]).text()


def test_cpu_of_programs_inside_is_read_in_one_go(host: VmHost, machine: Machine) -> None:
    burner = host.spawn(["sh", "-c", "while :; do :; done"], name="burn")
    try:

        def ticks() -> int:
            return machine.cpu().processes[burner.pid].user_ticks

        first = ticks()
        for _ in range(100):
            if ticks() > first + 10:
                break
            host.run(["sleep", "0.1"])
        assert ticks() > first + 10
        snapshot = machine.cpu()
        # Ticks of 10 ms are sampled, the run time of a thread is exact.
        ((_, run_ns),) = snapshot.processes[burner.pid].threads
        assert run_ns > 50_000_000
        assert all(usage.parent != 2 for usage in snapshot.processes.values())
    finally:
        burner.stop()


def test_the_engine_runs_inside(host: VmHost) -> None:
    answer = json.loads(host.run(["tunnelmark-engine", "version"]).text())
    assert answer["event"] == "version"


def test_steadiness_is_measured_inside(host: VmHost) -> None:
    argv = ["chrt", "-f", "20", "tunnelmark-agent", "steadiness", "1000", "1000"]
    late = json.loads(host.run(argv, timeout_s=60).text())["lateness_ns"]
    assert 0 <= late["p50"] <= late["p99"] <= late["max"]


def test_a_machine_that_dies_names_its_last_words(
    base: LocalHost, ledger: Ledger, image: Image, payload: Payload
) -> None:
    booting = Booting(base, name="dying", image=image, payload=payload, choice=EMULATED)
    machine = booting.machine()
    host = VmHost(machine, name="dying", unique=f"{ledger.run_id}-dying", log_dir=ledger.work_dir)
    daemon = host.spawn(["sleep", "1000"], name="daemon")
    with pytest.raises(LabError, match="Kernel panic - not syncing"):
        host.run(["sh", "-c", "echo c >/proc/sysrq-trigger; sleep 10"])
    assert daemon.wait(10) == -signal.SIGKILL
    machine.close()
    assert not machine.alive()


class SilentOnce:
    """Stops the first QEMU that is started through it before it can say a word."""

    def __init__(self, base: LocalHost) -> None:
        self._base = base
        self.started: list[int] = []

    def __getattr__(self, name: str) -> object:
        return getattr(self._base, name)

    def spawn(self, argv: Sequence[str], **keywords: Any) -> Process:
        process = self._base.spawn(argv, **keywords)
        if not self.started:
            # It connects to the agent's socket within the first moments; the guest needs seconds.
            time.sleep(0.5)
            os.kill(process.pid, signal.SIGSTOP)
        self.started.append(process.pid)
        return process


def test_a_machine_that_says_nothing_is_started_once_more_and_one_that_hangs_is_ended(
    base: LocalHost, image: Image, payload: Payload
) -> None:
    silent: Any = SilentOnce(base)
    machine = Booting(
        silent, name="silent", image=image, payload=payload, choice=EMULATED, limit_s=20
    ).machine()
    assert len(silent.started) == 2
    assert machine.facts.qemu_pid == silent.started[1]
    assert not Path(f"/proc/{silent.started[0]}").exists()
    # One that hangs is ended too.
    os.kill(machine.facts.qemu_pid, signal.SIGSTOP)
    machine.close(grace_s=0.2)
    assert not machine.alive()


def test_a_machine_that_does_not_boot_is_quoted(
    base: LocalHost, image: Image, payload: Payload, tmp_path: Path
) -> None:
    broken = replace(image, directory=tmp_path)
    for name in cache.FILES:
        (tmp_path / name).symlink_to(image.directory / name)
    broken.system.unlink()
    broken.system.write_bytes(bytes(1 << 20))
    with pytest.raises(LabError, match="the system image cannot be mounted"):
        Booting(base, name="no-system", image=broken, payload=payload, choice=EMULATED).machine()
    broken.vmlinux.unlink()
    broken.vmlinux.write_bytes(b"no kernel")
    with pytest.raises(LabError, match=r"QEMU exit status 1.*kernel too old"):
        Booting(base, name="no-kernel", image=broken, payload=payload, choice=EMULATED).machine()


KILLED = """
import sys, time
from pathlib import Path
from tunnelmark.hosts import vm_payload
from tunnelmark.hosts.ledger import Ledger
from tunnelmark.hosts.local import LocalHost
from tunnelmark.hosts.vm import VmHost, VmNetnsHost
from tunnelmark.hosts.vm_accel import Choice
from tunnelmark.hosts.vm_machine import Booting
from tunnelmark.vmimage import cache

ledger = Ledger(Path(sys.argv[1]))
image = cache.load(Path(sys.argv[2]))
base = LocalHost(ledger)
machine = Booting(base, name="m", image=image, payload=vm_payload.installed(),
                  choice=Choice("tcg", "a test")).machine()
host = VmNetnsHost(machine, name="client", unique="tm0-client", log_dir=ledger.work_dir)
print(machine.facts.qemu_pid, host.run(["id", "-u"]).text().strip(), flush=True)
if sys.argv[3] == "wait":
    time.sleep(1000)
machine.close()
ledger.close()
"""


def test_a_run_that_is_killed_takes_its_machine_along(image: Image, payload: Payload) -> None:
    assert payload
    with tempfile.TemporaryDirectory(prefix="tm") as root:
        argv = [sys.executable, "-c", KILLED, root, str(image.directory), "wait"]
        with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as run:
            assert run.stdout is not None
            qemu = int(run.stdout.readline().split()[0])
            pidfd = os.pidfd_open(qemu)
            try:
                run.kill()
                ended, _, _ = select.select([pidfd], [], [], 20)
                assert ended, "QEMU outlived its run"
            finally:
                os.close(pidfd)
            run.wait(20)
        # The group of its programs has no process any more, and is left to whoever cleans.
        (dead,) = dead_ledgers(Path(root))
        dead.clean()
        assert list(Path(root).iterdir()) == []


def test_an_ordinary_user_has_the_whole_lab_in_a_machine(image: Image, payload: Payload) -> None:
    """As nobody, in a user's usual restrictions and without any device: /dev is empty."""
    assert payload
    if not nobody_reads_this():
        pytest.skip("this checkout cannot be read by other users")
    with tempfile.TemporaryDirectory(prefix="tm", dir="/var/tmp") as root:
        Path(root).chmod(0o755)
        shutil.copytree(image.directory, Path(root) / "image")
        (Path(root) / "run").mkdir(mode=0o700)
        os.chown(Path(root) / "run", 65534, 65534)
        inner = [sys.executable, "-c", KILLED, f"{root}/run", f"{root}/image", "end"]
        user = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "--no-new-privs"]
        bare = 'mount -t tmpfs none /dev/net && mount -t tmpfs none /sys/fs && exec "$@"'
        argv = ["unshare", "--mount", "sh", "-c", bare, "bare", *user, *inner]
        done = subprocess.run(
            argv,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
            cwd="/",
            env={"PATH": os.environ["PATH"], "HOME": "/nonexistent"},
        )
        assert done.returncode == 0, done.stderr
        assert done.stdout.split()[1] == "0"  # root inside, nobody outside
        assert list((Path(root) / "run").iterdir()) == []
