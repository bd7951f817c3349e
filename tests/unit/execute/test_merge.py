"""Results of single jobs put together: what belongs, once, in any order, as often as one likes."""

import shutil
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from made_results import block_record, manifest
from made_study import made_text
from tunnelmark.cli import main
from tunnelmark.execute import parts
from tunnelmark.execute.merge import merge
from tunnelmark.execute.study_of import placed, study_of
from tunnelmark.model.block import Attempt, ProofVerdict
from tunnelmark.model.errors import ResultError
from tunnelmark.model.job import Job
from tunnelmark.model.suites import MachineSystem
from tunnelmark.model.trial import Measurement, TrialResult
from tunnelmark.model.validity import Check, Validity
from tunnelmark.report.summary import summarise
from tunnelmark.store import Writer, open_result
from tunnelmark.study import Study, parse_study
from tunnelmark.study.plan import first_round, jobs
from tunnelmark.study.points import pair_id
from tunnelmark.study.study import PlaceParams

_TEXT = made_text(
    "min_repeats = 4\nmax_repeats = 4",
    tunnels=['label = "a"', 'label = "b"\nmtu_bytes = 1400'],
)
_START = datetime(2026, 11, 22, tzinfo=UTC)


def _study() -> Study:
    return parse_study(_TEXT, "made.toml")


def _result(
    folder: Path, only: Sequence[Job], run_id: str, *, trials: int = 99, **changes: object
) -> Path:
    """Write what a run of some jobs would have left, after so many trials of each."""
    values = {
        "study_text": _TEXT,
        "study_sha256": sha256(_TEXT.encode()).hexdigest(),
        "seed": 3,
        "run_id": run_id,
        "jobs": tuple(job.job_id for job in only),
        **changes,
    }
    directory = folder / run_id
    with closing(Writer.create(directory, manifest(**values))) as writer:
        writer.begin(f"lab/{run_id}", {"kernel": "6.1"}, run_id)
        for job in only:
            for number, trial in enumerate(first_round(job)[:trials]):
                name = f"{trial.trial_id}-1.bin"
                (directory / "samples" / name).write_bytes(name.encode())
                figures = {"rtt_p50_ns": 1e6 * (1 + len(trial.point.tunnel.label)) + number}
                made = TrialResult(
                    trial,
                    1,
                    _START + timedelta(seconds=number),
                    1.0,
                    (Measurement("total", figures),),
                    Validity((Check("made", ok=True, message="fine"),)),
                    samples=(name,),
                )
                writer.append(made, pair_id=pair_id(trial.point))
            labels = (job.block.tunnel.label, job.block.link.label)
            (directory / "logs" / job.job_id).mkdir()
            (directory / "logs" / job.job_id / "daemon.log").write_text("up")
            (directory / "captures" / f"{job.job_id}-proof.pcap").write_bytes(b"pcap")
            record = replace(block_record(), block_id=job.job_id, tunnel=labels[0], link=labels[1])
            if trials == 99:
                writer.seal(job.job_id)
                writer.write_block(record)
        writer.update(outcome="complete" if trials == 99 else None)
    return directory


def _tree(directory: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(directory)): path.read_bytes()
        for path in directory.rglob("*")
        if path.is_file()
    }


def test_merged_jobs_report_as_one_run(tmp_path: Path) -> None:
    one, two = jobs(_study())
    whole = _result(tmp_path, [one, two], "tmwhole")
    parts = [_result(tmp_path, [one], "tmone"), _result(tmp_path, [two], "tmtwo")]
    merged = merge(parts, tmp_path / "into")
    assert (merged.known, merged.left_out, merged.missing) == (0, 0, ())
    assert merged.added == open_result(whole).trials().height == 32
    asked, wanted = open_result(tmp_path / "into"), open_result(whole)
    mine, theirs = ({"run_id", "worker"} ^ set(r.trials().columns) for r in (asked, wanted))
    order = ["trial_id", "attempt"]
    assert (
        asked.trials()
        .select(sorted(mine))
        .sort(order)
        .equals(wanted.trials().select(sorted(theirs)).sort(order))
    )
    assert asked.blocks == wanted.blocks
    assert asked.manifest.outcome == "complete"
    assert asked.manifest.jobs == ()
    assert {one.worker for one in asked.manifest.sittings} == {
        "lab/tmone",
        "lab/tmtwo",
    }
    points = [[(p.tunnel, p.estimates) for p in summarise(r).points] for r in (asked, wanted)]
    assert points[0] == points[1]
    name = asked.trials()["samples"][0][0]
    assert asked.samples(name) == name.encode()
    assert (tmp_path / "into" / "logs" / one.job_id / "daemon.log").read_text() == "up"
    assert (tmp_path / "into" / "captures" / f"{one.job_id}-proof.pcap").is_file()


def test_merging_again_changes_nothing_and_the_order_does_not_matter(tmp_path: Path) -> None:
    one, two = jobs(_study())
    parts = [_result(tmp_path, [one], "tmone"), _result(tmp_path, [two], "tmtwo")]
    merge(parts, tmp_path / "into")
    before = _tree(tmp_path / "into")
    again = merge([*parts, *parts, tmp_path / "into"], tmp_path / "into")
    assert (again.added, again.known) == (0, 32)
    assert _tree(tmp_path / "into") == before
    merge(parts[1:], tmp_path / "other")
    assert merge(parts[:1], tmp_path / "other").added == 16
    after = _tree(tmp_path / "other")
    assert {k: v for k, v in after.items() if k != "manifest.json"} == {
        k: v for k, v in before.items() if k != "manifest.json"
    }


def test_a_job_that_was_begun_twice_counts_once_by_the_run_that_came_further(
    tmp_path: Path,
) -> None:
    one, two = jobs(_study())
    died = _result(tmp_path, [one], "tmdied", trials=5)
    again = _result(tmp_path, [one], "tmagain")
    for number, order in enumerate(([died, again], [again, died])):
        into = tmp_path / f"into{number}"
        for part in order:
            merged = merge([part], into)
        rows = open_result(into).trials()
        assert rows["trial_id"].n_unique() == rows.height == 16
        assert set(rows["run_id"]) == {"tmagain"}
    assert merged.left_out == 5
    assert merged.missing == (two.job_id,)
    assert open_result(into).manifest.outcome == "interrupted"


def test_what_a_killed_run_left_unsealed_is_replaced_by_the_run_that_came_further(
    tmp_path: Path,
) -> None:
    one, _ = jobs(_study())
    died = _result(tmp_path, [one], "tmdied", trials=5)
    into = tmp_path / "into"
    merge([died], into)
    # As a run leaves it that was killed: in the journal, not in columns.
    for sealed in (into / "trials").glob("*.parquet"):
        sealed.unlink()
    (journal,) = (died / "trials").glob("*.jsonl")
    shutil.copy(journal, into / "trials")
    merge([_result(tmp_path, [one], "tmagain")], into)
    rows = open_result(into).trials()
    assert set(rows["run_id"]) == {"tmagain"}
    assert not list((into / "trials").glob("*.jsonl"))


def test_a_job_that_was_begun_is_missing_until_its_trials_are_done(tmp_path: Path) -> None:
    one, two = jobs(_study())
    begun = _result(tmp_path, [one], "tmbegun", trials=5)
    rest = _result(tmp_path, [two], "tmrest")
    # A run writes the record of a job before its first trial.
    record = replace(block_record(), block_id=one.job_id)
    with closing(Writer(begun)) as writer:
        writer.write_block(record)
    into = tmp_path / "into"
    merged = merge([begun, rest], into)
    assert merged.missing == (one.job_id,)
    assert open_result(into).manifest.outcome == "interrupted"
    # One that was given up is there, as it is.
    with closing(Writer(into)) as writer:
        writer.write_block(replace(record, error="the tunnel was killed"))
    assert merge([rest], into).missing == ()
    assert open_result(into).manifest.outcome == "failed"
    whole = _result(tmp_path, [one], "tmwhole")
    assert merge([whole], into).missing == ()
    assert open_result(into).manifest.outcome == "complete"


def test_trials_that_the_last_proof_made_worthless_are_missing(tmp_path: Path) -> None:
    one, two = jobs(_study())
    parts = [_result(tmp_path, [one], "tmone"), _result(tmp_path, [two], "tmtwo")]
    record = replace(block_record(), block_id=one.job_id)
    wrong = replace(record.proofs[0], verdict=ProofVerdict.SAW_WRONG, message="readable")
    last = Attempt(1, "proof", "readable", transient=False, seconds={}, end_proofs=(wrong,))
    with closing(Writer(parts[0])) as writer:
        writer.write_block(replace(record, attempts=(last,)))
    assert merge(parts, tmp_path / "into").missing == (one.job_id,)


def test_of_two_runs_of_a_job_the_one_whose_trials_count_is_taken(tmp_path: Path) -> None:
    one, two = jobs(_study())
    disproved, rest = _result(tmp_path, [one], "tmx"), _result(tmp_path, [two], "tmrest")
    record = replace(block_record(), block_id=one.job_id)
    wrong = replace(record.proofs[0], verdict=ProofVerdict.SAW_WRONG, message="readable")
    last = Attempt(1, "proof", "readable", transient=False, seconds={}, end_proofs=(wrong,))
    with closing(Writer(disproved)) as writer:
        writer.write_block(replace(record, attempts=(last,)))
    sound = _result(tmp_path, [one], "tma")
    assert merge([disproved, sound, rest], tmp_path / "into").missing == ()
    rows = open_result(tmp_path / "into").trials()
    assert set(rows["run_id"]) == {"tma", "tmrest"}
    assert rows["valid"].all()


def test_why_a_job_has_no_trial_is_merged_too(tmp_path: Path) -> None:
    one, two = jobs(_study())
    failed = _result(tmp_path, [one], "tmfailed", trials=0)
    others = _result(tmp_path, [one], "tmothers", trials=0)
    rest = _result(tmp_path, [two], "tmrest")
    record = replace(block_record(), block_id=one.job_id, error="no program openvpn")
    for directory, error in ((failed, "no program openvpn"), (others, "another")):
        with closing(Writer(directory)) as writer:
            writer.write_block(replace(record, error=error))
    for number, order in enumerate(([failed, others, rest], [rest, others, failed])):
        into = tmp_path / f"into{number}"
        for part in order:
            merged = merge([part], into)
        assert (merged.missing, merged.jobs) == ((), 1)
        there = open_result(into)
        assert there.blocks[one.job_id].error == "no program openvpn"
        assert there.manifest.outcome == "failed"
        assert (into / "logs" / one.job_id / "daemon.log").read_text() == "up"
    begun = _result(tmp_path, [one], "tmbegun")
    assert merge([begun], into).missing == ()
    there = open_result(into)
    assert not there.blocks[one.job_id].error
    assert there.manifest.outcome == "complete"


def test_a_tunnel_that_one_computer_lacks_and_another_measured_is_there(tmp_path: Path) -> None:
    one, other = jobs(_study())
    lacking = {"b": "no program", "c": "no program"}
    here = _result(tmp_path, [one], "tmhere", skipped={"b": "no program"})
    begun = _result(tmp_path, [other], "tmbegun", trials=2)
    there = _result(tmp_path, [other], "tmthere", skipped=lacking)
    for number, sources in enumerate(([here, begun], [begun, here])):
        into = tmp_path / f"begun{number}"
        # It ran, so what it still lacks is missing.
        assert merge(sources, into).missing == (other.job_id,)
        assert open_result(into).manifest.skipped == {}
    into = tmp_path / "whole"
    assert not merge([here, there], into).missing
    assert open_result(into).manifest.skipped == {"c": "no program"}
    # Its job has no trial anywhere, and the reason is known.
    nowhere = tmp_path / "nowhere"
    assert not merge([here], nowhere).missing
    assert open_result(nowhere).manifest.skipped == {"b": "no program"}


def test_parts_that_a_killed_run_left_are_taken_in_once(tmp_path: Path) -> None:
    one, two = jobs(_study())
    whole = _result(tmp_path, [], "tmwhole")
    for job in (one, two):
        part = _result(tmp_path, [job], f"tm{job.job_id[:5]}")
        parts.keep(parts.pack(part), whole, job.job_id)
    (whole / ".parts" / f".{one.job_id}").mkdir()  # killed while it was written
    with closing(Writer(whole)), pytest.raises(ResultError, match="another run is writing to it"):
        parts.take_in(whole)
    for _ in range(2):
        parts.take_in(whole)
        assert open_result(whole).trials().height == 32
        assert not (whole / ".parts").exists()


def test_the_jobs_of_a_worker_of_a_cluster_are_one_sitting(tmp_path: Path) -> None:
    one, two = jobs(_study())
    made = [_result(tmp_path, [job], f"tm{job.job_id[:5]}") for job in (one, two)]
    for part, job in zip(made, (one, two), strict=True):
        with closing(Writer(part)) as writer:
            sitting = writer.manifest.sittings[0].model_copy(
                update={"run_id": "tm1", "worker": "w1", "started_at": "t", "jobs": (job.job_id,)}
            )
            writer.update(sittings=(sitting,))
    merge(made[:1], tmp_path / "into")
    merge(made[1:], tmp_path / "into")
    (together,) = open_result(tmp_path / "into").manifest.sittings
    assert (together.worker, together.jobs) == ("w1", tuple(sorted((one.job_id, two.job_id))))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"seed": 4}, "has the seed 4"),
        ({"scale": "smoke"}, "has the scale smoke"),
        ({"study": "another"}, "has the study another"),
        ({"study_sha256": "f00"}, "has the study text with the hash f00"),
    ],
)
def test_what_does_not_belong_is_refused_before_anything_is_written(
    tmp_path: Path, change: dict[str, Any], words: str
) -> None:
    one, two = jobs(_study())
    parts = [
        _result(tmp_path, [one], "tmone"),
        _result(tmp_path, [two], "tmtwo", **change),
    ]
    with pytest.raises(ResultError, match=words):
        merge(parts, tmp_path / "into")
    assert not (tmp_path / "into").exists()


def test_an_older_format_is_refused(tmp_path: Path) -> None:
    one, _ = jobs(_study())
    part = _result(tmp_path, [one], "tmone")
    path = part / "manifest.json"
    path.write_text(path.read_text().replace('"format": 3', '"format": 2'))
    with pytest.raises(ResultError, match="has an older format, which can be read but not merged"):
        merge([part], tmp_path / "into")


def test_a_merge_is_a_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    one, two = jobs(_study())
    part = _result(tmp_path, [one], "tmone")
    assert main.call(["merge", str(part), "--into", str(tmp_path / "into")]) == 0
    reported = capsys.readouterr().out
    assert "16 trial rows added, 0 already there" in reported
    assert f"1 jobs of the study are missing: {two.job_id}" in reported


def test_machines_of_two_suites_are_not_merged(tmp_path: Path) -> None:
    first, second, *_ = jobs(_study())
    one = _result(tmp_path, [first], "tm1", suite="trixie")
    two = _result(tmp_path, [second], "tm2")
    with pytest.raises(ResultError, match=r"has the suite of virtual machines None, .* has trixie"):
        merge([one, two], tmp_path / "all")


def test_a_result_knows_the_suite_that_its_run_was_given(tmp_path: Path) -> None:
    given = _result(tmp_path, [], "tm1", suite="trixie", kernel="6.17.0-mine")
    study, _ = study_of(given)
    assert study.place.system == MachineSystem("trixie", "6.17.0-mine")
    study, _ = study_of(_result(tmp_path, [], "tm2"))
    assert not study.place.system.is_named
    # What a run is given comes before what its study says.
    named = PlaceParams(together=True, suite="trixie")
    assert placed(named, "forky", None).system == MachineSystem("forky")
    assert placed(named, None, None) == named
    assert placed(named, "forky", None).together
