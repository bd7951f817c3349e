"""Mean and standard error of many groups of repeats at once, over all levels that scatter.

Repeats of one start of a tunnel share its ports, keys and place on the cores: they are not
independent of each other, bring-ups are. So with two bring-ups or more the bring-ups' means count,
with as many degrees of freedom as there are bring-ups less one (Kalibera and Jones, Rigorous
Benchmarking in Reasonable Time, ISMM 2013, section 9). It is the one interval that holds for every
ratio of the two levels' variances: what pools them where a test finds no difference, or gives
Satterthwaite's degrees of freedom to their sum, held the truth in 86 to 92 % of our simulations
where it promised 95 %. With one bring-up the repeats count, and the interval is of that one.

Bring-ups on one computer share its CPU, so with two workers or more their means count, in the same
way: the worker is a random effect.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

_ROUNDING = 1e-12


@dataclass(frozen=True)
class Summaries:
    """One entry a group; NaN where there is nothing."""

    repeats: Ints
    bring_ups: Ints
    workers: Ints
    mean: Floats
    error: Floats
    """Standard error of the mean: NaN with one repeat, 0 where all are alike."""
    freedom: Floats
    between: Floats
    """Share of the variance of a single figure that lies between bring-ups."""


@dataclass(frozen=True)
class Grouping:
    """Which group and which bring-up each row belongs to; rows stand in order of their groups.

    A bring-up is of one worker, so one that two workers shared is two.
    """

    group: Ints
    bring_up: Ints
    """Numbered through over all groups."""
    group_of: Ints
    """Of each bring-up."""
    worker_of: Ints
    """Of each bring-up, numbered through over all groups."""
    groups: int

    def summaries(self, values: Floats, rows: Bools) -> Summaries:
        """Return the summaries of ``values`` over the chosen ``rows``."""
        group, up, own = self.group[rows], self.bring_up[rows], values[rows]
        ups = len(self.group_of)
        repeats = np.bincount(group, minlength=self.groups)
        in_up = np.bincount(up, minlength=ups)
        there = in_up > 0
        bring_ups = np.bincount(self.group_of[there], minlength=self.groups)
        worker = self.worker_of[there]
        in_worker = np.bincount(worker, minlength=int(self.worker_of.max(initial=-1)) + 1)
        at = np.flatnonzero(in_worker)
        worker_group = np.zeros(len(in_worker), dtype=np.int64)
        worker_group[self.worker_of] = self.group_of
        workers = np.bincount(worker_group[at], minlength=self.groups)
        with np.errstate(divide="ignore", invalid="ignore"):
            up_mean = np.bincount(up, own, ups) / in_up
            known = np.where(there, up_mean, 0.0)
            mean = np.bincount(self.group_of, known, self.groups) / bring_ups
            off = np.where(there, up_mean - mean[self.group_of], 0.0)
            worker_mean = np.bincount(worker, up_mean[there], len(in_worker))[at] / in_worker[at]
            of_workers = np.bincount(worker_group[at], worker_mean, self.groups) / workers
            apart = (worker_mean - of_workers[worker_group[at]]) ** 2
            among_workers = np.bincount(worker_group[at], apart, self.groups) / (workers - 1)
            of_ups = np.bincount(self.group_of, off**2, self.groups) / (bring_ups - 1)
            squares = np.bincount(group, (own - up_mean[up]) ** 2, self.groups)
            within = squares / (repeats - bring_ups)
            single = bring_ups == 1
            variance = np.where(single, within / repeats, of_ups / bring_ups)
            freedom = np.where(single, repeats - 1, bring_ups - 1).astype(np.float64)
            several = workers > 1
            variance = np.where(several, among_workers / workers, variance)
            freedom = np.where(several, workers - 1.0, freedom)
            harmonic = np.where(there, 1 / np.maximum(in_up, 1), 0.0)
            usual = np.bincount(self.group_of, harmonic, self.groups) / bring_ups
            among = np.maximum(0.0, of_ups - np.nan_to_num(within) * usual)
            between = among / (among + within)
            mean = np.where(several, of_workers, mean)
        error = np.where(freedom > 0, np.sqrt(variance), np.nan)
        error[_alike(group, own, repeats) & (freedom > 0)] = 0.0
        return Summaries(repeats, bring_ups, workers, mean, error, freedom, between)

    def lowest(self, values: Floats, rows: Bools) -> Floats:
        """Return the smallest of each group over the chosen ``rows``; infinite where none is."""
        group, own = self.group[rows], values[rows]
        found = np.full(self.groups, np.inf)
        if len(own):
            first = np.flatnonzero(np.r_[True, group[1:] != group[:-1]])
            found[group[first]] = np.minimum.reduceat(own, first)
        return found


def _alike(group: Ints, values: Floats, repeats: Ints) -> Bools:
    """Say of each group whether its figures differ by no more than rounding makes."""
    found = np.zeros(len(repeats), dtype=np.bool_)
    if len(values):
        first = np.flatnonzero(np.r_[True, group[1:] != group[:-1]])
        low = np.minimum.reduceat(values, first)
        high = np.maximum.reduceat(values, first)
        found[group[first]] = high - low <= _ROUNDING * np.maximum(np.abs(low), np.abs(high))
    return found
