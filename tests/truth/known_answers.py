"""The whole program measures what was put in: CPU in user space and kernel, loss, delay.

Not collected with the other tests: a busy computer gives no valid trial, and so no answer. ``make
truth`` runs it, and says how often the intervals have the truth in them, and what tunnels of the
kernel cost beside a known cost like theirs.
"""

import contextlib
import sys
from pathlib import Path

import pytest
import truths

from tunnelmark.engine.binary import find_engine
from tunnelmark.store import Result

pytestmark = [pytest.mark.lab, pytest.mark.slow, pytest.mark.timeout(1800)]


@pytest.mark.parametrize("busy", [False, True])
def test_the_cost_of_a_packet_is_the_chosen_one(tmp_path: Path, *, busy: bool) -> None:
    def measured(text: str) -> Result:
        return truths.measure(text, seed=1, repeats=16, results=tmp_path, engine=find_engine())

    with truths.busy_core() if busy else contextlib.nullcontext():
        answers = [truths.user_cost(measured(truths.USER))]
        answers += truths.kernel_answers(measured(truths.KERNEL))
    for answer in answers:
        sys.stdout.write(f"{answer}\n")
        assert abs(answer.error) < 0.05, answer


def test_loss_and_delay_are_the_chosen_ones(tmp_path: Path) -> None:
    result = truths.measure(truths.USER, seed=1, repeats=8, results=tmp_path, engine=find_engine())
    for answer in truths.paths(result):
        sys.stdout.write(f"{answer}\n")
        assert abs(answer.error) < 0.05 or answer.covered, answer
