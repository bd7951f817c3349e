"""Two hosts that are reached by SSH alone, each a machine with a kernel and a clock of its own.

Debian's sshd runs in them, with keys of the run. One network card of each is on a line of known
delays, the other leads to this computer, for ssh alone. All of it ends with its context.
"""

import contextlib
import os
import re
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Final

from ssh_hosts import ADDRESSES, LINE, SSHD, SSHD_CONFIG, ByName
from tunnelmark.engine.binary import find_engine
from tunnelmark.engine.link import LinkSpec
from tunnelmark.hosts.ledger import Ledger
from tunnelmark.hosts.local import NetnsHost
from tunnelmark.hosts.vm import VmHost
from tunnelmark.hosts.vm_accel import choose
from tunnelmark.hosts.vm_machine import Booting, Machine
from tunnelmark.hosts.vm_payload import Payload
from tunnelmark.hosts.vm_qemu import MachineSpec, Nic
from tunnelmark.lab.emulators import Emulators
from tunnelmark.lab.place import carry_only
from tunnelmark.model.topology import MACS
from tunnelmark.vmimage.cache import Image

_SIDES: Final = {"client": "a", "server": "b"}
_APART: Final = {"client": ("10.78.0.1", "10.78.0.2"), "server": ("10.78.1.1", "10.78.1.2")}
"""Of this computer and of the machine, on the card that carries ssh."""
_APART_MACS: Final = {"client": "02:00:00:00:78:01", "server": "02:00:00:00:78:02"}
_PPM: Final = 1 << 16
"""In the frequency of adjtimex(2)."""
_TICK_US, _TICK_PPM = 10_000, 100
"""Its tick, and what a microsecond more of that is."""
_TICKS: Final = re.compile(
    r"tsc: (?:Refined TSC clocksource calibration:|Detected) ([0-9]+[.][0-9]+) MHz"
)
_CLOCK: Final = "/sys/devices/system/clocksource/clocksource0/current_clocksource"
_TIMERS: Final = PurePosixPath("/proc/timer_list")
_NOW: Final = re.compile(rb"^now at ([0-9]+) nsecs$", re.MULTILINE)
_LOOKS: Final = 60
# Run where the machines' cards are: gives ssh a connection, and ends.
_CONNECT: Final = """\
import array, socket, sys
made = socket.create_connection((sys.argv[1], 22), 10)
to = socket.socket(fileno=1)
to.sendmsg([b"x"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [made.fileno()]))])
"""


@dataclass(frozen=True)
class MachineHost:
    """One of them: what a test may do to it beside ssh."""

    role: str
    machine: Machine
    host: VmHost

    def run(self, *argv: str) -> str:
        return self.host.run(argv).text()

    def ahead_ns(self) -> tuple[int, int, int]:
        """Return when (ns, by our monotonic clock) its own was ahead by at least and at most what.

        The kernel there says what time it is; the quickest of many answers counts.
        """
        found = []
        for _ in range(_LOOKS):
            asked_ns = time.monotonic_ns()
            said = _NOW.search(self.machine.get(_TIMERS, 1 << 20))
            answered_ns = time.monotonic_ns()
            assert said is not None
            there_ns = int(said[1])
            found.append((answered_ns - asked_ns, asked_ns, there_ns))
        took_ns, asked_ns, there_ns = min(found)
        return asked_ns + took_ns // 2, there_ns - asked_ns - took_ns, there_ns - asked_ns

    def runs_faster(self, other: "MachineHost", ppm: float) -> None:
        """Let its clocks run faster than another's.

        Both count ticks of this computer's counter; each kernel has found out by itself how many
        make a second, and no two find the same.
        """
        own = ppm - (other.ticks_mhz() / self.ticks_mhz() - 1) * 1e6
        # By whole microseconds of a tick, and what is left: alone that may be 500 ppm at most.
        ticks = round(own / _TICK_PPM)
        rest = round((own - ticks * _TICK_PPM) * _PPM)
        words = ["-t", str(_TICK_US + ticks), "-f", str(rest)]
        self.run("busybox", "adjtimex", "-q", *words)

    def ticks_mhz(self) -> float:
        """Return what its kernel takes for the rate of its counter, once it is sure."""
        while self.run("cat", _CLOCK) != "tsc\n":
            time.sleep(0.2)
        return float(_TICKS.findall(self.run("dmesg"))[-1])

    def steps(self, seconds: int) -> None:
        """Set its wall clock, as NTP does that finds it wrong."""
        self.run("sh", "-c", f"date -s @$(($(date +%s) + {seconds}))")

    def leftovers(self) -> list[str]:
        """Files, interfaces and processes of a run that are there."""
        found = self.run("find", "/tmp", "-mindepth", "1", "-name", "tm*").split()  # noqa: S108
        links = self.run("ip", "-o", "link").splitlines()
        found += [line for line in links if "tm" in line.split(":")[1]]
        agents = self.run("ps", "-wweo", "args=").splitlines()
        return found + [line for line in agents if "tunnelmark-agent stdio" in line]


@dataclass(frozen=True)
class TwoMachines(ByName):
    """Both, and the files by which ssh reaches them."""

    client: MachineHost
    server: MachineHost


@contextlib.contextmanager
def two_machines(
    ledger: Ledger, line: LinkSpec, image: Image, payload: Payload
) -> Iterator[TwoMachines]:
    """Boot two machines, joined by a line; the server is booted after the client has."""
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="tmmachines-")))
        made = ByName(folder)
        made.make_keys()
        (folder / "connect.py").write_text(_CONNECT, encoding="ascii")
        between = NetnsHost(ledger, "line")
        for role, side in _SIDES.items():
            for tap in (side, f"{side}-ssh"):
                between.run(["ip", "tuntap", "add", "dev", tap, "mode", "tap"])
            carry_only(between, side)
            between.run(["ip", "address", "add", f"{_APART[role][0]}/24", "dev", f"{side}-ssh"])
            between.run(["ip", "link", "set", f"{side}-ssh", "up"])
        found: dict[str, MachineHost] = {}
        for role in _SIDES:
            machine = _booted(between, role, image, payload)
            stack.callback(machine.close)
            machine.go_first()
            host = VmHost(
                machine,
                name=role,
                unique=f"{ledger.run_id}-{role}",
                log_dir=Path(between.work_dir) / "machine-logs",
            )
            _serve(made, host, role)
            python = [sys.executable, "-S", str(folder / "connect.py"), _APART[role][1]]
            enter = ["ip", "netns", "exec", between.unique]
            proxy = ["ProxyUseFdpass yes", f"ProxyCommand {' '.join([*enter, *python])}"]
            made.reach(role, *proxy)
            found[role] = MachineHost(role, machine, host)
        emulators = Emulators(between, line, engine=find_engine(), parent_pid=os.getpid())
        emulators.start(1)
        stack.callback(emulators.stop)
        yield TwoMachines(folder, found["client"], found["server"])


def _booted(between: NetnsHost, role: str, image: Image, payload: Payload) -> Machine:
    side = _SIDES[role]
    nics = (Nic(side, MACS[role]), Nic(f"{side}-ssh", _APART_MACS[role]))
    booting = Booting(
        between,
        name=role,
        image=image,
        payload=payload,
        choice=choose(image),
        spec=MachineSpec(cpus=1, memory_mib=768, nics=nics),
    )
    return booting.machine()


def _serve(made: ByName, host: VmHost, role: str) -> None:
    """Give the machine its addresses, and start Debian's sshd."""
    for card, name, address in (("eth0", LINE, ADDRESSES[role]), ("eth1", "eth1", _APART[role][1])):
        host.run(["ip", "link", "set", "dev", card, "name", name])
        host.run(["ip", "address", "add", f"{address}/24", "dev", name])
        host.run(["ip", "link", "set", "dev", name, "up"])
    etc, root = PurePosixPath("/etc/ssh"), PurePosixPath("/root/.ssh")
    host.put(etc / "ssh_host_ed25519_key", (made.folder / role).read_bytes())
    host.put(root / "authorized_keys", (made.folder / "user.pub").read_bytes())
    config = f"HostKey {etc}/ssh_host_ed25519_key\n{SSHD_CONFIG}"
    host.put(etc / "sshd_config", config.encode())
    host.spawn([SSHD, "-D", "-e"], name="sshd")
