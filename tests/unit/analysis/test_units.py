"""Figures in sentences: no power of ten that rounding left."""

import pytest

from tunnelmark.analysis.units import as_text, change_as_text


@pytest.mark.parametrize(
    ("value", "quantity", "shown"),
    [
        (-2.706e-27, "ratio", "0 %"),
        (0.0, "ratio", "0 %"),
        (-0.0123456, "ratio", "-1.235 %"),
        (1.5e-7, "ratio", "+0.00001500 %"),
    ],
)
def test_a_change_is_in_digits(value: float, quantity: str, shown: str) -> None:
    assert change_as_text(value, "rtt_p50_ns", quantity) == shown


def test_a_slope_is_per_step_that_people_think_in() -> None:
    said = change_as_text(0.0000123, "rtt_p50_ns", "relative_slope", "payload_bytes")
    assert said == "+0.1231 % per 100 bytes"
    assert change_as_text(1e3, "rtt_p50_ns", "slope", "gap_ns") == "+1000 ms per ms"
    assert change_as_text(1e3, "rtt_p50_ns", "slope", "clients") == "+0.001000 ms per unit"


def test_a_figure_keeps_four_digits() -> None:
    assert as_text(7.85e6, "goodput_bit_s") == "7.850 Mbit/s"
    assert as_text(3e20, "goodput_bit_s") == "3.000e+14 Mbit/s"
