"""What tells the ways and ends of a tunnel apart in its trials: delay, loss, saturation. Pure."""

import math
from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np

from tunnelmark.analysis.fit_trials import FitTrial, WayTrial

LOSS: Final = 0.01
"""Share of lost datagrams up to which it does not matter where they were lost."""
_SATURATED_LOSS: Final = 0.02
_BUSY: Final = 0.9
"""Share of a core that the busiest thread takes where it is what limits the rate."""
_IDLE: Final = 0.5
"""Share of a core up to which packets of an echo seldom wait for each other."""
_MOSTLY: Final = 0.8
"""Share of the lost packets that shows where the rate was limited."""

Ops = Mapping[str, tuple[float, float]]
"""ns for a packet and ns for a byte, by way and job: ``forward wrap``."""


def delay_share(group: Sequence[FitTrial]) -> float | None:
    """Return the share of the forward way in the delay that the tunnel adds, without load."""
    pairs = [
        (there.delay_ns, back.delay_ns)
        for trial in group
        if calm(trial)
        and (there := trial.ways.get("forward")) is not None
        and (back := trial.ways.get("reverse")) is not None
        and there.delay_ns is not None
        and back.delay_ns is not None
    ]
    return _share(pairs)


def parts_share(group: Sequence[FitTrial], way: str) -> float | None:
    """Return the share of the wrapping end in the delay inside both hosts, without load."""
    pairs = [
        (one.sender_ns, one.receiver_ns)
        for trial in group
        if calm(trial)
        and (one := trial.ways.get(way)) is not None
        and one.sender_ns is not None
        and one.receiver_ns is not None
    ]
    return _share(pairs)


def _share(pairs: Sequence[tuple[float, float]]) -> float | None:
    if not pairs:
        return None
    first, second = np.median(np.array(pairs), axis=0)
    return float(first / (first + second)) if first > 0 and second > 0 else None


def calm(trial: FitTrial) -> bool:
    """Say whether packets seldom waited for each other."""
    return (
        trial.whole
        and trial.echo
        and trial.cpu_s <= _IDLE * trial.measuring_s
        and all(one.loss <= LOSS for one in trial.ways.values())
    )


def saturated(group: Sequence[FitTrial], way: str) -> list[tuple[FitTrial, WayTrial, bool]]:
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


def saturation_share(group: Sequence[FitTrial], way: str, ops: Ops) -> float | None:
    """Return the wrapping end's share of what a packet costs, by the one size of a full end."""
    full = saturated(group, way)
    names = [f"{way} wrap", f"{way} unwrap"]
    shares = [
        gap_ns(one) / whole for trial, one, _ in full if (whole := time_ns(ops, names, trial)) > 0
    ]
    if not shares:
        return None
    share = min(1.0, float(np.mean(shares)))
    return share if full[0][2] else 1 - share


def gap_ns(one: WayTrial) -> float:
    """Return the time between datagrams that came through."""
    return 1e9 / (one.received_packet_s or math.inf)


def time_ns(ops: Ops, names: Sequence[str], trial: FitTrial) -> float:
    """Return the time that some jobs take for a packet of a trial."""
    return sum(ops[name][0] * trial.packets + ops[name][1] * trial.octets for name in names)
