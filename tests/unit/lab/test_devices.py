"""Limits of endpoints: who is held back, by which words, and how a device's cores are shared."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tunnelmark.devices.registry import DEVICES, is_limited, roles_of
from tunnelmark.hosts.cgroup import Controller, Quota, Throttled, busiest_since
from tunnelmark.hosts.ledger import Entry, Ledger, read_journal
from tunnelmark.lab import devices
from tunnelmark.lab.benchmarks import PLAIN_CODE, Goal
from tunnelmark.lab.calibrate import Calibration
from tunnelmark.lab.devices import (
    GroupLimit,
    MachineLimit,
    beside_devices,
    cores_for,
    cpu_threads,
    machine_specs,
)
from tunnelmark.model.trial import DriverSpec


def limit_of(
    tmp_path: Path, ledger: Ledger, kind: str, role: str = "client", beside: str = ""
) -> GroupLimit:
    (tmp_path / "cpu").mkdir(exist_ok=True)
    found = Calibration(DEVICES[kind], Goal("SHA1"), Quota(1000, 8000), PLAIN_CODE, {}, 1.0)
    controller = Controller(1, tmp_path / "cpu")
    return GroupLimit(ledger, controller, role, found, "/e/engine", [0], beside)


def quota_in(group: Path) -> tuple[str, str]:
    return tuple((group / f"cpu.cfs_{n}_us").read_text() for n in ("quota", "period"))  # type: ignore[return-value]


def test_which_endpoints_stand_on_a_device() -> None:
    def roles(kind: str, **params: str) -> tuple[str, ...]:
        return roles_of(DriverSpec(kind, kind, params))

    assert roles("host") == ()
    assert not is_limited(DriverSpec("host", "host", {}))
    assert roles("pi-b") == ("client",)
    assert roles("pi-b", endpoint="server") == ("server",)
    assert roles("pi-b", endpoint="both") == ("client", "server")


@pytest.mark.parametrize(
    ("roles", "each", "own", "found"),
    [
        (("client",), 1, (0, 1), {"client": (1,)}),
        (("client", "server"), 1, (0, 1), {"client": (1,), "server": (0,)}),
        (("client", "server"), 1, (0, 1, 2, 3), {"client": (3,), "server": (2,)}),
        (("client", "server"), 4, (0, 1), {"client": (0, 1), "server": (0, 1)}),
        (("client", "server"), 2, (2, 3, 6), {"client": (3, 6), "server": (3, 6)}),
        (("client", "server"), 1, (5,), {"client": (5,), "server": (5,)}),
    ],
)
def test_the_endpoints_have_cores_of_their_own_where_there_are_enough(
    roles: tuple[str, ...], each: int, own: tuple[int, ...], found: dict[str, tuple[int, ...]]
) -> None:
    assert cores_for(roles, each, own) == found


@pytest.mark.parametrize(
    ("cores", "own", "found"),
    [
        ({"client": (3,), "server": (2,)}, (0, 1, 2, 3), {"client": "", "server": ""}),
        ({"client": (1,)}, (0, 1), {"client": ""}),
        (
            {"client": (1,), "server": (0,)},
            (0, 1),
            dict.fromkeys(("client", "server"), "the emulator and what measures"),
        ),
        (
            {"client": (0, 1), "server": (0, 1)},
            (0, 1, 2),
            {"client": "the server's device", "server": "the client's device"},
        ),
        (
            {"client": (0,), "server": (0,)},
            (0,),
            {
                "client": "the server's device, the emulator and what measures",
                "server": "the client's device, the emulator and what measures",
            },
        ),
    ],
)
def test_who_shares_the_cores_of_a_device_is_said(
    tmp_path: Path, cores: dict[str, tuple[int, ...]], own: tuple[int, ...], found: dict[str, str]
) -> None:
    assert beside_devices(cores, own) == found
    with Ledger(tmp_path) as ledger:
        said = limit_of(tmp_path, ledger, "pi-b", beside=found["client"]).describe()
        assert said.endswith("on core 0" + (f", shared with {b}" if (b := found["client"]) else ""))


def test_one_core_is_one_group_and_the_ledger_knew_it_first(tmp_path: Path) -> None:
    with Ledger(tmp_path) as ledger:
        limit = limit_of(tmp_path, ledger, "pi-b")
        group = tmp_path / "cpu" / f"{ledger.run_id}-client"
        assert Entry("cgroup", str(group)) in read_journal(ledger.directory)
        assert quota_in(group) == ("1000", "8000")
        words = limit.words(["ip", "netns", "exec", "x", "openvpn"])
        assert words[:2] == ["sh", "-c"]
        assert words[3:5] == ["limited", str(group / "cgroup.procs")]
        assert words[5:7] == ["taskset", "-c"]
        assert words[-5:] == ["ip", "netns", "exec", "x", "openvpn"]
        assert limit.words(["other"])[4] == words[4]
        assert limit.capacity == pytest.approx(0.125)
        assert limit.environment == PLAIN_CODE


def test_what_measures_is_not_held_back(tmp_path: Path) -> None:
    with Ledger(tmp_path) as ledger:
        limit = limit_of(tmp_path, ledger, "pi-b")
        assert not limit.applies(["/e/engine", "send", "-"])
        assert limit.applies(["openvpn", "--config", "/e/engine"])


def test_on_several_cores_a_program_has_as_many_as_it_has_threads(tmp_path: Path) -> None:
    with Ledger(tmp_path) as ledger:
        limit = limit_of(tmp_path, ledger, "pi-3")
        whole = tmp_path / "cpu" / f"{ledger.run_id}-client"
        assert quota_in(whole) == ("4000", "8000")
        assert limit.capacity == pytest.approx(0.5)
        groups = [Path(limit.words([name])[4]).parent for name in ("one", "three", "many", "gone")]
        assert len(set(groups)) == 4
        for group, threads in zip(groups, (1, 3, 9, 0), strict=True):
            assert group.parent == whole
            assert quota_in(group) == ("1000", "8000")
            (group / "tasks").write_text("\n".join(str(n) for n in range(threads)))
        limit.settle()
        assert [quota_in(group)[0] for group in groups] == ["1000", "3000", "4000", "1000"]


def test_the_device_is_as_busy_as_its_busiest_program(tmp_path: Path) -> None:
    with Ledger(tmp_path) as ledger:
        limit = limit_of(tmp_path, ledger, "pi-3")
        whole = tmp_path / "cpu" / f"{ledger.run_id}-client"
        group = Path(limit.words(["one"])[4]).parent
        (whole / "cpu.stat").write_text("nr_periods 10\nnr_throttled 10\n")
        (group / "cpu.stat").write_text("nr_periods 9\nnr_throttled 0\n")
        before = limit.throttled()
        (whole / "cpu.stat").write_text("nr_periods 100\nnr_throttled 11\n")
        (group / "cpu.stat").write_text("nr_periods 99\nnr_throttled 80\n")
        assert busiest_since(limit.throttled(), before) == Throttled(90, 80)


def test_a_program_that_came_later_is_counted_from_its_start(tmp_path: Path) -> None:
    """Its counts less those of another group were figures of neither."""
    with Ledger(tmp_path) as ledger:
        limit = limit_of(tmp_path, ledger, "pi-3")
        whole = tmp_path / "cpu" / f"{ledger.run_id}-client"
        first = Path(limit.words(["one"])[4]).parent
        (whole / "cpu.stat").write_text("nr_periods 500\nnr_throttled 1\n")
        (first / "cpu.stat").write_text("nr_periods 400\nnr_throttled 80\n")
        before = limit.throttled()
        second = Path(limit.words(["two"])[4]).parent
        (second / "cpu.stat").write_text("nr_periods 300\nnr_throttled 300\n")
        found = busiest_since(limit.throttled(), before)
        assert found.throttled / found.periods == 1.0


def test_the_cores_of_a_machine_are_counted_apart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(devices, "cpu_threads", lambda _pid: [21, 22, 23, 24])
    (tmp_path / "cpu").mkdir()
    calibration = Calibration(DEVICES["pi-3"], Goal("SHA1"), Quota(1000, 8000), PLAIN_CODE, {}, 1.0)
    machine: Any = SimpleNamespace(facts=SimpleNamespace(qemu_pid=20))
    nobody: Any = None
    with Ledger(tmp_path) as ledger:
        limit = MachineLimit(
            ledger,
            Controller(1, tmp_path / "cpu"),
            "client",
            DEVICES["pi-3"],
            machine,
            lambda *_: calibration,
            nobody,
        )
        cores = sorted((tmp_path / "cpu" / f"{ledger.run_id}-client").glob("p*"))

        def count(*throttled: int) -> None:
            for core, number in zip(cores, throttled, strict=True):
                (core / "cpu.stat").write_text(f"nr_periods 1000\nnr_throttled {number}\n")

        count(900, 0, 0, 0)
        before = limit.throttled()
        count(900, 950, 0, 0)
        assert busiest_since(limit.throttled(), before).throttled == 950


def test_the_threads_of_a_machines_cpus_are_found_by_number(tmp_path: Path) -> None:
    names = {
        9: "qemu-system-x86",
        12: "CPU 1/TCG",
        11: "CPU 0/TCG",
        13: "CPU x/TCG",
        14: "CPU 10/T",
    }
    for thread, name in names.items():
        (tmp_path / "9" / "task" / str(thread)).mkdir(parents=True)
        (tmp_path / "9" / "task" / str(thread) / "comm").write_text(f"{name}\n")
    assert cpu_threads(9, tmp_path) == [11, 12]


def test_a_machine_on_a_device_has_its_cores_and_no_cipher_instructions() -> None:
    specs = machine_specs(DriverSpec("pi-3", "pi-3", {"endpoint": "server"}))
    assert list(specs) == ["server"]
    assert (specs["server"].cpus, specs["server"].plain_cpu) == (4, True)
    assert machine_specs(DriverSpec("host", "host", {})) == {}
