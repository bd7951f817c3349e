"""What point-to-point links share: delay, queue, loss and variation, each direction on its own."""

from abc import abstractmethod
from dataclasses import replace
from itertools import pairwise
from typing import Annotated, ClassVar, Final, Literal, Self

from pydantic import Field, model_validator

from tunnelmark.engine.link import (
    Change,
    DelayVariation,
    Direction,
    HoldBack,
    LinkSpec,
    Loss,
    Queue,
    Trace,
)
from tunnelmark.links.base import Link
from tunnelmark.model.params import Params
from tunnelmark.model.quantity import DurationNs, RateBitS, Ratio, SizeBytes

ETHERNET_HEADER_BYTES: Final = 14
"""Of a frame as the emulator's queue counts it: addresses and type, no FCS."""
_MINUTE_NS: Final = 60 * 10**9

Delay = Annotated[DurationNs, Field(ge=0, le=_MINUTE_NS)]


class ChangeParams(Params):
    """What changes at a time; what is not given stays as it was."""

    at: Annotated[DurationNs, Field(ge=0)] = Field(description="time after the start of a trial")
    rate: RateBitS | None = Field(None, description="rate of both directions")
    delay: Delay | None = Field(None, description="propagation delay of both directions")
    loss_forward: Ratio | None = Field(None, description="share lost towards the server")
    loss_reverse: Ratio | None = Field(None, description="share lost towards the client")


class WireParams(Params):
    """What every point-to-point link has; ``*_reverse`` is as forward where it is not given."""

    delay: Delay = Field(0, description="propagation delay of each direction")
    delay_reverse: Delay | None = Field(None, description="propagation delay to the client")
    queue: Annotated[SizeBytes, Field(ge=590, le=1 << 30)] = Field(
        65536, description="drop-tail queue before each direction, in bytes on the link"
    )
    loss_forward: Ratio = Field(0.0, description="share of packets lost towards the server")
    loss_reverse: Ratio = Field(0.0, description="share of packets lost towards the client")
    loss_burst: Annotated[float, Field(ge=1, le=1000)] = Field(
        1.0,
        description="mean number of consecutive losses; above 1 the loss follows the "
        "Gilbert-Elliott model",
    )
    delay_variation: Delay = Field(
        0, description="random delay added to packets, by its distribution"
    )
    delay_distribution: Literal["uniform", "normal", "exponential"] = Field(
        "uniform", description="of the added delay: spread, sigma or mean is delay_variation"
    )
    reorder: bool = Field(
        default=False, description="whether packets with added delay may overtake others"
    )
    duplicate: Ratio = Field(0.0, description="share of packets duplicated, each direction")
    corrupt: Ratio = Field(0.0, description="share of packets with one bit flipped, each direction")
    hold_back: Ratio = Field(
        0.0,
        description="share of packets that are delayed by hold_back_by, so that others overtake "
        "them",
    )
    hold_back_by: Delay = Field(10_000_000, description="their extra delay")
    changes: Annotated[tuple[ChangeParams, ...], Field(max_length=1000)] = Field(
        (), description="new values, in order of time after the first traffic of each trial"
    )
    mtu: Annotated[int, Field(ge=576, le=9000)] = Field(1500, description="MTU in bytes")

    @model_validator(mode="after")
    def _possible(self) -> Self:
        for before, after in pairwise(self.changes):
            if after.at < before.at:
                raise ValueError(
                    f"changes: {after.at / 1e9:g} s comes after {before.at / 1e9:g} s, "
                    "must be in order of time"
                )
        frame_bytes = self.mtu + ETHERNET_HEADER_BYTES
        if self.queue < frame_bytes:
            raise ValueError(
                f"queue is {self.queue} bytes, must hold a frame of {frame_bytes} bytes"
            )
        # At most this share is lost if after every burst just one packet gets through.
        most = self.loss_burst / (self.loss_burst + 1)
        for name, loss in (
            ("loss_forward", self.loss_forward),
            ("loss_reverse", self.loss_reverse),
        ):
            if self.loss_burst > 1 and most < loss < 1:
                raise ValueError(
                    f"{name} is {loss:g}, must be at most {most:g} in bursts of "
                    f"{self.loss_burst:g} packets"
                )
        return self


class WireLink(Link):
    """Turns parameters into the emulator's specification."""

    frame_overhead_bytes: ClassVar[int]
    frame_min_bytes: ClassVar[int]
    params: WireParams

    @property
    def mtu_bytes(self) -> int:
        """MTU at both ends."""
        return self.params.mtu

    @abstractmethod
    def rates_bit_s(self) -> tuple[int | None, int | None]:
        """Return the rates forward and reverse; None where a trace stands for the rate."""

    def traces(self) -> tuple[Trace | None, Trace | None]:
        """Return the traces forward and reverse, for links that have them."""
        return None, None

    def spec(self, seed: int) -> LinkSpec:
        """Return what the emulator is to do."""
        forward_rate, reverse_rate = self.rates_bit_s()
        params = self.params
        forward_trace, reverse_trace = self.traces()
        back = params.delay if params.delay_reverse is None else params.delay_reverse
        return LinkSpec(
            replace(
                self._direction(forward_rate, params.delay, params.loss_forward),
                changes=tuple(self._change(one, one.loss_forward) for one in params.changes),
                trace=forward_trace,
            ),
            replace(
                self._direction(reverse_rate, back, params.loss_reverse),
                changes=tuple(self._change(one, one.loss_reverse) for one in params.changes),
                trace=reverse_trace,
            ),
            seed,
        )

    def _change(self, change: ChangeParams, loss: float | None) -> Change:
        return Change(
            at_ns=change.at,
            rate_bit_s=change.rate,
            delay_ns=change.delay,
            loss=None if loss is None else _loss(loss, self.params.loss_burst),
        )

    def _direction(self, rate_bit_s: int | None, delay_ns: int, loss: float) -> Direction:
        params = self.params
        variation = (
            DelayVariation(params.delay_distribution, params.delay_variation)
            if params.delay_variation
            else DelayVariation()
        )
        return Direction(
            rate_bit_s=rate_bit_s,
            delay_ns=delay_ns,
            queue=Queue("bytes", params.queue),
            frame_overhead_bytes=self.frame_overhead_bytes,
            frame_min_bytes=self.frame_min_bytes,
            loss=_loss(loss, params.loss_burst),
            delay_variation=variation,
            reorder=params.reorder,
            duplicate=params.duplicate,
            corrupt=params.corrupt,
            hold_back=HoldBack(params.hold_back, params.hold_back_by),
        )


def _loss(ratio: float, burst: float) -> Loss:
    if ratio == 0:
        return Loss()
    if burst <= 1:
        return Loss("independent", probability=ratio)
    # Gilbert's model with loss 1 in the bad state: mean burst 1/r, stationary loss p/(p+r).
    back = 1 / burst
    return Loss(
        "gilbert_elliott",
        good_to_bad=back * ratio / (1 - ratio) if ratio < 1 else 1.0,
        bad_to_good=back if ratio < 1 else 0.0,
        loss_good=0.0,
        loss_bad=1.0,
    )
