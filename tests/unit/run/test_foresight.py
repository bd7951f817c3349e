"""What a run will detect stays a number, however much its figures scatter."""

import math

from made_study import made_text
from tunnelmark.analysis.power import Scatter
from tunnelmark.model.metrics import METRICS
from tunnelmark.run.foresight import foresee
from tunnelmark.study import parse_study


def test_an_enormous_scatter_gives_a_finite_difference() -> None:
    study = parse_study(made_text("min_repeats = 4\nmax_repeats = 4\nbring_ups = 1"), "made.toml")
    found = foresee(study, dict.fromkeys(METRICS, Scatter(1000.0, 0.0)), 4)
    assert found.seen
    assert all(one.difference is not None and math.isfinite(one.difference) for one in found.seen)


def test_fewer_repeats_than_a_report_speaks_of_promise_nothing() -> None:
    study = parse_study(made_text("min_repeats = 3\nmax_repeats = 3\nbring_ups = 1"), "made.toml")
    found = foresee(study, dict.fromkeys(METRICS, Scatter(0.01, 0.0)), 3)
    assert found.seen
    assert all(one.difference is None for one in found.seen)
