"""Trials of a job under way: a kill at any byte loses at most the one that was being written."""

import json
import resource
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from made_results import manifest, trial_result
from tunnelmark.model.errors import ResultError
from tunnelmark.model.faults import UnwritableError
from tunnelmark.store import Writer, open_result
from tunnelmark.store.journal import Journal, read_journal
from tunnelmark.store.rows import Origin, to_rows


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


ROW = (
    json.dumps(
        to_rows(
            trial_result("none", 64, 1, {}),
            origin=Origin("made", "tm00000", "", ""),
            pair_id="p",
        ),
        default=str,
    ).replace("b1-none64-1", "b1-none64-2")
    + "\n"
).encode()


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (b"{\n", ":2: is damaged"),
        (b"{}\n", ":2: is damaged: it has no list"),
        (b"[1]\n", ":2: is damaged: it has no rows"),
        (b"\xff\n", ":2: is damaged"),
        (b"[{}]\n", ":2: is damaged"),
        (b'[{"started_at": "2026-11-21", "speed": 1}]\n', "speed is not a trial column"),
        (
            b'[{"started_at": "2026-11-21", "repeat": "many"}]\n',
            ": a row has no attempt",
        ),
        (ROW.replace(b'"repeat": 1', b'"repeat": "many"'), "is damaged"),
        (ROW.replace(b'"details": "{}"', b'"details": null'), "column details has an empty row"),
        (ROW.replace(b'"checks": "[', b'"checks": "5'), "checks of trial b1-none64-2 are damaged"),
        (ROW.replace(b"b1-none64-2", b"../../x"), "trial_id is '../../x'"),
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


def test_a_small_journal_cannot_ask_for_endless_columns(tmp_path: Path) -> None:
    directory = _written(tmp_path, range(1, 2))
    path = directory / "trials" / "b1.jsonl"
    (row,) = json.loads(path.read_bytes())
    lines = [
        json.dumps([{**row, "trial_id": f"b1-{n}-1", f"param_{n}": 1}]) + "\n" for n in range(5000)
    ]
    path.write_text("".join(lines))
    with pytest.raises(ResultError, match=r"b1\.jsonl:\d{3}: has 1001 columns, at most 1000 are"):
        open_result(directory).trials()


def test_rows_of_a_journal_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    directory = _written(tmp_path, range(1, 4))
    data = (directory / "trials" / "b1.jsonl").read_bytes()
    monkeypatch.setattr("tunnelmark.store.journal.MOST_ROWS", 2)
    with pytest.raises(ResultError, match=r"b1\.jsonl:3: has 3 rows, at most 2 are allowed"):
        read_journal(data, "b1.jsonl")


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


@contextmanager
def _no_file_beyond(size_bytes: int) -> Iterator[None]:
    """Let the system refuse to write beyond a size, as a full disk does: in the middle of a line.

    Python ignores the signal that comes with it.
    """
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size_bytes, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_what_no_longer_fitted_is_not_written_later(tmp_path: Path) -> None:
    path = tmp_path / "b1.jsonl"
    line = b'[{"a": 1}]\n'
    journal = Journal(path)
    journal.append([{"a": 1}])
    with _no_file_beyond(len(line) + 20), pytest.raises(UnwritableError, match=r"b1\.jsonl"):
        journal.append([{"a": "x" * 100}])
    assert path.read_bytes() == line
    journal.append([{"a": 1}])
    journal.close()
    assert path.read_bytes() == line * 2


def test_a_disk_that_stays_full_ends_the_run_with_one_error_and_gives_up_the_lock(
    tmp_path: Path,
) -> None:
    directory = _written(tmp_path, range(1, 2))
    path = directory / "trials" / "b1.jsonl"
    kept = path.read_bytes()
    with (
        _no_file_beyond(len(kept) + 20),
        pytest.raises(UnwritableError, match=r"b1\.jsonl"),
        closing(Writer(directory)) as writer,
    ):
        writer.append(trial_result("none", 64, 2, {}), pair_id="p")
    assert path.read_bytes() == kept
    Writer(directory).close()


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
