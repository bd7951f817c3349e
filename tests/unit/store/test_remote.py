"""Results on an object store: fsspec's file systems that need no network."""

import signal
import subprocess
import sys
import uuid
import zipfile
from collections.abc import Iterator
from pathlib import Path

import fsspec
import pytest

from made_results import trial_result, write
from tunnelmark.cli import main
from tunnelmark.model.errors import ResultError
from tunnelmark.store import open_result, remote
from tunnelmark.store.remote import Sender, fetch


@pytest.fixture
def memory() -> Iterator[str]:
    place = f"memory://{uuid.uuid4().hex}"
    yield place
    system, root = fsspec.core.url_to_fs(place)
    if system.exists(root):
        system.rm(root, recursive=True)


def _result(folder: Path) -> Path:
    directory = write(folder, [trial_result("openvpn", 100, 1, {"rtt_p50_ns": 1e6})])
    (directory / "samples" / "x.rec").write_bytes(b"sample")
    (directory / "logs" / "b1").mkdir()
    (directory / "logs" / "b1" / "daemon.log").write_text("up")
    return directory


def _files(place: str) -> set[str]:
    system, root = fsspec.core.url_to_fs(place)
    return {name.removeprefix(root).lstrip("/") for name in system.find(root)}


def test_what_was_sent_is_read_as_it_was(tmp_path: Path, memory: str) -> None:
    directory = _result(tmp_path)
    sender = Sender(memory, directory)
    assert sender.place == f"{memory}/result"
    sender.send()
    own = {str(path.relative_to(directory)) for path in directory.rglob("*") if path.is_file()}
    assert _files(sender.place) == own - {".lock"}
    copy = tmp_path / "copy"
    copy.mkdir()
    fetch(sender.place, copy)
    found, wanted = open_result(copy), open_result(directory)
    assert found.trials().equals(wanted.trials())
    assert (found.manifest, found.blocks) == (wanted.manifest, wanted.blocks)
    assert found.samples("x.rec") == b"sample"
    assert not (copy / "logs").exists()


KILLED = """
import os, signal, sys
from tunnelmark.cli import main, report
report._report = lambda *_, **__: os.kill(os.getpid(), signal.SIGKILL)
main.call(sys.argv[1:])
"""


def test_the_copy_of_a_killed_report_is_removed_by_clean(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setenv("TUNNELMARK_RUNTIME", str(tmp_path / "runtime"))
    words = ["report", _result(tmp_path).as_uri()]
    done = subprocess.run([sys.executable, "-c", KILLED, *words], check=False)
    assert done.returncode == -signal.SIGKILL
    (copy,) = (one for one in tmp_path.glob("**/manifest.json") if one.parent.name != "result")
    assert main.call(["clean"]) == 0
    assert not copy.exists()


def test_only_what_changed_is_sent_again_and_no_journal(tmp_path: Path, memory: str) -> None:
    directory = _result(tmp_path)
    (directory / "trials" / "b9.jsonl").write_text("{}\n")
    sender = Sender(memory, directory)
    assert sender.send() > 3
    assert "trials/b9.jsonl" not in _files(sender.place)
    assert sender.send() == 0
    (directory / "samples" / "y.rec").write_bytes(b"new")
    assert sender.send() == 1


def test_a_result_in_an_archive_is_reported(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    directory = _result(tmp_path)
    with zipfile.ZipFile(tmp_path / "all.zip", "w") as archive:
        for path in directory.rglob("*"):
            archive.write(path, Path("one", path.relative_to(directory)))
    assert main.call(["report", f"zip://one::file://{tmp_path}/all.zip", "--format", "csv"]) == 0
    by_url = capsys.readouterr().out
    assert main.call(["report", str(directory), "--format", "csv"]) == 0
    assert by_url == capsys.readouterr().out
    assert main.call(["report", directory.as_uri(), "--format", "csv"]) == 0
    assert by_url == capsys.readouterr().out


def test_more_than_is_copied_is_refused(
    tmp_path: Path, memory: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    sender = Sender(memory, _result(tmp_path))
    sender.send()
    monkeypatch.setattr(remote, "MOST_BYTES", 100)
    with pytest.raises(ResultError, match="has more than 100 bytes"):
        fetch(sender.place, tmp_path)


@pytest.mark.parametrize(
    ("place", "reported"),
    [
        ("nosuch://bucket/x", "cannot be read: Protocol not known: nosuch"),
        ("memory://nothing-is-there", "is not a result directory"),
    ],
)
def test_a_place_that_cannot_be_read_is_one_line(
    place: str, reported: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main.call(["report", place]) == 5
    error = capsys.readouterr().err
    assert f"{place}: {reported}" in error
    assert error.count("\n") == 1


def test_what_is_damaged_there_is_named_by_its_url(
    tmp_path: Path, memory: str, capsys: pytest.CaptureFixture[str]
) -> None:
    directory = _result(tmp_path)
    (trials,) = (directory / "trials").iterdir()
    trials.write_bytes(b"no table")
    sender = Sender(memory, directory)
    sender.send()
    assert main.call(["report", f"{sender.place}/"]) == 5
    assert f"{sender.place}/trials/{trials.name}: " in capsys.readouterr().err


def test_without_fsspec_the_extra_is_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "fsspec.core", None)
    assert main.call(["report", "s3://bucket/x"]) == 5
    assert 'pip install "tunnelmark[remote]"' in capsys.readouterr().err
