"""How long a run will still take: what workloads say, corrected by what was seen; pure."""

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from tunnelmark.model.job import Job
from tunnelmark.model.trial import Trial
from tunnelmark.run.progress import Kind, kind_of

_FIRST_BRING_UP_S: Final = 6.0
"""What a bring-up needs beside its trials, until one was seen."""
_FIRST_TRIAL_S: Final = 0.4
"""What a trial needs beside its workload's own time, until one was seen."""
_BESIDE_TRIALS: Final = ("lab_up", "tunnel_up", "proof", "warm", "down")


class Need(NamedTuple):
    """What some trials need."""

    expected_s: float
    """By their workloads."""
    trials: int
    bring_ups: int


class TimeLeft:
    """Means of what bring-ups and trials took beyond what was expected of them."""

    def __init__(self, expected_s: Mapping[str, float]) -> None:
        """Begin with ``Job.expected_s``, which is the same for all jobs of a study."""
        self._expected_s = expected_s
        self._trials = _Mean(_FIRST_TRIAL_S)
        self._bring_ups = _Mean(_FIRST_BRING_UP_S)

    def trial_done(self, trial: Trial, duration_s: float) -> None:
        """Enter what a trial took."""
        self._trials.add(duration_s - self._expected_s[trial.point.workload.label])

    def bring_up_done(self, seconds: Mapping[str, float]) -> None:
        """Enter what a bring-up took, by phase."""
        self._bring_ups.add(sum(seconds.get(phase, 0.0) for phase in _BESIDE_TRIALS))

    def seconds(self, open_trials: Iterable[tuple[Sequence[Trial], int | None]]) -> float:
        """Return seconds left; for each job its trials to do, and the bring-up under way."""
        return sum(self.of(self.need(Counter(map(kind_of, own)), up)) for own, up in open_trials)

    def need(self, trials: Mapping[Kind, int], up: int | None) -> Need:
        """Return what the trials of a job need, with the bring-up that is under way."""
        return Need(
            math.fsum(count * self._expected_s[label] for (label, _), count in trials.items()),
            sum(trials.values()),
            len({bring_up for (_, bring_up), count in trials.items() if count} - {up}),
        )

    def of(self, need: Need) -> float:
        """Return the seconds of it, by what was seen until now."""
        beside = need.trials * self._trials.value + need.bring_ups * self._bring_ups.value
        return max(0.0, need.expected_s + beside)


def expected_s(jobs: Sequence[Job]) -> tuple[float, float]:
    """Return the seconds that jobs of one study take with the fewest repeats, and the most."""
    seconds = seconds_of(jobs)
    return seconds[jobs[0].precision.min_repeats - 1], seconds[-1]


def seconds_of(jobs: Sequence[Job]) -> tuple[float, ...]:
    """Return the seconds that 1, 2, 3 … repeats of every point take; none invalid."""
    precision = jobs[0].precision
    traffic_s = math.fsum(
        job.expected_s[point.workload.label] + _FIRST_TRIAL_S
        for job in jobs
        for point in job.block.points
    )
    return tuple(
        number * traffic_s + len(jobs) * precision.bring_up_of(number) * _FIRST_BRING_UP_S
        for number in range(1, precision.max_repeats + 1)
    )


class _Mean:
    """Of what was seen; what was expected until there is something."""

    def __init__(self, expected: float) -> None:
        self._expected, self._sum, self._count = expected, 0.0, 0

    def add(self, value: float) -> None:
        self._sum += value
        self._count += 1

    @property
    def value(self) -> float:
        return self._sum / self._count if self._count else self._expected
