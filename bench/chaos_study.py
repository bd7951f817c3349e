"""The study of ``make chaos``: its answers are known, and what a run's result says against them."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import astuple, dataclass
from typing import Any, Final

import polars as pl
from scipy.stats import binom, binomtest

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
do all those behind it: as many replies as there are may be missing.

In one run nothing follows from that: it has two such trials at most, and both may be cut short
(60 x 0.05^3 = 0.75 % each, so once in 18,000 runs). Many runs together are judged by `unlikely`."""
_CUT_SHORT: Final = 0.02
"""Share of trials over TCP that may miss more replies than the line loses: 0.75 % by the line, and
as much again and more for a sender that is late on a busy computer."""
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
_LOST_MOST: Final = 15
"""Of 60 at 5 %: more are lost once in 40 million trials, of which a run and one beside have 16."""
_LOSS: Final = 0.05
_CHANCE: Final = 1e-7
"""What is less probable than this is a fault."""
_AFTERMATH_S: Final = 30.0
"""A tunnel that was held up may take so long to be as it was: it makes new keys or connects
again."""
_OF_KIND: Final = {
    "openvpn": "openvpn",
    "wireguard": "wireguard",
    "tinc": "tinc",
    "ssh": "ssh_tun",
    "charon": "ipsec",
    "swanctl": "ipsec",
    "nebula": "nebula",
}
"""The tunnel of a program whose name begins so."""
_LATENESS_NS: Final = 2 * 5_000_000
_WAIT_NS: Final = 25_000_000
"""For a core that others have: a program of a tunnel that waits longer is judged by the run."""


def text(tunnels: Sequence[str], repeats: int, seed: int) -> str:
    """Return the study's text."""
    tables = "\n\n".join(f"[[tunnel]]\n{TUNNELS[name]}" for name in tunnels)
    return _STUDY.format(seed=seed, repeats=repeats, tunnels=tables)


@dataclass(frozen=True)
class HeldUp:
    """A program of a tunnel that was stopped or starved; one that was killed is no excuse."""

    program: str
    began: float
    ended: float
    """Wall clock, s since 1970."""

    def excuses(self, row: dict[str, Any]) -> bool:
        """Say whether delay and loss of a trial may be what was done to its tunnel."""
        started = row["started_at"].timestamp()
        if row["is_baseline"] or not (
            started < self.ended + _AFTERMATH_S and started + row["duration_s"] > self.began
        ):
            return False
        kinds = [kind for start, kind in _OF_KIND.items() if self.program.startswith(start)]
        # Of another program it is not known whose it was.
        return not kinds or row["tunnel_kind"] in kinds


@dataclass
class Tally:
    """What many valid trials lost together, without those that were held up."""

    packets: int = 0
    lost: int = 0
    """On the way back, of baselines and tunnels over UDP."""
    over_tcp: int = 0
    cut_short: int = 0
    """Trials over TCP, and those of them that miss more than a line loses."""

    def __add__(self, other: "Tally") -> "Tally":
        """Return both together."""
        return Tally(*(sum(pair) for pair in zip(astuple(self), astuple(other), strict=True)))

    def unlikely(self) -> list[str]:
        """Return what a line that loses 5 % does not do by chance."""
        found = []
        if self.packets and binomtest(self.lost, self.packets, _LOSS).pvalue < _CHANCE:
            found.append(f"{self.lost} of {self.packets} packets lost, must be {_LOSS:.0%}")
        if binom.sf(self.cut_short - 1, self.over_tcp, _CUT_SHORT) < _CHANCE:
            found.append(f"{self.cut_short} of {self.over_tcp} trials over TCP were cut short")
        return found


def wrong_figures(rows: pl.DataFrame, held_up: HeldUp | None) -> list[str]:
    """Return what valid trials say that cannot be.

    Delay and loss of a tunnel that was ``held_up`` are what was done to it, and right. Nothing
    makes a packet faster than the line.
    """
    reported = []
    for row in rows.filter(pl.col("valid")).iter_rows(named=True):
        checked = _floor(row) if held_up is not None and held_up.excuses(row) else _all(row)
        reported += [
            f"wrong figure: {row['trial_id']} ({row['tunnel']}): {words}" for words in checked
        ]
    return reported + tally(rows, held_up).unlikely()


def tally(rows: pl.DataFrame, held_up: HeldUp | None) -> Tally:
    """Return what the valid trials of a run lost together."""
    found = Tally()
    for row in rows.filter(pl.col("valid")).iter_rows(named=True):
        ratio = row["loss_reverse_ratio"]
        if ratio is None or (held_up is not None and held_up.excuses(row)):
            continue
        lost = round(ratio * _PACKETS)
        if row["tunnel_kind"] in _OVER_TCP:
            found += Tally(over_tcp=1, cut_short=int(lost > _LOST_MOST))
        else:
            found += Tally(packets=_PACKETS, lost=lost)
    return found


def failed_checks(row: dict[str, Any]) -> list[str]:
    """Return the names of the checks that a trial failed."""
    return [check["name"] for check in json.loads(row["checks"]) if not check["ok"]]


def _all(row: dict[str, Any]) -> Iterator[str]:
    yield from _floor(row)
    over_tcp = row["tunnel_kind"] in _OVER_TCP
    most = _rtt_ns(_MOST_BYTES) + _LATENESS_NS + (0 if row["is_baseline"] else _WAIT_NS)
    median = row["rtt_p50_ns"]
    if not over_tcp and (median is None or median > most):
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
