"""Calls at once, both ways: loss, delay, and how they sound by the E-model."""

import dataclasses
from collections.abc import Sequence
from typing import Annotated, ClassVar, Final

import numpy as np
from pydantic import Field

from tunnelmark.model.params import Params
from tunnelmark.model.trial import Measurement
from tunnelmark.workloads.base import Outcome, TrialContext, Workload
from tunnelmark.workloads.calls import MOST_CALLS, CallParams, Calls, Heard, lowest, run_calls
from tunnelmark.workloads.emodel import mos
from tunnelmark.workloads.loads import too_many

_START_S: Final = 0.3


class VoipParams(CallParams):
    """So many calls."""

    calls: Annotated[int, Field(ge=1, le=MOST_CALLS)] = Field(
        1, description="calls at the same time; of several tunnels each has its share"
    )


class Voip(Workload):
    """Two one-way flows a call."""

    kind: ClassVar[str] = "voip"
    title: ClassVar[str] = "Calls"
    simulated: ClassVar[bool] = True
    params_type: ClassVar[type[Params]] = VoipParams
    metrics: ClassVar[tuple[str, ...]] = (
        "voip_mos_min",
        "voip_mos_p50",
        "voip_rating_min",
        "voip_rating_p50",
        "loss_forward_ratio",
        "loss_reverse_ratio",
        "voip_discard_forward_ratio",
        "voip_discard_reverse_ratio",
        "owd_forward_p50_ns",
        "owd_reverse_p50_ns",
        "pdv_forward_p99_ns",
        "pdv_reverse_p99_ns",
        "voip_mouth_to_ear_ns",
    )
    params: VoipParams

    @property
    def server_begins(self) -> bool:
        """Both ends of a call talk."""
        return True

    def conflict(self, paths: int) -> str | None:
        """Return that there are fewer calls than tunnels, or too many packets, or None."""
        if self.params.calls < paths:
            return (
                f"calls is {self.params.calls}, must be at least the {paths} tunnels over which "
                "they are spread"
            )
        return too_many(self.params.packets(self.params.calls))

    def withheld(self, metric: str, paths: int = 1) -> str | None:  # noqa: ARG002 - see base
        """Return that a codec without published values has no score, or None."""
        if self.params.impairment is None and metric.startswith(("voip_mos", "voip_rating")):
            return (
                f"codec {self.params.codec} has no published impairment (ITU-T G.113), so no "
                "score: give equipment_impairment and loss_robustness, or decide by "
                "voip_mouth_to_ear_ns"
            )
        return None

    @property
    def payload_sizes(self) -> tuple[int, ...]:
        """The one size of all packets."""
        return (self.params.payload,)

    @property
    def expected_s(self) -> float:
        """The calls, and the wait for what is under way."""
        return (self.params.duration + self.params.drain) / 1e9 + _START_S

    def run(self, context: TrialContext) -> Outcome:
        """Run one trial."""
        calls = run_calls(context, self.params, self.params.calls)
        measurements: tuple[Measurement, ...] = ()
        if all(one.joined for one in calls.streams):
            names = [path.name for path in context.paths]
            by_path = [_figures(_part(calls, number, len(names))) for number in range(len(names))]
            measurements = (
                Measurement("total", _figures(calls)),
                *(Measurement(*one) for one in zip(names, by_path, strict=True)),
            )
        return Outcome(
            measurements,
            calls.checks,
            sum(one.delivered_bytes for one in calls.streams),
            sum(one.delivered_packets for one in calls.streams),
            max(one.measuring_s for one in calls.streams),
            details={
                "payload_bytes": self.params.payload,
                "impairment": self.params.impairment,
                "forward": [dataclasses.asdict(one) for one in calls.forward],
                "reverse": [dataclasses.asdict(one) for one in calls.reverse],
            },
            samples=tuple(name for one in calls.streams for name in one.samples),
        )


def _part(calls: Calls, number: int, paths: int) -> Calls:
    return dataclasses.replace(
        calls, forward=calls.forward[number::paths], reverse=calls.reverse[number::paths]
    )


def _figures(calls: Calls) -> dict[str, float | None]:
    """Return the figures of all calls: the worst one's MOS beside the median."""
    ratings = [one.rating for one in calls.heard]
    scores = [one.mos for one in calls.heard]
    delays = [one.mouth_to_ear_ns for one in calls.heard]
    figures: dict[str, float | None] = {
        "voip_mos_min": lowest(scores),
        "voip_mos_p50": _median(scores),
        "voip_rating_min": lowest(ratings),
        "voip_rating_p50": _median(ratings),
        "voip_mouth_to_ear_ns": _median(delays),
    }
    if any(one.rating_range is not None for one in calls.heard):
        figures |= {
            "voip_mos_clock_error": max(one.clock_error(mos) for one in calls.heard),
            "voip_rating_clock_error": max(one.clock_error(float) for one in calls.heard),
        }
    for way, heard in (("forward", calls.forward), ("reverse", calls.reverse)):
        sent = sum(one.sent for one in heard)
        figures[f"loss_{way}_ratio"] = sum(one.lost for one in heard) / sent if sent else None
        arrived = sent - sum(one.lost for one in heard)
        late = sum(one.discarded for one in heard)
        figures[f"voip_discard_{way}_ratio"] = late / arrived if arrived else None
        figures[f"owd_{way}_p50_ns"] = _median([one.owd_p50_ns for one in heard])
        figures[f"pdv_{way}_p99_ns"] = _highest(heard)
    return figures


def _median(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return float(np.median(known)) if known else None


def _highest(heard: Sequence[Heard]) -> float | None:
    return max((one.pdv_p99_ns for one in heard if one.pdv_p99_ns is not None), default=None)
