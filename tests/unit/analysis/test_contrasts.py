"""How two groups of repeats differ: packets count only where trials are alike."""

from collections.abc import Sequence
from dataclasses import replace

import pytest
from scipy import stats

from tunnelmark.analysis.cells import Cell
from tunnelmark.analysis.contrasts import contrast
from tunnelmark.analysis.packets import Packets
from tunnelmark.model.block import Stratum

LOSS = "loss_forward_ratio"


def cell(name: str, lost: Sequence[int], of: int = 100) -> Cell:
    """Return a point of which so many of 100 packets were lost in each repeat."""
    arrived = of * len(lost) - sum(lost)
    return Cell(
        point_id=name,
        names={"tunnel": name},
        kinds={},
        params={},
        figures={("", "b1", 1, n): count / of for n, count in enumerate(lost)},
        baseline={},
        baseline_id=None,
        packets=Packets(of * len(lost), arrived, arrived, arrived),
    )


def test_one_burst_in_one_of_five_trials_is_no_more_loss() -> None:
    """Nothing lost against 0, 0, 0, 0 and 30 %: by packets p was 2e-8."""
    found = contrast(cell("wg", [0, 0, 0, 0, 30]), cell("none", [0] * 5), LOSS)
    assert found.method == "t, paired"
    assert found.spread.error is not None
    assert found.spread.value / found.spread.error == pytest.approx(1.0)
    # The other way round as well: it does not matter which of the two scatters.
    back = contrast(cell("none", [0] * 5), cell("wg", [0, 0, 0, 0, 30]), LOSS)
    assert back.method == "t, paired"


def test_where_no_trial_differs_from_another_packets_count() -> None:
    found = contrast(cell("wg", [100] * 4), cell("none", [0] * 4), LOSS)
    assert found.method == "Agresti-Caffo, packets"
    assert found.spread.error is not None
    assert stats.norm.sf(found.spread.value / found.spread.error) < 1e-6
    alike = contrast(cell("wg", [0] * 4), cell("none", [0] * 4), LOSS)
    assert alike.spread.value == 0
    assert alike.spread.error is not None
    assert alike.spread.error > 0


@pytest.mark.parametrize(
    ("stratum", "certain"), [(Stratum.SIMULATION, True), (Stratum.NAMESPACES, False)]
)
def test_rates_that_are_alike_are_certain_in_a_simulation_only(
    stratum: Stratum, *, certain: bool
) -> None:
    one, other = (replace(cell(name, [80] * 4), packets=None, stratum=stratum) for name in "ab")
    assert contrast(one, other, "goodput_bit_s").spread.certain is certain
