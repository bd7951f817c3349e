"""The cost model of a tunnel, as estimated from its trials. Pure.

The CPU time of each end is the sum over the packets and bytes that it worked on. Every figure is
estimated in each bring-up by itself. The mean over the bring-ups is the estimate, and Student's t
over them gives the interval: trials of one bring-up are not independent.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
from scipy import optimize, stats

from tunnelmark.analysis.fit_trials import WAYS, BringUp, FitTrial, WayTrial
from tunnelmark.model.costs import EndCosts, Fitted, WorkCosts

FEWEST_BRING_UPS: Final = 2
FEWEST_TRIALS: Final = 4
FEWEST_SIZES: Final = 2
"""One size does not tell a packet's cost from that of its bytes."""
_JOBS: Final[Mapping[str, tuple[str, str]]] = {
    "client": ("forward wrap", "reverse unwrap"),
    "server": ("reverse wrap", "forward unwrap"),
}
"""What each end does."""
_LOSS: Final = 0.01
"""Share of lost datagrams up to which it does not matter where they were lost."""
_SATURATED_LOSS: Final = 0.02
_BUSY: Final = 0.9
"""Share of a core that the busiest thread takes where it is what limits the rate."""
_IDLE: Final = 0.5
"""Share of a core up to which packets of an echo seldom wait for each other."""
_MOSTLY: Final = 0.8
"""Share of the lost packets that shows where the rate was limited."""
_QUEUES: Final = 0.8
"""Share of its time from which the other end has a queue too."""
_THREADS: Final = 1.25
"""CPU of an end over that of its busiest thread; one with a single thread has 1."""
_ONE_WAY: Final = 0.9
"""Share of the packets of a trial that makes it one of one way."""
_WORK_SCATTERS: Final = 1.0
"""Deviation over mean up to which it can be that of work: a server without memory has 1."""
_LARGEST: Final = {"scatter": 10.0, "most_waiting": 1e6, "packet_ns": 1e9, "byte_ps": 1e9}
"""What a cost model may say at most."""

Floats = npt.NDArray[np.float64]
Ops = Mapping[str, tuple[float, float]]
"""ns for a packet and ns for a byte, by way and job: ``forward wrap``."""


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
        (len(trials), FEWEST_TRIALS, "valid trial(s) of udp_echo or udp_load with CPU of each end"),
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
            f"works in several threads (all of an end {threads:.1f} times the busiest one), whose "
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
    # Of all bring-ups, or of none: a way that some only tell apart would be a mean of two things.
    apart = sum(map(_ways_apart, groups.values())) >= FEWEST_BRING_UPS
    found = [one for group in groups.values() if (one := _bring_up(group, apart=apart)) is not None]
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
        notes=_notes(found, apart=apart),
    )


@dataclass(frozen=True)
class _Costs:
    """What one bring-up came to; costs by way and job, ns a packet and ns a byte."""

    ops: Ops
    scatter: float | None
    waiting: Mapping[str, float]
    unexplained_ns: float | None
    """Median RTT above the baseline that is not CPU."""


def _notes(found: Sequence[_Costs], *, apart: bool) -> tuple[str, ...]:
    said = [
        "ways distinguished by the CPU time of loads one way"
        if apart
        else "wrapping and unwrapping taken as alike"
    ]
    if sum(one.scatter is not None for one in found) >= FEWEST_BRING_UPS:
        said.append("scatter is one figure for all four, from the RTT of single packets")
    rest = [one.unexplained_ns for one in found if one.unexplained_ns is not None]
    if rest:
        said.append(
            f"the median RTT above the baseline is {np.mean(rest) / 1000:+.1f} us from the CPU "
            "time of its packets, which this model does not have"
        )
    return tuple(said)


def _bring_up(group: Sequence[FitTrial], *, apart: bool) -> _Costs | None:
    """Return the costs of one bring-up; None where it lacks what the others have."""
    ops: dict[str, tuple[float, float]] = {}
    for end, jobs in _JOBS.items():
        own = _solve(group, end, [(job,) for job in jobs] if apart else [jobs])
        if own is None:
            return None
        ops |= own
    return _Costs(ops, _scatter(group, ops), _waiting(group, ops), _unexplained(group, ops))


def _ops(trial: FitTrial) -> dict[str, float] | None:
    """Return how many datagrams each way's ends worked on; None where that is not known."""
    found: dict[str, float] = {}
    for way, one in trial.ways.items():
        lost = 0.0 if one.loss <= _LOSS else one.lost_sender
        if lost is None:
            return None
        found |= {f"{way} wrap": one.sent * (1 - lost), f"{way} unwrap": float(one.arrived)}
    return found


def _solve(
    group: Sequence[FitTrial], end: str, jobs: Sequence[tuple[str, ...]]
) -> dict[str, tuple[float, float]] | None:
    """Return what a packet and a byte cost an end, by job, in ns; None where it cannot be known.

    Least squares that are never negative, of the CPU time of each trial, which varies as the square
    root of the number of packets. ``jobs``: those that cost the same stand together.
    """
    rows, values, sizes = [], [], set()
    for trial in group:
        if (ops := _ops(trial)) is None:
            continue
        counts = [sum(ops.get(name, 0.0) for name in alike) for alike in jobs]
        weight = math.sqrt(max(1.0, trial.packets * sum(counts)))
        per_datagram = (trial.packets, trial.octets)
        rows.append([count * each / weight for count in counts for each in per_datagram])
        values.append(trial.cpu_s[end] * 1e9 / weight)
        sizes.add(trial.octets)
    if len(sizes) < FEWEST_SIZES:
        return None
    found = _least(np.array(rows, dtype=np.float64), np.array(values, dtype=np.float64))
    if found is None:
        return None
    pairs = found.reshape(-1, 2).tolist()
    return {
        name: (packet, octet)
        for alike, (packet, octet) in zip(jobs, pairs, strict=True)
        for name in alike
    }


def _least(columns: Floats, values: Floats) -> Floats | None:
    """Return non-negative least squares; None where the columns cannot be distinguished."""
    scale = np.linalg.norm(columns, axis=0)
    if not scale.all() or np.linalg.matrix_rank(columns / scale, tol=1e-6) < columns.shape[1]:
        return None
    found, _ = optimize.nnls(columns / scale, values)
    result: Floats = found / scale
    return result


def _ways_apart(group: Sequence[FitTrial]) -> bool:
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
        if trial.rtt_variance_ns2 is None or not _calm(trial):
            continue
        squares = sum(_time_ns(ops, [name], trial) ** 2 for name in ops)
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
        for trial, one, wraps in _saturated(group, way):
            # A bare link that is full too has a queue of its own in the delay.
            if (
                not trial.whole
                or trial.packets > 1
                or one.delay_ns is None
                or not one.sent_packet_s
                or one.base_loss is None
                or one.base_loss > _LOSS
                or not one.received_packet_s
            ):
                continue
            slow, other = (
                f"{way} {'wrap' if wraps is first else 'unwrap'}" for first in (True, False)
            )
            other_ns = _time_ns(ops, [other], trial)
            if not wraps and other_ns * one.sent_packet_s > _QUEUES * 1e9:
                continue
            each_ns = 1e9 / one.received_packet_s
            # A packet is let in when one before it begins, so it waits for all, and itself takes
            # its time; it comes half a gap later, on average.
            waited = one.delay_ns - other_ns + 0.5e9 / one.sent_packet_s
            found.setdefault(slow, []).append(waited / each_ns - 1)
    return {name: float(np.median(values)) for name, values in found.items()}


def _unexplained(group: Sequence[FitTrial], ops: Ops) -> float | None:
    rest = [
        trial.rtt_ns - _time_ns(ops, list(ops), trial)
        for trial in group
        if trial.rtt_ns is not None and _calm(trial)
    ]
    return float(np.median(rest)) if rest else None


def _calm(trial: FitTrial) -> bool:
    """Say whether packets seldom waited for each other."""
    return (
        trial.whole
        and trial.echo
        and sum(trial.cpu_s.values()) <= _IDLE * trial.measuring_s
        and all(one.loss <= _LOSS for one in trial.ways.values())
    )


def _saturated(group: Sequence[FitTrial], way: str) -> list[tuple[FitTrial, WayTrial, bool]]:
    """Return the trials whose rate one end of one way limited; True: it was the wrapping end."""
    found = []
    for trial in group:
        one = trial.ways.get(way)
        if (
            one is None
            or len(trial.ways) > 1
            or one.loss < _SATURATED_LOSS
            or not one.received_packet_s
            or one.lost_sender is None
            or one.lost_receiver is None
            or trial.thread_max_ratio is None
            or trial.thread_max_ratio < _BUSY
        ):
            continue
        if one.lost_sender >= _MOSTLY * one.loss:
            found.append((trial, one, True))
        elif one.lost_receiver >= _MOSTLY * one.loss:
            found.append((trial, one, False))
    sides = {wraps for *_, wraps in found}
    # Where it is now one end and now the other, both take about as long.
    return found if len(sides) == 1 else []


def _time_ns(ops: Ops, names: Sequence[str], trial: FitTrial) -> float:
    """Return the time that some jobs take for a datagram of a trial."""
    return sum(ops[name][0] * trial.packets + ops[name][1] * trial.octets for name in names)


def _threads(trials: Sequence[FitTrial]) -> float | None:
    """Return the CPU of the busier end over that of the tunnel's busiest thread."""
    ratios = [
        max(trial.cpu_s.values()) / trial.measuring_s / trial.thread_max_ratio
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
