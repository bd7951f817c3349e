"""Wheel and sdist as a user makes and installs them: one real run by what was installed."""

import json
import os
import struct
import subprocess
import sys
import sysconfig
import tarfile
import venv
import zipfile
from pathlib import Path
from typing import Any

import pytest

from small_study import LOOSE_VALIDITY
from tunnelmark.tunnels.registry import tunnel_kinds

ROOT = Path(__file__).resolve().parents[2]
PROGRAMS = ("tunnelmark-engine", "tunnelmark-agent")
_PT_INTERP = 3
_QUICKLY = {"CARGO_PROFILE_RELEASE_LTO": "off", "CARGO_PROFILE_RELEASE_CODEGEN_UNITS": "16"}
"""Makes a build that is not optimized as a whole: two minutes of CPU less. That the release's own
optimization works is seen in set-up, which builds what all other tests run."""

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]

STUDY = f"""
format = 1
name = "installed"
title = "Installed"
seed = 5

[precision]
metric = "rtt_p50_ns"
min_repeats = 2
max_repeats = 2
max_invalid = 20

{LOOSE_VALIDITY}
[[link]]
kind = "serial"
rate = "8 Mbit/s"
delay = "5 ms"

[[workload]]
kind = "udp_echo"
gap = "10 ms"
packets = 20
payload_bytes = 64
"""


def _ours(**more: str) -> dict[str, str]:
    """Return an environment in which pip finds the build tools that are installed here."""
    here = str(Path(sys.executable).parent)
    kept = {k: v for k, v in os.environ.items() if k not in {"PYTHONPATH", "TUNNELMARK_ENGINE"}}
    return {**kept, "PATH": f"{here}{os.pathsep}{os.environ['PATH']}", **more}


def _do(*argv: str | Path, cwd: Path, env: dict[str, str]) -> str:
    done = subprocess.run(
        [str(word) for word in argv], cwd=cwd, env=env, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, f"{argv}: {done.stdout[-2000:]}{done.stderr[-4000:]}"
    return done.stdout


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The sdist, the wheel of the checkout and the wheel of the sdist, without the network."""
    folder = tmp_path_factory.mktemp("built")
    # What cargo has built for this checkout serves both: only what is ours is built again.
    target = os.environ.get("CARGO_TARGET_DIR", str(ROOT / "target"))
    env = _ours(CARGO_TARGET_DIR=target, **_QUICKLY)
    offline = ("--no-build-isolation", "--no-deps", "--no-index", "--disable-pip-version-check")
    # Where pip has no command for it: the hook that `python -m build` calls.
    hook = f"import backend; backend.build_sdist({str(folder)!r})"
    backend = {**env, "PYTHONPATH": str(ROOT / "scripts/build")}
    _do(sys.executable, "-c", hook, cwd=ROOT, env=backend)
    (sdist,) = folder.glob("*.tar.gz")
    made = {"sdist": sdist}
    for name, source in (("checkout", ROOT), ("wheel of sdist", sdist)):
        into = folder / name.replace(" ", "-")
        pip = (sys.executable, "-m", "pip", "wheel", *offline, "--wheel-dir", into, source)
        _do(*pip, cwd=folder, env=env)
        (made[name],) = into.glob("*.whl")
    return made


@pytest.mark.parametrize("which", ["checkout", "wheel of sdist"])
def test_a_wheel_has_static_programs_and_all_of_the_package(
    built: dict[str, Path], which: str
) -> None:
    with zipfile.ZipFile(built[which]) as wheel:
        names = set(wheel.namelist())
        for program in PROGRAMS:
            (inside,) = (name for name in names if name.endswith(f".data/scripts/{program}"))
            assert _PT_INTERP not in _segments(wheel.read(inside)), f"{program} is not static"
        for entry in wheel.infolist():
            if ".data/scripts/" in entry.filename:
                assert entry.external_attr >> 16 & 0o111 == 0o111, f"{entry.filename} cannot be run"
    package = ROOT / "src"
    ours = {
        str(path.relative_to(package))
        for path in package.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert ours - names == set()
    assert any(name.endswith(".data/scripts/tunnelmark") for name in names)


def test_the_sdist_has_what_a_build_needs_and_nothing_made(built: dict[str, Path]) -> None:
    with tarfile.open(built["sdist"]) as sdist:
        names = {name.split("/", 1)[1] for name in sdist.getnames()}
    assert {"pyproject.toml", "Cargo.lock", "LICENSE", "wheel.data/scripts/tunnelmark"} <= names
    assert [n for n in names if n.startswith(("target/", ".venv/", "results/"))] == []


@pytest.fixture(scope="module")
def installed(built: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A clean environment with the wheel; its dependencies are those that the tests run with."""
    folder = tmp_path_factory.mktemp("clean")
    venv.create(folder, with_pip=True, symlinks=True)
    # `pip install .` is this wheel's build and its installation.
    pip = (folder / "bin/python", "-m", "pip", "install", "--no-deps", "--no-index", "--quiet")
    _do(*pip, built["wheel of sdist"], cwd=folder, env=_ours())
    # A folder named in a .pth file is searched, the .pth files inside it are not: an editable
    # installation there stays out of sight.
    (site,) = folder.glob("lib/python3*/site-packages")
    (site / "dependencies.pth").write_text(sysconfig.get_path("purelib"), encoding="utf-8")
    return folder / "bin"


def _tunnelmark(installed: Path, folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    (folder / "runtime").mkdir(mode=0o700, exist_ok=True)
    env = _ours(TUNNELMARK_RUNTIME=str(folder / "runtime"))
    return subprocess.run(
        [str(installed / "tunnelmark"), *words],
        cwd=folder,
        env={**env, "PATH": f"{installed}{os.pathsep}{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        check=False,
    )


def test_the_command_is_that_of_the_wheel(installed: Path, tmp_path: Path) -> None:
    words = "import tunnelmark; print(tunnelmark.__file__)"
    assert _do(installed / "python", "-c", words, cwd=tmp_path, env=_ours()).startswith(
        str(installed.parent)
    )
    listed = _tunnelmark(installed, tmp_path, "studies", "list")
    assert listed.returncode == 0, listed.stderr
    assert "quickstart" in listed.stdout
    asked = _tunnelmark(installed, tmp_path, "doctor", "--no-machine", "--json")
    assert asked.returncode in {0, 3}, asked.stderr
    said = json.loads(asked.stdout)
    engine: dict[str, Any] = next(f for f in said["machine"] if f["name"] == "engine")
    assert engine["message"] == str(installed / "tunnelmark-engine")
    assert [tunnel["kind"] for tunnel in said["tunnels"]] == list(tunnel_kinds())


@pytest.mark.lab
def test_the_installed_program_measures(installed: Path, tmp_path: Path) -> None:
    (tmp_path / "study.toml").write_text(STUDY, encoding="utf-8")
    done = _tunnelmark(installed, tmp_path, "run", "study.toml")
    assert done.returncode == 0, done.stdout + done.stderr
    (result,) = (tmp_path / "results").iterdir()
    assert (result / "report/report.html").stat().st_size > 0
    again = _tunnelmark(installed, tmp_path, "report", str(result))
    assert again.returncode == 0, again.stderr
    assert "none" in again.stdout


def _segments(elf: bytes) -> list[int]:
    """Return the types of the program headers of a 64-bit little-endian ELF file."""
    assert elf[:6] == b"\x7fELF\x02\x01"
    (start,) = struct.unpack_from("<Q", elf, 32)
    size, number = struct.unpack_from("<HH", elf, 54)
    return [struct.unpack_from("<I", elf, start + size * n)[0] for n in range(number)]
