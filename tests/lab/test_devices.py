"""CPU limits with the kernel's own control groups: who is held back, and that nothing is left."""

import signal
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from tunnelmark.devices.profiles import SYSTEM_CALLS
from tunnelmark.devices.registry import DEVICES
from tunnelmark.hosts.cgroup import Controller, busiest_since, find_controller, quota_of
from tunnelmark.hosts.ledger import Ledger
from tunnelmark.hosts.local import LocalHost, NetnsHost
from tunnelmark.lab.benchmarks import PLAIN_CODE, Goal, measure
from tunnelmark.lab.calibrate import TOLERANCE, Calibration
from tunnelmark.lab.devices import Devices, GroupLimit
from tunnelmark.model.errors import LabError
from tunnelmark.model.host import Completed
from tunnelmark.model.trial import DriverSpec
from tunnelmark.model.tunnel import Encryption

pytestmark = pytest.mark.lab

_BUSY = ["sh", "-c", "while :; do :; done"]


@pytest.fixture
def controller() -> Controller:
    return find_controller()


def limited(ledger: Ledger, controller: Controller, kind: str, share: float) -> GroupLimit:
    found = Calibration(DEVICES[kind], Goal("SHA1"), quota_of(share), PLAIN_CODE, {}, 1.0)
    return GroupLimit(ledger, controller, "client", found, "/the/engine", [1])


def group_of(pid: int) -> str:
    return Path(f"/proc/{pid}/cgroup").read_text(encoding="ascii")


def wait_for_group(pid: int, name: str) -> None:
    """Wait until a process has entered: it does so itself, before it becomes its program."""
    for _ in range(3000):
        if name in group_of(pid):
            return
        time.sleep(0.02)
    pytest.fail(f"{pid} never entered {name}: {group_of(pid)}")


@pytest.mark.timing
def test_programs_are_held_back_and_the_group_goes_with_the_host(
    ledger: Ledger, controller: Controller
) -> None:
    limit = limited(ledger, controller, "pi-b", 0.1)
    host = NetnsHost(ledger, "client", limit=limit)
    name = f"{ledger.run_id}-client"
    busy = host.spawn(_BUSY, name="busy")
    wait_for_group(busy.pid, name)
    environment = Path(f"/proc/{busy.pid}/environ")
    while not (reported := environment.read_bytes()):  # empty while one program follows another
        assert busy.poll() is None
    assert b"OPENSSL_ia32cap=0:0" in reported.split(b"\0")
    before = limit.throttled()
    while busiest_since(limit.throttled(), before).throttled < 3:
        assert busy.poll() is None
        time.sleep(0.02)
    inside = host.run(["cat", "/proc/self/cgroup"]).text()
    assert name not in inside  # what only sets up or looks is not held back
    host.stop_all()
    host.remove()
    assert not (controller.root / name).exists()
    host.remove()


@pytest.mark.timing
def test_each_program_of_a_device_of_several_cores_has_a_core(
    ledger: Ledger, controller: Controller
) -> None:
    limit = limited(ledger, controller, "pi-3", 0.1)
    host = NetnsHost(ledger, "client", limit=limit)
    for number in range(2):
        busy = host.spawn(_BUSY, name=f"busy{number}")
        wait_for_group(busy.pid, f"{ledger.run_id}-client/p{number}")
    limit.settle()
    host.stop_all()
    host.remove()
    assert not (controller.root / f"{ledger.run_id}-client").exists()


@pytest.mark.timing
def test_a_dead_run_leaves_no_group(tmp_path: Path, controller: Controller) -> None:
    root = tmp_path / "runtime"
    root.mkdir(mode=0o700)
    with Ledger(root) as ledger:
        limited(ledger, controller, "pi-3", 0.1).words(_BUSY)
        local = LocalHost(ledger)
        name = f"{ledger.run_id}-client"
        busy = local.spawn(_BUSY, name="busy")
        (controller.root / name / "p0" / "cgroup.procs").write_text(str(busy.pid))
        # What a run that was killed leaves to the next one.
        removed = ledger.close()
    assert f"control group {controller.root / name}" in removed
    assert busy.wait(10) == -signal.SIGKILL
    assert not (controller.root / name).exists()


def on_this_computer(ledger: Ledger, goal: Goal, environment: Mapping[str, str]) -> float:
    local = LocalHost(ledger)

    def bench(argv: Sequence[str], env: Mapping[str, str], limit_s: float) -> Completed:
        return local.run(argv, env=env, timeout_s=limit_s, check=False)

    return measure(goal, bench, environment, wanted=1e5)


@pytest.mark.parametrize("name", [*DEVICES["pi-b"].speeds_mbyte_s, SYSTEM_CALLS])
def test_this_computer_runs_every_benchmark(ledger: Ledger, name: str) -> None:
    assert on_this_computer(ledger, Goal(name), PLAIN_CODE) > 0


@pytest.mark.timing
def test_the_cipher_of_a_tunnel_is_as_fast_as_the_device_in_its_own_library(
    ledger: Ledger,
) -> None:
    said: list[str] = []
    devices = Devices(ledger, LocalHost(ledger), engine="/the/engine", say=said.append)
    # Go's takes a minute: tests/unit/lab/test_calibrate.py has it with made figures.
    encryption = Encryption("CHACHA20-POLY1305", "GnuTLS")
    found = devices.calibrated(DriverSpec("pi-3", "pi-3", {}), encryption)
    assert found.goal == Goal("ChaCha20-Poly1305", "GnuTLS")
    assert abs(found.figures["ChaCha20-Poly1305"].deviation) <= TOLERANCE
    assert devices.calibrated(DriverSpec("pi-3", "pi-3", {}), encryption) is found
    assert devices.describe() == {f"device pi-3 by {found.goal.describe()}": found.describe()}
    assert said == ["calibrating pi-3 on ChaCha20-Poly1305 of GnuTLS"]


@pytest.mark.timing
def test_a_device_without_its_programs_is_refused(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    local = LocalHost(ledger)
    monkeypatch.setattr(local, "has", lambda program: None if program == "openssl" else program)
    devices = Devices(ledger, local, engine="/the/engine")
    with pytest.raises(LabError, match=r"device pi-b: openssl is not installed \(apt-get install"):
        devices.calibrated(DriverSpec("pi-b", "pi-b", {}), Encryption())
