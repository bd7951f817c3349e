"""Engine and agent for boards: built for them, and run under QEMU's user emulation.

``TUNNELMARK_BOARDS`` names others than arm64, as scripts/engines calls them (``make boards``): also
``windows``, where the engine alone is run, under Wine.
"""

import json
import os
import signal
import struct
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from boards import ELF, MACHINES, ROOT, SCRIPT, WINDOWS, built, only, scripted
from skips import has_tools
from tunnelmark.engine import config
from tunnelmark.engine.binary import engine_version
from tunnelmark.engine.records import MISSING_NS, USER_TIME, read_send
from tunnelmark.engine.summary import (
    ReflectSummary,
    SendSummary,
    parse_reflect_summary,
    parse_send_summary,
)

BOARDS = os.environ.get("TUNNELMARK_BOARDS", "arm64").split()
# What speaks with the kernel; what the other crates need for their tests costs minutes to build.
CRATES = ("tm-io", "tunnelmark-engine")
# They hold the kernel's times of arrival and its counts of drops, which QEMU does not pass on.
NOT_EMULATED = (
    "udp::batch::tests::a_batch_can_be_used_again_after_fewer_and_longer_packets",
    "udp::batch::tests::an_arrival_has_the_kernels_time_only_where_that_was_asked_for",
    "udp::batch::tests::drops_behind_the_last_packet_that_is_read_are_seen",
    # It counts reports; where its 60 ms take more than a second, there are more.
    "emulator::tests::reports_come_when_asked_for_and_at_the_end",
    # A look at the clock takes so long there that all waiting passes for an interruption.
    "emulator::tests::threads_that_shall_sleep_are_never_awake_for_nothing",
)
PACKETS = 100
# It says so of Linux: elsewhere a sleeper may never wake before the time.
NOT_PORTABLE = ("alarm::tests::what_is_spent_awake_is_what_was_waited_and_no_more",)
MS = 1_000_000
# What a Ctrl-C is there; nothing like SIGTERM can be seen by a program.
ENDS = {WINDOWS: signal.SIGINT}
_PT_INTERP = 3
_AMD64 = 0x8664

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(1800),
    pytest.mark.xdist_group("boards"),
    pytest.mark.skipif(not has_tools(), reason="needs the tools of scripts/engines"),
]


@pytest.fixture(scope="module", params=BOARDS)
def board(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def programs(board: str) -> Path:
    """The folder with both programs."""
    return built(board)


@pytest.fixture
def emulated(board: str, programs: Path, tmp_path: Path) -> str:
    """A program of this computer that is the engine under QEMU."""
    script = tmp_path / "engine"
    program = programs / ("tunnelmark-engine.exe" if board == WINDOWS else "tunnelmark-engine")
    script.write_text(
        f'#!/bin/sh\nexec "{SCRIPT}" run {board} "{program}" "$@"\n', encoding="utf-8"
    )
    script.chmod(0o755)
    return str(script)


def echo(
    sender: str, reflector: str, folder: Path, *, end: signal.Signals = signal.SIGTERM
) -> tuple[SendSummary, ReflectSummary]:
    """Send packets from one engine to another, with records."""
    session = config.Session(0, 1000, "5a" * 16)
    reflect = config.reflect_config(
        ["127.0.0.1:0"], [session], records=None, realtime_priority=None, parent_pid=None
    )
    answering = subprocess.Popen(
        [reflector, "reflect", "-"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    with answering:
        assert answering.stdin is not None
        assert answering.stdout is not None
        answering.stdin.write(json.dumps(reflect))
        answering.stdin.close()
        flow = config.Flow(
            session=session,
            target=json.loads(answering.stdout.readline())["listen"][0],
            source=None,
            duration_ns=None,
            packets=PACKETS,
            gap_ns=10 * MS,
            start_offset_ns=0,
            payload_bytes=200,
            content={"type": "random"},
        )
        send = config.send_config(
            [flow],
            seed=5,
            drain_ns=5000 * MS,
            late_ns=5000 * MS,
            records=str(folder / "send.rec"),
            realtime_priority=None,
            parent_pid=None,
        )
        sent = subprocess.run(
            [sender, "send", "-"],
            input=json.dumps(send),
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        answering.send_signal(end)
        reflected = answering.stdout.read()
        assert answering.wait(30) == 0
    assert sent.returncode == 0, sent.stderr
    return parse_send_summary(last(sent.stdout)), parse_reflect_summary(last(reflected))


def last(events: str) -> dict[str, Any]:
    event: dict[str, Any] = json.loads(events.splitlines()[-1])
    assert event["event"] == "summary"
    return event


def machine_of(program: Path) -> tuple[int, int]:
    """Return class and machine of a program (elf(5))."""
    elf = program.read_bytes()
    return elf[4], int.from_bytes(elf[18:20], "little")


def segments(elf: bytes) -> list[int]:
    """Return the types of the program headers of a little-endian ELF file (elf(5))."""
    wide = elf[4] == 2
    (start,) = struct.unpack_from("<Q" if wide else "<I", elf, 32 if wide else 28)
    size, count = struct.unpack_from("<HH", elf, 54 if wide else 42)
    return [struct.unpack_from("<I", elf, start + size * n)[0] for n in range(count)]


def test_they_are_static_programs_for_the_architecture(board: str, programs: Path) -> None:
    if board == WINDOWS:
        program = (programs / "tunnelmark-engine.exe").read_bytes()
        (at,) = struct.unpack_from("<I", program, 60)
        assert program[at : at + 6] == b"PE\0\0" + _AMD64.to_bytes(2, "little")
        return
    for name in ("tunnelmark-engine", "tunnelmark-agent"):
        assert machine_of(programs / name) == ELF[board]
        assert _PT_INTERP not in segments((programs / name).read_bytes())


def test_the_engine_says_the_version_of_this_computers(emulated: str, engine: str) -> None:
    assert engine_version(emulated) == engine_version(engine)


def test_the_package_for_a_board_installs_its_programs(
    board: str, programs: Path, tmp_path: Path
) -> None:
    out = tmp_path / "dist"
    words = [SCRIPT, "wheel", board, "--out", str(out)]
    built_it = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False)
    if board == WINDOWS:
        assert built_it.returncode == 3
        assert "for Windows there is the engine alone" in built_it.stderr
        return
    assert built_it.returncode == 0, built_it.stderr[-4000:]
    (wheel,) = out.iterdir()
    assert wheel.name.endswith(f"-py3-none-linux_{MACHINES[board]}.whl")
    there = ["--platform", f"linux_{MACHINES[board]}", "--only-binary", ":all:"]
    install = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index"]
    subprocess.run([*install, *there, "--target", str(tmp_path / "made"), str(wheel)], check=True)
    for name in ("tunnelmark-engine", "tunnelmark-agent"):
        assert machine_of(tmp_path / "made/bin" / name) == ELF[board]
        assert (programs / name).is_file()
    assert os.access(tmp_path / "made/bin/tunnelmark", os.X_OK)


@pytest.mark.parametrize("pair", ["board to board", "board to here", "here to board"])
def test_every_packet_returns(
    board: str, emulated: str, engine: str, tmp_path: Path, pair: str
) -> None:
    sender, _, reflector = (
        {"board": emulated, "here": engine}.get(word, "") for word in pair.split()
    )
    end = ENDS.get(board, signal.SIGTERM) if reflector == emulated else signal.SIGTERM
    sent, reflected = echo(sender, reflector, tmp_path, end=end)
    records = read_send((tmp_path / "send.rec").read_bytes(), "send.rec")
    assert len(records) == PACKETS
    assert (records["returned_ns"] != MISSING_NS).all()
    if sender == reflector or board != WINDOWS:
        # Else they have two clocks: that of Windows begins in another year.
        assert (records["remote_rx_ns"] <= records["returned_ns"]).all()
        assert (records["sent_ns"] <= records["remote_rx_ns"]).all()
    assert [flow.answered for flow in reflected.flows] == [PACKETS]
    # Neither QEMU's user emulation nor Windows has times of the kernel: what has none must say so.
    assert sent.timestamps == ("kernel" if sender == engine else "user")
    assert reflected.timestamps == ("kernel" if reflector == engine else "user")
    assert bool((records["flags"] & USER_TIME).all()) == (sender != engine)


def test_the_tests_of_the_crates_pass_there(board: str) -> None:
    packages = [word for crate in CRATES for word in ("--package", crate)]
    unfit = NOT_PORTABLE if board == WINDOWS else NOT_EMULATED
    skipped = [word for name in unfit for word in ("--skip", name)]
    words = ["test", "--locked", "--lib", *packages, *only(board)]
    done = scripted("cargo", board, *words, "--", *skipped)
    assert done.stdout.count("test result: ok.") == len(CRATES)
