"""Trials of a job under way: a kill at any byte loses at most the one that was being written."""

from contextlib import closing
from pathlib import Path

import pytest

from made_results import manifest, trial_result
from tunnelmark.model.errors import ResultError
from tunnelmark.model.faults import UnwritableError
from tunnelmark.store import Writer, open_result
from tunnelmark.store.journal import Journal, read_journal


def _written(folder: Path, repeats: range) -> Path:
    with closing(Writer.create(folder / "result", manifest())) as writer:
        for repeat in repeats:
            figures: dict[str, float | None] = {"goodput_bit_s": float(repeat), "rtt_p50_ns": None}
            writer.append(trial_result("none", 64, repeat, figures), pair_id="p")
    return folder / "result"


def test_cut_at_any_byte_all_trials_but_the_last_are_there_and_more_can_follow(
    tmp_path: Path,
) -> None:
    directory = _written(tmp_path, range(1, 4))
    path = directory / "trials" / "b1.jsonl"
    whole = path.read_bytes()
    ends = [at + 1 for at, byte in enumerate(whole) if byte == ord("\n")]
    assert len(ends) == 3
    for length in range(len(whole) + 1):
        expected = sum(end <= length for end in ends)
        assert read_journal(whole[:length], "b1.jsonl").height == expected
    # The whole way, reader and next writer, around the ends of lines and within them.
    for length in (0, 1, ends[0] - 1, ends[0], ends[0] + 1, len(whole) - 1):
        path.write_bytes(whole[:length])
        expected = sum(end <= length for end in ends)
        assert open_result(directory).trials().height == expected
        with closing(Writer(directory)) as writer:
            writer.append(trial_result("none", 64, 9, {}), pair_id="p")
        repeats = open_result(directory).trials()["repeat"].to_list()
        assert repeats == [*range(1, expected + 1), 9]


def test_a_row_is_written_once(tmp_path: Path) -> None:
    with closing(Writer.create(tmp_path / "result", manifest())) as writer:
        path = tmp_path / "result" / "trials" / "b1.jsonl"
        before = b""
        for repeat in range(1, 6):
            writer.append(trial_result("none", 64, repeat, {}), pair_id="p")
            now = path.read_bytes()
            assert now.startswith(before)
            before = now


def test_a_job_that_is_sealed_reads_the_same_and_can_be_continued(tmp_path: Path) -> None:
    directory = _written(tmp_path, range(1, 4))
    before = open_result(directory).trials()
    with closing(Writer(directory)) as writer:
        writer.seal("b1")
        assert not list(directory.glob("trials/*.jsonl"))
        assert open_result(directory).trials().equals(before)
        writer.append(trial_result("none", 64, 4, {"goodput_bit_s": 4.0}), pair_id="p")
        assert open_result(directory).trials()["repeat"].to_list() == [1, 2, 3, 4]
        writer.seal("b1")
        writer.seal("b1")
    assert open_result(directory).trials()["repeat"].to_list() == [1, 2, 3, 4]
    assert [path.name for path in (directory / "trials").iterdir()] == ["b1.parquet"]


def test_a_kill_while_a_job_is_sealed_leaves_every_trial_once(tmp_path: Path) -> None:
    directory = _written(tmp_path, range(1, 4))
    journal = directory / "trials" / "b1.jsonl"
    kept = journal.read_bytes()
    with closing(Writer(directory)) as writer:
        writer.seal("b1")
    # As if it had been killed when the sealed file was there and its journal was too.
    journal.write_bytes(kept)
    assert open_result(directory).trials()["repeat"].to_list() == [1, 2, 3]
    with closing(Writer(directory)) as writer:
        writer.seal("b1")
    assert open_result(directory).trials()["repeat"].to_list() == [1, 2, 3]


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (b"{\n", ":2: is damaged"),
        (b"{}\n", ":2: is damaged: it has no list"),
        (b"[1]\n", ":2: is damaged: it has no rows"),
        (b"\xff\n", ":2: is damaged"),
        (b"[{}]\n", ":2: is damaged"),
        (b'[{"started_at": "2026-11-21", "speed": 1}]\n', "speed is not a trial column"),
        (b'[{"started_at": "2026-11-21", "repeat": "many"}]\n', "is damaged"),
        (b"[" * 100_000 + b"\n", ":2: is damaged"),
    ],
)
def test_damage_that_no_kill_makes_is_an_error(tmp_path: Path, damage: bytes, words: str) -> None:
    directory = _written(tmp_path, range(1, 2))
    path = directory / "trials" / "b1.jsonl"
    path.write_bytes(path.read_bytes() + damage)
    with pytest.raises(ResultError) as caught:
        open_result(directory).trials()
    assert words in str(caught.value)
    assert "b1.jsonl" in str(caught.value)


def test_a_full_disk_leaves_no_piece_of_a_trial(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "b1.jsonl"
    with closing(Journal(path)) as journal:
        journal.append([{"a": 1}])

        def full(_descriptor: int) -> None:
            raise OSError(28, "No space left on device")

        with monkeypatch.context() as patch:
            patch.setattr("tunnelmark.store.journal.os.fsync", full)
            with pytest.raises(UnwritableError, match="No space left"):
                journal.append([{"a": 2}])
        assert path.read_bytes() == b'[{"a": 1}]\n'
        journal.append([{"a": 3}])
    assert path.read_bytes() == b'[{"a": 1}]\n[{"a": 3}]\n'


def test_each_trial_names_where_it_was_measured(tmp_path: Path) -> None:
    directory = _written(tmp_path, range(1, 2))
    with closing(Writer(directory)) as writer:
        writer.begin("board", {"kernel": "6.6"}, "tm00002")
        writer.append(trial_result("none", 64, 2, {}), pair_id="p")
        key = writer.environment
    result = open_result(directory)
    rows = result.trials().sort("repeat")
    assert rows["worker"].to_list() == ["", "board"]
    assert rows["run_id"].to_list() == ["tm00000", "tm00002"]
    assert rows["environment"][0] != rows["environment"][1] == key
    assert rows["stratum"].to_list() == ["namespaces"] * 2
    assert result.manifest.environments[key] == {"kernel": "6.6"}
    assert [one.worker for one in result.manifest.sittings] == ["board"]
