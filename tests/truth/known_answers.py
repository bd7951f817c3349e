"""The whole program measures what was put in: CPU in user space and kernel, loss, delay.

Not collected with the other tests: a busy computer gives no valid trial, and so no answer. ``make
truth`` runs it, and says how often the intervals have the truth in them.
"""

import contextlib
from pathlib import Path

import pytest
import truths

from tunnelmark.engine.binary import find_engine

pytestmark = [pytest.mark.lab, pytest.mark.slow, pytest.mark.timeout(1800)]


@pytest.mark.parametrize("busy", [False, True])
def test_the_cost_of_a_packet_is_the_chosen_one(tmp_path: Path, *, busy: bool) -> None:
    with truths.busy_core() if busy else contextlib.nullcontext():
        result = truths.measure(
            truths.COST, seed=1, repeats=8, results=tmp_path, engine=find_engine()
        )
    for answer in truths.costs(result):
        assert abs(answer.error) < 0.05, answer


def test_loss_and_delay_are_the_chosen_ones(tmp_path: Path) -> None:
    result = truths.measure(truths.PATH, seed=1, repeats=8, results=tmp_path, engine=find_engine())
    for answer in truths.paths(result):
        assert abs(answer.error) < 0.05 or answer.covered, answer
