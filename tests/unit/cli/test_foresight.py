"""How large the differences are that a study will detect, in words."""

import pytest

from tunnelmark.cli.foresight import _size
from tunnelmark.run.foresight import Seen


@pytest.mark.parametrize(
    ("metric", "difference", "words"),
    [
        ("rtt_p50_ns", 0.0249, "2.5 %"),
        ("rtt_p50_ns", 1.0, "100 %"),
        ("rtt_p50_ns", 1.31, "a factor of 2.3"),
        ("goodput_bit_s", 3699.0, "a factor of 3700"),
        ("loss_forward_ratio", 0.001, "0.1 points"),
        ("loss_forward_ratio", 2.0, "200 points"),
    ],
)
def test_a_forecast_has_two_digits_and_no_percentage_beyond_a_factor_of_two(
    metric: str, difference: float, words: str
) -> None:
    assert _size(Seen(metric, difference)) == words
