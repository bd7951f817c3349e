"""What a run reports while it runs; the terminal display and ``--json`` both consume these."""

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Literal, TypeVar

from tunnelmark.model.block import Phase, PlaceTime


@dataclass(frozen=True)
class RunStarted:
    """The plan is made and every driver has been checked."""

    study: str
    run_id: str
    directory: str
    blocks: int
    trials_min: int
    trials_max: int
    expected_s: float
    skipped: tuple[tuple[str, str], ...]
    """(tunnel label, reason) of what this machine cannot run."""


@dataclass(frozen=True)
class BlockPhase:
    """A block enters a phase."""

    block_id: str
    tunnel: str
    link: str
    device: str
    phase: Phase | Literal["again"]
    """``again``: an attempt failed for the reason in ``message``, another one follows."""
    message: str = ""
    bring_up: int | None = None
    """1-based; None where the block as a whole has ended."""


@dataclass(frozen=True)
class TrialProgress:
    """A trial is under way."""

    trial_id: str
    done_ratio: float
    figures: Mapping[str, float]


@dataclass(frozen=True)
class TrialDone:
    """A trial has ended and its record is on disk."""

    trial_id: str
    tunnel: str
    workload: str
    """Its label."""
    point: Mapping[str, object]
    """The workload's parameters."""
    repeat: int
    attempt: int
    valid: bool
    reasons: tuple[str, ...]
    figures: Mapping[str, float | None]
    metric: str
    """Name of the one whose precision decides how often the trial is repeated."""
    trials_done: int
    trials_expected: int
    time_left_s: float


@dataclass(frozen=True)
class JobDone:
    """A job has come back from a worker of a cluster and is on disk."""

    job_id: str
    tunnel: str
    link: str
    device: str
    worker: str
    """Empty where none could run it."""
    valid_trials: int
    invalid_trials: int
    error: str
    """Why it failed; empty if it did not."""
    jobs_done: int
    jobs_expected: int
    time_left_s: float


@dataclass(frozen=True)
class RunEnded:
    """The run has ended and everything it made is removed."""

    directory: str
    outcome: Literal["complete", "interrupted", "failed"]
    message: str
    valid_trials: int
    invalid_trials: int
    wall_s: float
    measuring_s: float
    places: tuple[PlaceTime, ...] = ()


Event = RunStarted | BlockPhase | TrialProgress | TrialDone | JobDone | RunEnded
Listener = Callable[[Event], None]
_E = TypeVar("_E")


def unfailing(listener: Callable[[_E], None]) -> Callable[[_E], None]:
    """Return a listener whose trouble with its output, such as a pipe that broke, ends no run."""

    def take(event: _E) -> None:
        with suppress(OSError):
            listener(event)

    return take
