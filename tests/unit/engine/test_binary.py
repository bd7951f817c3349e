"""Where the engine is looked for, and that it speaks our protocol."""

import sys
from pathlib import Path

import pytest

from tunnelmark.engine.binary import NAME, engine_version, find_engine
from tunnelmark.model.errors import LabError


@pytest.fixture(autouse=True)
def _nowhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("TUNNELMARK_ENGINE", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path / "path"))
    monkeypatch.setattr(sys, "executable", str(tmp_path / "bin" / "python"))


def program(path: Path, text: str = "") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n", encoding="ascii")
    path.chmod(0o755)
    return path


def test_the_order_of_places(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    checkout = tmp_path / "checkout"
    with pytest.raises(LabError, match=r"nor on the PATH \(run: make setup\)"):
        find_engine(checkout=checkout)
    program(checkout / "crates/engine/Cargo.toml")
    built = program(checkout / "target/release" / NAME)
    assert find_engine(checkout=checkout) == str(built)
    newer = program(checkout / "target/x86_64-unknown-linux-gnu/release" / NAME)
    assert find_engine(checkout=checkout) == str(newer)
    on_path = program(tmp_path / "path" / NAME)
    assert find_engine(checkout=checkout) == str(on_path)
    beside = program(tmp_path / "bin" / NAME)
    assert find_engine(checkout=checkout) == str(beside)
    override = program(tmp_path / "other")
    monkeypatch.setenv("TUNNELMARK_ENGINE", str(override))
    assert find_engine(checkout=checkout) == str(override)


def test_what_cannot_be_run_is_no_engine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    monkeypatch.setenv("TUNNELMARK_ENGINE", str(tmp_path / "folder"))
    with pytest.raises(
        LabError, match=r"TUNNELMARK_ENGINE is .*folder, which is not an executable program"
    ):
        find_engine()


@pytest.mark.parametrize(
    ("says", "complaint"),
    [
        ('echo \'{"event":"version","version":"9","protocol":1}\'', "speaks protocol 1"),
        ("echo hello", "wrote no version"),
        ("echo '[]'", "wrote no version"),
        ("exit 1", "wrote no version"),
    ],
)
def test_an_engine_of_another_protocol_is_refused(
    tmp_path: Path, says: str, complaint: str
) -> None:
    with pytest.raises(LabError, match=complaint):
        engine_version(str(program(tmp_path / "engine", says)))
    with pytest.raises(LabError, match="cannot be run"):
        engine_version(str(tmp_path / "missing"))


def test_the_version_of_an_engine(tmp_path: Path) -> None:
    says = 'echo \'{"event":"version","version":"1.2.3","protocol":2}\''
    assert engine_version(str(program(tmp_path / "engine", says))) == "1.2.3"
