"""Packet streams of one trial: planned over the paths, run by the engine, judged."""

import dataclasses
import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property
from typing import Final, Literal

from tunnelmark.engine import config, records
from tunnelmark.engine.summary import ReflectSummary, SendFlow, SendSummary, plain
from tunnelmark.engine.traffic import PacketRate
from tunnelmark.model.trial import Measurement
from tunnelmark.model.tunnel import Endpoint
from tunnelmark.model.validity import Check
from tunnelmark.workloads.base import Outcome, TrialContext
from tunnelmark.workloads.echo_evidence import evidence
from tunnelmark.workloads.echo_exchange import Exchange, Exchanged
from tunnelmark.workloads.per_second import goodput_seconds

Content = Literal["zero", "random", "repeat", "compressible"]
Load = Literal["each", "spread"]

_PATTERN: Final = b"tunnelmark "
_MOST_IN_A_RATE: Final = 10**9
_LONGEST_OF_A_RATE_NS: Final = 24 * 3600 * 10**9
"""What the engine accepts as a packet rate (crates/engine/src/flow.rs)."""


def plan(
    context: TrialContext,
    *,
    name: str,
    gap_ns: int | Fraction,
    packets: int,
    payload_bytes: int,
    content: dict[str, object],
    load: Load,
) -> list[config.Flow]:
    """Return one flow for each path; sessions and keys come from the trial's seed and ``name``.

    A gap that is no whole number of nanoseconds is kept on average: packets have the exact rate.
    Spread: packet k of the stream belongs to path k modulo n, so the paths take turns. Each: every
    path has the whole stream, and they start one after the other within a gap.
    """
    paths = context.paths
    count = len(paths)
    spread = load == "spread"
    own_gap_ns = gap_ns * count if spread else gap_ns
    flows = []
    for number, (path, session) in enumerate(
        zip(paths, sessions(context.seed, name, count), strict=True)
    ):
        share, rest = divmod(packets, count)
        flows.append(
            config.Flow(
                session=session,
                target=config.address(path.server_address, context.first_port),
                listen=config.address(path.server_listens, context.first_port),
                source=config.address(path.client_address, 0),
                netns=_netns(path.client),
                target_netns=_netns(path.server),
                gap_ns=max(1, round(own_gap_ns)),
                schedule=_exact(own_gap_ns),
                start_offset_ns=gap_ns * number // (1 if spread else count),
                packets=share + (number < rest) if spread else packets,
                duration_ns=None,
                payload_bytes=payload_bytes,
                content=content,
            )
        )
    return flows


def _exact(gap_ns: int | Fraction) -> PacketRate | None:
    """Return the schedule with such a gap on average; None for whole nanoseconds: a fixed gap."""
    if gap_ns.denominator == 1:
        return None
    # As many packets in as long a time as the engine takes.
    most = min(_MOST_IN_A_RATE, _LONGEST_OF_A_RATE_NS // math.ceil(gap_ns))
    near = Fraction(gap_ns).limit_denominator(max(1, most))
    return PacketRate(near.denominator, per_ns=near.numerator)


def sessions(seed: int, name: str, count: int) -> list[config.Session]:
    """Return the sessions and keys of the flows that ``name`` stands for in a trial."""
    return config.sessions(random.Random(f"{seed}/{name}/sessions"), count)  # noqa: S311 - a lab


def content_json(content: Content, compressible_share: float) -> dict[str, object]:
    """Return what fills the payload as the engine reads it."""
    if content == "repeat":
        return {"type": "repeat", "pattern": _PATTERN.hex()}
    if content == "compressible":
        return {"type": "compressible", "ratio": compressible_share}
    return {"type": content}


def turned(context: TrialContext) -> TrialContext:
    """Return the context in which the server sends and the client replies."""
    return dataclasses.replace(
        context,
        client=context.server,
        server=context.client,
        paths=tuple(path.turned() for path in context.paths),
        sample_stem=context.sample_stem + records.TURNED,
    )


@dataclass(frozen=True)
class Streamed:
    """What came of the streams; ``joined`` and ``reported`` are empty when there are no records."""

    checks: tuple[Check, ...]
    joined: tuple[records.Flow, ...] = ()
    """Flow by flow, as the one waiting time of the trial sees them."""
    reported: tuple[SendFlow, ...] = ()
    """What the sender counted, flow by flow as in ``joined``."""
    measuring_s: float = 0.0
    counted: Mapping[str, object] = field(default_factory=dict)
    """What both ends counted; empty where there are no records."""
    samples: tuple[str, ...] = ()
    apart_ns: int | None = None
    """As of ``Outcome``."""
    clock_error_ns: float = 0.0
    """So far each one-way delay may be from the truth, all of them the same way."""
    one_clock: bool = True
    """Whether both ends have one clock, or times of ``joined`` were brought to one."""

    @cached_property
    def details(self) -> Mapping[str, object]:
        """What both ends counted, and goodput by second, for the trial's details."""
        if not self.counted:
            return {}
        return {
            **self.counted,
            "within_wait": {
                "sent": sum(len(flow.sent_ns) for flow in self.joined),
                "received": sum(int(flow.arrived.sum()) for flow in self.joined),
                "answered": sum(int(flow.answered.sum()) for flow in self.joined),
                "returned": sum(int(flow.returned.sum()) for flow in self.joined),
            },
            "goodput_seconds_bit_s": goodput_seconds(self.joined, one_clock=self.one_clock),
        }

    @property
    def ok(self) -> bool:
        """Whether every check passed."""
        return all(check.ok for check in self.checks)

    @property
    def finished(self) -> bool:
        """Whether sender and receiver finished."""
        return bool(self.joined) and self.checks[0].ok

    @property
    def delivered_packets(self) -> int:
        """Packets that came to the far end, and replies that came back."""
        return sum(int(flow.arrived.sum() + flow.returned.sum()) for flow in self.joined)

    @property
    def delivered_bytes(self) -> int:
        """Payload of the same."""
        return sum(flow.arrived_bytes + flow.returned_bytes for flow in self.joined)

    def outcome(
        self,
        paths: Sequence[str],
        total: Sequence[Mapping[str, float | None]],
        by_path: Sequence[Mapping[str, float | None]],
    ) -> Outcome:
        """Return the trial's outcome: one total (or none), then the paths by name."""
        return Outcome(
            (
                *(Measurement("total", metrics) for metrics in total),
                *(
                    Measurement(name, metrics)
                    for name, metrics in zip(paths, by_path, strict=False)
                ),
            ),
            self.checks,
            self.delivered_bytes,
            self.delivered_packets,
            self.measuring_s,
            details=self.details,
            samples=self.samples,
            apart_ns=self.apart_ns,
        )


def run_streams(
    context: TrialContext,
    flows: Sequence[config.Flow],
    *,
    drain_ns: int,
    late_ns: int | None = None,
    answer: bool = True,
    segment: bool = False,
    apart_ns: int | None = None,
) -> Streamed:
    """Run the flows to their end; a process that dies is a failed check, never an exception.

    ``drain_ns`` is the waiting time of every packet: what comes later is lost. A reply after
    ``late_ns``, the same if None, is late. ``apart_ns`` as of ``Outcome``.
    """
    late_ns = drain_ns if late_ns is None else late_ns
    drain_ns = max(drain_ns, late_ns)
    with Exchange(
        context, flows, drain_ns=drain_ns, late_ns=late_ns, answer=answer, segment=segment
    ) as exchange:
        found = exchange.run()
    alive = Check(
        "processes",
        ok=not found.problems,
        message="; ".join(found.problems) or "sender and reflector finished",
    )
    return _judged(context, flows, found, alive, drain_ns=drain_ns, apart_ns=apart_ns)


def _judged(
    context: TrialContext,
    flows: Sequence[config.Flow],
    found: Exchanged,
    alive: Check,
    *,
    drain_ns: int,
    apart_ns: int | None,
) -> Streamed:
    sent, send, reflect = found.sent, found.send, found.reflect
    if sent is None or send is None or reflect is None:
        return Streamed((alive,))
    reported = {flow.flow: flow for flow in sent.flows}
    if set(reported) != {flow.session.flow for flow in flows}:
        message = f"the sender reports flows {sorted(reported)}, {len(flows)} were requested"
        return Streamed((alive, Check("flows", ok=False, message=message)))
    recorded = records.join_all(send, reflect, [flow.session.flow for flow in flows])
    timed, one_clock, error_ns = recorded, context.one_clock, 0.0
    if context.to_one_clock is not None and not context.is_background:
        shifted = context.to_one_clock(context.client, recorded)
        if shifted is not None:
            timed, one_clock, error_ns = shifted.flows, True, shifted.error_ns
    joined = tuple(flow.within(drain_ns, one_clock=one_clock) for flow in timed)
    shortest_gap_ns = min(flow.gap_ns for flow in flows)
    limit_ns = max(int(shortest_gap_ns * context.lateness_gap_ratio), context.lateness_floor_ns)
    return Streamed(
        (
            alive,
            *evidence(
                sent,
                found.reflected,
                recorded,
                late_limit_ns=limit_ns,
                apart_ns=apart_ns,
                receive_time=context.receive_time,
                emulated=context.emulated,
            ),
        ),
        joined,
        tuple(reported[flow.session.flow] for flow in flows),
        under_way_s(joined, sum(flow.gap_ns for flow in flows) / len(flows) ** 2, drain_ns),
        counted=_counted(sent, found.reflected),
        samples=found.samples,
        apart_ns=apart_ns,
        clock_error_ns=error_ns,
        one_clock=one_clock,
    )


def under_way_s(joined: Sequence[records.Flow], gap_ns: float, drain_ns: int) -> float:
    """Return how long traffic was under way: while it was offered, and until the last packet came.

    The last packet offered has its gap too. What overloads a tunnel is worked off behind that, for
    as long as is waited (``drain_ns``): who divides the CPU time of a trial by the time in which
    packets were offered finds more than there is.
    """
    flows = [flow for flow in joined if len(flow.sent_ns)]
    if not flows:
        return 0.0
    first = min(int(flow.sent_ns.min()) for flow in flows)
    offered = max(int(flow.sent_ns.max()) for flow in flows) - first + gap_ns
    last = max(_last_ns(flow) for flow in flows) - first
    return min(max(offered, last), offered + drain_ns) / 1e9


def _last_ns(flow: records.Flow) -> int:
    """Return when the last packet of a flow was seen, on the sender's clock."""
    last = int(flow.sent_ns.max())
    if flow.returned.any():
        last = max(last, int(flow.returned_ns[flow.returned].max()))
    elif flow.arrived.any():
        # The far end may have a clock of its own.
        last = max(last, int(flow.arrived_ns.max()) - flow.quickest_ns)
    return last


def _counted(sent: SendSummary, reflected: ReflectSummary | None) -> dict[str, object]:
    return {
        "send": plain(sent),
        "reflect": plain(reflected),
    }


def _netns(end: Endpoint | None) -> str | None:
    return None if end is None else end.netns
