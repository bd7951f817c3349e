"""A store that cannot be reached does not stop a run, and is named once."""

from pathlib import Path

import pytest

from made_results import trial_result, write
from tunnelmark.cli.copies import Copies
from tunnelmark.model.errors import ResultError
from tunnelmark.run.events import BlockPhase, Event, RunStarted


def _started(directory: Path) -> RunStarted:
    return RunStarted("made", "tm00000", str(directory), 1, 1, 1, 1.0, ())


_ENDED = BlockPhase("b1", "openvpn", "line", "host", "done")


def test_a_store_that_cannot_be_reached_is_reported_once_and_tried_again(tmp_path: Path) -> None:
    directory = write(tmp_path, [trial_result("openvpn", 100, 1, {})])
    (tmp_path / "store").write_text("no folder")
    reported: list[str] = []
    passed: list[Event] = []
    copies = Copies((tmp_path / "store").as_uri(), reported.append)
    take = copies.listening(passed.append)
    for event in (_started(directory), _ENDED, _ENDED):
        take(event)
    assert passed == [_started(directory), _ENDED, _ENDED]
    assert len(reported) == 1
    assert "cannot be written" in reported[0]
    with pytest.raises(ResultError, match=f"the result is in {directory}"):
        copies.send_all()
    (tmp_path / "store").unlink()
    copies.send_all()
    assert (tmp_path / "store" / "result" / "manifest.json").is_file()


def test_a_folder_of_this_computer_gets_no_copy(tmp_path: Path) -> None:
    directory = write(tmp_path, [trial_result("openvpn", 100, 1, {})])
    reported: list[str] = []
    copies = Copies(str(tmp_path / "mine"), reported.append)
    assert copies.folder == tmp_path / "mine"
    take = copies.listening(lambda _event: None)
    take(_started(directory))
    take(_ENDED)
    copies.send_all()
    assert reported == []
    assert not (tmp_path / "mine").exists()
