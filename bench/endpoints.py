"""Sender and reflector on a veth pair, beside iperf3, irtt and ping."""

import os
import statistics
from collections.abc import Sequence
from functools import partial

import numpy as np
from gaps import gap_errors_us
from ours import ManyRun, echo, long_run, many_run
from page import Line, below, ratio
from pair import Pair
from peers import PeerRun, iperf3_udp, irtt, irtt_cost, ping_rtt_p50_us
from search import LOST, best_rate
from undisturbed import MOST_STOLEN_OF_TAILS, how, undisturbed

IPERF3_TIMER_NS = 100_000
"""iperf3 sends what has become due since its last turn; the peers' runs set this timer."""


def one_way(made: Pair, repeats: int, seconds: float) -> list[Line]:
    """64-byte payload, one flow, one way: the highest rate without loss, and CPU per packet."""

    def engine(rate: float, *, segment: bool) -> tuple[float, float]:
        run = echo(
            made,
            gap_ns=int(1e9 / rate),
            duration_s=seconds,
            one_way=True,
            realtime=False,
            segment=segment,
        )
        return 1 - run.received / run.sent, run.received_packet_s

    def iperf3(rate: float) -> tuple[float, float]:
        run = iperf3_udp(made, packet_s=rate, duration_s=seconds)
        return run.loss_ratio, run.received_packet_s

    single_cost: list[float] = []
    own_cost: list[float] = []
    singly, ours, theirs, other_cost = [], [], [], []
    for _ in range(repeats):
        singly.append(best_rate(partial(engine, segment=False), 100e3, 1e6))
        ours.append(best_rate(partial(engine, segment=True), 200e3, 2e6))
        theirs.append(best_rate(iperf3, 20e3, 400e3))
        common = theirs[-1] or 20e3
        for cost, coalesce_ns in ((single_cost, 0), (own_cost, IPERF3_TIMER_NS)):
            run = echo(
                made,
                gap_ns=int(1e9 / common),
                duration_s=seconds,
                one_way=True,
                realtime=False,
                coalesce_ns=coalesce_ns,
            )
            cost.append(run.cpu_s / run.sent * 1e6)
        peer = iperf3_udp(made, packet_s=common, duration_s=seconds)
        other_cost.append(peer.cpu_s / max(peer.sent, 1) * 1e6)
    return [
        ratio(
            f"one way, 64 byte, {LOST}, the kernel cuts what leaves together",
            *(ours, theirs, "iperf3", 4.0, "packet/s"),
        ),
        Line(
            f"one way, 64 byte, {LOST}, each packet handed over singly",
            f"{statistics.median(singly):,.0f} packet/s",
            f"{statistics.median(singly) / statistics.median(theirs):.1f} times iperf3's",
            "-",
            None,
            f"median of {repeats}",
        ),
        Line(
            "CPU per packet one way at iperf3's rate, each in its time, both ends",
            f"{statistics.median(single_cost):.2f} µs",
            "iperf3 sends in groups of 100 µs",
            "-",
            None,
            f"median of {repeats}",
        ),
        below(
            "CPU per packet one way at iperf3's rate, in groups of 100 µs as iperf3, both ends",
            own_cost,
            other_cost,
            "iperf3",
        ),
    ]


def echo_rate(made: Pair, repeats: int, seconds: float) -> list[Line]:
    """64-byte payload, there and back: the highest rate without loss, and CPU per packet."""

    def engine(rate: float) -> tuple[float, float]:
        run = echo(made, gap_ns=int(1e9 / rate), duration_s=seconds, realtime=False)
        return 1 - run.returned / run.sent, run.sent_packet_s

    def peer(rate: float) -> tuple[float, float]:
        run = irtt(made, gap_us=1e6 / rate, duration_s=seconds)
        return run.loss_ratio, run.received / seconds

    ours, theirs, own_cost, other_cost = [], [], [], []
    for _ in range(repeats):
        ours.append(best_rate(engine, 50e3, 800e3))
        theirs.append(best_rate(peer, 5e3, 200e3))
        common = theirs[-1] or 5e3
        gap_ns = int(1e9 / common)
        run = echo(made, gap_ns=gap_ns, duration_s=seconds, realtime=False, spin=False)
        own_cost.append(run.cpu_s / run.sent * 1e6)
        other = irtt_cost(made, gap_us=1e6 / common, duration_s=seconds)
        other_cost.append(other.cpu_s / max(other.sent, 1) * 1e6)
    return [
        ratio(f"echo, 64 byte, {LOST}", ours, theirs, "irtt (busy timer)", 4.0, "packet/s"),
        below(
            "CPU per packet echoed at irtt's rate, both ends, neither awake before a packet is due",
            *(own_cost, other_cost, "irtt"),
        ),
    ]


def pacing(made: Pair, seconds: float, drift_seconds: float) -> list[Line]:
    """Sent minus scheduled, at two gaps; and the gaps on the wire, from a capture."""
    lines = []
    for gap_us in (1000, 100):
        runs = undisturbed(
            partial(echo, made, gap_ns=gap_us * 1000, duration_s=drift_seconds, records=True),
            most=MOST_STOLEN_OF_TAILS,
        )
        (run,) = runs.values
        assert run.lateness_us is not None  # noqa: S101 - records were asked for
        p50, p99 = np.percentile(run.lateness_us, [50, 99])
        drift = float(np.median(run.lateness_us[-1000:]) - np.median(run.lateness_us[:1000]))
        most = float(run.lateness_us[: int(seconds * 1e6 / gap_us)].max())
        peer: PeerRun = irtt(made, gap_us=gap_us, duration_s=seconds, realtime=True)
        lines.append(
            Line(
                f"pacing error at a gap of {gap_us} µs over {drift_seconds:g} s, p50 / p99; "
                f"max of {seconds:g} s",
                f"{p50:.1f} / {p99:.1f} µs; {most:.1f} µs; drift {drift:+.1f} µs",
                f"irtt mean {peer.timer_mean_us:.1f}; max {peer.timer_max_us:.1f} µs",
                "p50 at most 10 µs, p99 at most 50 µs",
                bool(p50 <= 10 and p99 <= 50),  # noqa: PLR2004 - the targets
                how(runs),
            )
        )
        own, other = (
            undisturbed(partial(gap_errors_us, made, gap_us, load), most=MOST_STOLEN_OF_TAILS)
            for load in (
                partial(_paced, made, gap_us, seconds),
                partial(iperf3_udp, made, packet_s=1e6 / gap_us, duration_s=seconds),
            )
        )
        lines.append(
            Line(
                f"gaps of {gap_us} µs in a capture at the far end, error p50 / p99",
                _percentiles(*own.values),
                f"iperf3 {_percentiles(*other.values)}",
                "-",
                None,
                how(own, other),
            )
        )
    return lines


def floor(made: Pair, repeats: int) -> list[Line]:
    """Median RTT on a veth pair."""
    ours, theirs, pings = [], [], []
    for _ in range(repeats):
        run = echo(made, gap_ns=1_000_000, duration_s=1.0)
        ours.append(run.rtt_p50_us or float("nan"))
        peer = irtt(made, gap_us=1000, duration_s=1.0, realtime=True)
        theirs.append(peer.rtt_p50_us or float("nan"))
        pings.append(ping_rtt_p50_us(made, count=500))
    own, other, ping = map(statistics.median, (ours, theirs, pings))
    return [
        Line(
            "RTT floor, median",
            f"{own:.1f} µs",
            f"irtt {other:.1f} µs, ping {ping:.1f} µs",
            "at most irtt's, within 15 µs of ping's",
            bool(own <= other and own - ping <= 15),  # noqa: PLR2004 - the target
            f"median of {repeats}, alternating",
        )
    ]


def flows(made: Pair, repeats: int, seconds: float) -> list[Line]:
    """A thousand flows beside one with as many packets in total; and what not spinning saves."""
    rate, few = 200_000, 1000
    one, many = (
        undisturbed(
            partial(many_run, made, flows=count, packet_s=rate, duration_s=seconds), repeats
        )
        for count in (1, 1000)
    )
    awake, asleep = (
        undisturbed(
            partial(many_run, made, flows=1, packet_s=few, duration_s=seconds, spin=spin), repeats
        )
        for spin in (True, False)
    )
    cores = os.cpu_count() or 1
    sharded = undisturbed(
        partial(many_run, made, flows=1000, packet_s=rate, duration_s=seconds, shards=cores),
        repeats,
    )
    lost, sharded_lost = (
        max(1 - run.returned / max(run.sent, 1) for run in runs.values) for runs in (many, sharded)
    )
    memory = max(max(run.sender_mib, run.reflector_mib) for run in sharded.values)
    cost, single = _cpu_us(sharded.values), _cpu_us(one.values)
    return [
        Line(
            f"1,000 flows of {rate // 1000} packets a second each, echoed; {cores} shards at "
            f"each end, on {cores} cores",
            f"{sharded_lost:.4%} lost at worst, {cost:.2f} µs CPU per packet, {memory:.0f} MiB",
            f"one flow of as many packets: {single:.2f} µs, so {cost / single:.2f} times",
            "none lost, at most 1.3 times one flow, at most 100 MiB",
            sharded_lost == 0 and cost <= 1.3 * single and memory <= 100,  # noqa: PLR2004 - targets
            f"CPU: {how(sharded, one)}",
        ),
        Line(
            "the same with one thread at each end",
            f"{lost:.4%} lost at worst, {_cpu_us(many.values):.2f} µs CPU per packet",
            f"{cores} shards: {sharded_lost:.4%} lost at worst, {cost:.2f} µs",
            "-",
            None,
            f"CPU: {how(many, sharded)}",
        ),
        Line(
            f"CPU per packet, one flow of {few:,} packets a second, asleep until each is due",
            f"{_cpu_us(asleep.values):.1f} µs, both ends",
            f"awake before: {_cpu_us(awake.values):.1f} µs",
            "-",
            None,
            f"CPU: {how(asleep, awake)}",
        ),
    ]


def _cpu_us(runs: Sequence[ManyRun]) -> float:
    return statistics.median(run.cpu_us for run in runs)


def endurance(made: Pair, packets: int) -> list[Line]:
    """Echo of many packets at full rate: memory, and whether every record is there."""
    runs = undisturbed(partial(long_run, made, packets=packets, packet_s=200_000))
    (run,) = runs.values
    complete = run.send_records == packets and run.reflect_records == run.received
    return [
        Line(
            f"{packets:,} packets echoed, records on disk",
            (
                f"{run.rate_packet_s:,.0f} packet/s, {run.returned / packets:.4%} returned; "
                f"peak memory {run.sender_mib:.0f} MiB sender, {run.reflector_mib:.0f} MiB "
                f"reflector; {run.send_records:,} and {run.reflect_records:,} records"
            ),
            "-",
            "every record, 99.95 % returned, less than 100 MiB",
            complete
            and run.returned >= 0.9995 * packets
            and max(run.sender_mib, run.reflector_mib) < 100,  # noqa: PLR2004
            how(runs),
        )
    ]


def _paced(made: Pair, gap_us: int, seconds: float) -> None:
    echo(made, gap_ns=gap_us * 1000, duration_s=seconds, one_way=True)


def _percentiles(errors_us: Sequence[float]) -> str:
    p50, p99 = np.percentile(errors_us, [50, 99])
    return f"{p50:.1f} / {p99:.1f} µs"
