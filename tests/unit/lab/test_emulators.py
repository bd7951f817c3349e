"""What several links counted together."""

from typing import Any

from tunnelmark.lab.emulators import LinkCounters, joined, summed


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


def test_frames_of_one_kind_on_two_links_are_one_count() -> None:
    first = {"counted": [kind(4000, 2), kind(5000, 1)], "others": 1}
    second = {"counted": [kind(4000, 5)], "others": 2}
    found = summed([LinkCounters(way(0, kinds=one), way(0)) for one in (first, second)])
    kinds = found.forward["kinds"]
    assert {one["ports"][0]: one["frames"] for one in kinds["counted"]} == {4000: 7, 5000: 1}
    assert kinds["others"] == 3
    assert found.reverse["kinds"] is None


def test_reports_are_joined_at_the_times_of_the_first_link() -> None:
    def reports(*pairs: tuple[int, int]) -> list[tuple[int, LinkCounters]]:
        return [(at, LinkCounters(way(offered), way(0))) for at, offered in pairs]

    first = reports((10, 1), (20, 2), (30, 3))
    second = reports((12, 100), (22, 200))
    found = joined([first, second], 0)
    # At 10 nothing was heard of the second link yet.
    assert [(at, one.forward["offered"]) for at, one in found] == [(20, 102), (30, 203)]
    assert [at for at, _ in joined([first, second], 25)] == [30]
    assert joined([first], 20) == first[1:]
    assert joined([], 0) == []
