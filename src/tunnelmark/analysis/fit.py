"""The cost model of a tunnel, as estimated from its trials. Pure.

Every figure is estimated in each bring-up by itself. The mean over the bring-ups is the estimate,
and Student's t over them gives the interval: trials of one bring-up are not independent.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
from scipy import optimize, stats

from tunnelmark.analysis.fit_ends import (
    LOSS,
    Ops,
    calm,
    delay_share,
    gap_ns,
    parts_share,
    saturated,
    saturation_share,
    time_ns,
)
from tunnelmark.analysis.fit_trials import WAYS, BringUp, FitTrial
from tunnelmark.model.costs import EndCosts, Fitted, WorkCosts

FEWEST_BRING_UPS: Final = 2
FEWEST_TRIALS: Final = 4
FEWEST_SIZES: Final = 2
"""One size does not tell a packet's cost from that of its bytes."""
_QUEUES: Final = 0.8
"""Share of its time from which the other end has a queue too."""
_THREADS: Final = 2.5
"""CPU of all threads over that of the busiest one; two ends with a thread each have at most 2."""
_ONE_WAY: Final = 0.9
"""Share of the packets of a trial that makes it one of one way."""
_ROUNDS: Final = 100
"""Of costs and shares in turn; each hangs on the other where one end drops packets."""
_WORK_SCATTERS: Final = 1.0
"""Deviation over mean up to which it can be that of work: a server without memory has 1."""
_LARGEST: Final = {"scatter": 10.0, "most_waiting": 1e6, "packet_ns": 1e9, "byte_ps": 1e9}
"""What a cost model may say at most."""
_ENDS_REPORTED: Final[Mapping[str, str]] = {
    "saturation": "ends distinguished by where packets were lost and the rate that came through",
    "one size": "ends distinguished by where packets of one size were lost and the rate that came "
    "through, the same share of a packet and of a byte",
    "delay": "ends distinguished by the delays inside the hosts",
    "other": "ends distinguished as on the other way",
    "": "both ends taken as alike",
}

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class FittedEnds:
    """Both ends of a tunnel, with what the figures rest on."""

    client: EndCosts
    server: EndCosts
    trials: int
    bring_ups: int
    confidence: float
    notes: tuple[str, ...]
    """What the data could not tell apart, each without a full stop."""


def refusal(trials: Sequence[FitTrial]) -> str | None:
    """Return why trials do not suffice for a fit, or None."""
    bring_ups = len({one.bring_up for one in trials})
    sizes = len({one.octets for one in trials})
    for count, least, what in (
        (len(trials), FEWEST_TRIALS, "valid trial(s) of udp_echo or udp_load with a CPU figure"),
        (bring_ups, FEWEST_BRING_UPS, "bring-up(s) with such trials"),
        (sizes, FEWEST_SIZES, "payload size(s) in such trials"),
    ):
        if count < least:
            return f"has {count} {what}, a fit needs {least} or more"
    used = [one for one in trials if _ops(one) is not None]
    if len({one.bring_up for one in used}) < FEWEST_BRING_UPS:
        return "loses packets in most trials, and it is not known where"
    threads = _threads(used)
    if threads is not None and threads > _THREADS:
        return (
            f"works in several threads (all together {threads:.1f} times the busiest one), whose "
            "CPU time does not say how long a packet takes"
        )
    return None


def fit_costs(trials: Sequence[FitTrial], *, confidence: float) -> FittedEnds:
    """Return what the ends of a tunnel spend; ``ValueError`` where ``refusal`` says why not."""
    if (reason := refusal(trials)) is not None:
        raise ValueError(reason)
    groups: dict[BringUp, list[FitTrial]] = {}
    for trial in trials:
        groups.setdefault(trial.bring_up, []).append(trial)
    # What is known of some bring-ups only is taken of those; all have the same way of telling.
    reported = _Reported.of(list(groups.values()))
    found = [one for group in groups.values() if (one := _bring_up(group, reported)) is not None]
    if len(found) < FEWEST_BRING_UPS:
        raise ValueError(f"only {len(found)} bring-ups can be fitted")

    def fitted(name: str, figure: Callable[["_Costs"], float | None]) -> Fitted | None:
        known = [value for one in found if (value := figure(one)) is not None]
        whole = name == "most_waiting"
        return _mean(known, confidence, float(whole), _LARGEST[name], whole=whole)

    def work(op: str) -> WorkCosts:
        packet = fitted("packet_ns", lambda one: one.ops[op][0])
        octet = fitted("byte_ps", lambda one: one.ops[op][1] * 1000)
        if packet is None or octet is None:
            raise ValueError("every bring-up that was fitted has all costs")
        return WorkCosts(
            packet,
            octet,
            fitted("scatter", lambda one: one.scatter),
            fitted("most_waiting", lambda one: one.waiting.get(op)),
        )

    return FittedEnds(
        client=EndCosts(work("forward wrap"), work("reverse unwrap")),
        server=EndCosts(work("reverse wrap"), work("forward unwrap")),
        trials=sum(_ops(trial) is not None for trial in trials),
        bring_ups=len(found),
        confidence=confidence,
        notes=reported.notes(found),
    )


@dataclass(frozen=True)
class _Costs:
    """What one bring-up came to; costs by way and job, ns a packet and ns a byte."""

    ops: Ops
    scatter: float | None
    waiting: Mapping[str, float]
    unexplained_ns: float | None
    """Median RTT above the baseline that is not CPU."""


@dataclass(frozen=True)
class _Reported:
    """What all bring-ups can tell apart."""

    ways: str
    """``cpu``, ``delay`` or nothing."""
    ends: Mapping[str, str]
    """By way: a key of ``_ENDS_REPORTED``."""

    @classmethod
    def of(cls, groups: Sequence[Sequence[FitTrial]]) -> "_Reported":
        if _most(groups, _ways_by_cpu):
            ways = "cpu"
        elif _most(groups, lambda group: delay_share(group) is not None):
            ways = "delay"
        else:
            ways = ""
        ends = {way: cls._end(groups, way) for way in WAYS}
        if ways != "cpu" and "saturation" in ends.values():
            # Both ways have the same costs, but for a factor; so what splits one splits both.
            ends = {way: how if how == "saturation" else "other" for way, how in ends.items()}
        return cls(ways, ends)

    @staticmethod
    def _end(groups: Sequence[Sequence[FitTrial]], way: str) -> str:
        def sizes(group: Sequence[FitTrial]) -> int:
            return len({trial.octets for trial, *_ in saturated(group, way)})

        if _most(groups, lambda group: sizes(group) >= FEWEST_SIZES):
            return "saturation"
        if _most(groups, lambda group: sizes(group) > 0):
            return "one size"
        if _most(groups, lambda group: parts_share(group, way) is not None):
            return "delay"
        return ""

    def factors(self, group: Sequence[FitTrial]) -> Sequence[Mapping[str, float]] | None:
        """Return ways that have the same costs but for a factor; None where it is not known."""
        if self.ways == "cpu":
            return [{way: 1.0} for way in WAYS]
        share = delay_share(group) if self.ways == "delay" else 0.5
        return None if share is None else [{"forward": 2 * share, "reverse": 2 * (1 - share)}]

    def notes(self, found: Sequence[_Costs]) -> tuple[str, ...]:
        said = [
            {
                "cpu": "ways distinguished by the CPU time of loads one way",
                "delay": "ways distinguished by the one-way delays above the baseline",
                "": "both ways taken as alike",
            }[self.ways]
        ]
        said += [f"{way}: {_ENDS_REPORTED[self.ends[way]]}" for way in WAYS]
        if sum(one.scatter is not None for one in found) >= FEWEST_BRING_UPS:
            said.append("scatter is one figure for all four, from the RTT of single packets")
        rest = [one.unexplained_ns for one in found if one.unexplained_ns is not None]
        if rest:
            said.append(
                f"the median RTT above the baseline is {np.mean(rest) / 1000:+.1f} us from the CPU "
                "time of its packets, which this model does not have"
            )
        return tuple(said)


def _most(
    groups: Sequence[Sequence[FitTrial]], known: Callable[[Sequence[FitTrial]], bool]
) -> bool:
    return sum(map(known, groups)) >= FEWEST_BRING_UPS


def _bring_up(group: Sequence[FitTrial], reported: _Reported) -> _Costs | None:
    """Return the costs of one bring-up; None where it lacks what the others have."""
    factors = reported.factors(group)
    if factors is None:
        return None
    shares: dict[str, float] = {}
    for way, how in reported.ends.items():
        found = parts_share(group, way) if how == "delay" else 0.5
        if found is None:
            return None
        shares[way] = found
    one_size = [way for way, how in reported.ends.items() if how == "one size"]
    ops = _solve(group, reported, factors, shares)
    for _ in range(_ROUNDS if one_size else 0):
        if ops is None:
            return None
        for way in one_size:
            if (found := saturation_share(group, way, ops)) is None:
                return None
            shares[way] = found
        ops = _solve(group, reported, factors, shares)
    if ops is None:
        return None
    return _Costs(ops, _scatter(group, ops), _waiting(group, ops), _unexplained(group, ops))


def _ops(trial: FitTrial) -> dict[str, float] | None:
    """Return how many datagrams each way's ends worked on; None where that is not known."""
    found: dict[str, float] = {}
    for way, one in trial.ways.items():
        lost = 0.0 if one.loss <= LOSS else one.lost_sender
        if lost is None:
            return None
        found |= {f"{way} wrap": one.sent * (1 - lost), f"{way} unwrap": float(one.arrived)}
    return found


def _solve(
    group: Sequence[FitTrial],
    reported: _Reported,
    factors: Sequence[Mapping[str, float]],
    shares: Mapping[str, float],
) -> Ops | None:
    """Return what a packet and a byte cost, by way and job, in ns; None where it cannot be known.

    Least squares that are never negative. Each trial gives its CPU time as the sum over the packets
    and bytes that each end worked on, each full end its time for a packet. Either varies as the
    square root of the number of packets. ``factors``: ways of the same costs, but for a factor;
    ``shares``: of the wrapping end, where nothing tells the ends apart better.
    """
    columns = [
        one
        for ways in factors
        for one in _columns(
            ways, shares, apart=any(reported.ends[way] == "saturation" for way in ways)
        )
    ]
    rows, values, sizes = [], [], set()
    for trial in group:
        if (ops := _ops(trial)) is not None:
            weight = math.sqrt(max(1.0, trial.packets * sum(ops.values())))
            rows.append(_row(columns, ops, trial, 1 / weight))
            values.append(trial.cpu_s * 1e9 / weight)
            sizes.add(trial.octets)
    for way in (way for way, how in reported.ends.items() if how == "saturation"):
        for trial, one, wraps in saturated(group, way):
            weight = math.sqrt(one.arrived * trial.packets)
            name = f"{way} {'wrap' if wraps else 'unwrap'}"
            rows.append(_row(columns, {name: 1.0}, trial, weight))
            values.append(gap_ns(one) * weight)
    if len(sizes) < FEWEST_SIZES:
        return None
    found = _least(np.array(rows, dtype=np.float64), np.array(values, dtype=np.float64))
    if found is None:
        return None
    pairs = found.reshape(-1, 2).tolist()
    return {
        name: (packet * part, octet * part)
        for column, (packet, octet) in zip(columns, pairs, strict=True)
        for name, part in column.items()
    }


def _columns(
    ways: Mapping[str, float], shares: Mapping[str, float], *, apart: bool
) -> list[dict[str, float]]:
    """Return jobs that have the same costs but for a factor; one dictionary if not ``apart``."""
    if apart:
        return [
            {f"{way} {job}": factor for way, factor in ways.items()} for job in ("wrap", "unwrap")
        ]
    return [
        {
            name: 2 * factor * part
            for way, factor in ways.items()
            for name, part in (
                (f"{way} wrap", shares[way]),
                (f"{way} unwrap", 1 - shares[way]),
            )
        }
    ]


def _row(
    columns: Sequence[Mapping[str, float]],
    datagrams: Mapping[str, float],
    trial: FitTrial,
    weight: float,
) -> list[float]:
    """Return how often each column's packet and byte were worked on, times a weight."""
    row = []
    for column in columns:
        count = weight * sum(datagrams.get(name, 0.0) * part for name, part in column.items())
        row += [count * trial.packets, count * trial.octets]
    return row


def _least(columns: Floats, values: Floats) -> Floats | None:
    """Return non-negative least squares; None where the columns cannot be distinguished."""
    scale = np.linalg.norm(columns, axis=0)
    if not scale.all() or np.linalg.matrix_rank(columns / scale, tol=1e-6) < columns.shape[1]:
        return None
    found, _ = optimize.nnls(columns / scale, values)
    result: Floats = found / scale
    return result


def _ways_by_cpu(group: Sequence[FitTrial]) -> bool:
    """Say whether trials of two sizes each have another share of packets on the way there."""
    sizes: dict[str, set[int]] = {}
    for trial in group:
        if _ops(trial) is None:
            continue
        forward = trial.ways.get("forward")
        share = (forward.sent if forward else 0) / sum(one.sent for one in trial.ways.values())
        name = "forward" if share >= _ONE_WAY else "reverse" if share <= 1 - _ONE_WAY else "both"
        sizes.setdefault(name, set()).add(trial.octets)
    return sum(len(found) >= FEWEST_SIZES for found in sizes.values()) > 1


def _scatter(group: Sequence[FitTrial], ops: Ops) -> float | None:
    """Return the ratio of deviation to mean that makes the RTT as variable as it was."""
    found = []
    for trial in group:
        if trial.rtt_variance_ns2 is None or not calm(trial):
            continue
        squares = sum(time_ns(ops, [name], trial) ** 2 for name in ops)
        if squares > 0:
            found.append(trial.rtt_variance_ns2 / squares)
    if not found:
        return None
    scatter = math.sqrt(max(0.0, float(np.mean(found))))
    # What varies more is the time until a process runs, which is not work.
    return scatter if scatter <= _WORK_SCATTERS else None


def _waiting(group: Sequence[FitTrial], ops: Ops) -> dict[str, float]:
    """Return how many packets wait at the end that drops some, by way and job."""
    found: dict[str, list[float]] = {}
    for way in WAYS:
        for trial, one, wraps in saturated(group, way):
            # A bare link that is full too has a queue of its own in the delay.
            if (
                not trial.whole
                or trial.packets > 1
                or one.delay_ns is None
                or not one.sent_packet_s
                or one.base_loss is None
                or one.base_loss > LOSS
                or not one.received_packet_s
            ):
                continue
            slow, other = (
                f"{way} {'wrap' if wraps is first else 'unwrap'}" for first in (True, False)
            )
            other_ns = time_ns(ops, [other], trial)
            if not wraps and other_ns * one.sent_packet_s > _QUEUES * 1e9:
                continue
            each_ns = gap_ns(one)
            # A packet is let in when one before it begins, so it waits for all, and itself takes
            # its time; it comes half a gap later, on average.
            waited = one.delay_ns - other_ns + 0.5e9 / one.sent_packet_s
            found.setdefault(slow, []).append(waited / each_ns - 1)
    return {name: float(np.median(values)) for name, values in found.items()}


def _unexplained(group: Sequence[FitTrial], ops: Ops) -> float | None:
    rest = [
        trial.rtt_ns - time_ns(ops, list(ops), trial)
        for trial in group
        if trial.rtt_ns is not None and calm(trial)
    ]
    return float(np.median(rest)) if rest else None


def _threads(trials: Sequence[FitTrial]) -> float | None:
    """Return the CPU of all threads over that of the busiest one, in one-way loads if any."""
    ratios = [
        trial.cpu_s / trial.measuring_s / trial.thread_max_ratio
        for trial in trials
        if trial.thread_max_ratio
    ]
    return float(np.median(ratios)) if ratios else None


def _mean(
    values: Sequence[float], confidence: float, least: float, largest: float, *, whole: bool
) -> Fitted | None:
    """Return the mean with Student's t interval; None of fewer than two values."""
    if len(values) < FEWEST_BRING_UPS:
        return None
    mean, error = float(np.mean(values)), float(stats.sem(values))
    half = float(stats.t.ppf((1 + confidence) / 2, len(values) - 1)) * error
    mean = min(max(mean, least), largest)
    low, high = min(mean, max(least, mean - half)), max(mean, mean + half)
    # A number of packets is whole, and the delay shows it but for a part of a packet.
    return Fitted(mean, math.floor(low), math.ceil(high)) if whole else Fitted(mean, low, high)
