"""Errors as one line, and files that cannot be written."""

import errno
import json
import os
from pathlib import Path

import pytest

from tunnelmark.model.errors import LabError, ResultError
from tunnelmark.model.faults import UnwritableError, one_line, write, writing
from tunnelmark.store.layout import write_atomically


@pytest.mark.parametrize(
    ("number", "fix"),
    [
        (errno.ENOSPC, "free space there, then resume with tunnelmark run --resume DIR"),
        (errno.EDQUOT, "raise the quota"),
        (errno.EIO, "the disk is failing"),
        (errno.EROFS, "--results"),
    ],
)
@pytest.mark.parametrize("write_file", [write, write_atomically])
def test_what_stands_against_a_file_is_reported_with_the_way_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, fix: str, write_file: object
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(Path, "open", refuse)
    monkeypatch.setattr(Path, "write_bytes", refuse)
    path = tmp_path / "captures" / "one.pcap"
    with pytest.raises(UnwritableError) as caught:
        write_file(path, b"x")  # type: ignore[operator]
    message = str(caught.value)
    assert message.startswith(f"{path}: cannot be written: {os.strerror(number)}")
    assert fix in message
    assert isinstance(caught.value, ResultError)


def test_other_errors_are_no_fault_of_the_disk(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="x"), writing(tmp_path):
        raise ValueError("x")


def test_the_folder_that_is_gone_is_named(tmp_path: Path) -> None:
    with pytest.raises(UnwritableError, match="gone/file: cannot be written: No such file"):
        write(tmp_path / "gone" / "file", b"")


def test_an_error_of_ours_is_its_message_and_every_other_has_kind_and_place() -> None:
    assert one_line(LabError("client: no route")) == "client: no route"
    with pytest.raises(KeyError) as caught:
        json.loads("{}")["flows"]
    assert one_line(caught.value).startswith("KeyError in test_faults.py:")
    assert one_line(caught.value).endswith(": 'flows'")
    assert one_line(ZeroDivisionError()) == "ZeroDivisionError"
    assert len(one_line(ValueError("long " * 1000))) < 400
