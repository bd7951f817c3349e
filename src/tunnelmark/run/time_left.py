"""How long a run will still take: what workloads say, corrected by what was seen; pure."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from tunnelmark.model.registry import make
from tunnelmark.model.trial import Trial
from tunnelmark.study.plan import blocks, first_round, repeat
from tunnelmark.study.study import Study
from tunnelmark.workloads.registry import workload_kinds

_FIRST_BLOCK_S: Final = 6.0
"""What a block needs beside its trials, until one was seen."""
_FIRST_TRIAL_S: Final = 0.4
"""What a trial needs beside its workload's own time, until one was seen."""
_BESIDE_TRIALS: Final = ("lab_up", "tunnel_up", "proof", "warm", "down")


class TimeLeft:
    """Means of what blocks and trials took beyond what was expected of them."""

    def __init__(self, study: Study) -> None:
        """Ask each workload how long a trial takes."""
        self._expected_s: dict[str, float] = {}
        for spec in study.workloads:
            self._expected_s[spec.label] = make(workload_kinds(), spec).expected_s
        self._trials: list[float] = []
        self._blocks: list[float] = []

    def trial_done(self, trial: Trial, duration_s: float) -> None:
        """Enter what a trial took."""
        self._trials.append(duration_s - self._expected_s[trial.point.workload.label])

    def block_done(self, seconds: Mapping[str, float]) -> None:
        """Enter what a block took, by phase."""
        self._blocks.append(sum(seconds.get(phase, 0.0) for phase in _BESIDE_TRIALS))

    def seconds(self, open_trials: Iterable[tuple[Sequence[Trial], bool]]) -> float:
        """Return seconds left; for each block its trials to do, and whether it has begun."""
        per_trial = _mean(self._trials, _FIRST_TRIAL_S)
        per_block = _mean(self._blocks, _FIRST_BLOCK_S)
        left = 0.0
        for trials, begun in open_trials:
            left += per_block if trials and not begun else 0.0
            left += sum(self._expected_s[t.point.workload.label] + per_trial for t in trials)
        return max(0.0, left)


def expected_s(study: Study) -> tuple[float, float]:
    """Return the seconds a run takes with the fewest repeats, and with the most; none invalid."""
    left = TimeLeft(study)
    plan = blocks(study)
    precision = study.precision
    least = left.seconds((first_round(study, block).trials, False) for block in plan)
    once = left.seconds((repeat(study, block, block.points, 1), True) for block in plan)
    return least, least + once * (precision.max_repeats - precision.min_repeats)


def _mean(values: Sequence[float], default: float) -> float:
    return sum(values) / len(values) if values else default
