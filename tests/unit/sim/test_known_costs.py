"""Cost models are found in the package and in a folder, the folder's first."""

from pathlib import Path

import pytest

from made_costs import MODEL
from tunnelmark.model.costs import to_toml
from tunnelmark.model.errors import StudyError
from tunnelmark.sim.known_costs import known_costs


def test_all_of_the_package_can_be_read_and_say_where_they_come_from() -> None:
    for model in known_costs():
        assert model.provenance.trials > 0
        assert model.provenance.result


def test_a_folder_comes_first(tmp_path: Path) -> None:
    (tmp_path / "b.toml").write_text(to_toml(MODEL))
    (tmp_path / "notes.txt").write_text("no cost model")
    assert known_costs(tmp_path) == (MODEL, *known_costs())


def test_a_folder_without_models_and_a_wrong_file_are_named(tmp_path: Path) -> None:
    with pytest.raises(StudyError, match="has no cost model"):
        known_costs(tmp_path)
    (tmp_path / "b.toml").write_text("format = 1\n")
    with pytest.raises(StudyError, match=r"b\.toml: "):
        known_costs(tmp_path)
    with pytest.raises(StudyError, match="cannot be read"):
        known_costs(tmp_path / "none-such")
