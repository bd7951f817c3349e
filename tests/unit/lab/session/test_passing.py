"""Captures at both ends of the link: which of their errors are no more than a reason."""

from pathlib import PurePosixPath
from types import SimpleNamespace
from typing import Any

import pytest

from tunnelmark.lab.place import LocalPlace
from tunnelmark.lab.session.passing import watching
from tunnelmark.model.errors import LabFailedError
from tunnelmark.model.faults import UnwritableError
from tunnelmark.model.host import Completed
from tunnelmark.model.rules import Probes


def lab(error: Exception) -> Any:
    """A lab on whose hosts no program starts."""

    def spawn(*_: object, **__: object) -> None:
        raise error

    host = SimpleNamespace(
        name="client",
        work_dir=PurePosixPath("/none"),
        put=lambda *_: None,
        run=lambda argv, **_: Completed(tuple(argv), 0, b"deny", b""),
        spawn=spawn,
    )
    place = LocalPlace.__new__(LocalPlace)
    return SimpleNamespace(place=place, clients=(host,), client_host=host, server_host=host)


def test_what_cannot_be_captured_is_a_reason() -> None:
    error = LabFailedError("tcpdump is not listening")
    with watching(lab(error), Probes(capture_packets=10), "trial-1") as passed:
        pass
    assert passed.reason == "tcpdump is not listening"


def test_a_full_disk_is_none() -> None:
    error = UnwritableError("capture.log: cannot be written: No space left on device")
    with (
        pytest.raises(UnwritableError),
        watching(lab(error), Probes(capture_packets=10), "trial-1"),
    ):
        pass
