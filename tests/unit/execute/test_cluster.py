"""What a run by a cluster refuses before it asks anybody, and parts that are not what they say."""

import io
import sys
import tarfile
from pathlib import Path

import pytest

from made_results import manifest
from tunnelmark.cli import main
from tunnelmark.execute import parts
from tunnelmark.execute.scheduler import Cluster, parse_cluster
from tunnelmark.model.errors import LabError, ResultError, StudyError
from tunnelmark.store import Writer, open_result


def test_an_address_or_some_workers_of_this_computer() -> None:
    assert parse_cluster("tcp://head:8786") == Cluster("tcp://head:8786")
    assert parse_cluster("local:4") == Cluster("local:4", 4)


@pytest.mark.parametrize("text", ["head:8786", "local:0", "local:", "local:1000", "file:///x", ""])
def test_anything_else_is_refused(text: str) -> None:
    with pytest.raises(StudyError, match="must be the address of a Dask scheduler"):
        parse_cluster(text)


@pytest.mark.parametrize(
    ("words", "reported"),
    [
        (["--cluster", "local:2"], "--cluster local:2 is for --backend sim"),
        (["--cluster", "local:2", "--job", "x"], "cannot be used with --hosts, --job or --budget"),
        (["--cluster", "tcp://a:1", "--budget", "5 min"], "cannot be used with"),
    ],
)
def test_what_does_not_go_together_is_one_line(
    words: list[str], reported: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    folder = tmp_path / "results"
    assert main.call(["run", "quickstart", "--quiet", "--results", str(folder), *words]) == 2
    assert reported in capsys.readouterr().err
    assert not folder.exists()


def test_without_dask_the_extra_is_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setitem(sys.modules, "distributed", None)
    words = ["run", "quickstart", "--quiet", "--backend", "sim", "--cluster", "tcp://127.0.0.1:1"]
    assert main.call([*words, "--results", str(tmp_path / "results")]) == 3
    assert 'pip install "tunnelmark[cluster]"' in capsys.readouterr().err


def _part(folder: Path, *jobs: str) -> Path:
    directory = folder / "-".join(("part", *jobs))
    Writer.create(directory, manifest(jobs=jobs)).close()
    return directory


def test_a_part_comes_back_as_it_was_sent(tmp_path: Path) -> None:
    part = _part(tmp_path, "a1")
    (part / "samples" / "x.bin").write_bytes(b"bytes")
    found = parts.keep(parts.pack(part), tmp_path / "whole", "a1")
    assert found.manifest == open_result(part).manifest
    assert found.samples("x.bin") == b"bytes"


@pytest.mark.parametrize("jobs", [("b1",), ("b2", "b1"), ("a1", "b2"), ()])
def test_a_part_of_another_job_is_refused(tmp_path: Path, jobs: tuple[str, ...]) -> None:
    with pytest.raises(ResultError, match="is not the result of job b2"):
        parts.keep(parts.pack(_part(tmp_path, *jobs)), tmp_path / "whole", "b2")
    assert not (tmp_path / "whole" / ".parts" / "b2").exists()


def test_a_part_may_have_the_job_that_sets_its_worker_beside_others(tmp_path: Path) -> None:
    part = _part(tmp_path, "b1", "a1")
    assert parts.keep(parts.pack(part), tmp_path / "whole", "b1").manifest.jobs == ("b1", "a1")


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE])
def test_a_part_has_plain_files_only(tmp_path: Path, kind: bytes) -> None:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        member = tarfile.TarInfo("manifest.json")
        member.type, member.linkname = kind, "/etc/passwd"
        archive.addfile(member)
    with pytest.raises(ResultError, match="is not a plain file"):
        parts.keep(buffer.getvalue(), tmp_path / "whole", "a1")


def test_a_part_that_leads_elsewhere_or_is_damaged_is_refused(tmp_path: Path) -> None:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        archive.addfile(tarfile.TarInfo("../outside"))
    for data in (buffer.getvalue(), b"no archive"):
        with pytest.raises(ResultError, match="part of job a1: is damaged"):
            parts.keep(data, tmp_path / "whole", "a1")
    assert not (tmp_path / "whole" / "outside").exists()


def test_a_part_that_is_too_large_is_not_sent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parts, "LARGEST_PART_BYTES", 100)
    with pytest.raises(LabError, match="at most 100: run the study with --no-samples"):
        parts.pack(_part(tmp_path, "a1"))
