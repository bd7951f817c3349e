"""The ledger: whoever opens closes, a dead run is found, and a forged journal harms nothing."""

import json
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tunnelmark.hosts.ledger import (
    Ledger,
    dead_ledgers,
    end_process,
    read_journal,
    runtime_root,
    start_time,
)
from tunnelmark.lab.clean import Leftover, clean, find_leftovers, release
from tunnelmark.model.errors import LabError


@pytest.fixture
def root(tmp_path: Path) -> Path:
    folder = tmp_path / "runtime"
    folder.mkdir(mode=0o700)
    return folder


def _journal(root: Path, run: str, lines: list[str]) -> Path:
    directory = root / run
    directory.mkdir(mode=0o700)
    (directory / "owner").write_text("1\n")
    (directory / "journal.jsonl").write_text("\n".join(lines))
    return directory


def test_a_ledger_goes_with_its_run(root: Path) -> None:
    with Ledger(root) as ledger:
        assert (root / ledger.run_id / "work").is_dir()
        assert (root / ledger.run_id).stat().st_mode & 0o777 == 0o700
        assert list(dead_ledgers(root)) == []
    assert list(root.iterdir()) == []


def test_the_ledger_of_a_killed_run_is_found_and_removed(root: Path) -> None:
    code = (
        "import os, sys, signal; from pathlib import Path;"
        "from tunnelmark.hosts.ledger import Ledger;"
        "Ledger(Path(sys.argv[1])); os.kill(os.getpid(), signal.SIGKILL)"
    )
    subprocess.run([sys.executable, "-c", code, str(root)], check=False)
    (leftover,) = find_leftovers(root)
    assert leftover.directory.parent == root
    assert clean([leftover])
    assert find_leftovers(root) == []
    assert list(root.iterdir()) == []


def test_a_ledger_is_locked_before_anyone_can_find_it(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found: list[Leftover] = []
    searches = []
    mkdir = Path.mkdir

    def made(path: Path, mode: int = 0o777, **how: bool) -> None:
        """Let somebody clean in the moment in which the directory is there and has no lock."""
        mkdir(path, mode, **how)
        if path.parent == root:
            search = threading.Thread(target=lambda: found.extend(find_leftovers(root)))
            search.start()
            search.join(0.3)
            os.utime(path, (0, 0))
            searches.append(search)

    monkeypatch.setattr(Path, "mkdir", made)
    with Ledger(root) as ledger:
        for search in searches:
            search.join(30)
        assert (searches, found) == ([searches[0]], [])
        assert (ledger.directory / "journal.jsonl").exists()


def test_a_run_that_was_killed_before_it_had_a_lock_is_found_at_once(root: Path) -> None:
    (root / "tm00000").mkdir(mode=0o700)
    clean(find_leftovers(root))
    assert list(root.iterdir()) == []


def test_a_dead_ledger_is_held_by_who_cleans_it(root: Path) -> None:
    _journal(root, "tm00000", [])
    mine = find_leftovers(root)
    assert [leftover.run_id for leftover in mine] == ["tm00000"]
    assert find_leftovers(root) == []
    release(mine)
    release(mine)
    assert clean(find_leftovers(root)) == [f"ledger {root / 'tm00000'}"]


def test_an_entry_is_on_disk_before_the_thing_is_made(root: Path) -> None:
    with Ledger(root) as ledger:
        ledger.enter("netns", f"{ledger.run_id}-client")
        assert [e.name for e in read_journal(ledger.directory)] == [f"{ledger.run_id}-client"]


@pytest.mark.parametrize(
    "line",
    [
        '{"kind": "netns", "name": "other"}',
        '{"kind": "netns", "name": "tm11111-client"}',
        '{"kind": "netns", "name": "tm00000-client; rm -rf /"}',
        '{"kind": "cgroup", "name": "/"}',
        '{"kind": "directory", "name": "/tmp/tm00000"}',
        '{"kind": "cgroup", "name": "/etc"}',
        '{"kind": "cgroup", "name": "/tmp/../etc/tm00000"}',
        '{"kind": "cgroup", "name": "tm00000"}',
        f'{{"kind": "cgroup", "name": "/{"x" * 300}/tm00000"}}',
        '{"kind": "cgroup", "name": "/etc/passwd/tm00000"}',
        r'{"kind": "cgroup", "name": "/\ud800/tm00000"}',
        r'{"kind": "cgroup", "name": "/\u0000/tm00000"}',
        '{"kind": "process", "name": "-1"}',
        '{"kind": "process", "name": "1; reboot"}',
        '{"kind": "process", "name": "99999999999999999999"}',
        '{"kind": "tcp_allowed", "name": "reno bbr"}',
        '{"kind": "tcp_allowed", "name": "../cubic"}',
        '{"kind": "cpu_controller", "name": "/"}',
        '{"kind": "file", "name": "/etc/passwd"}',
        '{"kind": "netns"}',
        "[]",
        "{",
        "",
    ],
)
def test_a_forged_journal_names_nothing(root: Path, line: str) -> None:
    assert read_journal(_journal(root, "tm00000", [line])) == []


@given(st.lists(st.text(max_size=80), max_size=20))
def test_any_journal_is_survived(lines: list[str]) -> None:
    import tempfile  # noqa: PLC0415 - a folder of its own for each example

    with tempfile.TemporaryDirectory() as folder:
        read_journal(_journal(Path(folder), "tm00000", lines))


def test_a_process_is_ended_only_if_it_is_the_one_that_was_started() -> None:
    process = subprocess.Popen(["sleep", "60"])
    try:
        started = start_time(process.pid)
        assert started is not None
        assert not end_process(process.pid, started + 1)
        assert process.poll() is None
        assert end_process(process.pid, started)
        assert process.wait(10) == -9
        assert start_time(process.pid) is None
    finally:
        process.kill()
        process.wait()


def test_a_link_to_elsewhere_is_no_group_of_the_run(root: Path, tmp_path: Path) -> None:
    link = tmp_path / "tm00000-data"
    link.symlink_to(tmp_path)
    line = json.dumps({"kind": "cgroup", "name": str(link), "started": 0})
    assert read_journal(_journal(root, "tm00000", [line])) == []


def test_a_folder_that_others_can_enter_is_refused(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root.chmod(0o755)
    monkeypatch.setenv("TUNNELMARK_RUNTIME", str(root))
    with pytest.raises(LabError, match="mode 700"):
        runtime_root()
    root.chmod(0o700)
    assert runtime_root() == root
    assert os.stat(root).st_uid == os.getuid()  # noqa: PTH116 - what the check looks at


def test_what_workloads_leave_in_memory_goes_with_the_run_and_nothing_else(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    memory = tmp_path / "memory"
    monkeypatch.setattr("tunnelmark.hosts.ledger._SHARED_MEMORY", memory)
    with Ledger(root) as ledger:
        ours = memory / f"{ledger.run_id}-client-tcp_bulk-1"
        other, elsewhere = memory / "tm00000-client", tmp_path / "elsewhere"
        for directory in (ours, other, elsewhere):
            directory.mkdir(parents=True)
        link = memory / f"{ledger.run_id}-link"
        link.symlink_to(elsewhere)
        assert f"directory {ours}" in ledger.close()
    assert not ours.exists()
    assert other.exists()
    assert elsewhere.exists()
