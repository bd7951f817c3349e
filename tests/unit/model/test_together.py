"""Things done at a time."""

import threading

import pytest

from tunnelmark.model.together import together


def test_all_are_under_way_at_a_time_and_answer_in_order() -> None:
    met = threading.Barrier(3, timeout=10)

    def job(number: int) -> int:
        met.wait()  # one after the other they would never meet
        return number

    assert together(*(lambda n=n: job(n) for n in range(3))) == [0, 1, 2]
    assert together() == []


def test_a_failure_is_raised_when_all_have_ended() -> None:
    go, ended = threading.Event(), threading.Event()

    def fails() -> None:
        go.set()
        raise ValueError("first")

    def works() -> None:
        assert go.wait(10)
        ended.set()

    with pytest.raises(ValueError, match="first"):
        together(fails, works)
    assert ended.is_set()
