"""What a run lets namespaces use is entered first, and that word alone goes with the run."""

from pathlib import Path

import pytest

from tunnelmark.hosts import tcp_allowed
from tunnelmark.hosts.ledger import Entry, Ledger, read_journal
from tunnelmark.lab.clean import clean, find_leftovers


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


def test_it_is_entered_before_it_is_written_and_goes_alone(
    names: Path, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = []
    with Ledger(root) as ledger:
        on = tcp_allowed.on

        def look(name: str) -> bool:
            seen.append(read_journal(ledger.directory))
            return on(name)

        monkeypatch.setattr(tcp_allowed, "on", look)
        assert ledger.switch_on("tcp_allowed", "cubic")
        assert seen == [[Entry("tcp_allowed", "cubic")]]
        assert names.read_text() == "reno bbr cubic"
        names.write_text("reno bbr cubic vegas")
        assert ledger.close() == ["congestion control cubic from what namespaces may use"]
    assert names.read_text() == "reno bbr vegas"


def test_what_is_there_already_is_nobodys_to_take_away(names: Path, root: Path) -> None:
    with Ledger(root) as ledger:
        assert ledger.switch_on("tcp_allowed", "bbr")
        assert read_journal(ledger.directory) == []
    assert names.read_text() == "reno bbr\n"


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_the_last_run_that_has_it_takes_it_out(
    names: Path, root: Path, order: tuple[int, int]
) -> None:
    runs = [Ledger(root), Ledger(root)]
    for ledger in runs:
        assert ledger.switch_on("tcp_allowed", "cubic")
        assert ledger.switch_on("tcp_allowed", "cubic")
        assert read_journal(ledger.directory) == [Entry("tcp_allowed", "cubic")]
    assert runs[order[0]].close() == []
    assert names.read_text() == "reno bbr cubic"
    assert runs[order[1]].close() == ["congestion control cubic from what namespaces may use"]
    assert names.read_text() == "reno bbr"


def test_a_dead_run_holds_it_until_it_is_cleaned(names: Path, root: Path) -> None:
    dead = root / "tm00000"
    dead.mkdir(mode=0o700)
    (dead / "journal.jsonl").write_text('{"kind": "tcp_allowed", "name": "cubic"}\n')
    with Ledger(root) as ledger:
        assert ledger.switch_on("tcp_allowed", "cubic")
    assert names.read_text() == "reno bbr cubic"
    clean(find_leftovers(root))
    assert names.read_text() == "reno bbr"


def test_what_may_not_be_switched_is_not_entered(
    names: Path, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tcp_allowed, "may", lambda _name: False)
    with Ledger(root) as ledger:
        assert not ledger.switch_on("tcp_allowed", "cubic")
        assert read_journal(ledger.directory) == []
    assert names.read_text() == "reno bbr\n"


def test_taking_out_what_is_gone_does_nothing(names: Path) -> None:
    assert not tcp_allowed.off("cubic")
    assert names.read_text() == "reno bbr\n"
    names.unlink()
    assert not tcp_allowed.off("cubic")
    assert not names.exists()


@pytest.mark.parametrize("name", ["", "cubic reno", "../x", "x" * 16])
def test_what_is_no_name_is_not_written(names: Path, name: str) -> None:
    assert not tcp_allowed.on(name)
    assert names.read_text() == "reno bbr\n"
