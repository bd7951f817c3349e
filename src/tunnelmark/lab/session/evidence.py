"""What the run itself can say of a trial's validity: CPU, link, tunnel. Pure functions."""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tunnelmark.hosts.cgroup import Throttled
from tunnelmark.lab.emulators import LinkCounters
from tunnelmark.model.errors import TunnelError
from tunnelmark.model.lateness import Late, lateness_checks
from tunnelmark.model.quantity import percent
from tunnelmark.model.rules import Limits
from tunnelmark.model.validity import Check, Validity
from tunnelmark.probes.carried import Carried, per, wire_metrics
from tunnelmark.probes.cpu import CpuUsage

MEASURING = "measuring"
"""Start of the names of the CPU groups of programs that measure."""
DEVICE = "device"
"""Start of the names of the CPU groups of programs under the limit of a device."""
_MOST_OF_A_DEVICE = 0.9
"""Of the cores that it is held to: interrupts have no other place to go."""
_TUNNEL_UP = "tunnel_up"
LINK = "link"
"""Name of the group of the link emulator."""
TUNNEL = "tunnel"
"""Name of the group of the tunnel's programs; with an end behind it, of those on that host."""
GATEWAY = "gateway"
"""Name of the group of a gateway's own programs, apart from those of its clients."""
HELD = "tunnel on device"
"""Name of the group of the tunnel's programs that the limit of a device holds back."""
_RUN = ("client", "server", LINK)
"""Names of the groups in which each program of the lab is once."""


def cpu_checks(usage: CpuUsage, limits: Limits, *, measuring_s: float) -> list[Check]:
    """Judge stolen time and the CPU of each measuring program while traffic was under way."""
    busy_s = measuring_s or usage.wall_s
    steal = usage.steal_ratio or 0.0
    checks = [
        Check(
            "steal",
            ok=steal <= limits.steal,
            message=f"the hypervisor took {percent(steal, 1)} of the time; "
            f"the limit is {percent(limits.steal)}",
            value=steal,
            limit=limits.steal,
            unit="ratio",
        )
    ]
    for name, group in usage.groups.items():
        if not name.startswith(MEASURING):
            continue
        if group.stopped or group.unseen:
            words = (
                f"{name} was stopped for a time, by a signal or a tracer"
                if group.stopped
                else f"{name} ended before its CPU time was read: how much it used is unknown"
            )
            checks.append(Check(name.replace(" ", "_"), ok=not group.stopped, message=words))
            continue
        share = group.run_s / busy_s if busy_s > 0 else 0.0
        checks.append(
            Check(
                name.replace(" ", "_"),
                ok=share <= limits.measuring_cpu,
                message=f"{name} used {percent(share)} of a core; "
                f"the limit is {percent(limits.measuring_cpu)}",
                value=share,
                limit=limits.measuring_cpu,
                unit="ratio",
            )
        )
    return checks + _starvation(usage, limits, busy_s)


def _starvation(usage: CpuUsage, limits: Limits, busy_s: float) -> list[Check]:
    """Judge how long the tunnel waited for a core, by the part that is not the lab's own doing.

    A tunnel that uses up its device waits for itself, and that is what is to be measured.
    """
    waited_s = usage.groups[TUNNEL].wait_s
    if waited_s is None or busy_s <= 0:
        return []
    if (held := usage.groups.get(HELD)) is not None:
        # Under the limit of a device waiting is what the device is.
        waited_s = max(0.0, waited_s - (held.wait_s or 0.0))
    # Of programs that are not seen it is known what they did not use: what ran here and is seen,
    # and the kernel's work on packets, which is not a program's.
    seen_s = usage.own_s + math.fsum(usage.groups[n].run_s for n in _RUN if n in usage.groups)
    most_s = max(0.0, usage.busy_s - usage.softirq_s - seen_s)
    others_s = most_s if usage.others_s is None else usage.others_s
    others = min(1.0, others_s / usage.busy_s) if usage.busy_s > 0 else 0.0
    most = "at most " if usage.others_s is None else ""
    share = waited_s / busy_s * others
    return [
        Check(
            "starvation",
            ok=share <= limits.starvation,
            message=f"the tunnel's programs waited {percent(share, 1)} of the time for cores that "
            f"others used ({most}{percent(others)} of what ran here was not this lab's); "
            f"the limit is {percent(limits.starvation)}",
            value=share,
            limit=limits.starvation,
            unit="ratio",
        )
    ]


def device_checks(
    usage: CpuUsage,
    capacities: Mapping[str, float],
    cpus: Mapping[str, Sequence[int]],
    *,
    measuring_s: float,
) -> list[Check]:
    """Judge whether the cores that a device is held to left it what it is worth.

    ``capacities`` are cores that each device is worth, ``cpus`` the numbers of those that it has,
    by role. On a computer of few cores the other endpoint, the emulator and what measures run
    there too; as long as there is room for all of them, the device lacks nothing.
    """
    busy_s = measuring_s or usage.wall_s
    checks = []
    for role, numbers in cpus.items():
        shares = [usage.core_ratio(one, busy_s) for one in numbers]
        known = [share for share in shares if share is not None]
        if not known:
            continue
        # A second is the shortest time that is looked at.
        own = usage.groups[f"{DEVICE} {role}"].run_s / max(1.0, busy_s)
        beside = max(0.0, sum(known) - own)
        room = len(known) - min(capacities[role], _MOST_OF_A_DEVICE * len(known))
        which = ", ".join(map(str, numbers))
        checks.append(
            Check(
                f"device_cores_{role}",
                ok=beside <= room,
                message=f"the device of the {role} is worth {percent(capacities[role])} of a core "
                f"and runs on core {which}; other programs there used {percent(beside)} of a core, "
                f"which may be {percent(room)}",
                value=beside,
                limit=room,
                unit="ratio",
            )
        )
    return checks


def link_checks(
    before: LinkCounters | None,
    after: LinkCounters | None,
    problem: str | None,
    limits: Limits,
    *,
    apart_ns: int | None = None,
    direct: bool = False,
) -> list[Check]:
    """Judge the emulator: alive, frames conserved, nothing missed, on time.

    ``apart_ns`` as of ``lateness_checks``. ``direct``: there is none.
    """
    if direct:
        message = "no link emulator connects the ends: nothing counts the frames between them"
        return [Check("link_direct", ok=True, message=message)]
    if problem is not None or before is None or after is None:
        message = problem or "the link emulator gave no counters"
        return [Check("link_alive", ok=False, message=message)]
    checks = [Check("link_alive", ok=True, message="the link emulator ran")]
    pairs = (("forward", before.forward, after.forward), ("reverse", before.reverse, after.reverse))
    for direction, then, now in pairs:
        parts = ("delivered", "queue_dropped", "lost", "in_flight")
        total = sum(int(now[part]) for part in parts)
        came = int(now["offered"]) + int(now.get("duplicated", 0))
        checks.append(
            Check(
                f"link_conservation_{direction}",
                ok=total == came,
                message=f"link {direction}: offered and duplicated {came} = "
                + " + ".join(f"{part} {now[part]}" for part in parts),
            )
        )
        missed = {
            key: int(now[key]) - int(then[key])
            for key in ("capture_dropped", "send_errors", "oversized", "checksum_missing")
        }
        checks.append(
            Check(
                f"link_missed_{direction}",
                ok=not any(missed.values()),
                message=f"link {direction}: "
                + ", ".join(f"{key.replace('_', ' ')} {value}" for key, value in missed.items()),
                value=float(sum(missed.values())),
                limit=0.0,
                unit="frame",
            )
        )
        # Of this trial alone: one hiccup must not spoil every trial after it.
        seen = now["lateness_recent_ns"]
        late = [Late(seen["p90"], seen["tail"])] if seen else []
        checks += lateness_checks(
            f"link_lateness_{direction}",
            (f"the frames of link {direction}", "were forwarded"),
            late,
            limit_ns=limits.link_lateness,
            apart_ns=apart_ns,
        )
    return checks


def tunnel_check(problem: str | None) -> Check:
    """Judge whether the tunnel was still up at the end."""
    return Check(
        _TUNNEL_UP, ok=problem is None, message=problem or "the tunnel stayed up to the end"
    )


def agreed_check(check_agreed: Callable[[], None]) -> Check:
    """Judge whether both ends still say that what runs is what the study asks for."""
    try:
        check_agreed()
    except TunnelError as error:
        return Check("as_agreed", ok=False, message=str(error))
    return Check("as_agreed", ok=True, message="the negotiated parameters did not change")


def was_up(validity: Validity) -> bool:
    """Say whether the tunnel was seen to be up at the end of a trial."""
    return any(check.name == _TUNNEL_UP and check.ok for check in validity.checks)


def run_metrics(
    usage: CpuUsage,
    before: LinkCounters | None,
    after: LinkCounters | None,
    *,
    awake_s: float,
    payload_bytes: int,
    payload_packets: int,
    measuring_s: float,
    in_programs: bool,
    awake_beside_s: float = 0.0,
    outside_bytes: int = 0,
) -> dict[str, float | None]:
    """Return the metrics that are the same for every workload.

    ``awake_s``: what the instrument spent awake, waiting for a point in time; how much that is has
    to do with how deep a core slept, so it would be noise of the tunnel's cost. Of it,
    ``awake_beside_s`` ran on other cores than those of ``usage``.
    ``in_programs``: the traffic went through a tunnel whose work its programs do. The CPU time of
    programs that only set up a tunnel of the kernel's, or idle beside, is nothing's cost.
    ``outside_bytes``: the payload of loads beside the tunnel, which the link carried, too.
    """
    tunnel = usage.groups[TUNNEL]
    tunnel_s = tunnel.run_s if in_programs else None
    # Programs work while traffic is under way; the waiting before and after would thin it out.
    busy_s = measuring_s or usage.wall_s
    forward, reverse = (_carried(before, after, way) for way in ("forward", "reverse"))
    ours = [name for name in usage.groups if name == LINK or name.startswith(MEASURING)]
    instrument_s = _all_of(usage, ours, 1.0)
    lab_s = None if usage.lab_s is None else max(0.0, usage.lab_s - (awake_s - awake_beside_s))
    return {
        "cpu_client_ratio": _all_of(usage, ["client"], busy_s),
        "cpu_server_ratio": _all_of(usage, ["server"], busy_s),
        "cpu_tunnel_ratio": per(tunnel_s, busy_s),
        "cpu_tunnel_thread_max_ratio": _share(tunnel.busiest_thread_s, busy_s)
        if in_programs
        else None,
        **(_by_end(usage, busy_s) if in_programs else {}),
        "cpu_core_max_ratio": usage.core_max_ratio(busy_s),
        "cpu_lab_ratio": per(lab_s, busy_s),
        "cpu_instrument_s": None if instrument_s is None else usage.own_s + instrument_s,
        "cpu_awake_s": awake_s,
        "cpu_others_s": usage.others_s,
        "cpu_machine_ratio": usage.machine_ratio,
        "cpu_steal_ratio": usage.steal_ratio,
        "cpu_softirq_ratio": usage.softirq_ratio,
        "cpu_load_average": usage.load_average,
        "cpu_cost_s_per_gib": per(tunnel_s, payload_bytes / (1 << 30)),
        "cpu_cost_s_per_mpkt": per(tunnel_s, payload_packets / 1e6),
        "cpu_machine_cost_s_per_gib": per(lab_s, payload_bytes / (1 << 30)),
        "cpu_machine_cost_s_per_mpkt": per(lab_s, payload_packets / 1e6),
        **wire_metrics(
            forward, reverse, payload_bytes=payload_bytes + outside_bytes, measuring_s=measuring_s
        ),
    }


def of_no_data_path(metrics: Mapping[str, float | None]) -> dict[str, float | None]:
    """Return the metrics of a trial in which tunnels were set up: those of the machine.

    What starts of programs cost says nothing of packets; it would stand beside figures that do.
    """
    return {name: value if name in _OF_THE_MACHINE else None for name, value in metrics.items()}


_OF_THE_MACHINE = {
    "cpu_others_s",
    "cpu_machine_ratio",
    "cpu_steal_ratio",
    "cpu_load_average",
}


def _by_end(usage: CpuUsage, busy_s: float) -> dict[str, float | None]:
    """Return what the tunnel's programs ran on each host, or those of a gateway."""
    if (gateway := usage.groups.get(GATEWAY)) is not None:
        return {
            "cpu_gateway_ratio": per(gateway.run_s, busy_s),
            "cpu_gateway_thread_max_ratio": _share(gateway.busiest_thread_s, busy_s),
        }
    return {
        f"cpu_tunnel_{end}_ratio": _all_of(usage, [name], busy_s)
        for end in ("client", "server")
        if (name := f"{TUNNEL} {end}") in usage.groups
    }


def _all_of(usage: CpuUsage, groups: Sequence[str], whole_s: float) -> float | None:
    """Return what groups ran as a share of a time; None where a part of it was not seen."""
    found = [usage.groups[name] for name in groups]
    if any(group.unseen for group in found):
        return None
    return per(sum(group.run_s for group in found), whole_s)


def device_metrics(
    usage: CpuUsage,
    capacities: Mapping[str, float],
    throttled: Mapping[str, Throttled],
    run_s: Mapping[str, float | None],
    *,
    measuring_s: float,
) -> dict[str, float | None]:
    """Return how busy the devices were, by role; nothing of an endpoint without a limit.

    ``capacities`` are cores of this computer that each device is worth; ``run_s`` is what a device
    ran as a whole, where only its processes are not all of it: that is over the whole trial.
    """
    busy_s = measuring_s or usage.wall_s
    found: dict[str, float | None] = {}
    for role, capacity in capacities.items():
        whole_s = run_s.get(role)
        found[f"cpu_device_{role}_ratio"] = (
            per(usage.groups[f"{DEVICE} {role}"].run_s, busy_s * capacity)
            if whole_s is None
            else per(whole_s, usage.wall_s * capacity)
        )
        count = throttled[role]
        found[f"cpu_device_{role}_full_ratio"] = per(count.throttled, count.periods)
    return found


def _carried(
    before: LinkCounters | None, after: LinkCounters | None, direction: str
) -> Carried | None:
    if before is None or after is None:
        return None
    then: Mapping[str, Any] = getattr(before, direction)
    now: Mapping[str, Any] = getattr(after, direction)
    frames = int(now["delivered"]) - int(then["delivered"])
    octets = int(now["delivered_bytes"]) - int(then["delivered_bytes"])
    return Carried(frames, octets - before.header_bytes * frames)


def _share(value: float | None, whole: float) -> float | None:
    """Return a share of one core; what ran before and after the traffic makes it no more than 1."""
    return None if (found := per(value, whole)) is None else min(1.0, found)
