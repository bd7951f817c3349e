"""Set-ups of the tunnel itself: how long each took, what it sent, how many failed."""

from collections.abc import Sequence
from dataclasses import asdict
from typing import Annotated, ClassVar, Final

from pydantic import Field

from tunnelmark.model.errors import TunnelmarkError
from tunnelmark.model.faults import UnwritableError
from tunnelmark.model.params import Params
from tunnelmark.model.quantity import DurationNs
from tunnelmark.model.set_up import SetUp
from tunnelmark.model.trial import Measurement, Progress
from tunnelmark.model.validity import Check
from tunnelmark.workloads.base import Outcome, TrialContext, Workload
from tunnelmark.workloads.set_up_figures import LONGEST_LIMIT_NS, failures, figures, withheld

_USUAL_S: Final = 1.5
"""Of one set-up with the start of its server."""


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

    def withheld(self, metric: str, paths: int = 1) -> str | None:  # noqa: ARG002 - see base
        """Return that there are too few set-ups for the percentile, or None."""
        return withheld(metric, "set_ups", self.params.set_ups)

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
        except UnwritableError:
            raise
        except TunnelmarkError as error:
            # Not of the handshake: the server did not start, or is not what was asked for.
            broken = Check("set_ups", ok=False, message=f"set-up {len(found) + 1}: {error}")
            return Outcome((), (broken,), 0, 0, 0.0)
        if not found:
            nothing = Check("set_ups", ok=False, message="the trial ended before its first set-up")
            return Outcome((), (nothing,), 0, 0, 0.0)
        return Outcome(
            (Measurement("total", figures(found)),),
            (failures(found, self.params.limit),),
            payload_bytes=0,
            payload_packets=0,
            measuring_s=sum(one.took_ns or self.params.limit for one in found) / 1e9,
            details={"set_ups": [asdict(one) for one in found]},
        )


def _figures_now(found: Sequence[SetUp]) -> dict[str, float]:
    reported = {name: figures(found)[name] for name in ("setup_p50_ns", "setup_failed_ratio")}
    return {name: value for name, value in reported.items() if value is not None}
