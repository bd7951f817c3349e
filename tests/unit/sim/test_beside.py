"""Loads in one document of the simulator: paths, sizes, and runs behind each other."""

from typing import Any

from tunnelmark.sim.beside import world


def document(*paths: tuple[int, ...], **traffic: Any) -> dict[str, Any]:
    return {
        "protocol": 1,
        "seed": 7,
        "paths": [
            {"sizes": [{"payload_bytes": size, "packets": []} for size in sizes], "tunnel": {}}
            for sizes in paths
        ],
        "forward": None,
        "reverse": None,
        **traffic,
    }


def sizes(reported: dict[str, Any]) -> list[list[int]]:
    return [[size["payload_bytes"] for size in path["sizes"]] for path in reported["paths"]]


def test_a_load_inside_goes_over_the_same_paths_which_know_the_sizes_of_both() -> None:
    measured = document((64, 100), forward={"send": {}, "reflect": {}, "paths": [0]})
    first = document((100, 1500), reverse={"send": {"of": 1}, "reflect": {}, "paths": [0]})
    second = document((9,), tcp=[{"path": 0, "way": "forward"}])
    reported: Any = world(measured, [[first, second]], [False], lead_ns=5)
    assert sizes(reported) == [[9, 64, 100, 1500]]
    assert reported["forward"] == measured["forward"]
    assert (reported["seed"], reported["lead_ns"]) == (7, 5)
    one, other = reported["loads"][0]
    assert one == {"forward": None, "reverse": first["reverse"]}
    assert other == {"forward": None, "reverse": None, "tcp": second["tcp"]}
    # What was handed in is not what was changed.
    assert sizes(measured) == [[64, 100]]


def test_loads_outside_share_paths_of_their_own_behind_those_of_the_tunnel() -> None:
    measured = document((64,), (64,))
    outside = document((50,), clients=[{"path": 0}])
    too = document((60,), forward={"send": {}, "reflect": {}, "paths": [0, 0]})
    inside = document((70,), (80,), tcp=[{"path": 1}])
    reported: Any = world(
        measured, [[outside], [too, too], [inside]], [True, True, False], lead_ns=0
    )
    assert sizes(reported) == [[64, 70], [64, 80], [50, 60]]
    assert reported["loads"][0][0]["clients"] == [{"path": 2}]
    assert reported["loads"][1][1]["forward"]["paths"] == [2, 2]
    assert reported["loads"][2][0]["tcp"] == [{"path": 1}]
