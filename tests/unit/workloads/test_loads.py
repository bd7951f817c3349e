"""Loads of constant rate: sizes, rates, reference; figures by direction."""

from collections.abc import Sequence
from dataclasses import fields, replace
from typing import Any

import numpy as np
import pytest
from pydantic import ValidationError

from made_contexts import context
from tunnelmark.engine import config
from tunnelmark.engine.link import Direction, LinkSpec, Queue, SharedLinkSpec
from tunnelmark.engine.records import MISSING_NS, Flow
from tunnelmark.model.errors import LabError
from tunnelmark.workloads import loads
from tunnelmark.workloads.echo_metrics import rate
from tunnelmark.workloads.loads import Loaded, RateParams, ip_packets, link_packet_rate, lost
from tunnelmark.workloads.rate_search import RateSearch, RateSearchParams, _Bench
from tunnelmark.workloads.streams import Streamed
from tunnelmark.workloads.udp_load import UdpLoad, UdpLoadParams

QUEUE = Queue("bytes", 65536)


def ethernet(rate_bit_s: int | None) -> LinkSpec:
    one = Direction(rate_bit_s, 0, QUEUE, frame_overhead_bytes=24, frame_min_bytes=84)
    return LinkSpec(one, one, seed=1)


def serial(forward: int, reverse: int) -> LinkSpec:
    ways = [
        Direction(rate, 0, QUEUE, frame_overhead_bytes=-14, frame_min_bytes=0)
        for rate in (forward, reverse)
    ]
    return LinkSpec(ways[0], ways[1], seed=1)


# RFC 2544 appendix B gives the rates of 10 Mbit/s Ethernet; those of 70 bytes are worked out.
@pytest.mark.parametrize(
    ("frame_bytes", "frames"),
    [
        (70, 13888),
        (128, 8445),
        (256, 4528),
        (512, 2349),
        (768, 1586),
        (1024, 1197),
        (1280, 961),
        (1518, 812),
    ],
)
def test_ethernet_carries_what_rfc_2544_says(frame_bytes: int, frames: int) -> None:
    params = RateParams(frame_bytes=frame_bytes, load="100 %")
    assert int(params.rate(ethernet(10_000_000), 1500)) == frames


def test_the_smallest_frame_of_ethernet_is_filled_up() -> None:
    assert link_packet_rate(ethernet(10_000_000), 18, 1500) == pytest.approx(14880.95, abs=0.01)
    assert link_packet_rate(ethernet(10_000_000), 1, 1500) == pytest.approx(14880.95, abs=0.01)


def test_the_slower_direction_is_the_reference() -> None:
    params = RateParams(payload_bytes=972, load=0.5)
    assert params.rate(serial(8_000_000, 2_000_000), 1500) == pytest.approx(125)


def test_fragments_are_counted() -> None:
    assert ip_packets(1472, 1500) == [1500]
    assert ip_packets(1473, 1500) == [1500, 21]
    assert ip_packets(3000, 1500) == [1500, 1500, 68]
    rate = link_packet_rate(serial(8_000_000, 8_000_000), 1473, 1500)
    assert rate == pytest.approx(8e6 / (8 * 1521))
    # IPv6: 40 of header, and 8 more in each fragment.
    assert ip_packets(1452, 1500, "ipv6") == [1500]
    assert ip_packets(1453, 1500, "ipv6") == [1496, 61]
    rate = link_packet_rate(serial(8_000_000, 8_000_000), 18, 1500, "ipv6")
    assert rate == pytest.approx(8e6 / (8 * 66))


@pytest.mark.parametrize(
    ("counts", "octets"), [("payload", 1000), ("ip", 1028), ("frame", 1046), ("line", 1066)]
)
def test_an_absolute_reference_says_what_it_counts(counts: str, octets: int) -> None:
    params = RateParams.model_validate(
        {
            "payload_bytes": 1000,
            "load": "25 %",
            "reference": "8 Mbit/s",
            "reference_counts": counts,
        }
    )
    assert params.rate(None, 1500) == pytest.approx(0.25 * 1e6 / octets)


def test_throughput_and_packet_rate_are_one_figure() -> None:
    params = RateParams.model_validate({"payload_bytes": 200, "throughput": "160 kbit/s"})
    assert params.rate(None, 1500) == 100
    assert RateParams(payload_bytes=200, packet_rate=100).rate(None, 1500) == 100


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"load": 0.5}, "payload_bytes or frame_bytes"),
        ({"payload_bytes": 99, "frame_bytes": 99, "load": 0.5}, "payload_bytes or frame_bytes"),
        ({"payload_bytes": 99}, "one of packet_rate, throughput and load"),
        ({"payload_bytes": 99, "load": 0.5, "packet_rate": 1}, "one of packet_rate"),
        ({"payload_bytes": 99, "packet_rate": 1, "reference": "1 Mbit/s"}, "but no load"),
        ({"payload_bytes": 99, "load": 0}, "greater than 0"),
    ],
)
def test_what_contradicts_itself_is_refused(values: dict[str, object], words: str) -> None:
    with pytest.raises(ValidationError, match=words):
        UdpLoadParams.model_validate(values)


@pytest.mark.parametrize("link", [None, ethernet(None), SharedLinkSpec({"type": "wlan"}, 1)])
def test_a_share_of_no_rate_is_refused_before_anything_is_made(link: object) -> None:
    params = UdpLoadParams(payload_bytes=100, load=0.5)
    assert "give reference" in str(UdpLoad(params).unfit(link, 1500))  # type: ignore[arg-type]
    search = RateSearch(RateSearchParams(payload_bytes=100))
    assert "give reference" in str(search.unfit(link, 1500))  # type: ignore[arg-type]
    with pytest.raises(LabError, match="give reference"):
        params.rate(link, 1500)  # type: ignore[arg-type]


def test_a_load_of_too_many_packets_is_refused() -> None:
    params = UdpLoadParams.model_validate(
        {"payload_bytes": 100, "packet_rate": 1e6, "duration": "60 s"}
    )
    assert "60000000 packets" in str(UdpLoad(params).unfit(None, 1500))


def test_rate_of_arrivals() -> None:
    sent = np.array([0, 10**9, 2 * 10**9], dtype=np.int64)
    none = np.full(3, MISSING_NS, dtype=np.int64)

    def flow(arrived: np.ndarray) -> Flow:
        size, late = np.full(3, 100, dtype=np.int64), np.zeros(3, dtype=np.bool_)
        return Flow(sent, size, arrived, none, none, none, late)

    assert rate(3, [flow(sent + 7)], "arrived") == pytest.approx(1.0)
    later = replace(flow(sent + 7 + 10**9 // 2), sent_ns=sent + 10**9 // 2)
    assert rate(6, [flow(sent + 7), later], "arrived") == pytest.approx(2.0)
    assert rate(0, [flow(none)], "arrived") == 0
    single = replace(flow(sent), **{f.name: getattr(flow(sent), f.name)[:1] for f in fields(Flow)})
    assert rate(1, [single], "arrived") is None


def test_a_late_packet_counts_as_lost_where_there_is_a_limit() -> None:
    sent = np.arange(5, dtype=np.int64) * 1000
    arrived = sent + np.array([100, 100, 160, 151, 0], dtype=np.int64)
    arrived[4] = MISSING_NS
    flow = Flow(
        sent_ns=sent,
        size=np.full(5, 100, dtype=np.int64),
        arrived_ns=arrived,
        answered_ns=np.full(5, MISSING_NS, dtype=np.int64),
        returned_ns=np.full(5, MISSING_NS, dtype=np.int64),
        residence_ns=np.zeros(5, dtype=np.int64),
        late=np.zeros(5, dtype=np.bool_),
    )
    assert lost(flow, None) == 1
    assert lost(flow, 50) == 3
    assert lost(flow, 60) == 1


@pytest.mark.parametrize(("limit", "missing"), [(None, 1), ("4 ms", 5), ("100 ms", 1)])
def test_an_echo_has_its_delay_limit_on_the_round_trip(limit: str | None, missing: int) -> None:
    ms, count = 10**6, 10
    sent = np.arange(count, dtype=np.int64) * 10 * ms
    # The way back has the queue: it grows by 1 ms from packet to packet. The last one is lost.
    back = sent + (20 + np.arange(count, dtype=np.int64)) * ms
    # A reflector that had a packet for 50 ms adds nothing to its way.
    kept = np.zeros(count, dtype=np.int64)
    kept[2] = 50 * ms
    back += kept
    back[-1] = MISSING_NS
    echo = Flow(
        sent_ns=sent,
        size=np.full(count, 100, dtype=np.int64),
        arrived_ns=sent + 10 * ms,
        answered_ns=sent + 10 * ms + kept,
        returned_ns=back,
        residence_ns=kept,
        late=np.zeros(count, dtype=np.bool_),
    )
    given = {"payload_bytes": 100, "direction": "echo"} | ({"delay_limit": limit} if limit else {})
    nothing: Any = None
    bench = _Bench(RateSearchParams.model_validate(given), nothing)
    loaded = Loaded(Streamed((), joined=(echo,)), None, 100.0, echo=True)
    assert bench._worst(loaded) == (count, missing)


def _slow_back(count: int = 100) -> Flow:
    """An echo of 100 packets a second of which the way back carries 50, and its queue has room."""
    ms = 10**6
    sent = np.arange(count, dtype=np.int64) * 10 * ms
    back = (20 + 20 * np.arange(count, dtype=np.int64)) * ms
    return Flow(
        sent_ns=sent,
        size=np.full(count, 100, dtype=np.int64),
        arrived_ns=sent + 10 * ms,
        answered_ns=sent + 10 * ms,
        returned_ns=back,
        residence_ns=np.zeros(count, dtype=np.int64),
        late=np.zeros(count, dtype=np.bool_),
    )


def test_an_echo_is_received_at_the_rate_at_which_replies_come_back() -> None:
    (received,) = Loaded(
        Streamed((), joined=(_slow_back(),)), None, 100.0, echo=True
    ).received_packet_s
    assert received == pytest.approx(50, rel=0.02)
    (there,) = Loaded(Streamed((), joined=(_slow_back(),)), None, 100.0).received_packet_s
    assert there == pytest.approx(100, rel=0.02)


def test_rates_of_several_paths_are_of_what_was_asked_for() -> None:
    streamed = Streamed((), joined=(_slow_back(), _slow_back()))
    each = Loaded(streamed, None, 100.0, paths=2, each=True)
    # 100 packets a second on each of two paths: both carry them.
    assert each.received_packet_s == pytest.approx((100.0,), rel=0.02)
    assert each.offered_packet_s(of_one_path=False) == 200
    assert each.offered_packet_s(of_one_path=True) == 100
    spread = replace(each, packet_rate=200.0, each=False)
    assert spread.received_packet_s == pytest.approx((200.0,), rel=0.02)
    assert spread.offered_packet_s(of_one_path=False) == 200
    assert spread.offered_packet_s(of_one_path=True) == 100


def due_ns(flow: config.Flow) -> list[int]:
    """Return when the packets of a flow are due, as docs/engine.md has it."""
    schedule: Any = flow.to_json()["schedule"]
    packets, per_ns = (
        (1, schedule["gap_ns"])
        if schedule["type"] == "fixed"
        else (schedule["packets"], schedule["per_ns"])
    )
    # What the engine accepts.
    assert 1 <= packets <= 10**9
    assert 1 <= per_ns <= 86_400 * 10**9
    return [flow.start_offset_ns + k * per_ns // packets for k in range(flow.packets or 0)]


@pytest.mark.parametrize("paths", [1, 3])
@pytest.mark.parametrize("share", ["spread", "each"])
@pytest.mark.parametrize("packet_rate", [700_000.0, 500.0, 150_001.7, 1 / 3])
def test_packets_are_due_at_the_rate_that_is_reported(
    monkeypatch: pytest.MonkeyPatch, packet_rate: float, share: str, paths: int
) -> None:
    planned: list[config.Flow] = []

    def run_streams(_context: object, flows: Sequence[config.Flow], **_: object) -> Streamed:
        planned.extend(flows)
        return Streamed(())

    monkeypatch.setattr(loads, "run_streams", run_streams)
    params = UdpLoadParams.model_validate(
        {"payload_bytes": 100, "packet_rate": packet_rate, "share": share}
    )
    packets = 3000
    loaded = loads.run_load(
        context(paths), params, way="forward", packet_rate=packet_rate, packets=packets
    )
    assert loaded.packet_rate == packet_rate
    each = [due_ns(flow) for flow in planned]
    streams = [sorted(at for due in each for at in due)] if share == "spread" else each
    for due in streams:
        assert len(due) == packets
        off = [at - due[0] - k * 1e9 / packet_rate for k, at in enumerate(due)]
        # To the nanosecond, and no further off at the end than at the start.
        assert max(map(abs, off)) <= 2
