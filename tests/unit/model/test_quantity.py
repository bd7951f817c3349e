"""A share says its unit, or is a number that can be nothing else."""

import pytest
from pydantic import TypeAdapter, ValidationError

from tunnelmark.model.quantity import CoreShare, Ratio, percent

RATIO: TypeAdapter[float] = TypeAdapter(Ratio)
CORES: TypeAdapter[float] = TypeAdapter(CoreShare)


@pytest.mark.parametrize(
    ("written", "share"),
    [
        ("1 %", 0.01),
        ("0.5%", 0.005),
        ("100 %", 1.0),
        ("0 %", 0.0),
        (0, 0.0),
        (0.02, 0.02),
        (0.999, 0.999),
    ],
)
def test_a_share_with_a_unit_or_below_one_is_read(written: object, share: float) -> None:
    assert RATIO.validate_python(written) == pytest.approx(share)
    assert CORES.validate_python(written) == pytest.approx(share)


@pytest.mark.parametrize("written", ["1", "0.02", "0", " 1 ", 1, 1.0, 2, float("nan")])
def test_a_share_without_a_unit_that_could_be_per_cent_is_refused(written: object) -> None:
    for adapter, example in ((RATIO, "2 %"), (CORES, "90 %")):
        with pytest.raises(ValidationError) as caught:
            adapter.validate_python(written)
        message = caught.value.errors()[0]["msg"]
        assert "has no unit" in message
        assert example in message
        assert "0.02 is 2 %" in message


@pytest.mark.parametrize(
    ("written", "complaint"),
    [
        ("101 %", "less than or equal to 1"),
        (-0.01, "greater than or equal to 0"),
        ("-1 %", "must be a quantity"),
        ("1 ‰", "has the unit '‰'; known: %"),
        (True, "must be a quantity"),
        ("%", "must be a quantity"),
    ],
)
def test_what_is_no_share_is_refused(written: object, complaint: str) -> None:
    with pytest.raises(ValidationError, match=complaint):
        RATIO.validate_python(written)


def test_several_cores_are_said_in_per_cent() -> None:
    assert CORES.validate_python("250 %") == pytest.approx(2.5)


@pytest.mark.parametrize("adapter", [RATIO, CORES])
def test_the_schema_refuses_what_the_parser_refuses(adapter: TypeAdapter[float]) -> None:
    number, text = adapter.json_schema()["anyOf"]
    assert number["exclusiveMaximum"] == 1
    assert text["pattern"].endswith(r"\s*%\s*$")


@pytest.mark.parametrize(
    ("written", "wanted"),
    [
        (percent(0.31), "31 %"),
        (percent(0.0005, 2), "0.05 %"),
        (percent(-0.49, sign=True), "-49 %"),
        (percent(0.012, 1, sign=True), "+1.2 %"),
        (percent(-0.00001, 2, sign=True), "+0.00 %"),
    ],
)
def test_a_share_is_written_with_a_space_before_its_unit(written: str, wanted: str) -> None:
    assert written == wanted
