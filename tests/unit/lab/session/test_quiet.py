"""Nothing of a trial comes in the next one."""

from typing import Any, cast

import pytest

from tunnelmark.lab.emulators import LinkCounters
from tunnelmark.lab.session.quiet import wait_until_quiet


class Draining:
    """A link over which a tunnel still sends what it had queued, a packet for each look."""

    def __init__(self, queued: int, *, answers: bool = True) -> None:
        self.queued = queued
        self.offered = 0
        self.now_s = 0.0
        self.answers = answers

    def counters(self) -> LinkCounters | None:
        if not self.answers:
            return None
        on_the_way = int(self.queued > 0)
        self.queued -= on_the_way
        self.offered += on_the_way
        idle = {"offered": 7, "in_flight": 0}
        return LinkCounters(idle, {"offered": self.offered, "in_flight": on_the_way})

    def sleep(self, seconds: float) -> None:
        self.now_s += seconds

    def wait(self) -> float:
        return wait_until_quiet(cast("Any", self), clock=lambda: self.now_s, sleep=self.sleep)


@pytest.mark.parametrize(("queued", "looks"), [(0, 1), (1, 1), (2, 2), (30, 30)])
def test_a_trial_waits_until_the_queues_of_the_one_before_are_empty(
    queued: int, looks: int
) -> None:
    link = Draining(queued)
    assert link.wait() == pytest.approx(looks * 0.02)
    assert link.queued == 0


def test_what_never_ends_is_not_waited_for_for_ever() -> None:
    assert Draining(10**6).wait() == pytest.approx(5.0, abs=0.1)


def test_a_link_that_does_not_answer_is_not_waited_for() -> None:
    assert Draining(9, answers=False).wait() == 0.0
