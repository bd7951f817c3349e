"""A trial as a data file of flent (format 4), in the names and units of flent's own tests.

Round trips are those of its UDP ping. Throughput is what arrived, in flent's Mbit/s: of UDP in each
step since the first arrival, of TCP in each second as the receiving iperf3 counted it.
"""

import gzip
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, Final, Literal

import numpy as np

from tunnelmark.model.errors import ResultError
from tunnelmark.report.foreign.packets import Sending, sendings
from tunnelmark.workloads.iperf3 import parse_report

ENDING: Final = ".flent.gz"
_FORMAT: Final = 4
_STEP_S: Final = 0.2
_SECOND_S: Final = 1.0
_MOST_STEPS: Final = 1_000_000
_TCP_FILE: Final = re.compile(r".+\.iperf3-(client|server)-(.+)-(forward|reverse)\.json")
_TCP_NAMES: Final = {"forward": "TCP upload", "reverse": "TCP download"}
_UDP_NAMES: Final = {False: "UDP upload", True: "UDP download"}
_UDP_LOAD: Final = "udp_load"


@dataclass(frozen=True)
class Series:
    """One series: a value for each step, and what it was made of."""

    name: str
    units: Literal["ms", "Mbits/s"]
    steps: Sequence[float | None]
    raw: Sequence[Mapping[str, float]]
    """``t`` in seconds since the trial began, ``val``, and more."""


def flent_file(trial: Mapping[str, Any], samples: Mapping[str, bytes], *, title: str) -> bytes:
    """Return the file of a trial, compressed; empty if flent has no form for it.

    Raises ``ResultError`` for a damaged sample.
    """
    document = flent_document(trial, samples, title=title)
    if document is None:
        return b""
    # Without a time of its own, so that the same trial gives the same bytes.
    return gzip.compress(json.dumps(document, allow_nan=False).encode(), mtime=0)


def flent_document(
    trial: Mapping[str, Any], samples: Mapping[str, bytes], *, title: str
) -> dict[str, Any] | None:
    """Return what flent keeps of a trial, or None where it has no form for it."""
    step_s = _SECOND_S
    series = list(_tcp(samples))
    if not series:
        step_s = _STEP_S
        series = list(_udp(sendings(samples), load=trial["workload_kind"] == _UDP_LOAD))
    if not series:
        return None
    steps = max(len(one.steps) for one in series)
    length_s = round(steps * step_s, 3)
    moment: datetime = trial["started_at"].astimezone(UTC)
    moment_utc = moment.strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    at_s = (moment - datetime(1970, 1, 1, tzinfo=UTC)).total_seconds()
    return {
        "version": _FORMAT,
        "metadata": {
            "NAME": _test({one.name.split("::")[0] for one in series}),
            "TITLE": f"{title}: {trial['tunnel']} over {trial['link']}, {trial['workload']}",
            "TIME": moment_utc,
            "T0": moment_utc,
            "DATA_FILENAME": f"{trial['trial_id']}-{trial['attempt']}{ENDING}",
            "HOST": "server",
            "HOSTS": ["server"],
            "LOCAL_HOST": "client",
            "LENGTH": length_s,
            "TOTAL_LENGTH": length_s,
            "STEP_SIZE": step_s,
            "NOTE": f"trial {trial['trial_id']}, "
            + ("valid" if trial["valid"] else "invalid: " + "; ".join(trial["reasons"])),
            "SERIES_META": {one.name: {"UNITS": one.units} for one in series},
        },
        "x_values": [round(number * step_s, 3) for number in range(steps)],
        "results": {one.name: [*one.steps, *[None] * (steps - len(one.steps))] for one in series},
        "raw_values": {
            one.name: [{**value, "t": at_s + value["t"]} for value in one.raw] for one in series
        },
    }


def _test(names: set[str]) -> str:
    """Return the test of flent whose plots show series of these names."""
    tcp = names & set(_TCP_NAMES.values())
    if len(tcp) > 1:
        return "tcp_bidirectional"
    if tcp:
        return "tcp_upload" if "TCP upload" in tcp else "tcp_download"
    return "udp_flood" if names & set(_UDP_NAMES.values()) else "ping"


def _udp(found: Sequence[Sending], *, load: bool) -> Iterator[Series]:
    pinged = [
        one for one in found if not one.reverse and any(flow.timed.any() for flow in one.flows)
    ]
    if pinged:
        yield _ping(pinged)
    if not load:
        return
    for one in found:
        arrived = np.concatenate([flow.arrived_ns[flow.arrived] for flow in one.flows])
        sizes = np.concatenate([flow.size[flow.arrived] for flow in one.flows])
        if len(arrived):
            yield _throughput(_UDP_NAMES[one.reverse], arrived - arrived.min(), sizes)


def _ping(found: Sequence[Sending]) -> Series:
    """Return the round trips of packets that came back in time, and their means over time."""
    first_ns = min(int(one.send["scheduled_ns"].min()) for one in found)
    flows = [flow for one in found for flow in one.flows]
    at_s = np.concatenate([flow.sent_ns[flow.timed] - first_ns for flow in flows]) / 1e9
    rtt_ms = np.concatenate([flow.rtt_ns for flow in flows]) / 1e6
    order = np.argsort(at_s, kind="stable")
    at_s, rtt_ms = at_s[order], rtt_ms[order]
    steps = _count(float(at_s[-1]) / _STEP_S) + 1
    place = np.clip((at_s / _STEP_S).astype(np.int64), 0, steps - 1)
    counts = np.bincount(place, minlength=steps)
    sums = np.bincount(place, weights=rtt_ms, minlength=steps)
    return Series(
        "Ping (ms) UDP",
        "ms",
        [float(s / n) if n else None for s, n in zip(sums, counts, strict=True)],
        [{"t": t, "val": ms} for t, ms in zip(at_s.tolist(), rtt_ms.tolist(), strict=True)],
    )


def _throughput(name: str, arrived_ns: Any, sizes: Any) -> Series:
    """Return the payload of each whole step; what came in less than one counts as one."""
    steps = max(1, _count(float(arrived_ns.max()) / 1e9 / _STEP_S))
    place = (arrived_ns / (_STEP_S * 1e9)).astype(np.int64)
    inside = place < steps
    octets = np.bincount(place[inside], weights=sizes[inside], minlength=steps)
    rates = (octets * 8 / _STEP_S / 1e6).tolist()
    raw = [
        {"t": number * _STEP_S, "dur": _STEP_S, "val": rate} for number, rate in enumerate(rates)
    ]
    return Series(name, "Mbits/s", rates, raw)


def _tcp(samples: Mapping[str, bytes]) -> Iterator[Series]:
    """Yield each direction of a bulk transfer: each path and, of several, their sum."""
    ways: dict[str, list[tuple[str, Series]]] = {}
    for name in sorted(samples):
        match = _TCP_FILE.fullmatch(name)
        if match is None or (match[1] == "server") != (match[3] == "forward"):
            continue  # the sender's account is of what it wrote, not of what arrived
        try:
            report = parse_report(samples[name])
        except ValueError as error:
            raise ResultError(f"{name}: {error}") from error
        seconds = [one for one in report.seconds if one.whole and one.goodput_bit_s is not None]
        if not seconds:
            continue
        steps: list[float | None] = [None] * (_count(max(one.start_s for one in seconds)) + 2)
        for one in seconds:
            steps[round(one.start_s)] = (one.goodput_bit_s or 0.0) / 1e6
        while steps[-1] is None:
            steps.pop()
        raw = [
            {"t": one.start_s, "dur": one.seconds, "val": (one.goodput_bit_s or 0.0) / 1e6}
            for one in seconds
        ]
        series = Series(_TCP_NAMES[match[3]], "Mbits/s", steps, raw)
        ways.setdefault(match[3], []).append((match[2], series))
    for found in ways.values():
        if len(found) == 1:
            yield found[0][1]
            continue
        for path, each in found:
            yield replace(each, name=f"{each.name}::{path}")
        yield _sum([each for _, each in found])


def _sum(found: Sequence[Series]) -> Series:
    """Return the sum; of a step that one of them lacks nothing is known."""
    length = min(len(one.steps) for one in found)
    rows = [[one.steps[number] for one in found] for number in range(length)]
    sums = [None if None in row else sum(value or 0.0 for value in row) for row in rows]
    raw = [
        {"t": number * _SECOND_S, "dur": _SECOND_S, "val": value}
        for number, value in enumerate(sums)
        if value is not None
    ]
    return Series(f"{found[0].name} sum", found[0].units, sums, raw)


def _count(steps: float) -> int:
    """Return whole steps; ``ResultError`` for a time that no trial lasts."""
    if not 0 <= steps <= _MOST_STEPS:
        raise ResultError(
            f"a sample lasts {steps:.0f} steps of {_STEP_S} s, at most {_MOST_STEPS} are allowed"
        )
    return int(steps)
