"""What a simulated trial has beside its workload's own figures. Pure."""

from collections.abc import Sequence

from tunnelmark.engine.summary import plain
from tunnelmark.probes.carried import Carried, per, wire_metrics
from tunnelmark.sim.carriage import Carriage
from tunnelmark.sim.simulate import Simulated
from tunnelmark.workloads.base import Outcome

_FRAME_HEADER_BYTES = 14
"""What the link counts in each frame beside the IP packet: addresses and type."""


def trial_metrics(
    outcome: Outcome, rounds: Sequence[Simulated], carried: Carriage
) -> dict[str, float | None]:
    """Return the figures that every simulated trial has, over all its runs of the simulator.

    CPU is that of the cost model; an end without one has none, which is not the same as 0.
    """
    forward, reverse = (_carried(rounds, way) for way in ("forward", "reverse"))
    measuring_s = outcome.measuring_s
    payload_bytes = outcome.payload_bytes + outcome.outside_bytes
    figures = wire_metrics(forward, reverse, payload_bytes=payload_bytes, measuring_s=measuring_s)
    by_end = _busy_s(rounds)
    worked_s = {
        end: sum(seconds for (_, name), seconds in by_end.items() if name == end)
        for end in carried.work.ends
    }
    for end, cores in carried.work.cores.items():
        # What still waits when nothing more is sent is worked on later.
        ratio = per(worked_s[end], measuring_s * cores)
        figures[f"cpu_device_{end}_ratio"] = None if ratio is None else min(1.0, ratio)
    figures |= {
        f"cpu_tunnel_{end}_ratio": per(worked_s[end], measuring_s)
        for end, costs in carried.work.ends.items()
        if costs is not None
    }
    ends = [end for end in carried.work.ends.values() if end is not None]
    if len(ends) < len(carried.work.ends):
        return figures
    busy_s = sum(by_end.values())
    threads = max(end.servers for end in ends)
    return {
        **figures,
        "cpu_tunnel_ratio": per(busy_s, measuring_s),
        "cpu_tunnel_thread_max_ratio": None
        if threads > 1 or measuring_s <= 0
        else min(1.0, max(by_end.values(), default=0.0) / measuring_s),
        "cpu_cost_s_per_gib": per(busy_s, outcome.payload_bytes / (1 << 30)),
        "cpu_cost_s_per_mpkt": per(busy_s, outcome.payload_packets / 1e6),
    }


def packet_metrics(carried: Carriage, payload_sizes: Sequence[int]) -> dict[str, float | None]:
    """Return what stands around a datagram where all have one size."""
    if len(payload_sizes) != 1:
        return {}
    wire = carried.wire(payload_sizes[0])
    return {
        "overhead_bytes": float(wire.overhead_bytes),
        "outer_packets": float(len(wire.outer_packet_bytes)),
    }


def reported(rounds: Sequence[Simulated]) -> list[dict[str, object]]:
    """Return what each run of the simulator counted, for the trial's details."""
    return [
        {
            "link": {way: plain(counters) for way, counters in one.link.items()},
            "tunnels": [{name: plain(busy) for name, busy in ends.items()} for ends in one.ends],
            "lasted_ns": one.lasted_ns,
        }
        for one in rounds
    ]


def _carried(rounds: Sequence[Simulated], way: str) -> Carried:
    packets = sum(one.link[way].delivered for one in rounds)
    octets = sum(one.link[way].delivered_bytes for one in rounds)
    return Carried(packets, octets - _FRAME_HEADER_BYTES * packets)


def _busy_s(rounds: Sequence[Simulated]) -> dict[tuple[int, str], float]:
    """Return the seconds that each end of each tunnel worked."""
    found: dict[tuple[int, str], float] = {}
    for one in rounds:
        for number, ends in enumerate(one.ends):
            for name, busy in ends.items():
                key = (number, name.partition(" ")[0])
                found[key] = found.get(key, 0.0) + busy.busy_ns / 1e9
    return found
