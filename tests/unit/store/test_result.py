"""Result directories: what is written is read, and what is damaged is refused."""

import gc
import json
import math
import shutil
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from made_results import block_record, manifest, point, trial_result, write
from tunnelmark.model.block import Attempt, ProofVerdict
from tunnelmark.model.errors import ResultError
from tunnelmark.model.metrics import METRICS
from tunnelmark.model.trial import Measurement, Trial, TrialResult
from tunnelmark.model.validity import Check, Validity
from tunnelmark.store import Writer, open_result, values
from tunnelmark.store.formats import CONVERTERS, Converter
from tunnelmark.store.manifest import read_manifest
from tunnelmark.store.result import Result


def test_what_is_written_is_read(tmp_path: Path) -> None:
    results = [
        trial_result("openvpn", 1000, 1, {"goodput_bit_s": 1e6, "rtt_p50_ns": None}),
        trial_result("none", 1000, 1, {"goodput_bit_s": 2e6}, valid=False),
    ]
    result = open_result(write(tmp_path, results))
    trials = result.trials()
    assert trials.height == 2
    tunnel = trials.filter(~pl.col("is_baseline")).row(0, named=True)
    assert tunnel["goodput_bit_s"] == 1e6
    assert tunnel["rtt_p50_ns"] is None
    assert tunnel["param_payload_bytes"] == 1000
    assert tunnel["param_gap_ns"] == 5_000_000
    assert json.loads(tunnel["params"]) == {"gap": "5 ms", "payload_bytes": 1000}
    baseline = trials.filter(pl.col("is_baseline")).row(0, named=True)
    assert baseline["reasons"] == ["made <b>so</b>"]
    assert baseline["pair_id"] == tunnel["pair_id"]
    assert result.blocks["b1"] == block_record()


def test_a_result_reads_its_trials_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    result = open_result(write(tmp_path, [trial_result("none", 1000, 1, {})]))
    parsed = []
    monkeypatch.setattr(values, "from_json", lambda text: parsed.append(text) or json.loads(text))
    assert result.trials().equals(result.trials())
    assert len(parsed) == 3, "params, details and checks"


def test_trials_whose_tunnel_failed_the_last_proof_count_for_nothing(tmp_path: Path) -> None:
    results = [
        trial_result("openvpn", 1000, 1, {"goodput_bit_s": 1e6}),
        trial_result("openvpn", 1000, 2, {"goodput_bit_s": 1e6}, valid=False),
        trial_result("none", 1000, 1, {"goodput_bit_s": 2e6}),
        trial_result("openvpn", 64, 1, {"goodput_bit_s": 1e6}, block="b2"),
    ]
    directory = write(tmp_path, results)
    record = block_record()
    words = "it is $1 \\1 readable"
    wrong = replace(record.proofs[0], verdict=ProofVerdict.SAW_WRONG, message=words)
    last = Attempt(1, "trials", "why", transient=False, seconds={}, end_proofs=(wrong,))
    with closing(Writer(directory)) as writer:
        writer.write_block(replace(record, attempts=(last,)))
    trials = open_result(directory).trials()
    message = f"the proof by wire failed after the trials: {words}"
    reported = {
        (row["block_id"], row["is_baseline"], row["repeat"]): (
            row["valid"],
            row["reasons"],
            [check["message"] for check in json.loads(row["checks"])],
        )
        for row in trials.iter_rows(named=True)
    }
    made = "made <b>so</b>"
    assert reported == {
        ("b1", False, 1): (False, [message], ["fine", message]),
        ("b1", False, 2): (False, [made, message], [made, message]),
        ("b1", True, 1): (True, [], ["fine"]),
        ("b2", False, 1): (True, [], ["fine"]),
    }


def test_an_attempt_that_takes_the_place_of_a_disproved_one_has_valid_trials(
    tmp_path: Path,
) -> None:
    figures: dict[str, float | None] = {"goodput_bit_s": 1e6}
    results = [
        trial_result("openvpn", 1000, 1, figures),
        trial_result("openvpn", 1000, 1, figures, attempt=2),
        trial_result("openvpn", 1000, 11, figures),
    ]
    directory = write(tmp_path, results)
    record = block_record()
    wrong = replace(record.proofs[0], verdict=ProofVerdict.SAW_WRONG, message="readable")
    first = Attempt(
        *(1, "proof", "why", False, {}),
        end_proofs=(wrong,),
        trials=("b1-openvpn1000-1-1",),
    )
    again = Attempt(1, "done", None, transient=False, seconds={}, end_proofs=record.proofs)
    with closing(Writer(directory)) as writer:
        writer.write_block(replace(record, attempts=(first, again)))
    result = open_result(directory)
    assert result.blocks["b1"].attempts == (first, again)
    valid = {
        (row["repeat"], row["attempt"]): row["valid"]
        for row in result.trials().iter_rows(named=True)
    }
    assert valid == {(1, 1): False, (1, 2): True, (11, 1): True}


FIGURES = st.dictionaries(
    st.sampled_from(sorted(METRICS)),
    st.none() | st.floats(-1e18, 1e18),
    max_size=5,
)
TEXTS = st.text(st.characters(codec="utf-8"), max_size=20)


@st.composite
def trial_results(draw: st.DrawFn) -> list[TrialResult]:
    results = []
    for number in range(draw(st.integers(0, 5))):
        block = draw(st.sampled_from(["b1", "b2"]))
        at = point(draw(st.sampled_from(["none", "openvpn"])), draw(st.integers(25, 65507)))
        paths = draw(st.lists(st.sampled_from(["total", "0", "1"]), unique=True, max_size=3))
        results.append(
            TrialResult(
                Trial(f"{block}-{number}", block, at, number, 1),
                draw(st.integers(1, 5)),
                datetime(2026, 11, 21, tzinfo=UTC)
                + timedelta(microseconds=draw(st.integers(0, 10**12))),
                draw(st.floats(0, 1e6)),
                tuple(Measurement(path, draw(FIGURES)) for path in paths),
                Validity((Check("x", ok=draw(st.booleans()), message=draw(TEXTS)),)),
                details={"any": draw(TEXTS)},
                samples=tuple(draw(st.lists(TEXTS, max_size=2))),
            )
        )
    return results


@settings(max_examples=25, deadline=None)
@given(results=trial_results())
def test_nothing_is_lost_or_invented_on_the_way_to_the_disk(
    tmp_path_factory: pytest.TempPathFactory, results: list[TrialResult]
) -> None:
    trials = open_result(write(tmp_path_factory.mktemp("law"), results)).trials()
    rows = {(row["trial_id"], row["path"]): row for row in trials.iter_rows(named=True)}
    wanted = {
        (result.trial.trial_id, path): (result, figures)
        for result in results
        for path, figures in [(m.path, m.metrics) for m in result.measurements] or [("total", {})]
    }
    assert set(rows) == set(wanted)
    for key, (result, figures) in wanted.items():
        row = rows[key]
        assert {name: row[name] for name in METRICS} == {n: figures.get(n) for n in METRICS}
        assert row["started_at"] == result.started_at
        assert row["duration_s"] == result.duration_s
        assert row["valid"] == result.validity.valid
        assert tuple(row["samples"]) == result.samples
        assert tuple(row["reasons"]) == result.validity.reasons
        assert json.loads(row["details"]) == result.details
        assert json.loads(row["checks"])[0]["message"] == result.validity.checks[0].message
        assert row["param_payload_bytes"] == result.trial.point.workload.params["payload_bytes"]


def test_an_attempt_without_figures_has_its_row(tmp_path: Path) -> None:
    one = trial_result("openvpn", 1000, 1, {}, valid=False)
    trials = open_result(write(tmp_path, [one])).trials()
    assert trials.height == 1
    assert trials["goodput_bit_s"].to_list() == [None]


def test_a_figure_that_no_metric_defines_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="speed"):
        write(tmp_path, [trial_result("none", 1, 1, {"speed": 1.0})])


def test_two_runs_do_not_share_a_directory(tmp_path: Path) -> None:
    first = Writer.create(tmp_path / "result", manifest())
    with pytest.raises(ResultError, match="another run is writing to it"):
        Writer(tmp_path / "result")
    first.close()
    Writer(tmp_path / "result").close()


def test_a_resumed_run_adds_to_what_is_there_and_clears_what_was_half_written(
    tmp_path: Path,
) -> None:
    directory = write(tmp_path, [trial_result("none", 64, 1, {"goodput_bit_s": 1.0})])
    (directory / "trials" / ".b1.parquet.part").write_bytes(b"PAR1 half")
    (directory / "blocks" / ".b1.json.part").write_bytes(b"{")
    assert open_result(directory).trials().height == 1
    writer = Writer(directory)
    writer.append(trial_result("none", 64, 2, {"goodput_bit_s": 2.0}), pair_id="p")
    writer.update(outcome="complete", wall_s=10.0, measuring_s=4.0)
    writer.close()
    again = open_result(directory)
    assert again.trials()["goodput_bit_s"].to_list() == [1.0, 2.0]
    assert again.manifest.outcome == "complete"
    assert again.manifest.measuring_ratio == 0.4
    assert not list(directory.glob("*/.*.part"))


def test_a_writer_keeps_no_rows(tmp_path: Path) -> None:
    writer = Writer.create(tmp_path / "result", manifest())

    def frames() -> int:
        gc.collect()
        return sum(isinstance(one, pl.DataFrame) for one in gc.get_objects())

    before = frames()
    for repeat, block in enumerate(("b1", "b1", "b2", "b3", "b3", "b4", "b1")):
        done = trial_result("openvpn", 1000, repeat, {}, block=block)
        writer.append(done, pair_id="p")
    writer.seal("b3")
    assert frames() == before
    writer.close()
    rows = open_result(tmp_path / "result").trials()
    assert rows.group_by("block_id").len().sort("block_id")["len"].to_list() == [3, 1, 2, 1]


def test_parameters_of_different_workloads_stand_side_by_side(tmp_path: Path) -> None:
    one = trial_result("none", 64, 1, {})
    workload = one.trial.point.workload
    object.__setattr__(workload, "columns", {"rate_bit_s": 8, "duration_ns": 5, "sizes": [1, 2]})
    two = trial_result("none", 65, 2, {})
    trials = open_result(write(tmp_path, [one, two])).trials().sort("repeat")
    assert trials["param_rate_bit_s"].to_list() == [8, None]
    assert trials["param_payload_bytes"].to_list() == [None, 65]
    assert trials["param_duration_ns"].to_list() == [5, None]
    assert trials["param_sizes"].to_list() == ["[1, 2]", None]


def test_the_manifest_takes_no_value_that_it_does_not_define(tmp_path: Path) -> None:
    writer = Writer.create(tmp_path / "result", manifest())
    with pytest.raises(ValueError, match="colour"):
        writer.update(colour="red")
    writer.close()
    assert open_result(tmp_path / "result").manifest.outcome is None


def test_a_newer_format_is_refused(tmp_path: Path) -> None:
    directory = write(tmp_path, [])
    raw = json.loads((directory / "manifest.json").read_text())
    (directory / "manifest.json").write_text(json.dumps({**raw, "format": 99}))
    with pytest.raises(ResultError, match=r"manifest\.json: has format 99, .* reads up to 3"):
        open_result(directory)


def test_an_older_format_is_converted_step_by_step_and_not_continued(tmp_path: Path) -> None:
    directory = write(tmp_path, [trial_result("none", 64, 1, {"goodput_bit_s": 1.0})])
    path = directory / "manifest.json"
    raw = json.loads(path.read_text())
    title = raw.pop("title")
    path.write_text(json.dumps({**raw, "format": -1, "heading": title}))
    block = directory / "blocks" / "b1.json"
    record = json.loads(block.read_text())
    block.write_text(json.dumps({"appliance": record.pop("device"), **record}))
    trials = directory / "trials" / "b1.parquet"
    pl.read_parquet(trials).rename({"device": "appliance"}).write_parquet(trials)
    converters = {
        -1: Converter(
            manifest=lambda was: {"name": was.pop("heading"), **was, "format": 0},
            trials=lambda was: was.rename({"appliance": "gadget"}),
        ),
        0: Converter(
            manifest=lambda was: {"title": was.pop("name"), **was, "format": 1},
            block=lambda was: {"device": was.pop("appliance"), **was},
            trials=lambda was: was.rename({"gadget": "device"}),
        ),
        **CONVERTERS,
    }
    result = Result(directory, converters=converters)
    assert result.manifest.title == title
    assert result.blocks["b1"] == block_record()
    assert result.trials()["device"].to_list() == ["host"]
    assert read_manifest(directory, converters=converters).format == 3
    with pytest.raises(ResultError, match="has format -1, which does not exist"):
        Writer(directory)


def test_a_result_of_format_1_had_one_bring_up_and_proofs_that_held_or_not(tmp_path: Path) -> None:
    directory = as_format_1(write(tmp_path, [trial_result("none", 64, 1, {})]))
    result = open_result(directory)
    assert result.trials()["bring_up"].to_list() == [1]
    (proof,) = result.blocks["b1"].proofs
    assert proof.verdict is ProofVerdict.PROVED
    assert result.blocks["b1"].negotiated[0].data_path is None
    path = directory / "blocks" / "b1.json"
    path.write_text(path.read_text().replace('"ok": true', '"ok": false'))
    (proof,) = open_result(directory).blocks["b1"].proofs
    assert not proof.ok


def as_format_1(directory: Path) -> Path:
    """Return a result of today as the first format had it."""
    path = directory / "manifest.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "format": 1}))
    path = directory / "blocks" / "b1.json"
    record = json.loads(path.read_text())
    for proof in record["proofs"]:
        proof["ok"] = proof.pop("verdict") == "proved"
    for agreed in record["negotiated"]:
        del agreed["data_path"]
    del record["attempts"]
    path.write_text(json.dumps(record))
    path = directory / "trials" / "b1.parquet"
    pl.read_parquet(path).drop("bring_up").write_parquet(path)
    return directory


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("manifest.json", b"{"),
        ("manifest.json", b"[]"),
        ("manifest.json", b"[" * 100_000),
        ("manifest.json", b'{"format": true}'),
        ("manifest.json", b'{"format": "1"}'),
        ("manifest.json", b'{"format": 1}'),
        ("manifest.json", b'{"format": 2}'),
        ("blocks/b1.json", b'{"block_id": 1}'),
        ("blocks/b1.json", b"\xff"),
        ("blocks/b1.json", b"[" * 100_000),
        ("blocks/b1.json", b"1"),
        ("trials/b1.parquet", b""),
        ("trials/b1.parquet", b"PAR1"),
    ],
)
def test_damage_is_an_error_that_names_the_file(tmp_path: Path, name: str, content: bytes) -> None:
    directory = write(tmp_path, [trial_result("none", 1, 1, {})])
    (directory / name).write_bytes(content)
    with pytest.raises(ResultError, match=name.replace(".", r"\.")):
        open_result(directory).trials()


@settings(max_examples=60, deadline=None)
@given(at=st.integers(0), length=st.integers(0, 40), name=st.sampled_from(["m", "b", "t"]))
def test_damage_anywhere_is_an_error_of_ours_or_does_not_matter(
    whole: Path, tmp_path_factory: pytest.TempPathFactory, at: int, length: int, name: str
) -> None:
    directory = tmp_path_factory.mktemp("damage") / "result"
    shutil.copytree(whole, directory)
    path = directory / {"m": "manifest.json", "b": "blocks/b1.json", "t": "trials/b1.parquet"}[name]
    data = path.read_bytes()
    at %= len(data)
    path.write_bytes(data[:at] + bytes(length) + data[at + length + 1 :])
    try:
        result = open_result(directory)
        trials = result.trials()
    except ResultError as error:
        found = str(error)
        assert str(directory) in found
    else:
        assert trials.height == 1
        assert result.blocks
    shutil.rmtree(directory)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write(tmp_path_factory.mktemp("whole"), [trial_result("none", 64, 1, {})])


def change_block(directory: Path, **changes: object) -> None:
    path = directory / "blocks" / "b1.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"colour": "red"}, "colour is not a key of a block"),
        ({"proofs": [{"verdict": "yes"}]}, r"proofs\.0\."),
        ({"block_id": "b2"}, "is the record of block b2"),
        ({"seconds": {"lab_up": "fast"}}, r"seconds\.lab_up: must be a valid number"),
    ],
)
def test_a_block_is_read_strictly(
    tmp_path: Path, changes: dict[str, object], complaint: str
) -> None:
    directory = write(tmp_path, [])
    change_block(directory, **changes)
    with pytest.raises(ResultError, match=f"b1.json: .*{complaint}"):
        open_result(directory)


def _with(**columns: pl.Expr) -> Callable[[pl.DataFrame], pl.DataFrame]:
    return lambda frame: frame.with_columns(**columns)


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        (lambda f: f.drop("valid"), "has no column valid"),
        (lambda f: f.with_columns(valid=pl.lit("yes")), "column valid is String, must be Boolean"),
        (lambda f: f.with_columns(goodput_bit_s=pl.lit(1)), "column goodput_bit_s is Int32"),
        (lambda f: f.with_columns(colour=pl.lit("red")), "column colour is not a trial column"),
        (lambda f: f.with_columns(trial_id=pl.lit(None, pl.String)), "column trial_id has an empt"),
        (lambda f: pl.concat([f, f]), "has the same attempt twice"),
        (_with(duration_s=pl.lit(None, pl.Float64)), "column duration_s has an empty row"),
        (_with(rtt_p50_ns=pl.lit(math.inf)), "column rtt_p50_ns has a value that is no finite"),
        (_with(rtt_p50_ns=pl.lit(math.nan)), "column rtt_p50_ns has a value that is no finite"),
        (_with(details=pl.lit(None, pl.String)), "column details has an empty row"),
        (_with(reasons=pl.lit(None, pl.List(pl.String))), "column reasons has an empty row"),
        (_with(reasons=pl.lit([None], pl.List(pl.String))), "column reasons has an empty row"),
        (_with(samples=pl.lit(["a", None], pl.List(pl.String))), "column samples has an empty"),
        (_with(details=pl.lit("[")), "details of trial b1-none64-1 are damaged: "),
        (_with(details=pl.lit("[" * 100_000)), "details of trial b1-none64-1 are damaged: "),
        (_with(details=pl.lit("[]")), "details of trial b1-none64-1 are no JSON object"),
        (_with(params=pl.lit("1")), "params of trial b1-none64-1 are no JSON object"),
        (_with(stratum=pl.lit("moon")), "stratum is 'moon', which is none"),
        (_with(checks=pl.lit("5")), "checks of trial b1-none64-1 are no JSON list of objects"),
        (_with(checks=pl.lit("[1]")), "checks of trial b1-none64-1 are no JSON list of objects"),
        (_with(trial_id=pl.lit("../../x")), r"trial_id is '\.\./\.\./x', must be letters, digits"),
        (_with(trial_id=pl.lit("x\0")), r"trial_id is 'x\\x00', must be letters, digits"),
        (_with(block_id=pl.lit("")), "block_id is '', must be letters, digits"),
        (_with(point_id=pl.lit("/home")), "point_id is '/home', must be letters, digits"),
        (_with(point_id=pl.lit("x" * 151)), "point_id is 'x{80}', must be letters, digits"),
        (
            lambda f: f.with_columns(pl.lit(1).alias(f"param_{n}") for n in range(1000)),
            "columns, at most 1000 are allowed",
        ),
    ],
)
def test_trials_are_read_strictly(tmp_path: Path, change: object, complaint: str) -> None:
    directory = write(tmp_path, [trial_result("none", 64, 1, {})])
    path = directory / "trials" / "b1.parquet"
    assert callable(change)
    change(pl.read_parquet(path)).write_parquet(path)
    with pytest.raises(ResultError, match=complaint):
        open_result(directory).trials()


@pytest.mark.parametrize(
    "details", ['{"a": NaN}', '{"a": "\\ud800"}', f'{{"a": {"[" * 300 + "]" * 300}}}']
)
def test_details_are_taken_as_python_writes_them(tmp_path: Path, details: str) -> None:
    directory = write(tmp_path, [trial_result("none", 64, 1, {})])
    path = directory / "trials" / "b1.parquet"
    pl.read_parquet(path).with_columns(details=pl.lit(details)).write_parquet(path)
    assert open_result(directory).trials()["details"].to_list() == [details]


def test_files_of_a_result_do_not_add_up_to_endless_columns(tmp_path: Path) -> None:
    directory = write(tmp_path, [trial_result("none", 64, 1, {})])
    one = pl.read_parquet(directory / "trials" / "b1.parquet")
    for number in range(2, 12):
        pl.DataFrame(
            one.with_columns(
                pl.lit(f"b{number}-none64-1").alias("trial_id"),
                *(pl.lit(1).alias(f"param_{number}_{n}") for n in range(100)),
            )
        ).write_parquet(directory / "trials" / f"b{number}.parquet")
    with pytest.raises(ResultError, match=r"trials: has \d+ columns, at most 1000 are allowed"):
        open_result(directory).trials()


@pytest.mark.parametrize("name", ["trials/b1.parquet", "blocks/b1.json", "manifest.json"])
def test_links_that_lead_out_are_not_followed(tmp_path: Path, name: str) -> None:
    directory = write(tmp_path, [trial_result("none", 64, 1, {})])
    elsewhere = tmp_path / "elsewhere"
    (directory / name).rename(elsewhere)
    (directory / name).symlink_to(elsewhere)
    with pytest.raises(ResultError, match=r"leads out of the result directory"):
        open_result(directory).trials()


def test_a_name_that_leads_out_of_the_directory_is_refused(tmp_path: Path) -> None:
    result = open_result(write(tmp_path, []))
    with pytest.raises(ResultError, match="leads out"):
        result.samples("../../../etc/passwd")
    with pytest.raises(ResultError, match="cannot be followed"):
        result.samples("\0")
    with pytest.raises(ResultError, match="is not a file"):
        result.samples("missing.rec")


def test_no_result_directory(tmp_path: Path) -> None:
    with pytest.raises(ResultError, match="is not a result directory"):
        open_result(tmp_path)
    with pytest.raises(ResultError, match=r"cannot be written|is not a result directory"):
        Writer(tmp_path / "nowhere")


def test_a_small_file_that_claims_to_be_endless_is_refused(tmp_path: Path) -> None:
    directory = write(tmp_path, [trial_result("none", 200, 1, {})])
    path = directory / "trials" / "b1.parquet"
    pl.DataFrame({"study": ["x"]}).select(
        pl.col("study").repeat_by(1_000_001).explode()
    ).write_parquet(path)
    assert path.stat().st_size < 100_000
    with pytest.raises(ResultError, match=r"has 1000001 rows, at most 1000000 are allowed"):
        open_result(directory).trials()
