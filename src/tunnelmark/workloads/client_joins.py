"""Clients that join a gateway while others carry traffic: how long each takes, what others see."""

import dataclasses
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from typing import Annotated, ClassVar, Final, Self

from pydantic import Field, model_validator

from tunnelmark.model.errors import TunnelmarkError
from tunnelmark.model.faults import UnwritableError
from tunnelmark.model.params import Params
from tunnelmark.model.quantity import DurationNs
from tunnelmark.model.set_up import Joining, SetUp
from tunnelmark.model.trial import Measurement, Progress
from tunnelmark.model.validity import Check
from tunnelmark.workloads.background import START_LIMIT_S
from tunnelmark.workloads.base import Outcome, TrialContext, Workload
from tunnelmark.workloads.phases import added, echo, joined
from tunnelmark.workloads.set_up_figures import LONGEST_LIMIT_NS, failures, figures, withheld
from tunnelmark.workloads.udp_echo import LONGEST_NS, SMALLEST_PAYLOAD_BYTES

_S: Final = 10**9
_COMPARED: Final = ("rtt_p50_ns", "rtt_p99_ns")
_LOSSES: Final = ("loss_forward_ratio", "loss_reverse_ratio")
_START_S: Final = 2.0
_LONGEST_START_NS: Final = _S
"""A client's programs have started after that."""


class ClientJoinsParams(Params):
    """How many clients join, how fast one after the other, and what the others send."""

    joining: Annotated[int, Field(ge=1, le=199)] = Field(
        5, description="clients that leave and join again, the last ones; the others stay"
    )
    gap: Annotated[DurationNs, Field(ge=10**7, le=60 * _S)] = Field(
        _S, description="time from the start of one client to the start of the next"
    )
    limit: Annotated[DurationNs, Field(ge=_S, le=LONGEST_LIMIT_NS)] = Field(
        LONGEST_LIMIT_NS, description="time after which a client has failed to join"
    )
    before: Annotated[DurationNs, Field(ge=10**8, le=600 * _S)] = Field(
        5 * _S, description="how long the clients that stay are measured before any joins"
    )
    packet_gap: Annotated[DurationNs, Field(ge=10**5, le=10 * _S)] = Field(
        20_000_000,
        description="time from packet to packet of each client that stays; a 99th percentile "
        "needs 300 packets of all of them before any joins, and as many while they do",
    )
    payload_bytes: Annotated[int, Field(ge=SMALLEST_PAYLOAD_BYTES, le=1400)] = Field(
        200, description="UDP payload of each of these packets"
    )

    @model_validator(mode="after")
    def _no_longer_than_an_echo(self) -> Self:
        if self.longest_ns > LONGEST_NS:
            raise ValueError(
                f"joining is {self.joining} and gap is {self.gap / 1e9:g} s, so clients may join "
                f"for {self.longest_ns / 1e9:g} s, at most {LONGEST_NS / 1e9:g} s: lower one of "
                "them"
            )
        return self

    @property
    def longest_ns(self) -> int:
        """How long the second echo lasts at most; it ends when all have joined."""
        starts_ns = self.joining * (self.gap + _LONGEST_START_NS)
        return starts_ns + self.limit + int(START_LIMIT_S * 1e9)


class ClientJoins(Workload):
    """An echo of the clients that stay: first alone, then while the others join."""

    kind: ClassVar[str] = "client_joins"
    title: ClassVar[str] = "Clients that join"
    params_type: ClassVar[type[Params]] = ClientJoinsParams
    may_be_background: ClassVar[bool] = False
    many_clients: ClassVar[bool] = True
    metrics: ClassVar[tuple[str, ...]] = (
        "setup_p50_ns",
        "setup_p95_ns",
        "setup_max_ns",
        "setup_failed_ratio",
        "joins_s",
        "join_added_p99_ns",
        "join_added_p50_ns",
        *(f"{state}_{name}" for state in ("before", "joining") for name in _COMPARED),
        *_LOSSES,
    )
    params: ClientJoinsParams

    def withheld(self, metric: str, paths: int = 1) -> str | None:  # noqa: ARG002 - see base
        """Return that too few clients join for the percentile, or None."""
        return withheld(metric, "joining", self.params.joining)

    @property
    def joining(self) -> int:
        """The last clients of the gateway."""
        return self.params.joining

    @property
    def expected_s(self) -> float:
        """The echo before, and the starts one after the other."""
        params = self.params
        return (params.before + params.joining * params.gap) / 1e9 + 2 * _START_S

    def run(self, context: TrialContext) -> Outcome:
        """Run one trial."""
        if context.joining is None or len(context.paths) <= self.params.joining:
            failed = Check("joins", ok=False, message="nothing here lets clients leave and join")
            return Outcome((), (failed,), 0, 0, 0.0)
        staying = len(context.paths) - self.params.joining
        numbers = range(staying, len(context.paths))
        others = dataclasses.replace(context, paths=context.paths[:staying])
        try:
            for number in numbers:
                context.joining.leave(number)
            before = self._echo(others, "before", self.params.before)
            if not before.measurements:
                return before
            while_joining, found = self._beside(others, context.joining, numbers)
        except UnwritableError:
            raise
        except TunnelmarkError as error:
            # Not of the joining: a client did not start, or is not what was asked for.
            broken = Check("joins", ok=False, message=str(error))
            return Outcome((), (broken,), 0, 0, 0.0)
        if not while_joining.measurements:
            return while_joining
        return self._both(before, while_joining, found)

    def _beside(
        self, others: TrialContext, joining: Joining, numbers: Sequence[int]
    ) -> tuple[Outcome, "_Joined"]:
        """Let clients join while the others' echo goes on."""
        begun, over = threading.Event(), threading.Event()
        own = dataclasses.replace(
            others, progress=lambda _progress: begun.set(), enough=over.is_set
        )
        with ThreadPoolExecutor(max_workers=1) as pool:
            echoing = pool.submit(self._echo, own, "joining", self.params.longest_ns)
            echoing.add_done_callback(lambda _done: begun.set())
            try:
                if not begun.wait(START_LIMIT_S):
                    raise TunnelmarkError(f"no packet was sent within {START_LIMIT_S:g} s")
                if echoing.done():
                    raise TunnelmarkError(_over_early(echoing.result()))
                found = self._join(others, joining, numbers)
            finally:
                over.set()
        return echoing.result(), found

    def _join(self, context: TrialContext, joining: Joining, numbers: Sequence[int]) -> "_Joined":
        """Start one client after the other; each is waited for beside the next ones' starts."""
        limit_s, gap_s = self.params.limit / 1e9, self.params.gap / 1e9
        late_s, begun_s = 0.0, time.monotonic()
        with ThreadPoolExecutor(max_workers=len(numbers)) as pool:
            waiting = []
            for place, number in enumerate(numbers):
                due_s = begun_s + place * gap_s
                time.sleep(max(0.0, due_s - time.monotonic()))
                if context.cancelled():
                    break
                late_s = max(late_s, time.monotonic() - due_s)
                # Started on this thread: a process ends with the thread that started it.
                waiting.append(pool.submit(_waited, joining.join(number, limit_s)))
                context.progress(Progress(len(waiting) / len(numbers), {}))
            done = [future.result() for future in waiting]
        if not done:
            raise TunnelmarkError("the trial ended before a client joined")
        # One that was given up at its limit joined at no time, but while it was started others had
        # joined that came no faster.
        ends_s = [at_s for one, at_s in done if one.took_ns is not None]
        last_start_s = (len(done) - 1) * gap_s
        lasted_s = max(last_start_s, max(ends_s, default=begun_s) - begun_s)
        return _Joined(tuple(one for one, _ in done), late_s, lasted_s)

    def _echo(self, context: TrialContext, phase: str, duration_ns: int) -> Outcome:
        return echo(
            context,
            phase,
            gap_ns=self.params.packet_gap,
            payload_bytes=self.params.payload_bytes,
            duration_ns=duration_ns,
        )

    def _both(self, before: Outcome, while_joining: Outcome, found: "_Joined") -> Outcome:
        first, second = (
            next(m.metrics for m in one.measurements if m.path == "total")
            for one in (before, while_joining)
        )
        came = sum(one.took_ns is not None for one in found.set_ups)
        metrics: dict[str, float | None] = {
            # The link carries the others' packets, too: a handshake's cannot be counted.
            **{k: v for k, v in figures(found.set_ups).items() if k in self.metrics},
            "joins_s": came / found.lasted_s if came else 0.0,
            "join_added_p50_ns": added(first, second, "rtt_p50_ns"),
            "join_added_p99_ns": added(first, second, "rtt_p99_ns"),
            **{f"before_{name}": first.get(name) for name in _COMPARED},
            **{f"joining_{name}": second.get(name) for name in _COMPARED},
            **{name: second.get(name) for name in _LOSSES},
        }
        both = joined(
            before, while_joining, name="before", measurements=[Measurement("total", metrics)]
        )
        return dataclasses.replace(
            both,
            checks=(
                *both.checks,
                failures(found.set_ups, self.params.limit),
                self._on_time(found.late_s),
            ),
            details={**both.details, "set_ups": [asdict(one) for one in found.set_ups]},
        )

    def _on_time(self, late_s: float) -> Check:
        """Judge whether clients came as fast as the study asks for."""
        gap_s = self.params.gap / 1e9
        return Check(
            "joins_on_time",
            ok=late_s <= gap_s,
            message=f"the start of a client was up to {late_s:.3f} s late; the limit is the gap, "
            f"{gap_s:g} s",
            value=late_s,
            limit=gap_s,
            unit="s",
        )


def _over_early(echo: Outcome) -> str:
    """Say why nobody is let join: without the echo there is nothing to measure."""
    failed = "; ".join(check.message for check in echo.checks if not check.ok)
    words = "the echo of the clients that stay ended before any joined"
    return f"{words}: {failed}" if failed else words


def _waited(wait: Callable[[], SetUp]) -> tuple[SetUp, float]:
    """Return what came of a client, and when that was."""
    return wait(), time.monotonic()


@dataclass(frozen=True)
class _Joined:
    """What came of clients that were to join."""

    set_ups: tuple[SetUp, ...]
    late_s: float
    """So long at most a start came after its time."""
    lasted_s: float
    """From the first start to the last one, or until the last of those that joined had."""
