"""The public tools the engine is set beside: iperf3, irtt and ping, each by its own output."""

import json
import re
import resource
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass

from pair import PORT, SERVER, Pair

_REALTIME = ("chrt", "-f", "10")
_TRIES = 3
_START_S, _END_S = 0.3, 30.0


@dataclass(frozen=True)
class PeerRun:
    """What a peer says of one run."""

    asked_packet_s: float
    sent: int
    received: int
    seconds: float
    cpu_s: float
    rtt_p50_us: float | None = None
    timer_mean_us: float | None = None
    """irtt gives no median of it."""
    timer_max_us: float | None = None

    @property
    def loss_ratio(self) -> float:
        """Share of the packets sent that did not arrive (or did not come back)."""
        return 1 - self.received / self.sent if self.sent else 1.0

    @property
    def received_packet_s(self) -> float:
        """Packets that arrived per second."""
        return self.received / self.seconds


def iperf3_udp(
    pair: Pair, *, packet_s: float, duration_s: float, payload_bytes: int = 64
) -> PeerRun:
    """Run iperf3 one way at a packet rate."""
    before = _children_cpu_s()
    server = pair.start(pair.server, ["iperf3", "-s", "-1", "-p", str(PORT + 1)])
    time.sleep(0.3)
    rate = int(packet_s * payload_bytes * 8)
    text = pair.run(
        pair.client,
        [
            "iperf3",
            "-c",
            SERVER,
            "-p",
            str(PORT + 1),
            "-u",
            "-b",
            str(rate),
            "-l",
            str(payload_bytes),
            "-t",
            str(duration_s),
            "-J",
            "--pacing-timer",
            "100",
        ],
    )
    server.communicate(timeout=20)
    end = json.loads(text)["end"]["sum"]
    sent, lost = int(end["packets"]), int(end["lost_packets"])
    return PeerRun(packet_s, sent, sent - lost, float(end["seconds"]), _children_cpu_s() - before)


def irtt(pair: Pair, *, gap_us: float, duration_s: float, realtime: bool = False) -> PeerRun:
    """Run irtt at a gap with its busy timer; with the priority of ours where it has one."""
    words = ("--timer=busy", "-o", "-", "-Q")
    text, cpu_s = _irtt(pair, gap_us, duration_s, words, _REALTIME if realtime else ())
    stats = json.loads(text[text.index("{") :])["stats"]
    sent, received = int(stats["packets_sent"]), int(stats["packets_received"])
    error = stats["timer_error"]
    return PeerRun(
        1e6 / gap_us,
        sent,
        received,
        float(stats["send_call"]["n"]) * gap_us / 1e6 if sent else duration_s,
        cpu_s,
        stats["rtt"].get("median", 0) / 1000,
        error["mean"] / 1000,
        error["max"] / 1000,
    )


def irtt_cost(pair: Pair, *, gap_us: float, duration_s: float) -> PeerRun:
    """Run irtt asleep between its packets and without a record of each: what it costs."""
    text, cpu_s = _irtt(pair, gap_us, duration_s, ("--timer=comp",), ())
    found = re.search(r"packets sent/received: (\d+)/(\d+)", text)
    if found is None:
        raise RuntimeError(f"irtt: {text.strip()[-200:]}")
    return PeerRun(1e6 / gap_us, int(found[1]), int(found[2]), duration_s, cpu_s)


def _irtt(
    pair: Pair, gap_us: float, duration_s: float, words: Sequence[str], before: Sequence[str]
) -> tuple[str, float]:
    """Return what the client prints, and the CPU time of both ends in seconds.

    ``before`` stands before both ends' words. A client that hangs is tried again: with real-time
    priority its spinning threads have been seen to keep each other from the end.
    """
    at = f"{SERVER}:{PORT + 2}"
    client = [*before, "irtt", "client", "-i", f"{gap_us:.3f}us", "-d", f"{duration_s}s"]
    for left in reversed(range(_TRIES)):
        cpu_s = _children_cpu_s()
        server = pair.start(
            pair.server, [*before, "irtt", "server", "-b", at, "-i", "0", "-d", "0", "-l", "0"]
        )
        time.sleep(_START_S)
        try:
            text = pair.run(
                pair.client, [*client, "-l", "64", *words, at], timeout_s=duration_s + _END_S
            )
        except subprocess.TimeoutExpired:
            if not left:
                raise
            continue
        finally:
            server.terminate()
            server.communicate(timeout=10)
        return text, _children_cpu_s() - cpu_s
    raise AssertionError("unreachable")


def ping_rtt_p50_us(pair: Pair, *, count: int = 2000, gap_ms: float = 1.0) -> float:
    """Return the median RTT of ping by its own lines."""
    text = pair.run(
        pair.client, ["ping", "-n", "-c", str(count), "-i", str(gap_ms / 1000), "-s", "64", SERVER]
    )
    times = sorted(float(match) for match in re.findall(r"time=([\d.]+) ms", text))
    return times[len(times) // 2] * 1000


def _children_cpu_s() -> float:
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime
