"""Study to jobs: plain data that goes through JSON unchanged, with names that say what is meant."""

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from made_study import made_text
from tunnelmark.model.errors import StudyError
from tunnelmark.model.job import Job, from_json, to_json
from tunnelmark.model.rules import Limits, Precision, Probes, TopologyParams
from tunnelmark.study import list_studies, load_study, parse_study
from tunnelmark.study.plan import first_round, jobs

_TUNNELS = ["", 'label = "other"\nmtu_bytes = 1300', 'label = "two"\ncount = 2']


def _job(text: str = "") -> Job:
    return jobs(parse_study(text or made_text(""), "made.toml"))[0]


@st.composite
def made_jobs(draw: st.DrawFn) -> Job:
    """Jobs with any seed, limits, precision and topology that a study can have."""
    least = draw(st.integers(1, 20))
    shares = st.floats(0, 1)
    durations = st.integers(0, 10**12).map(lambda n: f"{n} ns")
    job = _job(
        made_text("", tunnels=draw(st.lists(st.sampled_from(_TUNNELS), min_size=1, unique=True)))
    )

    def written(share: float) -> Any:
        return share if share < 1 else "100 %"

    return replace(
        job,
        seed=draw(st.integers(0, 2**63 - 1)),
        precision=Precision.model_validate(
            {
                "metric": draw(st.sampled_from(["rtt_p50_ns", "goodput_bit_s"])),
                "relative_half_width": written(draw(st.floats(1e-6, 1))),
                "confidence": draw(st.floats(0.5, 0.999)),
                "min_repeats": least,
                "max_repeats": draw(st.integers(least, 1000)),
            }
        ),
        limits=Limits.model_validate(
            {
                "steal": written(draw(shares)),
                "measuring_cpu": f"{draw(st.integers(0, 640000)) / 100:.2f} %",
                "link_lateness": draw(durations),
                "sender_lateness": draw(durations),
            }
        ),
        probes=Probes(capture_packets=draw(st.integers(0, 50_000))),
        topology=TopologyParams.model_validate(
            {
                "router": draw(st.sampled_from(["none", "routed", "nat"])),
                "reassembly": draw(st.none() | st.just("4 MiB")),
            }
        ),
        expected_s={"made": draw(st.floats(0, 1e6))},
    )


@given(job=made_jobs())
def test_a_job_goes_through_json_unchanged(job: Job) -> None:
    again = from_json(to_json(job))
    assert again == job
    assert to_json(again) == to_json(job)


@pytest.mark.parametrize("name", list_studies())
def test_the_jobs_of_every_built_in_study_go_through_json(name: str) -> None:
    for job in jobs(load_study(name)):
        again = from_json(to_json(job))
        assert again == job
        assert first_round(again) == first_round(job)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"seed": "many"}, "job: seed: "),
        ({"speed": 1}, "job: speed: "),
        ({"block": None}, "job: block: "),
        ({"limits": {"steal": 5}}, "job: limits.steal: "),
    ],
)
def test_a_job_is_read_strictly(change: dict[str, object], words: str) -> None:
    raw = {**json.loads(to_json(_job())), **change}
    with pytest.raises(StudyError) as caught:
        from_json(json.dumps(raw).encode())
    assert str(caught.value).startswith(words)


@pytest.mark.parametrize(
    ("text", "same"),
    [
        ('gap = "0.005 s"', True),
        ('gap = "5000 us"', True),
        ('gap = "5 ms"\nlabel = "another name"', True),
        ('gap = "6 ms"', False),
        ('gap = "5 ms"\ncontent = "zero"', False),
    ],
)
def test_a_point_is_what_its_values_are_not_how_they_are_written(text: str, same: bool) -> None:
    def ids(study: str) -> set[str]:
        found = jobs(parse_study(study, "made.toml"))
        return {point.point_id for job in found for point in job.block.points}

    usual = made_text("")
    other = usual.replace('gap = "5 ms"', text)
    assert other != usual
    assert (ids(other) == ids(usual)) is same
    assert same or not ids(other) & ids(usual)


def test_the_rate_of_a_link_is_one_in_any_unit() -> None:
    usual = made_text("")
    other = usual.replace("8 Mbit/s", "8000 kbit/s")
    assert _job(other).job_id == _job(usual).job_id
    assert _job(usual.replace("8 Mbit/s", "9 Mbit/s")).job_id != _job(usual).job_id


def test_a_default_that_changes_is_another_point() -> None:
    (workload, *_) = parse_study(made_text(""), "made.toml").workloads
    (name, value) = next((n, v) for n, v in workload.columns.items() if isinstance(v, str))
    changed = replace(workload, columns={**workload.columns, name: f"{value}2"})
    assert name not in workload.params
    assert changed.identity != workload.identity


def test_a_load_beside_a_workload_is_what_its_values_are() -> None:
    def text(gap: str) -> str:
        load = f'[[background]]\nkind = "udp_load"\nthroughput = "{gap}"\n'
        load += 'duration = "1 s"\npayload_bytes = 100\n'
        return made_text("", more=load)

    one, two, other = (_job(text(rate)) for rate in ("1 Mbit/s", "1000 kbit/s", "2 Mbit/s"))
    ids = [{point.point_id for point in job.block.points} for job in (one, two, other)]
    assert ids[0] == ids[1]
    assert not ids[0] & ids[2]


def test_more_bring_ups_than_repeats_are_refused_where_an_author_asks_for_them() -> None:
    with pytest.raises(StudyError) as caught:
        _job(made_text("min_repeats = 3\nmax_repeats = 6\nbring_ups = 4"))
    assert str(caught.value) == (
        "made.toml:11: precision.bring_ups is 4, must be at most min_repeats, 3"
    )
    assert _job(made_text("min_repeats = 1")).precision.bring_ups == 2


def test_names_are_long_enough_for_the_largest_study() -> None:
    text = made_text("").replace("[100, 1000]", str(list(range(100, 2100))))
    (job,) = jobs(parse_study(text, "made.toml"))
    ids = {point.point_id for point in job.block.points}
    assert len(ids) == 4000
    # By the birthday bound, of 100,000 points: n^2 / 2 over the number of names.
    bits = 4 * min(map(len, ids))
    assert 100_000**2 / 2 / 2**bits < 1e-4
