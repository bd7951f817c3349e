"""Which programs a host gets, by what its uname says."""

from pathlib import Path

import pytest

from tunnelmark.hosts.ssh_programs import programs_for
from tunnelmark.hosts.vm_payload import AGENT, ENGINE, Payload
from tunnelmark.model.errors import LabError

X86_64, RISC_V = 62, 243


def programs(folder: Path, machine: int) -> Payload:
    folder.mkdir(parents=True)
    made = {}
    for name in (AGENT, ENGINE):
        made[name] = folder / name
        made[name].write_bytes(b"\x7fELF" + bytes(14) + machine.to_bytes(2, "little"))
    return Payload(made)


@pytest.fixture
def own(tmp_path: Path) -> Payload:
    return programs(tmp_path / "own", X86_64)


def test_a_host_like_this_computer_gets_its_programs(own: Payload, tmp_path: Path) -> None:
    assert programs_for("Linux x86_64", own, folder=tmp_path) == own


@pytest.mark.parametrize(
    ("built", "system", "given"),
    [
        (["aarch64", "armv7l", "armv6l"], "Linux aarch64", "aarch64"),
        (["aarch64", "armv7l", "armv6l"], "Linux armv7l", "armv7l"),
        (["aarch64", "armv7l", "armv6l"], "Linux armv6l", "armv6l"),
        (["aarch64", "armv7l", "armv6l"], "Linux armv8l", "armv7l"),
        (["aarch64", "armv6l"], "Linux armv7l", "armv6l"),
    ],
)
def test_a_board_gets_what_was_built_for_it(
    own: Payload, tmp_path: Path, built: list[str], system: str, given: str
) -> None:
    made = {name: programs(tmp_path / name, 40) for name in built}
    assert programs_for(system, own, folder=tmp_path) == made[given]


@pytest.mark.parametrize(
    ("system", "remedy"),
    [
        ("Linux aarch64", " (run: scripts/engines arm64)"),
        ("Linux armv8l", " (run: scripts/engines armv7)"),
        ("Linux armv6l", " (run: scripts/engines armv6)"),
        ("Linux riscv64", ""),
        ("FreeBSD aarch64", ""),
        ("FreeBSD x86_64", ""),
        ("Linux ../own", ""),
    ],
)
def test_a_host_without_programs_is_one_line(
    own: Payload, tmp_path: Path, system: str, remedy: str
) -> None:
    programs(tmp_path / "riscv64", RISC_V)  # no board of ours: nobody built that
    with pytest.raises(LabError) as caught:
        programs_for(system, own, folder=tmp_path)
    words = f"the host is {system}, and there is no agent and engine for it here"
    assert str(caught.value) == words + remedy


def test_one_program_alone_is_none(own: Payload, tmp_path: Path) -> None:
    made = programs(tmp_path / "aarch64", 183)
    made.programs[ENGINE].unlink()
    with pytest.raises(LabError, match="run: scripts/engines arm64"):
        programs_for("Linux aarch64", own, folder=tmp_path)


def test_a_program_that_is_none_is_not_sent(tmp_path: Path) -> None:
    (tmp_path / "agent").write_bytes(b"#!/bin/sh\n")
    with pytest.raises(LabError, match="is not a known Linux program"):
        programs_for("Linux x86_64", Payload({AGENT: tmp_path / "agent"}), folder=tmp_path)
