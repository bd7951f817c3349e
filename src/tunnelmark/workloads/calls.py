"""Calls: codecs, the packets of so many calls, and how each of them sounds."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Final, Literal, Self

import numpy as np
import numpy.typing as npt
from pydantic import Field, model_validator

from tunnelmark.engine import config
from tunnelmark.engine.records import Flow
from tunnelmark.model.params import Params
from tunnelmark.model.quantity import DurationNs
from tunnelmark.model.validity import Check
from tunnelmark.workloads.base import TrialContext
from tunnelmark.workloads.beside import together
from tunnelmark.workloads.emodel import call, mos, rating
from tunnelmark.workloads.quantiles import tail
from tunnelmark.workloads.streams import Streamed, run_streams, sessions, turned

RTP_BYTES: Final = 12
"""RFC 3550 section 5.1."""
MOST_CALLS: Final = 512
"""Each call is a flow both ways; the engine has 1024 at most."""
DEAD_RATING: Final = 0.0
"""R of a call of which nothing arrives: the end of the scale, MOS 1 (ITU-T G.107 annex B)."""
_MS: Final = 1_000_000


@dataclass(frozen=True)
class Codec:
    """What a codec sends, and how it stands loss."""

    title: str
    frame_bytes: int
    frame_ns: int
    """Speech in one packet."""
    lookahead_ns: int
    ie: float | None
    """None: no value is published, so a study must give one for R and MOS."""
    bpl: float | None


# Frames: RFC 3551 section 4.5; Ie and Bpl: ITU-T G.113 appendix I (05/2007), tables I.1 to I.4.
CODECS: Final[Mapping[str, Codec]] = {
    "g711": Codec("G.711 without loss concealment", 160, 20 * _MS, 0, 0.0, 4.3),
    "g711-plc": Codec("G.711 with appendix I concealment", 160, 20 * _MS, 3_750_000, 0.0, 25.1),
    "g729a": Codec("G.729A with VAD", 20, 20 * _MS, 5 * _MS, 11.0, 19.0),
    "g723.1": Codec("G.723.1 with VAD, 6.3 kbit/s", 24, 30 * _MS, 7_500_000, 15.0, 16.1),
    "gsm-efr": Codec("GSM-EFR", 31, 20 * _MS, 0, 5.0, 10.0),
    # RFC 6716: a SILK frame of 20 ms looks 6.5 ms ahead. G.113 has no values for Opus.
    "opus-16k": Codec("Opus at 16 kbit/s", 40, 20 * _MS, 6_500_000, None, None),
    "opus-24k": Codec("Opus at 24 kbit/s", 60, 20 * _MS, 6_500_000, None, None),
}


class CallParams(Params):
    """A codec, and how calls are heard."""

    codec: Literal["g711", "g711-plc", "g729a", "g723.1", "gsm-efr", "opus-16k", "opus-24k"] = (
        Field("g711-plc", description="codec, which decides size and rate of the packets, and R")
    )
    duration: Annotated[DurationNs, Field(ge=10**8, le=3600 * 10**9)] = Field(
        10 * 10**9, description="length of the calls"
    )
    jitter_buffer: Annotated[DurationNs, Field(ge=0, le=10**9)] = Field(
        40 * _MS,
        description="size of the jitter buffer: a packet whose one-way delay is so "
        "much above the smallest one arrives too late and counts as lost",
    )
    equipment_impairment: Annotated[float, Field(ge=0, le=94)] | None = Field(
        None, description="Ie of the codec; ITU-T G.113 where it has one, none for Opus"
    )
    loss_robustness: Annotated[float, Field(gt=0, le=100)] | None = Field(
        None, description="Bpl of the codec; likewise"
    )
    drain: Annotated[DurationNs, Field(ge=10**6, le=60 * 10**9)] = Field(
        10**9,
        description="waiting time: a packet that arrives later than this after it was sent is lost",
    )

    @model_validator(mode="after")
    def _both(self) -> Self:
        if (self.equipment_impairment is None) != (self.loss_robustness is None):
            raise ValueError("needs both equipment_impairment and loss_robustness, or neither")
        return self

    @property
    def spec(self) -> Codec:
        """The codec."""
        return CODECS[self.codec]

    @property
    def payload(self) -> int:
        """UDP payload of each packet, RTP header included."""
        return self.spec.frame_bytes + RTP_BYTES

    def packets(self, calls: int) -> int:
        """Return how many packets so many calls send, each way."""
        return calls * max(1, self.duration // self.spec.frame_ns)

    @property
    def impairment(self) -> tuple[float, float] | None:
        """Return (Ie, Bpl); None where neither the study nor G.113 has them."""
        if self.equipment_impairment is not None and self.loss_robustness is not None:
            return self.equipment_impairment, self.loss_robustness
        if self.spec.ie is None or self.spec.bpl is None:
            return None
        return self.spec.ie, self.spec.bpl


@dataclass(frozen=True)
class Heard:
    """One direction of one call."""

    sent: int
    lost: int
    """Did not arrive."""
    discarded: int
    """Arrived too late for the jitter buffer."""
    owd_min_ns: int | None
    owd_p50_ns: float | None
    pdv_p99_ns: float | None
    """99th percentile of the one-way delay above the smallest."""
    burst_r: float
    mouth_to_ear_ns: float | None
    rating: float | None
    """R: 0 of a dead call; None where the codec has no published values, or the delay is unknown
    since the clocks of both ends differ."""
    rating_range: tuple[float, float] | None = None
    """Lowest and highest R that the error of the clocks leaves possible; None: there is none."""

    @property
    def mos(self) -> float | None:
        """The mean opinion score that goes with R."""
        return None if self.rating is None else mos(self.rating)

    def clock_error(self, scale: Callable[[float], float]) -> float:
        """Return how far R on a scale may be off by the error of the clocks."""
        if self.rating is None or self.rating_range is None:
            return 0.0
        return max(abs(scale(end) - scale(self.rating)) for end in self.rating_range)


@dataclass(frozen=True)
class Calls:
    """So many calls at once."""

    forward: tuple[Heard, ...]
    reverse: tuple[Heard, ...]
    streams: tuple[Streamed, Streamed]

    @property
    def checks(self) -> tuple[Check, ...]:
        """Those of both directions."""
        return tuple(
            Check(
                f"{check.name}_sent_{way}",
                check.ok,
                f"{way}: {check.message}",
                check.value,
                check.limit,
                check.unit,
            )
            for way, one in zip(("forward", "reverse"), self.streams, strict=True)
            for check in one.checks
        )

    @property
    def ok(self) -> bool:
        """Whether every check passed and both directions left records."""
        return all(one.ok and one.joined for one in self.streams)

    @property
    def heard(self) -> tuple[Heard, ...]:
        """Both directions of all calls."""
        return self.forward + self.reverse

    @property
    def worst_mos(self) -> float | None:
        """Of both directions of all calls; None where one is not known."""
        return lowest([one.mos for one in self.heard])


def lowest(values: Sequence[float | None]) -> float | None:
    """Return the smallest; None if one of them is not known."""
    known = [value for value in values if value is not None]
    return min(known) if known and len(known) == len(values) else None


def run_calls(context: TrialContext, params: CallParams, calls: int) -> Calls:
    """Make so many calls at once, both ways; call k goes over path k modulo their number."""
    ways = ("forward", "reverse")

    def one(place: int, context: TrialContext) -> Streamed:
        flows = _flows(context, params, calls, ways[place])
        return run_streams(context, flows, drain_ns=params.drain, answer=False)

    forward, reverse = together(
        (context, turned(context)), one, failed=lambda streamed: not streamed.finished
    )
    return Calls(
        tuple(hear(flow, params, forward.clock_error_ns) for flow in forward.joined),
        tuple(hear(flow, params, reverse.clock_error_ns) for flow in reverse.joined),
        (forward, reverse),
    )


def hear(flow: Flow, params: CallParams, clock_error_ns: float = 0.0) -> Heard:
    """Return how one direction of a call sounds; pure.

    ``clock_error_ns``: all delays may be so far from the truth, the same way.
    """
    arrived, delays = flow.arrived, flow.owd_forward_ns
    if not arrived.any():
        dead = None if params.impairment is None else DEAD_RATING
        sure = None if dead is None or not clock_error_ns else (dead, dead)
        return Heard(len(arrived), len(arrived), 0, None, None, None, 1.0, None, dead, sure)
    seen = delays[arrived]
    smallest = int(seen.min())
    late = np.zeros(len(arrived), dtype=np.bool_)
    late[arrived] = seen - smallest > params.jitter_buffer
    missing = ~arrived | late
    ratio = float(missing.mean())
    burst_r = burst_ratio(missing)
    # A frame must be complete before it is sent, then it waits for slower ones.
    delay_ns = params.spec.frame_ns + params.spec.lookahead_ns + smallest + params.jitter_buffer
    r, possible = None, None
    # No packet arrives before it leaves: the ends have different clocks, and no delay is known.
    one_clock = smallest >= 0
    if params.impairment is not None and one_clock:
        ie, bpl = params.impairment
        least_ns = delay_ns - min(clock_error_ns, smallest)
        r, worst, best = (
            rating(call(ns / _MS, ratio, ie=ie, bpl=bpl, burst_r=burst_r))
            for ns in (delay_ns, delay_ns + clock_error_ns, least_ns)
        )
        possible = (worst, best) if clock_error_ns else None
    return Heard(
        sent=len(arrived),
        lost=int((~arrived).sum()),
        discarded=int(late.sum()),
        owd_min_ns=smallest if one_clock else None,
        owd_p50_ns=float(np.median(seen)) if one_clock else None,
        pdv_p99_ns=tail(seen - smallest, 99),
        burst_r=burst_r,
        mouth_to_ear_ns=float(delay_ns) if one_clock else None,
        rating=r,
        rating_range=possible,
    )


def burst_ratio(missing: npt.NDArray[np.bool_]) -> float:
    """Return BurstR (G.107 clause 7.5): mean burst of loss over that of random loss of the ratio.

    1 without loss and where all is lost; never below 1, for which the formula was not made.
    """
    ratio = float(missing.mean()) if len(missing) else 0.0
    if ratio in (0.0, 1.0):
        return 1.0
    bursts = int(missing[0]) + int((missing[1:] & ~missing[:-1]).sum())
    return max(1.0, float(missing.sum()) / bursts * (1 - ratio))


def missing_values(params: CallParams) -> str | None:
    """Return why the codec has no R, with the remedy, or None."""
    if params.impairment is not None:
        return None
    return (
        f"codec {params.codec} has no values in ITU-T G.113: give equipment_impairment and "
        "loss_robustness for R and MOS"
    )


def _flows(
    context: TrialContext, params: CallParams, calls: int, way: str
) -> Sequence[config.Flow]:
    gap_ns = params.spec.frame_ns
    paths = context.paths
    return [
        config.Flow(
            session=session,
            target=config.address(paths[number % len(paths)].server_address, context.first_port),
            listen=config.address(paths[number % len(paths)].server_listens, context.first_port),
            source=config.address(paths[number % len(paths)].client_address, 0),
            gap_ns=gap_ns,
            # Calls do not speak in step.
            start_offset_ns=gap_ns * number // calls,
            packets=params.packets(1),
            duration_ns=None,
            payload_bytes=params.payload,
            content={"type": "random"},
        )
        for number, session in enumerate(sessions(context.seed, f"calls/{way}", calls))
    ]
