"""Frames that a stranger may have written."""

import polars as pl
import pytest

from made_results import trial_result
from tunnelmark.model.errors import ResultError
from tunnelmark.store.rows import Origin, check_frame, to_frame


@pytest.mark.parametrize("figure", [1e19, -1e308])
def test_a_figure_that_nothing_has_is_refused(figure: float) -> None:
    made = trial_result("wg", 64, 1, {"loss_forward_ratio": 0.5})
    frame = to_frame(made, origin=Origin("made", "tm0", "", ""), pair_id="p")
    check_frame(frame, "here")
    with pytest.raises(ResultError, match="here: column loss_forward_ratio has a value above 1e"):
        check_frame(frame.with_columns(loss_forward_ratio=pl.lit(figure)), "here")
