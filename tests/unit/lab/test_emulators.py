"""What several links counted together."""

from typing import Any

import pytest

from tunnelmark.lab.emulators import LinkCounters, joined, packed, summed, unpacked
from tunnelmark.probes.series import COUNTED


def way(offered: int, tail: int | None = None, kinds: Any = None) -> dict[str, Any]:
    late = None if tail is None else {"count": 2, "tail": tail}
    return {"offered": offered, "lateness_recent_ns": late, "kinds": kinds}


def kind(port: int, frames: int) -> dict[str, Any]:
    return {
        "ether_type": 0x0800,
        "protocol": 17,
        "ports": [port, 1194],
        "later_fragment": False,
        "frames": frames,
    }


def test_counts_add_up_and_lateness_is_that_of_the_latest() -> None:
    links = [
        LinkCounters(way(3, 500), way(1, None), awake_ns=10),
        LinkCounters(way(4, 900), way(2, 70), awake_ns=20),
        LinkCounters(way(5, None), way(3, 60), awake_ns=30),
    ]
    both = summed(links)
    assert (both.forward["offered"], both.reverse["offered"], both.awake_ns) == (12, 6, 60)
    assert both.forward["lateness_recent_ns"]["tail"] == 900
    assert both.reverse["lateness_recent_ns"]["tail"] == 70
    assert summed(links[:1]) is links[0]


def test_each_figure_of_lateness_is_that_of_the_link_where_it_is_worst() -> None:
    one, other = way(1, 500), way(1, 400)
    one["lateness_recent_ns"] |= {"p90": 10, "max": 700}
    other["lateness_recent_ns"] |= {"p90": 30, "max": 900}
    both = summed([LinkCounters(one, way(1)), LinkCounters(other, way(1))])
    assert both.forward["lateness_recent_ns"] == {"count": 2, "tail": 500, "p90": 30, "max": 900}
    assert both.reverse["lateness_recent_ns"] is None


def test_frames_of_one_kind_on_two_links_are_one_count() -> None:
    first = {"counted": [kind(4000, 2), kind(5000, 1)], "others": 1}
    second = {"counted": [kind(4000, 5)], "others": 2}
    found = summed([LinkCounters(way(0, kinds=one), way(0)) for one in (first, second)])
    kinds = found.forward["kinds"]
    assert {one["ports"][0]: one["frames"] for one in kinds["counted"]} == {4000: 7, 5000: 1}
    assert kinds["others"] == 3
    assert found.reverse["kinds"] is None


def report(delivered: int) -> dict[str, dict[str, int]]:
    none = dict.fromkeys(COUNTED, 0)
    return {"forward": {**none, "delivered": delivered}, "reverse": none}


def test_reports_are_joined_at_the_times_of_the_first_link() -> None:
    first = [(10, report(1)), (20, report(2)), (30, report(3))]
    second = [(12, report(100)), (22, report(200))]
    found = joined([first, second], 0)
    # At 10 nothing was heard of the second link yet.
    assert found == [(20, report(102)), (30, report(203))]
    assert [at for at, _ in joined([first, second], 25)] == [30]
    assert joined([first], 20) == first[1:]
    assert joined([], 0) == []


def test_what_is_kept_of_a_report_is_what_the_series_needs_in_a_hundred_bytes() -> None:
    ways = [{**way(7), **{key: n * 2**40 for n, key in enumerate(COUNTED)}} for _ in range(2)]
    event = {"event": "progress", "a_to_b": ways[0], "b_to_a": {**ways[1], "lost": 5}}
    kept = packed(123, event)
    assert kept is not None
    assert len(kept) < 100
    at_ns, counts = unpacked(kept)
    assert at_ns == 123
    assert counts["forward"] == {key: ways[0][key] for key in COUNTED}
    assert counts["reverse"] == {**counts["forward"], "lost": 5}


@pytest.mark.parametrize("wrong", [None, 5, {}, {**dict.fromkeys(COUNTED, 1), "lost": "many"}])
def test_a_report_that_has_not_all_of_it_is_not_kept(wrong: object) -> None:
    assert (
        packed(1, {"event": "progress", "a_to_b": dict.fromkeys(COUNTED, 1), "b_to_a": wrong})
        is None
    )
