"""How many calls at once all sound well enough, found by search."""

import dataclasses
from typing import Annotated, ClassVar, Final, Self

from pydantic import Field, model_validator

from tunnelmark.model.params import Params
from tunnelmark.model.trial import Measurement, Progress
from tunnelmark.model.validity import Check
from tunnelmark.workloads.base import Outcome, TrialContext, Workload
from tunnelmark.workloads.calls import MOST_CALLS, CallParams, Calls, missing_values, run_calls
from tunnelmark.workloads.loads import too_many
from tunnelmark.workloads.search import MOST_ATTEMPTS, most, usual_tries

_START_S: Final = 0.3


class VoipCapacityParams(CallParams):
    """A goal that every call must reach."""

    mos: Annotated[float, Field(ge=1, le=4.5)] = Field(
        3.6,
        description="mean opinion score that both directions of every call must reach; 3.6 is R "
        "70, below which many users are dissatisfied (ITU-T G.107 annex B)",
    )
    most_calls: Annotated[int, Field(ge=1, le=MOST_CALLS)] = Field(
        MOST_CALLS, description="calls at which the search ends"
    )
    first_calls: Annotated[int, Field(ge=1, le=MOST_CALLS)] = Field(
        1, description="calls with which the search begins: near the answer it takes fewer trials"
    )
    step: Annotated[int, Field(ge=1, le=MOST_CALLS)] = Field(
        1,
        description="the search ends when the number that passed and the one that failed are at "
        "most this far apart",
    )

    @model_validator(mode="after")
    def _first_is_within(self) -> Self:
        if self.first_calls > self.most_calls:
            raise ValueError(
                f"first_calls is {self.first_calls}, must be at most most_calls, {self.most_calls}"
            )
        return self

    @property
    def usual_trials(self) -> int:
        """How many trials a search usually takes."""
        return usual_tries(self.most_calls, first=self.first_calls, step=self.step)


class VoipCapacity(Workload):
    """One search a trial: twice as many calls each time, then halving."""

    kind: ClassVar[str] = "voip_capacity"
    title: ClassVar[str] = "Calls carried"
    simulated: ClassVar[bool] = True
    params_type: ClassVar[type[Params]] = VoipCapacityParams
    may_be_background: ClassVar[bool] = False
    metrics: ClassVar[tuple[str, ...]] = (
        "voip_calls",
        "voip_calls_over",
        "voip_mos_min",
        "search_trials",
        "search_s",
    )
    params: VoipCapacityParams

    @property
    def server_begins(self) -> bool:
        """Both ends of a call talk."""
        return True

    def conflict(self, paths: int) -> str | None:
        """Return that the codec has no score, or that there are too many tunnels, or None."""
        if reason := missing_values(self.params):
            return reason
        if self.params.most_calls < paths:
            return f"most_calls is {self.params.most_calls}, must be at least the {paths} tunnels"
        return too_many(self.params.packets(self.params.most_calls))

    @property
    def payload_sizes(self) -> tuple[int, ...]:
        """The one size of all packets."""
        return (self.params.payload,)

    @property
    def expected_s(self) -> float:
        """A usual number of trials."""
        one = (self.params.duration + self.params.drain) / 1e9 + _START_S
        return one * self.params.usual_trials

    def run(self, context: TrialContext) -> Outcome:
        """Run one search."""
        bench = _Bench(self.params, context)
        try:
            found, over = most(
                bench.sounds_well,
                self.params.most_calls,
                first=self.params.first_calls,
                step=self.params.step,
            )
        except _BrokenError as broken:
            return bench.outcome((), broken.checks)
        message = "no call reaches the score" if found == 0 else f"{found} calls reach the score"
        figures = {
            "voip_calls": float(found),
            "voip_calls_over": None if over is None else float(over),
            "voip_mos_min": bench.scores.get(found),
            "search_trials": float(bench.trials),
            "search_s": bench.trials * self.params.duration / 1e9,
        }
        done = Check("search_complete", ok=True, message=f"{bench.trials} trials: {message}")
        return bench.outcome((Measurement("total", figures),), (done,))


class _BrokenError(Exception):
    """A trial that cannot be had: the search has no result."""

    def __init__(self, checks: tuple[Check, ...]) -> None:
        super().__init__("a trial of the search failed")
        self.checks = checks


class _Bench:
    def __init__(self, params: VoipCapacityParams, context: TrialContext) -> None:
        self.scores: dict[int, float] = {}
        self.trials = 0
        self._params = params
        self._context = context
        self._bytes = self._packets = 0
        self._measuring_s = 0.0

    def sounds_well(self, calls: int) -> bool:
        """Try so many calls; an invalid trial is repeated."""
        for _ in range(MOST_ATTEMPTS):
            tried = self._trial(calls)
            if tried.ok:
                if (score := tried.worst_mos) is None:
                    message = "the ends have separate clocks, so no call has a delay or a score"
                    raise _BrokenError((Check("one_clock", ok=False, message=message),))
                self.scores[calls] = score
                return score >= self._params.mos
            if self._context.cancelled() or not all(one.joined for one in tried.streams):
                break
        raise _BrokenError(tried.checks)

    def _trial(self, calls: int) -> Calls:
        self.trials += 1
        number = self.trials
        context = dataclasses.replace(
            self._context,
            seed=self._context.seed + number,
            sample_stem=f"{self._context.sample_stem}-{number}",
            samples_dir=None,
            progress=lambda progress: self._context.progress(
                Progress(
                    min(0.99, (number - 1 + progress.done_ratio) / self._params.usual_trials),
                    {"packets_sent": progress.figures.get("packets_sent", 0.0)},
                )
            ),
        )
        tried = run_calls(context, self._params, calls)
        self._bytes += sum(one.delivered_bytes for one in tried.streams)
        self._packets += sum(one.delivered_packets for one in tried.streams)
        self._measuring_s += max(one.measuring_s for one in tried.streams)
        return tried

    def outcome(self, measurements: tuple[Measurement, ...], checks: tuple[Check, ...]) -> Outcome:
        """Return what the search came to."""
        trials = [{"calls": calls, "mos_min": score} for calls, score in self.scores.items()]
        return Outcome(
            measurements,
            checks,
            self._bytes,
            self._packets,
            self._measuring_s,
            details={"trials": trials},
        )
