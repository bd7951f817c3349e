"""An hour of traffic through OpenVPN and WireGuard each, in which nothing may grow; into soak.md.

10,000 packets a second, five at a time, go through each tunnel and come back, one tunnel after the
other, for as long as is asked. Memory and open files of every process are read each 10 seconds;
what they do with time is a straight line whose slope has an interval that knows of neighbouring
samples alike (HAC).
The samples of the last run of each tunnel are kept beside the page, so that the tunnels can have
their hours on different days. Needs root.
"""

import argparse
import json
import os
import platform
import random
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, Literal

import numpy as np
import statsmodels.api as sm

from tunnelmark.engine import config
from tunnelmark.engine.binary import find_engine
from tunnelmark.engine.events import parse_event, wait_for
from tunnelmark.engine.link import Direction, LinkSpec, Queue
from tunnelmark.engine.summary import SendFlow, parse_send_summary
from tunnelmark.hosts.ledger import Ledger
from tunnelmark.lab.lab import Lab
from tunnelmark.model.errors import LabError
from tunnelmark.model.host import Process
from tunnelmark.model.quantity import percent
from tunnelmark.model.topology import Topology
from tunnelmark.model.tunnel import TrafficPath
from tunnelmark.probes.cpu import CpuProbe
from tunnelmark.probes.proc import ProcCpu
from tunnelmark.tunnels.registry import tunnel_kinds

TUNNELS: Final = {
    "openvpn": ("OpenVPN, AES-256-GCM", {"cipher": "AES-256-GCM"}),
    "wireguard": ("WireGuard, wireguard-go", {"implementation": "wireguard-go"}),
}
"""By kind: what it is called on the page, and its parameters."""
OURS: Final = ("sender", "reflector", "emulator", "our Python process")
"""What must be flat; what a tunnel's own programs do is shown beside it."""
_PACKET_S: Final = 10_000
_PAYLOAD_BYTES: Final = 200
_SAMPLE_S: Final = 10.0
_WARM_SHARE: Final = 0.1
"""Of the samples, left out: what is made when it is first used is not growth."""
FLAT_MIB_PER_H: Final = 1.0
_LEVEL: Final = 0.05
_PORT: Final = 7792
_LEAST_SENT: Final = 0.98
_LEAST_RETURNED: Final = 0.99
_ENDS_S: Final = 5.0
"""Start of the sender and wait for the last packets, in which none is sent."""
_UNSEEN_S: Final = 2 * _SAMPLE_S
"""Between the last sample and the end."""
_REALTIME_PRIORITY: Final = 10
_DRAIN_NS: Final = 1_000_000_000
_TOGETHER_NS: Final = 500_000
"""Packets that are due within so long leave together: to wake each program for each packet takes a
computer of two cores more than the packets, and the tunnel's socket buffers overflow meanwhile."""

Verdict = Literal["flat", "grows", "not known"]


@dataclass
class Series:
    """One process over time."""

    seconds: list[float] = field(default_factory=list)
    rss_mib: list[float] = field(default_factory=list)
    files: list[int] = field(default_factory=list)

    def add(self, at_s: float, pid: int) -> None:
        """Read it once more; nothing is added if it has ended."""
        try:
            pages = int(Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()[1])
            files = len(os.listdir(f"/proc/{pid}/fd"))  # noqa: PTH208 - only how many
        except OSError:
            return
        self.seconds.append(round(at_s, 3))
        self.rss_mib.append(round(pages * os.sysconf("SC_PAGE_SIZE") / 2**20, 4))
        self.files.append(files)


@dataclass(frozen=True)
class Trend:
    """What memory does with time."""

    mib_per_h: float
    low: float
    high: float
    """95 % interval."""

    @property
    def verdict(self) -> Verdict:
        """Whether it grows by more than is taken for flat."""
        if self.high <= FLAT_MIB_PER_H:
            return "flat"
        return "grows" if self.low > FLAT_MIB_PER_H else "not known"


def trend(seconds: Sequence[float], mib: Sequence[float]) -> Trend | None:
    """Return the straight line through the samples behind the warm-up; None if they are too few."""
    skipped = int(len(seconds) * _WARM_SHARE)
    hours = np.asarray(seconds[skipped:]) / 3600
    values = np.asarray(mib[skipped:])
    if len(hours) < 4:  # noqa: PLR2004 - two for the line, two to know how far off it is
        return None
    if np.ptp(values) == 0:
        return Trend(0.0, 0.0, 0.0)
    # Newey and West's rule for how many neighbours are taken to be alike.
    lags = int(4 * (len(hours) / 100) ** (2 / 9))
    fit = sm.OLS(values, sm.add_constant(hours)).fit(
        cov_type="HAC", cov_kwds={"maxlags": lags}, use_t=True
    )
    low, high = fit.conf_int(_LEVEL)[1]
    return Trend(float(fit.params[1]), float(low), float(high))


@dataclass
class Soaked:
    """One tunnel's hour."""

    tunnel: str
    day: str
    on: str
    """Kernel and cores."""
    seconds: float
    sent: int
    returned: int
    series: dict[str, Series]
    stolen: float | None = None
    """Share of the cores' time that the hypervisor took; None: it is not known."""


def fill_interned() -> None:
    """Have Python's table of interned strings grow now, and not in the middle of an hour.

    Names that come and go, such as parts of paths, use up its places; then it doubles once. Of all
    that is loaded here it has some 50,000, and doubled by 1.9 MiB after 38 minutes. A million names
    have it made again some times: what is freed then is there for the next time.
    """
    for number in range(1_000_000):
        sys.intern(f"soak {number}")


def soak(kind: str, seconds: float) -> Soaked:
    """Bring a tunnel of a kind up and send through it for so long."""
    name, params = TUNNELS[kind]
    engine = find_engine()
    way = Direction(rate_bit_s=100_000_000, delay_ns=1_000_000, queue=Queue("bytes", 1 << 20))
    link = LinkSpec(way, way, 1)
    # Nothing that waits takes a core from what shall carry an hour of this.
    with Ledger() as ledger, Lab(ledger, Topology(), link, engine=engine, spin=False) as lab:
        driver = tunnel_kinds()[kind]
        tunnel = driver(driver.params_type.model_validate(params))
        if reason := tunnel.unavailable(lab.client_host):
            raise LabError(f"{name}: {reason}")
        with ExitStack() as ending:
            ending.callback(tunnel.down)
            up = tunnel.up(lab.site)
            reflect, send = _configurations(up.paths[0], seconds)
            reflector = _start(lab, engine, "reflect", reflect)
            wait_for(reflector, "ready", limit_s=10.0)
            sender = _start(lab, engine, "send", send)
            (emulator,) = lab.emulators
            pids = {
                "sender": sender.pid,
                "reflector": reflector.pid,
                "emulator": emulator.pid,
                "our Python process": os.getpid(),
                **{f"{process.name} ({host})": process.pid for host, process in up.processes},
            }
            series = {role: Series() for role in pids}
            cores = CpuProbe(dict, ProcCpu())
            cores.start(time.monotonic_ns())
            flow = _watch(sender, reflector, pids, series, seconds)
            used = cores.stop(time.monotonic_ns())
            if problem := tunnel.problem() or lab.problem():
                raise LabError(f"{name}: {problem}")
            if reflector.poll() is not None:
                raise LabError(f"{name}: the reflector has ended: {reflector.log_tail(1)}")
            reflector.stop()
        day = datetime.now(UTC).date().isoformat()
        on = f"Linux {platform.release()}, {os.cpu_count()} cores"
        took, stolen = used.wall_s, used.steal_ratio
        return Soaked(name, day, on, took, flow.sent, flow.returned, series, stolen)


def _configurations(path: TrafficPath, seconds: float) -> tuple[dict[str, Any], dict[str, Any]]:
    (session,) = config.sessions(random.Random(1), 1)  # noqa: S311 - of a test, no secret
    flow = config.Flow(
        session=session,
        target=config.address(path.server_address, _PORT),
        source=config.address(path.client_address, 0),
        gap_ns=10**9 // _PACKET_S,
        start_offset_ns=0,
        packets=int(seconds * _PACKET_S),
        duration_ns=None,
        payload_bytes=_PAYLOAD_BYTES,
        content={"type": "random"},
    )
    common: dict[str, Any] = {
        "records": None,
        "realtime_priority": _REALTIME_PRIORITY,
        "parent_pid": os.getpid(),
    }
    send = config.send_config(
        [flow], seed=1, drain_ns=_DRAIN_NS, late_ns=_DRAIN_NS, spin=False, **common
    )
    send["coalesce_ns"] = _TOGETHER_NS
    return config.reflect_config([flow.target], [session], **common), send


def _start(lab: Lab, engine: str, command: str, document: Mapping[str, Any]) -> Process:
    host = lab.server_host if command == "reflect" else lab.client_host
    data = json.dumps(document).encode()
    return host.spawn([engine, command, "-"], name=f"soak-{command}", stdin=data, lines=True)


def _watch(
    sender: Process,
    reflector: Process,
    pids: Mapping[str, int],
    series: Mapping[str, Series],
    seconds: float,
) -> SendFlow:
    """Read the sender's events to its end, and every process each 10 seconds."""
    began = time.monotonic()
    due = 0.0
    while (now := time.monotonic() - began) < 1.5 * seconds + 60:
        if now >= due:
            due += _SAMPLE_S
            # What it says each second is kept until somebody reads it.
            with suppress(TimeoutError):
                while reflector.read_line(0) is not None:
                    pass
            for role, pid in pids.items():
                series[role].add(now, pid)
        try:
            line = sender.read_line(min(1.0, max(0.0, due - now)))
        except TimeoutError:
            continue
        if line is None:
            raise LabError(f"the sender ended without a summary: {sender.log_tail(1)}")
        event = parse_event(line)
        if event["event"] == "summary":
            (flow,) = parse_send_summary(event).flows
            return flow
        if event["event"] == "error":
            raise LabError(f"the sender: {event.get('message')}")
    raise LabError("the sender did not end")


def page(soaked: Sequence[Soaked]) -> str:
    """Return the table."""
    lines = [
        "# Soak",
        "",
        f"{_PACKET_S:,} packets/s of {_PAYLOAD_BYTES} bytes there and back through each tunnel,",
        f"those of {_TOGETHER_NS // 1000} µs together.",
        "Made by `make soak`. Memory is resident, read each 10 s; the first tenth of the samples",
        "is left out. Flat: the 95 % interval of the slope of memory stays below",
        f"{FLAT_MIB_PER_H:g} MiB an hour.",
        "",
        "| tunnel | process | samples | memory at last | slope per hour | memory | open files |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    for one in soaked:
        for role, series in one.series.items():
            found = trend(series.seconds, series.rss_mib)
            slope = "too few samples"
            if found is not None:
                slope = f"{found.mib_per_h:+.2f} ({found.low:+.2f} to {found.high:+.2f}) MiB"
            lines.append(
                f"| {one.tunnel} | {role} | {len(series.seconds)} | {series.rss_mib[-1]:.1f} MiB "
                f"| {slope} | {found.verdict if found else 'not known'} | {_files(series)} |"
            )
    lines.append("")
    lines += [f"- {one.tunnel}: {_traffic(one)} ({one.day}, {one.on})." for one in soaked]
    return "\n".join([*lines, ""])


def _traffic(one: Soaked) -> str:
    lost = one.sent - one.returned
    words = (
        f"{one.sent:,} packets sent in {one.seconds:,.0f} s, {lost:,} "
        f"({percent(lost / max(one.sent, 1), 2)}) did not come back"
    )
    if one.stolen is not None:
        words += f"; the hypervisor took {percent(one.stolen, 1)} of the cores' time"
    return words


def keep(one: Soaked, path: Path) -> list[Soaked]:
    """Put a tunnel's hour into a file, in place of the one before; return all that it has."""
    kept = [*(other for other in read(path) if other.tunnel != one.tunnel), one]
    order = [name for name, _ in TUNNELS.values()]
    kept.sort(key=lambda each: order.index(each.tunnel))
    text = "".join(json.dumps(asdict(each)) + "\n" for each in kept)
    path.write_text(text, encoding="utf-8")
    return kept


def read(path: Path) -> list[Soaked]:
    """Return the hours of a file; none where there is no file yet."""
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    return [_read(line) for line in lines]


def _read(line: str) -> Soaked:
    raw = json.loads(line)
    series = {role: Series(**one) for role, one in raw.pop("series").items()}
    return Soaked(**raw, series=series)


def grown(soaked: Sequence[Soaked]) -> list[str]:
    """Return what of ours is not known to be flat."""
    found = []
    for one in soaked:
        for role in OURS:
            series = one.series[role]
            memory = trend(series.seconds, series.rss_mib)
            if memory is None or memory.verdict != "flat":
                found.append(f"{one.tunnel}: memory of the {role}")
            if not _files_flat(series):
                found.append(f"{one.tunnel}: open files of the {role}")
    return found


def missing(soaked: Sequence[Soaked]) -> list[str]:
    """Return what traffic and which samples there must be and are not."""
    found = []
    for one in soaked:
        if one.sent < _LEAST_SENT * _PACKET_S * (one.seconds - _ENDS_S):
            found.append(f"{one.tunnel}: packets sent, {one.sent:,} in {one.seconds:,.0f} s")
        if one.returned < _LEAST_RETURNED * one.sent:
            found.append(f"{one.tunnel}: packets returned, {one.returned:,} of {one.sent:,}")
        for role in OURS:
            series = one.series[role]
            if max(series.seconds, default=0.0) < one.seconds - _UNSEEN_S - 0.02 * one.seconds:
                found.append(f"{one.tunnel}: samples of the {role} to the end")
    return found


def _files(series: Series) -> str:
    kept = _behind_warm_up(series.files)
    span = f"{min(kept)}" if min(kept) == max(kept) else f"{min(kept)} to {max(kept)}"
    return f"{span}, {'flat' if _files_flat(series) else 'grow'}"


def _files_flat(series: Series) -> bool:
    # Not first and last alone: either may be one that is open for a moment.
    kept = _behind_warm_up(series.files)
    half = len(kept) // 2
    return max(kept[half:], default=0) <= max(kept[:half] or kept, default=0)


def _behind_warm_up(values: Sequence[int]) -> Sequence[int]:
    return values[int(len(values) * _WARM_SHARE) :]


def main() -> int:
    """Soak; exit status 1 if something of ours is not known to be flat, or traffic is missing."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=3600.0, help="of each tunnel")
    parser.add_argument("--out", type=Path, default=Path(__file__).with_name("soak.md"))
    parser.add_argument("--tunnel", choices=TUNNELS, help="only this one; default: each in turn")
    parser.add_argument("--page", action="store_true", help="write the page again, soak nothing")
    given = parser.parse_args()
    file = given.out.with_suffix(".jsonl")
    if given.page:
        soaked = read(file)
        given.out.write_text(page(soaked), encoding="utf-8")
        return _verdict(soaked)
    fill_interned()
    soaked = []
    for kind in [given.tunnel] if given.tunnel else TUNNELS:
        print(f"{TUNNELS[kind][0]}: {given.seconds:g} s", flush=True)
        one = soak(kind, given.seconds)
        soaked.append(one)
        # At once: the next one may be ended.
        given.out.write_text(page(keep(one, file)), encoding="utf-8")
    return _verdict(soaked)


def _verdict(soaked: Sequence[Soaked]) -> int:
    found = [f"not known to be flat: {what}" for what in grown(soaked)]
    found += [f"too few: {what}" for what in missing(soaked)]
    for words in found:
        print(words)
    return 1 if found else 0


if __name__ == "__main__":
    raise SystemExit(main())
