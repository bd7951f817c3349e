"""Echoes of one trial one after the other: the link as it is, then with something beside them."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Final

from tunnelmark.model.trial import Measurement
from tunnelmark.workloads.base import Outcome, TrialContext
from tunnelmark.workloads.udp_echo import UdpEcho, UdpEchoParams

_WAIT: Final = "5 s"
"""How long a reply is waited for: deeper than any sensible queue, and no packet's last chance."""


def echo(
    context: TrialContext,
    phase: str,
    *,
    gap_ns: int,
    payload_bytes: int,
    duration_ns: int,
    keep: bool = True,
) -> Outcome:
    """Run one of them over each path; with ``keep`` its records are, in files of its own."""
    params = UdpEchoParams.model_validate(
        {
            "gap": f"{gap_ns} ns",
            "payload_bytes": payload_bytes,
            "duration": f"{duration_ns} ns",
            "late": _WAIT,
            "drain": _WAIT,
            "load": "each",
        }
    )
    own = dataclasses.replace(
        context,
        sample_stem=f"{context.sample_stem}-{phase}",
        samples_dir=context.samples_dir if keep else None,
    )
    return UdpEcho(params).run(own)


def joined(
    first: Outcome, second: Outcome, *, name: str, measurements: Sequence[Measurement]
) -> Outcome:
    """Return one outcome of two echoes, the first called ``name``; the second stands for the trial.

    ``measurements`` are what both came to.
    """
    return dataclasses.replace(
        second,
        measurements=tuple(measurements),
        payload_bytes=first.payload_bytes + second.payload_bytes,
        payload_packets=first.payload_packets + second.payload_packets,
        measuring_s=first.measuring_s + second.measuring_s,
        checks=(
            *(dataclasses.replace(check, name=f"{check.name}_{name}") for check in first.checks),
            *second.checks,
        ),
        details={**second.details, name: dict(first.details)},
        samples=(*first.samples, *second.samples),
    )


def added(
    before: Mapping[str, float | None], after: Mapping[str, float | None], name: str
) -> float | None:
    """Return how much larger a figure is after than before; None where one is missing."""
    was, is_now = before.get(name), after.get(name)
    return None if was is None or is_now is None else is_now - was
