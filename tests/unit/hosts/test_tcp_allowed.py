"""What a run lets namespaces use is entered first, and that word alone goes with the run."""

from pathlib import Path

import pytest

from tunnelmark.hosts import tcp_allowed
from tunnelmark.hosts.ledger import Entry, Ledger, read_journal, undo


@pytest.fixture
def names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "tcp_allowed_congestion_control"
    path.write_text("reno bbr\n")
    monkeypatch.setattr(tcp_allowed, "_LIST", path)
    return path


@pytest.fixture
def root(tmp_path: Path) -> Path:
    folder = tmp_path / "runtime"
    folder.mkdir(mode=0o700)
    return folder


def test_it_is_entered_before_it_is_written_and_goes_alone(names: Path, root: Path) -> None:
    seen = []
    with Ledger(root) as ledger:

        def enter(name: str) -> None:
            seen.append(names.read_text())
            ledger.enter("tcp_allowed", name)

        assert tcp_allowed.allow("cubic", enter)
        assert seen == ["reno bbr\n"]
        assert names.read_text() == "reno bbr cubic"
        assert read_journal(ledger.directory) == [Entry("tcp_allowed", "cubic")]
        names.write_text("reno bbr cubic vegas")
        assert ledger.close() == ["congestion control cubic from what namespaces may use"]
    assert names.read_text() == "reno bbr vegas"


def test_what_is_there_already_is_nobodys_to_take_away(names: Path, root: Path) -> None:
    with Ledger(root) as ledger:
        assert tcp_allowed.allow("bbr", lambda name: ledger.enter("tcp_allowed", name))
        assert read_journal(ledger.directory) == []
    assert names.read_text() == "reno bbr\n"


def test_a_run_has_back_what_another_took(names: Path, root: Path) -> None:
    with Ledger(root) as second:
        with Ledger(root) as first:
            for ledger in (first, second):
                assert tcp_allowed.allow(
                    "cubic", lambda name, of=ledger: of.enter("tcp_allowed", name)
                )
        assert names.read_text() == "reno bbr"
        assert tcp_allowed.allow("cubic", lambda name: second.enter("tcp_allowed", name))
        assert names.read_text() == "reno bbr cubic"
    assert names.read_text() == "reno bbr"


def test_undo_of_what_is_gone_does_nothing(names: Path) -> None:
    entries = [Entry("tcp_allowed", "cubic")]
    assert undo("tm00000", entries) == []
    assert names.read_text() == "reno bbr\n"
    names.unlink()
    assert undo("tm00000", entries) == []
    assert not names.exists()


@pytest.mark.parametrize("name", ["", "cubic reno", "../x", "x" * 16])
def test_what_is_no_name_is_not_written(names: Path, name: str) -> None:
    assert not tcp_allowed.allow(name, lambda _: pytest.fail("entered"))
    assert names.read_text() == "reno bbr\n"
