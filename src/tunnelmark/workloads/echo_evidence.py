"""Whether an echo trial measured what it says, from both summaries and all records; pure."""

from collections.abc import Sequence
from typing import Final

from tunnelmark.engine.config import ReceiveTime
from tunnelmark.engine.records import Flow
from tunnelmark.engine.summary import Histogram, ReflectSummary, SendSummary
from tunnelmark.model.lateness import Late, lateness_checks
from tunnelmark.model.validity import Check

INSTRUMENT_LIMITS: Final = frozenset(
    {"sender_lateness", "reply_lateness", "all_sent", "receiver_overrun", "realtime"}
)
"""Checks that fail where a load is more than the sender or the receiver of ours can do."""


def evidence(
    sent: SendSummary,
    reflected: ReflectSummary | None,
    joined: Sequence[Flow],
    *,
    late_limit_ns: int,
    apart_ns: int | None = None,
    receive_time: ReceiveTime = "kernel",
    emulated: bool = False,
) -> tuple[Check, ...]:
    """Return the checks of one trial; ``reflected`` is None if the reflector was killed.

    ``apart_ns`` as of ``lateness_checks``.
    """
    packets = [flow.lateness_ns for flow in sent.flows]
    # Replies that leave late leave in bursts, or when nobody waits for them any more.
    replies = [reflected.residence_ns] if reflected else []
    return (
        *_lateness("sender_lateness", "the packets", packets, late_limit_ns, apart_ns),
        *_lateness("reply_lateness", "the replies", replies, late_limit_ns, apart_ns),
        _all_sent(sent),
        _forward(sent, reflected, joined),
        _reverse(sent, reflected, joined),
        _overrun(sent, reflected),
        _strangers(sent, reflected),
        _realtime(sent, reflected, emulated),
        _timestamps(sent, reflected, receive_time),
        _negative(joined),
    )


def _lateness(
    name: str, what: str, seen: Sequence[Histogram | None], limit_ns: int, apart_ns: int | None
) -> tuple[Check, ...]:
    late = [Late(one.p90, one.tail) for one in seen if one]
    return lateness_checks(name, (what, "left"), late, limit_ns=limit_ns, apart_ns=apart_ns)


def _all_sent(sent: SendSummary) -> Check:
    due = sum(flow.due for flow in sent.flows)
    left = sum(flow.sent for flow in sent.flows)
    return Check(
        "all_sent",
        ok=due == left > 0,
        message=f"{left} of {due} packets that were due were sent",
        value=float(left),
        limit=float(due),
        unit="packet",
    )


def _forward(sent: SendSummary, reflected: ReflectSummary | None, joined: Sequence[Flow]) -> Check:
    """Sent = reached the reflector + lost on the way, and both ends count the same."""
    left = sum(flow.sent for flow in sent.flows)
    recorded = sum(len(flow.sent_ns) for flow in joined)
    arrived = sum(int(flow.arrived.sum()) for flow in joined)
    counted = None if reflected is None else sum(flow.received for flow in reflected.flows)
    return Check(
        "conservation_forward",
        ok=recorded == left and counted == arrived <= left,
        message=f"sent {left} (recorded {recorded}) = reached the reflector {arrived} "
        f"({_reported(counted)}) + lost {left - arrived}",
    )


def _reverse(sent: SendSummary, reflected: ReflectSummary | None, joined: Sequence[Flow]) -> Check:
    """Answered = came back + lost on the way; nothing comes back that was not answered."""
    answered = sum(int(flow.answered.sum()) for flow in joined)
    returned = sum(int(flow.returned.sum()) for flow in joined)
    ghosts = sum(int((flow.returned & ~flow.answered).sum()) for flow in joined)
    counted = sum(flow.returned + flow.late for flow in sent.flows)
    answers = None if reflected is None else sum(flow.answered for flow in reflected.flows)
    copies = 0 if reflected is None else sum(flow.duplicates for flow in reflected.flows)
    # A test packet that arrived twice is answered twice, and is one record.
    agreed = answers is not None and answered <= answers <= answered + copies
    return Check(
        "conservation_reverse",
        ok=agreed and ghosts == 0 and returned == counted <= answered,
        message=f"reflected {answered} ({_reported(answers)}) = came back {returned} "
        f"(counted {counted}) + lost {answered - returned}; "
        f"{ghosts} came back that were not reflected",
    )


def _overrun(sent: SendSummary, reflected: ReflectSummary | None) -> Check:
    counts = [flow.overrun for flow in sent.flows]
    counts += [] if reflected is None else [reflected.overrun]
    if None in counts:
        message = "the system of a receiver does not count packets dropped at a full receive buffer"
        return Check("receiver_overrun", ok=False, message=message)
    count = sum(one or 0 for one in counts)
    return Check(
        "receiver_overrun",
        ok=count == 0,
        message=f"the kernel dropped {count} packets at a full receive buffer of ours",
        value=float(count),
        limit=0.0,
        unit="packet",
    )


def _strangers(sent: SendSummary, reflected: ReflectSummary | None) -> Check:
    """Packets with a wrong tag came from somebody else, or were changed on the way."""
    count = sum(flow.rejected for flow in sent.flows)
    count += 0 if reflected is None else reflected.rejected
    return Check(
        "foreign_packets",
        ok=count == 0,
        message=f"{count} packets arrived that no sender of this trial sent",
        value=float(count),
        limit=0.0,
        unit="packet",
    )


def _realtime(sent: SendSummary, reflected: ReflectSummary | None, emulated: bool) -> Check:
    """Judge the priority: a thread that never rests gives it back, and others come before it.

    On an emulated CPU a thread seems never to rest when the host holds the machine up, so there
    lateness alone is judged.
    """
    ends = {"sender": sent.realtime} | ({"reflector": reflected.realtime} if reflected else {})
    lost = [name for name, fate in ends.items() if fate == "lost"]
    return Check(
        "realtime",
        ok=not lost or emulated,
        message=f"the {' and the '.join(lost)} used all of a core and lost real-time priority"
        if lost
        else "real-time priority: " + ", ".join(f"{name} {fate}" for name, fate in ends.items()),
    )


def _timestamps(sent: SendSummary, reflected: ReflectSummary | None, wanted: ReceiveTime) -> Check:
    """Judge arrivals: one without the time requested would be timed otherwise."""
    ends = {"sender": sent.timestamps} | ({"reflector": reflected.timestamps} if reflected else {})
    # Who received nothing has no packet that lacks one.
    quiet = {
        "sender": not any(flow.returned + flow.late for flow in sent.flows),
        "reflector": reflected is None or not any(flow.received for flow in reflected.flows),
    }
    wrong = [name for name, seen in ends.items() if seen != wanted and not quiet[name]]
    return Check(
        "timestamps",
        ok=not wrong,
        message=f"arrivals at the {' and the '.join(wrong)} lack the {wanted} time"
        if wrong
        else f"all arrivals are by {wanted} time",
    )


def _negative(joined: Sequence[Flow]) -> Check:
    """Judge round trips: one that is shorter than nothing was measured wrong."""
    count = sum(int((flow.rtt_ns < 0).sum()) for flow in joined)
    return Check(
        "negative_delays",
        ok=count == 0,
        message=f"{count} round trips were below zero",
        value=float(count),
        limit=0.0,
        unit="packet",
    )


def _reported(count: int | None) -> str:
    return "it was killed before it could count" if count is None else f"it counted {count}"
