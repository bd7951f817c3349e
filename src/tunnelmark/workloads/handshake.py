"""Set-ups of the tunnel itself: how long each took, what it sent, how many failed."""

import math
from collections.abc import Sequence
from dataclasses import asdict
from typing import Annotated, ClassVar, Final

from pydantic import Field

from tunnelmark.model.errors import TunnelmarkError
from tunnelmark.model.params import Params
from tunnelmark.model.quantity import DurationNs
from tunnelmark.model.set_up import Sent, SetUp
from tunnelmark.model.trial import Measurement, Progress
from tunnelmark.model.validity import Check
from tunnelmark.workloads.base import Outcome, TrialContext, Workload
from tunnelmark.workloads.quantiles import needed

LONGEST_LIMIT_NS: Final = 20 * 10**9
"""After it OpenVPN gives a handshake up by itself, as drivers start it."""
_USUAL_S: Final = 1.5
"""Of one set-up with the start of its server."""
_MEDIAN: Final = 50
_TAIL: Final = 95
_REPORTED_REASONS: Final = 5


class HandshakeParams(Params):
    """How often, and how long each may take."""

    set_ups: Annotated[int, Field(ge=1, le=1000)] = Field(
        10, description="set-ups of one trial; a 95th percentile needs 60"
    )
    limit: Annotated[DurationNs, Field(ge=10**9, le=LONGEST_LIMIT_NS)] = Field(
        LONGEST_LIMIT_NS, description="time after which a set-up has failed"
    )


class Handshake(Workload):
    """Takes the tunnel down and brings it up again, each time with new keys and programs."""

    kind: ClassVar[str] = "handshake"
    title: ClassVar[str] = "Set-up of the tunnel"
    params_type: ClassVar[type[Params]] = HandshakeParams
    metrics: ClassVar[tuple[str, ...]] = (
        "setup_p50_ns",
        "setup_p95_ns",
        "setup_max_ns",
        "setup_failed_ratio",
        "handshake_bytes_forward",
        "handshake_bytes_reverse",
        "handshake_packets_forward",
        "handshake_packets_reverse",
    )
    may_be_background: ClassVar[bool] = False
    restarts: ClassVar[bool] = True
    params: HandshakeParams

    def withheld(self, metric: str) -> str | None:
        """Return that there are too few set-ups for the percentile, or None."""
        if metric == "setup_p95_ns" and self.params.set_ups < needed(_TAIL):
            return (
                f"set_ups is {self.params.set_ups}, a {_TAIL}th percentile needs at least "
                f"{needed(_TAIL)}: repeat more often"
            )
        return None

    @property
    def expected_s(self) -> float:
        """A usual time for each set-up."""
        return self.params.set_ups * _USUAL_S

    def run(self, context: TrialContext) -> Outcome:
        """Set the tunnel up so many times."""
        found: list[SetUp] = []
        wanted = self.params.set_ups
        if context.set_up is None:
            failed = Check("set_ups", ok=False, message="nothing here sets tunnels up again")
            return Outcome((), (failed,), 0, 0, 0.0)
        try:
            while len(found) < wanted and not context.cancelled():
                found.append(context.set_up(self.params.limit / 1e9))
                context.progress(Progress(len(found) / wanted, _figures_now(found)))
        except TunnelmarkError as error:
            # Not of the handshake: the server did not start, or is not what was asked for.
            broken = Check("set_ups", ok=False, message=f"set-up {len(found) + 1}: {error}")
            return Outcome((), (broken,), 0, 0, 0.0)
        if not found:
            nothing = Check("set_ups", ok=False, message="the trial ended before its first set-up")
            return Outcome((), (nothing,), 0, 0, 0.0)
        return Outcome(
            (Measurement("total", figures(found)),),
            (_said(found, self.params.limit),),
            payload_bytes=0,
            payload_packets=0,
            measuring_s=sum(one.took_ns or self.params.limit for one in found) / 1e9,
            details={"set_ups": [asdict(one) for one in found]},
        )


def figures(found: Sequence[SetUp]) -> dict[str, float | None]:
    """Return the metrics of some set-ups, of one at least."""
    times = sorted(math.inf if one.took_ns is None else float(one.took_ns) for one in found)
    came_up = [one for one in found if one.took_ns is not None]
    sent = {
        "forward": [one.forward for one in came_up],
        "reverse": [one.reverse for one in came_up],
    }
    return {
        "setup_p50_ns": _percentile(times, _MEDIAN),
        "setup_p95_ns": _percentile(times, _TAIL) if len(times) >= needed(_TAIL) else None,
        "setup_max_ns": _percentile(times, 100),
        "setup_failed_ratio": 1 - len(came_up) / len(found),
        **{f"handshake_bytes_{way}": _mean(ends, "octets") for way, ends in sent.items()},
        **{f"handshake_packets_{way}": _mean(ends, "packets") for way, ends in sent.items()},
    }


def _percentile(times: Sequence[float], percent: float) -> float | None:
    """Return a percentile of sorted times by linear interpolation; None where it is infinite."""
    place = (len(times) - 1) * percent / 100
    below, above = times[math.floor(place)], times[math.ceil(place)]
    if math.isinf(above):
        return None
    return below + (above - below) * (place - math.floor(place))


def _mean(ends: Sequence[Sent | None], what: str) -> float | None:
    """Return the mean of a count; None where a set-up was not counted, or none came up."""
    known = [float(getattr(end, what)) for end in ends if end is not None]
    return sum(known) / len(known) if known and len(known) == len(ends) else None


def _figures_now(found: Sequence[SetUp]) -> dict[str, float]:
    reported = {name: figures(found)[name] for name in ("setup_p50_ns", "setup_failed_ratio")}
    return {name: value for name, value in reported.items() if value is not None}


def _said(found: Sequence[SetUp], limit_ns: int) -> Check:
    """Say how many failed and why; the trial is none the worse for it."""
    reasons = [one.reason for one in found if one.took_ns is None]
    words = f"{len(reasons)} of {len(found)} set-ups failed within {limit_ns / 1e9:g} s"
    reported = list(dict.fromkeys(reasons))
    more = (
        f"; and {len(reported) - _REPORTED_REASONS} other reasons"
        if len(reported) > _REPORTED_REASONS
        else ""
    )
    because = f": {'; '.join(reported[:_REPORTED_REASONS])}{more}" if reported else ""
    return Check("set_ups", ok=True, message=words + because, value=float(len(reasons)), unit="1")
