"""What decapsulation in the kernel is in: one-way delay or residence time, by either arrival time.

python bench/decapsulation.py [REPEATS]; as root, about ten minutes. In a virtual machine, whose
emulated CPU is slow, the same packets go over no tunnel, GRE and ESP, with the kernel's time of
arrival and with the program's, turn by turn in one run. With the kernel's, a packet inside has the
arrival time of the outer one: decapsulation is then in no forward delay, and at the reflector in
the residence time, which no round trip contains. A run takes the program's time behind such tunnels
(docs/metrics.md).
"""

import statistics
import sys
import tempfile
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from tunnelmark.engine.binary import find_engine
from tunnelmark.engine.config import ReceiveTime
from tunnelmark.engine.records import UNKNOWN_RESIDENCE, read_send
from tunnelmark.execute import execute
from tunnelmark.store import Result, open_result
from tunnelmark.study import parse_study
from tunnelmark.workloads.base import Outcome, TrialContext
from tunnelmark.workloads.udp_echo import UdpEcho

WAYS: dict[int, ReceiveTime] = {500: "kernel", 501: "user"}
"""Payload in bytes to the way of taking arrival times: two workloads alike would be one."""
_METRICS = ("owd_forward_p50_ns", "owd_reverse_p50_ns", "rtt_p50_ns")
FIGURES = ("forward delay", "reverse delay", "round trip", "residence time")
STUDY = """
format = 1
name = "decapsulation"
title = "Arrival times and decapsulation"
seed = 1

[precision]
metric = "rtt_p50_ns"
min_repeats = {repeats}
max_repeats = {repeats}
max_invalid = 20

[[link]]
kind = "serial"
rate = "100 Mbit/s"
delay = "1 ms"

[[tunnel]]
kind = "gre"

[[tunnel]]
kind = "ipsec"
label = "esp"
implementation = "kernel"
"""
WORKLOAD = """
[[workload]]
kind = "udp_echo"
label = "{way}"
gap = "20 ms"
packets = 300
payload_bytes = {payload_bytes}
"""

Row = tuple[str, str]
"""Tunnel and way of taking the arrival time; behind a tunnel what it has above no tunnel."""


def main(repeats: int) -> None:
    """Run, and print the table; two repeats at least."""
    text = STUDY.format(repeats=repeats)
    for payload_bytes, way in WAYS.items():
        text += WORKLOAD.format(way=way, payload_bytes=payload_bytes)
    _choose_by_size()
    with tempfile.TemporaryDirectory(prefix="tunnelmark-decapsulation-") as folder:
        ended = execute(
            parse_study(text, "decapsulation.toml"),
            results_dir=Path(folder),
            listener=lambda _event: None,
            keep_samples=True,
            engine=find_engine(),
            wanted="machine",
        )
        print(table(medians(open_result(Path(ended.directory)))))


def _choose_by_size() -> None:
    """Have each trial take arrival times the way that the size of its payload stands for."""
    usual = UdpEcho.run

    def run(self: UdpEcho, context: TrialContext) -> Outcome:
        way = WAYS.get(self.params.payload_bytes)
        return usual(self, context if way is None else replace(context, receive_time=way))

    UdpEcho.run = run  # type: ignore[method-assign]


def medians(result: Result) -> dict[Row, list[list[float]]]:
    """Return what the valid trials have as medians in us, in the order of ``FIGURES``.

    Of a tunnel these are the differences to the baseline of the same repeat, beside itself.
    """
    trials = result.trials()
    rows = trials.filter((trials["path"] == "total") & trials["valid"])
    pairs: dict[tuple[str, str, int], dict[bool, list[float]]] = defaultdict(dict)
    for row in rows.iter_rows(named=True):
        tunnel = result.blocks[row["block_id"]].tunnel
        pairs[tunnel, row["workload"], row["repeat"]][row["is_baseline"]] = [
            *(row[metric] / 1e3 for metric in _METRICS),
            _residence_us(result, row["samples"]),
        ]
    found: dict[Row, list[list[float]]] = defaultdict(list)
    for (tunnel, way, _), pair in pairs.items():
        if len(pair) == len((False, True)):
            found["none", way].append(pair[True])
            found[f"{tunnel} above none", way].append(
                [own - bare for own, bare in zip(pair[False], pair[True], strict=True)]
            )
    return found


def _residence_us(result: Result, samples: Sequence[str]) -> float:
    (name,) = (name for name in samples if name.endswith(".send.rec"))
    records = read_send(result.samples(name), name)
    known = records["residence_ns"][records["residence_ns"] != UNKNOWN_RESIDENCE]
    return float(np.median(known)) / 1e3


def table(found: dict[Row, list[list[float]]]) -> str:
    """Return means of all trials, with their standard errors."""
    lines = [
        f"| tunnel | arrival by | trials | {' | '.join(f'{name}, us' for name in FIGURES)} |",
        "| --- " * (3 + len(FIGURES)) + "|",
    ]
    for (tunnel, way), trials in sorted(found.items()):
        cells = [
            f"{statistics.fmean(values):.0f} ±{statistics.stdev(values) / len(values) ** 0.5:.0f}"
            for values in zip(*trials, strict=True)
        ]
        lines.append(f"| {tunnel} | {way} | {len(trials)} | {' | '.join(cells)} |")
    return "\n".join(lines)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 4)
