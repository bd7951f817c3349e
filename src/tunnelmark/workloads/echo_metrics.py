"""The figures of an echo flow from the record of every packet; pure functions."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from tunnelmark.engine.records import Flow
from tunnelmark.engine.summary import SendFlow

_Times = npt.NDArray[np.int64]


def flow_metrics(flow: Flow, told: SendFlow) -> dict[str, float | None]:
    """Return the metrics of one flow; ``told`` is its entry in the sender's summary."""
    return _metrics([flow], [told])


def total_metrics(flows: Sequence[Flow], told: Sequence[SendFlow]) -> dict[str, float | None]:
    """Return the metrics of all flows together: rates add up, delays are pooled."""
    return _metrics(flows, told)


def _metrics(flows: Sequence[Flow], told: Sequence[SendFlow]) -> dict[str, float | None]:
    sent = sum(len(flow.sent_ns) for flow in flows)
    arrived = sum(int(flow.arrived.sum()) for flow in flows)
    answered = sum(int(flow.answered.sum()) for flow in flows)
    returned = sum(int(flow.returned.sum()) for flow in flows)
    rtt = np.concatenate([flow.rtt_ns for flow in flows])
    forward = np.concatenate([(flow.arrived_ns - flow.sent_ns)[flow.arrived] for flow in flows])
    reverse = np.concatenate(
        [(flow.returned_ns - flow.answered_ns)[flow.returned & flow.answered] for flow in flows]
    )
    ipdv = np.concatenate([_ipdv(flow) for flow in flows])
    smallest = _quantile(rtt, 0)
    p99 = _quantile(rtt, 99)
    return {
        "goodput_bit_s": _rate(
            np.concatenate([flow.arrived_ns[flow.arrived] for flow in flows]),
            np.concatenate([flow.size[flow.arrived] for flow in flows]),
        ),
        "goodput_echo_bit_s": _rate(
            np.concatenate([flow.returned_ns[flow.returned] for flow in flows]),
            np.concatenate([flow.size[flow.returned] for flow in flows]),
        ),
        "sent_load_bit_s": _rate(
            np.concatenate([flow.sent_ns for flow in flows]),
            np.concatenate([flow.size for flow in flows]),
        ),
        "loss_forward_ratio": _share(sent - arrived, sent),
        "loss_reverse_ratio": _share(answered - returned, answered),
        "rtt_min_ns": smallest,
        "rtt_p50_ns": _quantile(rtt, 50),
        "rtt_p99_ns": p99,
        "owd_forward_p50_ns": _quantile(forward, 50),
        "owd_reverse_p50_ns": _quantile(reverse, 50),
        "ipdv_p50_ns": _quantile(ipdv, 50),
        "pdv_p99_ns": None if p99 is None or smallest is None else p99 - smallest,
        "duplicates_ratio": _share(sum(flow.duplicates for flow in told), returned),
        "reordered_ratio": _share(sum(flow.reordered for flow in told), returned),
        "late_ratio": _share(sum(flow.late for flow in told), sent),
        "receiver_overrun_ratio": _share(sum(flow.overrun for flow in told), sent),
    }


def _rate(times: _Times, sizes: _Times) -> float | None:
    """Payload bits after the first packet per second from the first to the last.

    0 when nothing came; None for a single packet, which has no rate.
    """
    if len(times) == 0:
        return 0.0
    order = np.argsort(times, kind="stable")
    span_ns = int(times[order[-1]] - times[order[0]])
    if span_ns <= 0:
        return None
    return float(sizes[order[1:]].sum()) * 8e9 / span_ns


def _ipdv(flow: Flow) -> _Times:
    """RFC 3393 over packets next to each other that both came back in time."""
    seen = flow.returned & ~flow.late
    both = seen[1:] & seen[:-1]
    rtt = flow.returned_ns - flow.sent_ns
    return np.abs(rtt[1:] - rtt[:-1])[both]


def _quantile(values: _Times, percent: float) -> float | None:
    return float(np.percentile(values, percent)) if len(values) else None


def _share(part: float, whole: float) -> float | None:
    return part / whole if whole else None
