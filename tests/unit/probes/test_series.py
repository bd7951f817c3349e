"""Second by second: rates between reports, shares of cores."""

from typing import Any

import pytest

from tunnelmark.probes.cpu import CoreTicks, CpuProbe, CpuSecond, CpuView, parse_cores
from tunnelmark.probes.proc import parse_load_average
from tunnelmark.probes.series import MOST_SECONDS, cpu_seconds, link_seconds

S = 10**9
START = 100 * S


def report(second: float, frames: int, *, dropped: int = 0) -> tuple[int, dict[str, Any]]:
    way = {
        "delivered": frames,
        "delivered_bytes": frames * 1014,
        "queue_dropped": dropped,
        "lost": 0,
    }
    still = {"delivered": 7, "delivered_bytes": 700, "queue_dropped": 0, "lost": 3}
    return START + int(second * S), {"forward": way, "reverse": still}


def test_the_rate_is_that_of_ip_packets_over_the_time_that_passed() -> None:
    reports = [report(1, 10), report(2, 110), report(4, 310, dropped=5)]
    first, second = link_seconds(reports, START, header_bytes=14)
    assert first["end_s"] == 2
    assert first["wire_forward_bit_s"] == 100 * 1000 * 8
    assert first["wire_reverse_bit_s"] == 0
    assert second["wire_forward_bit_s"] == 200 * 1000 * 8 / 2
    assert (second["queue_dropped_forward"], second["lost_forward"]) == (5, 0)


def test_two_reports_at_once_are_one() -> None:
    reports = [report(1, 0), report(1.001, 1), report(2, 100)]
    (only,) = link_seconds(reports, START, header_bytes=14)
    assert only["wire_forward_bit_s"] == pytest.approx(100 * 8000)


def test_without_two_reports_there_is_no_rate() -> None:
    assert link_seconds([], START, header_bytes=14) == []
    assert link_seconds([report(1, 5)], START, header_bytes=14) == []


def test_at_most_an_hour_is_kept() -> None:
    reports = [report(second, second) for second in range(MOST_SECONDS + 10)]
    assert len(link_seconds(reports, START, header_bytes=14)) == MOST_SECONDS


def test_cores_are_shares_of_their_own_time() -> None:
    cores = (CoreTicks(50, 20, 20, 0, 10, 1.0), CoreTicks(0, 0, 0, 0, 0, 1.0, 1))
    (second,) = cpu_seconds([CpuSecond(1.0, cores, 2.5)])
    assert second["load_average"] == 2.5
    assert second["cores"] == [
        {"user": 0.5, "system": 0.2, "softirq": 0.2, "steal": 0.0},
        dict.fromkeys(("user", "system", "softirq", "steal")),
    ]


class Ticking:
    """A core that is 10 ticks in softirq and 90 idle in each reading."""

    def __init__(self) -> None:
        self.readings = 0

    def look(self) -> CpuView:
        self.readings += 1
        done = 10 * self.readings, 90 * self.readings
        text = f"cpu0 0 0 0 {done[1]} 0 0 {done[0]} 0"
        return CpuView(
            parse_cores(text, self.readings * 10**8),
            lambda _pid: (),
            lambda _pid: None,
            load_average=float(self.readings),
        )


def test_the_probe_notes_the_cores_once_a_second() -> None:
    probe = CpuProbe(dict, Ticking())
    probe.start(START)
    for tenth in range(1, 26):
        probe.sample(START + tenth * S // 10)
    usage = probe.stop(START + 26 * S // 10)
    assert [second.end_s for second in usage.seconds] == [1.0, 2.0]
    assert usage.seconds[0].cores == (CoreTicks(0, 0, 100, 0, 900, 1.0),)
    assert usage.softirq_ratio == 0.1
    assert usage.load_average == 27.0


def test_a_load_average_that_is_none_is_none() -> None:
    assert parse_load_average("0.52 0.40 0.30 1/200 4711\n") == 0.52
    assert parse_load_average("") is None
    assert parse_load_average("much\n") is None
