"""The study of ``make chaos``: its answers are known, and what a run's result says against them."""

import json
from collections.abc import Iterator, Sequence
from typing import Any, Final

import polars as pl

TUNNELS: Final = {
    "openvpn": 'kind = "openvpn"\ncipher = "AES-256-GCM"',
    "wireguard": 'kind = "wireguard"\nimplementation = "wireguard-go"',
    "tinc": 'kind = "tinc"',
    "ssh_tun": 'kind = "ssh_tun"',
    "ipsec": 'kind = "ipsec"\nimplementation = "libipsec"',
    "nebula": 'kind = "nebula"',
}
_OVER_TCP: Final = frozenset({"ssh_tun"})
"""What carries packets over TCP sends again, and those behind wait. A segment that the line loses
three times in a row (once in some hundreds of trials) comes after the sender has given up, and so
do all those behind it: as many replies as there are may be missing."""
# A busy computer makes trials invalid and they are repeated. Steal is not a fault of a run, and
# what a tunnel waits for its core is small beside the bounds below.
_STUDY: Final = """
format = 1
name = "chaos"
title = "Chaos"
seed = {seed}

[precision]
metric = "rtt_p50_ns"
relative_half_width = "100 %"
min_repeats = {repeats}
max_repeats = {repeats}
bring_ups = {repeats}
max_invalid = 40

[validity]
sender_lateness = "5 ms"
link_lateness = "5 ms"
steal = "100 %"
starvation = "50 %"

{tunnels}

[[link]]
kind = "serial"
rate = "1 Mbit/s"
delay = "20 ms"
loss_reverse = "5 %"

[[workload]]
kind = "udp_echo"
gap = "10 ms"
packets = 60
payload_bytes = 200
"""
POINTS_PER_TUNNEL: Final = 2
"""The tunnel and its baseline."""
_PACKETS: Final = 60
_BARE_BYTES: Final = 228  # payload, UDP and IPv4
_MOST_BYTES: Final = 1000
"""A tunnel's packet and what else may stand before it in the queue at half of the packets."""
_LOST_MOST: Final = 14
"""Of 60 at 5 %: more are lost once in 10 million trials."""
_LATENESS_NS: Final = 2 * 5_000_000
_WAIT_NS: Final = 25_000_000
"""For a core that others have: a program of a tunnel that waits longer is judged by the run."""


def text(tunnels: Sequence[str], repeats: int, seed: int) -> str:
    """Return the study's text."""
    tables = "\n\n".join(f"[[tunnel]]\n{TUNNELS[name]}" for name in tunnels)
    return _STUDY.format(seed=seed, repeats=repeats, tunnels=tables)


def wrong_figures(rows: pl.DataFrame, *, tunnel_struck: bool) -> list[str]:
    """Return what valid trials say that cannot be.

    ``tunnel_struck`` says that a tunnel's own program was held up: its delay and loss are then what
    was done to it, and right. Nothing makes a packet faster than the line.
    """
    reported = []
    for row in rows.filter(pl.col("valid")).iter_rows(named=True):
        checked = _floor(row) if tunnel_struck and not row["is_baseline"] else _all(row)
        reported += [
            f"wrong figure: {row['trial_id']} ({row['tunnel']}): {words}" for words in checked
        ]
    return reported


def failed_checks(row: dict[str, Any]) -> list[str]:
    """Return the names of the checks that a trial failed."""
    return [check["name"] for check in json.loads(row["checks"]) if not check["ok"]]


def _all(row: dict[str, Any]) -> Iterator[str]:
    yield from _floor(row)
    over_tcp = row["tunnel_kind"] in _OVER_TCP
    most = _rtt_ns(_MOST_BYTES) + _LATENESS_NS + (0 if row["is_baseline"] else _WAIT_NS)
    median = row["rtt_p50_ns"]
    if median is None or (median > most and not over_tcp):
        yield f"median RTT {_ms(median)}, must be at most {_ms(most)}"
    if row["loss_forward_ratio"] != 0:
        yield f"loss forward {row['loss_forward_ratio']}, must be 0"
    lost, limit = row["loss_reverse_ratio"], _LOST_MOST / _PACKETS
    if lost is None or (lost > limit and not over_tcp):
        yield f"loss reverse {lost}, must be at most {limit:.3g}"


def _floor(row: dict[str, Any]) -> Iterator[str]:
    least, shortest = _rtt_ns(_BARE_BYTES), row["rtt_min_ns"]
    if shortest is not None and shortest < least:
        yield f"shortest RTT {_ms(shortest)}, must be at least {_ms(least)}"


def _rtt_ns(packet_bytes: int) -> int:
    """Return the round trip of a packet alone on the line: 20 ms and 1 Mbit/s each way."""
    return 2 * (20_000_000 + packet_bytes * 8 * 1000)


def _ms(value: float | None) -> str:
    return "none" if value is None else f"{value / 1e6:.3f} ms"
