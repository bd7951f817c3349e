"""Engine and agent for boards, as ``scripts/engines`` builds them, and what runs them here."""

import contextlib
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[1]
SCRIPT: Final = str(ROOT / "scripts/engines")
MACHINES: Final = {"arm64": "aarch64", "armv7": "armv7l", "armv6": "armv6l"}
"""What ``uname -m`` says there."""
WINDOWS: Final = "windows"
ELF: Final = {"arm64": (2, 183), "armv7": (1, 40), "armv6": (1, 40)}
"""Class and machine in the header of a program (elf(5))."""


def scripted(*words: str) -> subprocess.CompletedProcess[str]:
    """Run ``scripts/engines``."""
    done = subprocess.run(
        [SCRIPT, *words], cwd=ROOT, capture_output=True, text=True, check=False, timeout=1700
    )
    assert done.returncode == 0, f"{words}: {done.stdout[-4000:]}{done.stderr[-4000:]}"
    return done


def only(board: str) -> list[str]:
    """Return what of the engine there is for a board, as words for cargo."""
    return ["--features", "tunnelmark-engine/portable"] if board == WINDOWS else []


def built(board: str) -> Path:
    """Build both programs as ``cargo test`` has them, in less time; return their folder."""
    scripted("cargo", board, "build", "--locked", "--package", "tunnelmark-engine", *only(board))
    target = scripted("target", board).stdout.strip()
    return Path(target) / "debug"


@contextlib.contextmanager
def runs_here(board: str) -> Iterator[None]:
    """Let this computer's kernel hand programs for a board to QEMU (binfmt_misc), for as long.

    Whoever undoes it outlives this process: it waits for the end of a pipe.
    """
    wide, machine = ELF[board]
    name = f"tmtest-{board}-{os.getpid()}"
    magic = f"7f454c46{wide:02x}0101" + "00" * 9 + "0200" + machine.to_bytes(2, "little").hex()
    # Whatever the operating system of the header, and whether the program may be moved.
    mask = "ff" * 7 + "00" + "ff" * 8 + "feff" + "ffff"
    escaped = (
        "".join(f"\\x{text[at : at + 2]}" for at in range(0, 40, 2)) for text in (magic, mask)
    )
    qemu = scripted("emulator", board).stdout.strip()
    line = ":".join(["", name, "M", "", *escaped, qemu, "F"])
    folder = "/proc/sys/fs/binfmt_misc"
    words = (
        f'mount -t binfmt_misc binfmt_misc {folder} && printf %s "$1" >{folder}/register '
        f"&& echo ready && read -r _; echo -1 >{folder}/{name}"
    )
    with subprocess.Popen(
        ["unshare", "--mount", "sh", "-c", words, "sh", line],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as keeper:
        assert keeper.stdin is not None
        assert keeper.stdout is not None
        try:
            assert keeper.stdout.readline() == "ready\n"
            yield
        finally:
            keeper.stdin.close()
            keeper.wait(20)
