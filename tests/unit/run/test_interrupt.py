"""What a signal does: in a trial, in a long wait, while cleaning up, and elsewhere."""

import os
import signal
import threading

import pytest

from tunnelmark.run.interrupt import Interrupted, Interrupts


def ask(number: int = signal.SIGTERM) -> None:
    os.kill(os.getpid(), number)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_the_first_signal_is_a_request_and_the_second_an_end(number: int) -> None:
    with Interrupts() as interrupts:
        assert not interrupts.requested()
        ask(number)
        assert interrupts.requested()
        with pytest.raises(Interrupted):
            ask(number)


def test_a_long_wait_ends_at_once() -> None:
    with Interrupts() as interrupts:
        with pytest.raises(Interrupted), interrupts.abrupt():
            ask()
        assert interrupts.requested()


def test_a_wait_that_begins_after_the_request_does_not_begin() -> None:
    with Interrupts() as interrupts:
        ask()
        with pytest.raises(Interrupted), interrupts.abrupt():
            pytest.fail("began")


def test_nothing_breaks_off_the_cleaning_up() -> None:
    with Interrupts() as interrupts:
        with interrupts.cleaning():
            for _ in range(3):
                ask()
        assert interrupts.requested()


def test_cleaning_within_a_wait_is_not_broken_off_either() -> None:
    with Interrupts() as interrupts, interrupts.abrupt(), interrupts.cleaning():
        ask()
        ask()


def test_after_a_run_signals_mean_what_they_meant_before() -> None:
    before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    with Interrupts():
        assert signal.getsignal(signal.SIGTERM) is not before[1]
    assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)] == before


def test_another_thread_listens_to_nothing() -> None:
    seen: list[object] = []
    before = signal.getsignal(signal.SIGTERM)

    def run() -> None:
        with Interrupts() as interrupts:
            seen.append((signal.getsignal(signal.SIGTERM) is before, interrupts.requested()))

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    assert seen == [(True, False)]
