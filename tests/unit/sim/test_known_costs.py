"""Cost models are found in the package and in a folder, the folder's first."""

from dataclasses import replace
from pathlib import Path

import pytest

from made_costs import MODEL
from tunnelmark.model.costs import CostedTunnel, to_toml
from tunnelmark.model.errors import StudyError
from tunnelmark.sim.known_costs import known_costs


def test_all_of_the_package_can_be_read_and_say_where_they_come_from() -> None:
    for model in known_costs():
        assert model.provenance.trials > 0
        assert model.provenance.result


def test_the_package_has_models_of_the_tunnels_that_work_in_one_thread() -> None:
    fitted = [model.tunnel for model in known_costs()]
    assert {one.kind for one in fitted} == {"openvpn", "ocserv", "tinc"}
    ciphers = {one.params["cipher"] for one in fitted if one.kind == "openvpn"}
    assert ciphers == {"AES-256-GCM", "AES-256-CBC", "CHACHA20-POLY1305"}


def test_a_folder_comes_first_and_in_it_what_says_most(tmp_path: Path) -> None:
    any_openvpn = replace(MODEL, tunnel=CostedTunnel("openvpn"))
    (tmp_path / "a.toml").write_text(to_toml(any_openvpn))
    (tmp_path / "b.toml").write_text(to_toml(MODEL))
    (tmp_path / "notes.txt").write_text("no cost model")
    assert known_costs(tmp_path) == (MODEL, any_openvpn, *known_costs())


def test_a_folder_without_models_and_a_wrong_file_are_named(tmp_path: Path) -> None:
    with pytest.raises(StudyError, match="has no cost model"):
        known_costs(tmp_path)
    (tmp_path / "b.toml").write_text("format = 1\n")
    with pytest.raises(StudyError, match=r"b\.toml: "):
        known_costs(tmp_path)
    with pytest.raises(StudyError, match="cannot be read"):
        known_costs(tmp_path / "none-such")
