"""``doctor``: the table of tunnels by place, with a way out for everything that is missing."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from tunnelmark.cli.doctor import _NOT_CHECKED, _text, _text_of_system, doctor
from tunnelmark.lab import doctor as lab_doctor
from tunnelmark.lab import rootless
from tunnelmark.lab.ability import Ability
from tunnelmark.lab.doctor import Finding
from tunnelmark.lab.placement import Placement
from tunnelmark.model.suites import MachineSystem
from tunnelmark.tunnels.registry import tunnel_kinds
from tunnelmark.vmimage import build, cache, programs

_NOT_HERE = "namespaces need root"


@pytest.fixture(autouse=True)
def _runtime(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TUNNELMARK_RUNTIME", str(tmp_path / "runtime"))


def found(
    monkeypatch: pytest.MonkeyPatch, *findings: Finding, machine: str, local: str = _NOT_HERE
) -> None:
    monkeypatch.setattr(lab_doctor, "examine", lambda *_: list(findings))
    monkeypatch.setattr(rootless, "stand", lambda _wanted: None)
    monkeypatch.setattr(Placement, "local_host", lambda _self: local)
    monkeypatch.setattr(Placement, "ready_machine", lambda _self: machine)


def test_without_any_place_the_status_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    no_root = Finding("privileges", ok=False, message="not root", fix="run with sudo")
    found(monkeypatch, no_root, machine="qemu is not installed (apt-get install qemu)")
    done = CliRunner().invoke(doctor, ["--json"], standalone_mode=False)
    assert done.return_value == 3
    said = json.loads(done.stdout)
    assert said["machine"] == [
        {"name": "privileges", "ok": False, "message": "not root", "fix": "run with sudo"}
    ]
    assert [tunnel["kind"] for tunnel in said["tunnels"]] == list(tunnel_kinds())
    for tunnel in said["tunnels"]:
        assert tunnel["local"] == _NOT_HERE
        assert tunnel["machine"] == "qemu is not installed (apt-get install qemu)"
        assert tunnel["can_run"] is False


def test_the_table_has_a_line_for_each_tunnel(monkeypatch: pytest.MonkeyPatch) -> None:
    no_root = Finding("privileges", ok=False, message="not root", fix="run with sudo")
    found(monkeypatch, no_root, machine="unused")
    done = CliRunner().invoke(doctor, ["--no-machine"], standalone_mode=False)
    lines = done.stdout.splitlines()
    assert lines[0] == "--  privileges   not root (run with sudo)"
    for kind in tunnel_kinds():
        assert (
            f"{kind:12} --    --       here: {_NOT_HERE}; "
            "machine: not checked (--no-machine)" in lines
        )


def test_a_machine_that_is_not_needed_needs_no_reason(capsys: pytest.CaptureFixture[str]) -> None:
    _text((), [Ability("gre", "GRE", None, _NOT_CHECKED)])
    assert capsys.readouterr().out.splitlines()[-1] == "gre          ok    --"


def test_of_a_suite_only_machines_are_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def machine(placement: Placement) -> str:
        asked.append(placement._system.describe())
        return "no image (tunnelmark vm build --suite trixie)"

    found(monkeypatch, machine="", local="was asked")
    monkeypatch.setattr(Placement, "ready_machine", machine)
    words = ["--suite", "trixie", "--kernel", "6.16.0"]
    done = CliRunner().invoke(doctor, words, standalone_mode=False)
    assert done.return_value == 3
    assert asked == ["trixie with kernel 6.16.0"]
    said = "tunnels were not checked: no image (tunnelmark vm build --suite trixie)"
    assert done.stdout.splitlines()[-1] == said


def test_of_a_suite_the_table_has_machines_alone(capsys: pytest.CaptureFixture[str]) -> None:
    asked = [Ability("gre", "GRE", "here", None), Ability("fastd", "fastd", "here", "no image")]
    engine = Finding("engine", ok=True, message="there")
    _text_of_system([engine], asked, MachineSystem("trixie"), None)
    assert capsys.readouterr().out.splitlines() == [
        "ok  engine       there",
        "",
        "tunnel       machine  why not",
        "gre          ok",
        "fastd        --       no image",
        "",
        "a study of trixie has all its tunnels in virtual machines",
    ]


def test_the_machine_that_is_found_is_that_of_the_suite(monkeypatch: pytest.MonkeyPatch) -> None:
    image = cache.Image(Path(), "0" * 16, "6.12.1", {}, (), {}, {}, 0, 0)
    asked = []

    def ready(system: MachineSystem) -> cache.Image | None:
        asked.append(system.name)
        return image if system.name == "trixie" else None

    monkeypatch.setattr(programs, "find", lambda program: program)
    monkeypatch.setattr(build, "ready", ready)
    trixie = lab_doctor._machine(MachineSystem("trixie"))
    assert (trixie.ok, trixie.message) == (True, "machines of trixie with Linux 6.12.1")
    forky = lab_doctor._machine(MachineSystem("forky"))
    assert (forky.ok, forky.fix) == (False, "tunnelmark vm build --suite forky")
    assert asked == ["trixie", "forky"]


def test_a_suite_needs_a_machine() -> None:
    done = CliRunner().invoke(doctor, ["--suite", "trixie", "--no-machine"])
    assert done.exit_code == 2
    assert "--suite and --kernel are for virtual machines, not --no-machine" in done.output


def test_without_the_engine_no_machine_is_booted(monkeypatch: pytest.MonkeyPatch) -> None:
    no_engine = Finding("engine", ok=False, message="no engine", fix="make setup")
    found(monkeypatch, no_engine, machine="was booted")
    done = CliRunner().invoke(doctor, ["--json"], standalone_mode=False)
    tunnels = json.loads(done.stdout)["tunnels"]
    assert {tunnel["machine"] for tunnel in tunnels} == {"no engine (make setup)"}


def test_a_missing_emulator_and_a_missing_image_are_named_with_their_remedy(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def machine() -> Finding:
        return next(f for f in lab_doctor.examine() if f.name == "machine")

    monkeypatch.setattr(programs, "_PATH", "/nonexistent")
    assert machine().fix == "apt-get install qemu-system-x86"
    monkeypatch.setattr(programs, "find", lambda program: program)
    monkeypatch.setattr(build, "ready", lambda _system: None)
    assert machine().fix == "tunnelmark vm build"
    assert not machine().ok
