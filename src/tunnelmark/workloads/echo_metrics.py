"""The figures of an echo flow from the record of every packet; pure functions.

All flows are those of one waiting time (``Flow.within``): what came later is lost.
"""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from tunnelmark.engine.records import Flow
from tunnelmark.engine.summary import SendFlow
from tunnelmark.workloads.quantiles import quantile, tail

_Times = npt.NDArray[np.int64]


def flow_metrics(flow: Flow, reported: SendFlow) -> dict[str, float | None]:
    """Return the metrics of one flow; ``reported`` is its entry in the sender's summary."""
    return total_metrics([flow], [reported])


def total_metrics(
    flows: Sequence[Flow], reported: Sequence[SendFlow], *, variation: bool = True
) -> dict[str, float | None]:
    """Return the metrics of all flows together: rates add up, delays are pooled.

    Without ``variation`` there is no IPDV and no PDV, which take as long as all others.
    """
    sent = sum(len(flow.sent_ns) for flow in flows)
    arrived = sum(int(flow.arrived.sum()) for flow in flows)
    answered = sum(int(flow.answered.sum()) for flow in flows)
    returned = sum(int(flow.returned.sum()) for flow in flows)
    late = sum(int((flow.returned & flow.late).sum()) for flow in flows)
    rtt = _all([flow.rtt_ns for flow in flows])
    forward = _all([flow.delays_ns for flow in flows])
    reverse = _all([_back(flow) for flow in flows])
    offered_s = _offered_s(flows)
    sent_bytes = sum(int(flow.size.sum()) for flow in flows)
    there = sum(flow.arrived_bytes for flow in flows)
    back = sum(flow.returned_bytes for flow in flows)
    return {
        "goodput_bit_s": rate(8 * there, flows, "arrived"),
        "goodput_echo_bit_s": rate(8 * back, flows, "returned"),
        "sent_load_bit_s": 8 * sent_bytes / offered_s if offered_s else None,
        "loss_forward_ratio": _share(sent - arrived, sent),
        "loss_reverse_ratio": _share(answered - returned, answered),
        "unanswered_ratio": _share(sent - len(rtt), sent),
        "rtt_min_ns": quantile(rtt, 0),
        "rtt_p50_ns": quantile(rtt, 50),
        "rtt_p99_ns": tail(rtt, 99),
        "owd_forward_p50_ns": quantile(one_clock(forward), 50),
        "owd_reverse_p50_ns": quantile(one_clock(reverse), 50),
        **(_variation(flows) if variation else {}),
        "duplicates_ratio": _share(sum(flow.duplicates for flow in reported), returned),
        "reordered_ratio": _share(sum(flow.reordered for flow in reported), returned),
        "late_ratio": _share(late, sent),
        "receiver_overrun_ratio": _overrun(reported, sent),
    }


def _variation(flows: Sequence[Flow]) -> dict[str, float | None]:
    return {
        "ipdv_p50_ns": quantile(_all([_ipdv(flow) for flow in flows]), 50, spent=True),
        "pdv_p99_ns": tail(_all([_pdv(flow) for flow in flows]), 99, spent=True),
    }


def _overrun(reported: Sequence[SendFlow], sent: int) -> float | None:
    """None where the system does not count."""
    counts = [flow.overrun for flow in reported]
    return None if None in counts else _share(sum(one or 0 for one in counts), sent)


def rate(amount: float, flows: Sequence[Flow], came: str) -> float | None:
    """Return ``amount`` that came (``arrived`` or ``returned``) per second.

    The time is that in which packets were offered, and as much of the wait behind it as they still
    came in, above the smallest delay: a queue that is worked off afterwards does not flatter, and
    few arrivals close together are no high rate. 0 when nothing came of what was sent; None where
    nothing was sent, or a single packet, which has no rate.
    """
    if not any(len(flow.sent_ns) for flow in flows):
        return None
    if amount == 0:
        return 0.0
    offered_s = _offered_s(flows)
    return None if offered_s is None else amount / max(offered_s, _last_s(flows, came))


def one_clock(delays: _Times) -> _Times:
    """Return the one-way delays, or none of them where one is below zero.

    No packet arrives before it leaves: then the ends have different clocks.
    """
    return delays[:0] if len(delays) and int(delays.min()) < 0 else delays


def sent_rate(flows: Sequence[Flow]) -> float | None:
    """Return packets sent per second of the time in which they were offered."""
    offered_s = _offered_s(flows)
    return sum(len(flow.sent_ns) for flow in flows) / offered_s if offered_s else None


def _offered_s(flows: Sequence[Flow]) -> float | None:
    """Return the time from the first packet to the last, and one mean gap for the last."""
    times = _all([flow.sent_ns for flow in flows])
    if len(times) < 2:  # noqa: PLR2004 - a single packet has no gap
        return None
    span_ns = int(times.max() - times.min())
    return span_ns / 1e9 * len(times) / (len(times) - 1) if span_ns > 0 else None


def _last_s(flows: Sequence[Flow], came: str) -> float:
    """Return when the last packet came, counted from the first one sent, less the smallest delay.

    So it holds where both ends have clocks of their own.
    """
    first = min(int(flow.sent_ns.min()) for flow in flows if len(flow.sent_ns))
    last = 0
    for flow in flows:
        if came == "arrived":
            times, delays = flow.arrived_ns, flow.delays_ns
        else:
            times, delays = flow.returned_ns, (flow.returned_ns - flow.sent_ns)[flow.returned]
        if len(delays):
            # Times that never were are before all others.
            last = max(last, int(times.max()) - int(delays.min()) - first)
    return last / 1e9


def _ipdv(flow: Flow) -> _Times:
    """Return the absolute IPDV (RFC 3393): one-way delay of a packet less that of the one before.

    Forward; only pairs that both arrived. An offset of the clocks cancels.
    """
    if flow.arrived.all():
        return np.asarray(np.abs(np.diff(flow.delays_ns)))
    both = flow.arrived[1:] & flow.arrived[:-1]
    delays = flow.owd_forward_ns
    return np.asarray(np.abs(delays[1:][both] - delays[:-1][both]))


def _pdv(flow: Flow) -> _Times:
    """Return the PDV (RFC 5481 section 4.2): forward one-way delay above the flow's smallest."""
    delays = flow.delays_ns
    return np.asarray(delays - delays.min()) if len(delays) else delays


def _back(flow: Flow) -> _Times:
    """Return the delay of each reply from the reflector."""
    both = flow.returned & flow.answered
    return flow.returned_ns[both] - flow.answered_ns[both]


def _all(parts: Sequence[_Times]) -> _Times:
    """Return all in one array: that of a single flow is not copied."""
    return parts[0] if len(parts) == 1 else np.concatenate(parts)


def _share(part: float, whole: float) -> float | None:
    return part / whole if whole else None
