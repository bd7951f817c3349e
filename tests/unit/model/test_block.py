"""The record of a block, and what blocks took by place."""

from tunnelmark.model.block import BlockRecord, PlaceTime, time_by_place


def record(place: str, **seconds: float) -> BlockRecord:
    return BlockRecord("b1", "t", "l", "d", place, (), (), (), (), seconds)


def test_time_is_summed_by_place_and_measuring_is_a_part_of_it() -> None:
    here, inside = "namespaces", "a machine"
    blocks = [
        record(here, lab_up=1, tunnel_up=2, proof=3, trials=14, measuring=12),
        record(inside, lab_up=5, trials=20, measuring=10),
        record(here, lab_up=1, trials=9, measuring=8, down=0.5),
        record("", lab_up=1),  # it never had a place
    ]
    assert blocks[0].wall_s == 20
    assert time_by_place(blocks) == (PlaceTime(here, 30.5, 20), PlaceTime(inside, 25, 10))
    assert PlaceTime(here, 30.5, 20).describe() == "66 % of 30 s spent measuring in namespaces"
    waited = PlaceTime(here, 60.0, 20, 12.4).describe()
    assert waited == "33 % of 60 s spent measuring, 12 s waiting for a calm computer in namespaces"
    assert PlaceTime(here, 0.0, 0.0).describe() == "0 % of 0 s spent measuring in namespaces"
