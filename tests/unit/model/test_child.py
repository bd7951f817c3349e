"""A child's end is learned of whatever broke off an earlier look, and as ``Popen`` tells it."""

import os
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest

from tunnelmark.model.child import Child

# In a process of its own: the alarm of this one is that of pytest-timeout.
_BROKEN_OFF = """
import random, signal, sys
from tunnelmark.model.child import Child

class Struck(BaseException):
    pass

def strike(*_):
    raise Struck

look = {"poll": Child.poll, "wait": lambda child: child.wait(3600)}[sys.argv[1]]
signal.signal(signal.SIGALRM, strike)
chance = random.Random(7)
child = Child(["sleep", "3600"])
for _ in range(3000):
    try:
        signal.setitimer(signal.ITIMER_REAL, chance.uniform(2e-6, 1e-4))
        while True:
            look(child)
    except Struck:
        pass
child.kill()
print(child.wait())
"""


@pytest.mark.parametrize("look", ["poll", "wait"])
def test_a_look_that_was_broken_off_does_not_hold_up_the_next(look: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", _BROKEN_OFF, look],
        check=True,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.stdout == f"{-signal.SIGKILL}\n"


def test_the_status_is_that_of_the_program_or_its_signal() -> None:
    assert Child(["sh", "-c", "exit 7"]).wait() == 7
    killed = Child(["sleep", "3600"])
    assert killed.poll() is None
    killed.terminate()
    assert killed.wait(60) == killed.poll() == -signal.SIGTERM


def test_a_wait_ends_with_its_time() -> None:
    with Child(["sleep", "3600"]) as child:
        with pytest.raises(subprocess.TimeoutExpired):
            child.wait(0.01)
        child.kill()


def test_the_kernel_keeps_nothing_of_one_whose_end_is_known() -> None:
    child = Child(["true"])
    child.wait()
    with pytest.raises(ProcessLookupError):
        os.kill(child.pid, 0)


def test_two_who_wait_for_the_same_child_learn_the_same() -> None:
    with ThreadPoolExecutor(2) as both:
        for _ in range(50):
            child = Child(["sh", "-c", "exit 3"])
            learned = [both.submit(child.wait) for _ in range(2)]
            assert [one.result() for one in learned] == [3, 3]


def test_what_it_writes_is_read_to_the_end() -> None:
    with Child(["cat"], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        out, _ = child.communicate(bytes(200_000), timeout=60)
    assert (out, child.returncode) == (bytes(200_000), 0)
