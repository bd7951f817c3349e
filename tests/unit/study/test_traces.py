"""Traces of links: what they contain is part of a study, though they stay files of their own."""

import json
from pathlib import Path

import pytest

from made_results import manifest
from tunnelmark.execute.study_of import study_in
from tunnelmark.links.registry import link_of
from tunnelmark.model.errors import LabError, StudyError
from tunnelmark.study import Study, load_study, parse_study
from tunnelmark.study.plan import jobs

STUDY = """\
format = 1
name = "mine"
title = "Mine"
[precision]
metric = "rtt_p50_ns"
[[link]]
kind = "trace"
forward = {forward}
{more}
[[workload]]
kind = "udp_echo"
gap = "5 ms"
packets = 10
payload_bytes = 100
"""


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    path = tmp_path / "up.trace"
    path.write_text("1\n2\n3\n")
    return path


def loaded(*forward: Path, more: str = "") -> Study:
    path = forward[0].parent / "mine.toml"
    named = [str(one) for one in forward]
    text = STUDY.format(forward=json.dumps(named if len(named) > 1 else named[0]), more=more)
    path.write_text(text, "utf-8")
    return load_study(str(path))


def frozen(study: Study) -> Study:
    """Return a study loaded again from the text that its result has."""
    path = Path(str(study.links[0].params["forward"])).parent / study.source
    path.write_text(study.text, "utf-8")
    return load_study(str(path))


def resumed(study: Study) -> Study:
    return study_in(manifest(study_text=study.text, study_source=study.source))


def test_a_study_knows_what_its_traces_contain(trace: Path) -> None:
    study = loaded(trace)
    assert study.text.count("[[trace]]") == 1
    assert parse_study(study.text, study.source).links == study.links
    # Loaded from the text that a result has, it is the same study.
    assert frozen(study).text == study.text


def test_a_trace_that_was_edited_is_refused_on_resume_and_in_a_worker(trace: Path) -> None:
    study = loaded(trace, more='label = "recorded"')
    trace.write_text("1\n2\n4\n")
    with pytest.raises(StudyError) as caught:
        resumed(study)
    words = f"mine.toml: link recorded: {trace} has changed since the study was begun: its SHA-256"
    assert str(caught.value).startswith(words)
    with pytest.raises(StudyError, match="has changed since the study was begun"):
        frozen(study)
    trace.write_text("1\n2\n3\n")
    assert resumed(study).links == frozen(study).links == study.links


def test_a_trace_that_is_edited_during_a_run_is_not_carried(trace: Path) -> None:
    (spec,) = loaded(trace).links
    assert link_of(spec).mtu_bytes == 1500
    trace.write_text("1\n2\n4\n")
    with pytest.raises(LabError, match=r"up\.trace has changed since the study was read"):
        link_of(spec)


def test_points_over_another_trace_are_others(trace: Path) -> None:
    def points(study: Study) -> set[str]:
        return {point.point_id for job in jobs(study) for point in job.block.points}

    before = points(loaded(trace))
    trace.write_text("1\n2\n4\n")
    after = points(loaded(trace))
    assert before.isdisjoint(after)
    trace.write_text("1\n2\n3\n")
    assert points(loaded(trace)) == before


def test_both_ways_and_every_choice_of_a_link_count(trace: Path) -> None:
    other, back = trace.with_name("other.trace"), trace.with_name("back.trace")
    other.write_text("5\n")
    back.write_text("6\n")
    study = loaded(trace, other, more=f'reverse = "{back}"')
    assert study.text.count("[[trace]]") == 3
    back.write_text("7\n")
    with pytest.raises(StudyError, match=r"back\.trace has changed"):
        resumed(study)


@pytest.mark.parametrize(
    ("table", "words"),
    [
        ("[trace]\npath = 1", "trace must be written as [[trace]]"),
        ("[[trace]]\npath = 1", "trace must have the keys path and sha256, and no other"),
        ('[[trace]]\npath = 1\nsha256 = ""', "trace.path is 1, must be a string"),
        ('[[trace]]\npath = "x"\nsha256 = "0"', 'trace.sha256 is "0", must be 64'),
    ],
)
def test_what_is_wrong_with_a_trace_is_reported(trace: Path, table: str, words: str) -> None:
    text = STUDY.format(forward=f'"{trace}"', more="") + table
    with pytest.raises(StudyError) as caught:
        parse_study(text, "mine.toml")
    assert words in str(caught.value)
