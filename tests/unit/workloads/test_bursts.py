"""Bursts that would not have the rate that is asked for are refused before anything runs."""

import pytest

from tunnelmark.model.errors import StudyError
from tunnelmark.study import parse_study
from tunnelmark.workloads.bursts import Bursts, BurstsParams

_STUDY = """
format = 1
name = "bursts"
title = "Bursts"
seed = 1

[[link]]
kind = "serial"
rate = "8 Mbit/s"

[[tunnel]]
kind = "openvpn"
count = 4

[[workload]]
kind = "bursts"
packet_rate = 100
on_min = "100 ms"
"""


def _bursts(**params: object) -> Bursts:
    return Bursts(BurstsParams.model_validate(params))


@pytest.mark.parametrize(
    ("params", "paths", "refused"),
    [
        ({}, 1, False),
        ({"packet_rate": 100, "on_min": "50 ms"}, 1, False),
        ({"packet_rate": 100, "on_min": "49 ms"}, 1, True),
        ({"packet_rate": 100, "on_min": "50 ms"}, 2, True),
        ({"packet_rate": 1, "ports": [80], "on_min": "999 ms"}, 1, True),
    ],
)
def test_a_burst_has_two_datagrams_at_least(
    params: dict[str, object], paths: int, *, refused: bool
) -> None:
    assert (_bursts(**params).conflict(paths) is not None) == refused


def test_a_study_with_such_bursts_is_refused_with_the_figures() -> None:
    assert parse_study(_STUDY.replace("count = 4\n", ""), "a.toml")
    with pytest.raises(
        StudyError, match=r"on_min is 100 ms, less than the 200 ms .* over 20 ports"
    ):
        parse_study(_STUDY, "a.toml")
