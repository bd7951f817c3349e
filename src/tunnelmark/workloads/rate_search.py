"""The highest rate with loss at or below a goal, found by trials of constant rate."""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Annotated, ClassVar, Final, Literal, Self

from pydantic import Field, model_validator

from tunnelmark.engine.link import AnyLinkSpec
from tunnelmark.model.errors import LabError
from tunnelmark.model.params import Params
from tunnelmark.model.quantity import DurationNs, RateBitS, Ratio, percent
from tunnelmark.model.trial import Measurement, Progress
from tunnelmark.model.validity import Check
from tunnelmark.workloads.base import Outcome, TrialContext, Workload
from tunnelmark.workloads.echo_evidence import INSTRUMENT_LIMITS
from tunnelmark.workloads.loads import (
    Loaded,
    LoadParams,
    Way,
    lost,
    reference_rate,
    run_load,
    too_many,
)
from tunnelmark.workloads.search import (
    MOST_ATTEMPTS,
    Found,
    Goal,
    Seen,
    binary_search,
    mlr_search,
    mlr_trials_s,
)

_LOSSES_TO_JUDGE: Final = 6
_LEAST_SHARE: Final = 1 / 8
_LEAST_S: Final = 2.0
"""A trial whose losses are too many already still shows for so long how many these are, since the
next rate is chosen by that."""
_RFC_2544: Final = {"trial": "60 s", "drain": "2 s", "settle": "5 s"}
_START_S: Final = 0.3
_TYPICAL_TRIALS: Final = 15


class RateSearchParams(LoadParams):
    """A search for the highest rate."""

    loss: Annotated[Ratio, Field(lt=1)] = Field(
        0.0, description="loss goal: the largest share that may be lost in either direction"
    )
    method: Literal["mlrsearch", "binary"] = Field(
        "mlrsearch", description="MLRsearch, or halving the interval as RFC 2544 section 26.1 does"
    )
    direction: Way = Field(
        "forward",
        description="to the server, to the client, both at once, or there and back as an echo",
    )
    profile: Literal["quick", "rfc2544"] = Field(
        "quick",
        description="rfc2544: trials of 60 s, 2 s of waiting for packets, 5 s of rest before the "
        "next trial (RFC 2544 sections 23 and 24); trial, drain and settle still go before it",
    )
    trial: Annotated[DurationNs, Field(ge=10**8, le=600 * 10**9)] = Field(
        2 * 10**9,
        description="length of the trials that decide a bound; the goal is only as strict as the "
        "trial is long, since a queue hides the loss of a short one (see delay_limit)",
    )
    confirm: Annotated[int, Field(ge=1, le=100)] = Field(
        1, description="trials that decide a bound; of several the majority decides"
    )
    width: Annotated[Ratio, Field(ge=0.001, le=0.5)] = Field(
        0.01, description="largest distance between both bounds at the end"
    )
    lowest: Annotated[Ratio, Field(gt=0, lt=1)] = Field(
        0.01, description="where the search begins, as a share of the reference rate"
    )
    highest: Annotated[float, Field(gt=0, le=10)] = Field(
        1.1, description="where the search ends, as a multiple of the reference rate"
    )
    reference: RateBitS | None = Field(
        None, description="reference rate; the slowest direction of the link if none"
    )
    reference_counts: Literal["payload", "ip", "frame", "line"] = Field(
        "ip",
        description="what fills the reference rate: payload, IP packets, Ethernet frames, or "
        "those with preamble and gap",
    )
    delay_limit: Annotated[DurationNs, Field(ge=10**5, le=60 * 10**9)] | None = Field(
        None,
        description="a packet with a one-way delay (of an echo, a round-trip delay) so much above "
        "the smallest one of the trial counts as lost: a growing queue would lose packets in a "
        "longer trial",
    )
    settle: Annotated[DurationNs, Field(ge=0, le=600 * 10**9)] = Field(
        200_000_000,
        description="pause before the next trial, so that queues drain (RFC 2544 section 23: 5 s)",
    )
    most_trials: Annotated[int, Field(ge=4, le=1000)] = Field(
        80, description="most trials; the search then ends with the bounds that it has"
    )

    @model_validator(mode="before")
    @classmethod
    def _as_the_profile_has_it(cls, values: object) -> object:
        if isinstance(values, Mapping) and values.get("profile") == "rfc2544":
            return {**_RFC_2544, **values}
        return values

    @model_validator(mode="after")
    def _order(self) -> Self:
        if self.highest <= self.lowest:
            raise ValueError(f"highest is {self.highest:g}, must be above lowest, {self.lowest:g}")
        return self


class RateSearch(Workload):
    """One search a trial."""

    kind: ClassVar[str] = "rate_search"
    title: ClassVar[str] = "Highest rate within a loss goal"
    simulated: ClassVar[bool] = True
    many_clients: ClassVar[bool] = True
    params_type: ClassVar[type[Params]] = RateSearchParams
    may_be_background: ClassVar[bool] = False
    metrics: ClassVar[tuple[str, ...]] = (
        "throughput_lower_packet_s",
        "throughput_upper_packet_s",
        "throughput_lower_bit_s",
        "throughput_upper_bit_s",
        "throughput_sender_limit_packet_s",
        "search_loss_min_ratio",
        "search_trials",
        "search_s",
    )
    params: RateSearchParams

    @property
    def server_begins(self) -> bool:
        """Whether packets go in the reverse direction that are no replies."""
        return self.params.direction in {"reverse", "both"}

    def unfit(self, link: AnyLinkSpec | None, mtu_bytes: int) -> str | None:
        """Return that there is no reference rate, or that a trial would be too long, or None."""
        try:
            rate = reference_rate(self.params, link, mtu_bytes) * self.params.highest
        except LabError as error:
            return str(error)
        # A loss goal needs its packets, however long that takes.
        return too_many(max(rate * self.params.trial / 1e9, least_packets(self.params.loss)))

    @property
    def payload_sizes(self) -> tuple[int, ...]:
        """The one size of all datagrams."""
        return (self.params.payload,)

    @property
    def expected_s(self) -> float:
        """A usual number of trials."""
        trial_s = self.params.trial / 1e9
        if self.params.method == "mlrsearch":
            trial_s = mlr_trials_s(trial_s)
        one = trial_s + (self.params.drain + self.params.settle) / 1e9 + _START_S
        return one * _TYPICAL_TRIALS * self.params.confirm

    def run(self, context: TrialContext) -> Outcome:
        """Run one search."""
        reference = reference_rate(
            self.params, context.link, context.link_mtu_bytes, context.paths[0].ip
        )
        goal = Goal(
            loss_ratio=self.params.loss,
            lowest=reference * self.params.lowest,
            highest=reference * self.params.highest,
            width_ratio=self.params.width,
            trial_s=self.params.trial / 1e9,
            confirm=self.params.confirm,
            most_trials=self.params.most_trials,
        )
        bench = _Bench(self.params, context)
        search = mlr_search if self.params.method == "mlrsearch" else binary_search
        try:
            found = search(goal, bench.measure)
        except _BrokenError as broken:
            return bench.outcome((), broken.checks)
        spent = {"search_trials": float(bench.trials), "search_s": bench.planned_s}
        total = Measurement("total", {**self._figures(found), **spent})
        return bench.outcome((total,), (_ended(found, goal, bench.too_slow),), found)

    def _figures(self, found: Found) -> dict[str, float | None]:
        bits = 8 * self.params.payload
        # Where the trials ran out, no rate was shown to keep to the goal, and none not to.
        lower = found.forwarded if found.complete or found.lower is not None else None
        upper = found.exceeded
        return {
            "throughput_lower_packet_s": lower,
            "throughput_upper_packet_s": upper,
            "throughput_lower_bit_s": None if lower is None else lower * bits,
            "throughput_upper_bit_s": None if upper is None else upper * bits,
            "throughput_sender_limit_packet_s": found.sender_limit,
            "search_loss_min_ratio": min(seen.loss_ratio for seen in found.trials),
        }


class _BrokenError(Exception):
    """A trial that cannot be had: the search has no result."""

    def __init__(self, checks: tuple[Check, ...]) -> None:
        super().__init__("a trial of the search failed")
        self.checks = checks


class _Bench:
    """Runs the trials of a search and adds up what they moved."""

    def __init__(self, params: RateSearchParams, context: TrialContext) -> None:
        self._params = params
        self._context = context
        self.trials = 0
        """Those that were repeated are among them."""
        self.planned_s = 0.0
        """Time in which all of them were to send."""
        self._repeated = 0
        self._bytes = 0
        self._packets = 0
        self._measuring_s = 0.0
        self.too_slow = ""
        """In which of its limits our own sender or receiver failed last."""

    def measure(self, packet_rate: float, seconds: float) -> Seen:
        """Run a trial; longer than asked for where the loss goal needs more packets."""
        least = max(len(self._context.paths), least_packets(self._params.loss))
        packets = max(least, math.ceil(packet_rate * seconds))
        limited = False
        for _ in range(MOST_ATTEMPTS):
            loaded = self._trial(packet_rate, packets)
            if loaded.ok and loaded.recorded:
                break
            if self._context.cancelled() or not loaded.recorded:
                raise _BrokenError(loaded.checks)
            self._repeated += 1
        else:
            # The third time it is no hiccup: where it is only that the instrument could not keep
            # up, the rate is beyond it, and the search has found a bound.
            if not _senders_fault(loaded.checks):
                raise _BrokenError(loaded.checks)
            limited = True
            self.too_slow = "; ".join(check.message for check in loaded.checks if not check.ok)
        sent, missing = self._worst(loaded)
        return Seen(
            packet_rate,
            packets / packet_rate,
            sent,
            missing,
            min(loaded.received_packet_s, default=None),
            sender_limited=limited,
        )

    def _trial(self, packet_rate: float, packets: int) -> Loaded:
        self.trials += 1
        if self.trials > 1:
            self._context.pause(self._params.settle / 1e9)
        context = dataclasses.replace(
            self._context,
            seed=self._context.seed + self.trials,
            sample_stem=f"{self._context.sample_stem}-{self.trials}",
            samples_dir=None,
            progress=lambda progress: self._context.progress(
                Progress(
                    min(0.99, (self.trials - 1 + progress.done_ratio) / _TYPICAL_TRIALS),
                    {"packets_sent": progress.figures.get("packets_sent", 0.0)},
                )
            ),
        )
        seconds = packets / packet_rate
        self.planned_s += seconds
        self._context.end_when_lost(
            math.floor(self._params.loss * packets) + 1,
            round(max(_LEAST_S, seconds * _LEAST_SHARE) * 1e9),
        )
        loaded = run_load(
            context,
            self._params,
            way=self._params.direction,
            packet_rate=packet_rate,
            packets=packets,
        )
        self._bytes += sum(one.delivered_bytes for one in loaded.streams)
        self._packets += sum(one.delivered_packets for one in loaded.streams)
        self._measuring_s += max(one.measuring_s for one in loaded.streams)
        return loaded

    def _worst(self, loaded: Loaded) -> tuple[int, int]:
        """Return (sent, lost) of the direction that loses more; an echo is one of both ways."""
        limit, echo = self._params.delay_limit, self._params.direction == "echo"
        counts = [
            (
                sum(len(flow.sent_ns) for flow in one.joined),
                sum(lost(flow, limit, echo=echo) for flow in one.joined),
            )
            for one in loaded.streams
        ]
        return max(counts, key=lambda count: count[1] / count[0] if count[0] else 1.0)

    def outcome(
        self,
        measurements: tuple[Measurement, ...],
        checks: tuple[Check, ...],
        found: Found | None = None,
    ) -> Outcome:
        """Return what the search came to."""
        trials = [] if found is None else [dataclasses.asdict(seen) for seen in found.trials]
        return Outcome(
            measurements,
            checks,
            self._bytes,
            self._packets,
            self._measuring_s,
            details={"trials": trials, "repeated": self._repeated},
        )


def least_packets(loss_goal: float) -> int:
    """Return how many packets a trial needs to judge a loss goal.

    With 6 losses allowed, a path that loses twice the goal passes in less than 5 % of the trials
    (Poisson: P(X <= 6) = 0.046 with mean 12), and one that loses half of it fails in less (0.034
    with mean 3).
    """
    return math.ceil(_LOSSES_TO_JUDGE / loss_goal) if loss_goal else 1


def _senders_fault(checks: Sequence[Check]) -> bool:
    """Whether all that failed is that our own sender or receiver could not keep up."""
    failed = {
        check.name.removesuffix("_sent_forward").removesuffix("_sent_reverse")
        for check in checks
        if not check.ok
    }
    return bool(failed) and failed <= INSTRUMENT_LIMITS


def _ended(found: Found, goal: Goal, too_slow: str = "") -> Check:
    if found.complete and found.only_the_sender:
        because = f" ({too_slow})" if too_slow else ""
        return Check(
            "search_complete",
            ok=False,
            message=f"our own sender or receiver did not keep up with {found.sender_limit:.1f} "
            f"packets/s, the lowest rate of the search, in {MOST_ATTEMPTS} attempts{because}, so "
            "the path was not measured: end other programs on this computer, or set a smaller "
            "lowest",
            value=found.sender_limit,
            unit="packet/s",
        )
    bounds = " to ".join(
        "nothing" if bound is None else f"{bound:.1f}" for bound in (found.lower, found.upper)
    )
    if found.sender_limit is not None:
        bounds += " (more than the sender can send)"
    return Check(
        "search_complete",
        ok=found.complete,
        message=f"{len(found.trials)} trials of at most {goal.most_trials}: "
        f"{bounds} packets/s keep to a loss of {percent(goal.loss_ratio, 2)}",
        value=float(len(found.trials)),
        limit=float(goal.most_trials),
        unit="trial",
    )
