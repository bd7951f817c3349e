"""Programs over TCP in virtual time: what the simulator is asked for, and who gives up."""

from typing import Any

import pytest

from tunnelmark.engine.link import Direction, LinkSpec, Queue
from tunnelmark.engine.transactions import AskSummary
from tunnelmark.model.errors import LabError
from tunnelmark.model.registry import make
from tunnelmark.model.trial import DriverSpec
from tunnelmark.sim.carriage import Carriage, carriage
from tunnelmark.sim.clients import client_config, client_ends
from tunnelmark.sim.simulate import Simulated
from tunnelmark.tunnels.registry import tunnel_kinds
from tunnelmark.workloads.exchanges import Client, ClientEnd, Exchange, Stage, Turns

WAY = Direction(8_000_000, 10_000_000, Queue("packets", 50))


def carried(**params: Any) -> Carriage:
    tunnel = make(tunnel_kinds(), DriverSpec("none", "none", params))
    return carriage(tunnel, LinkSpec(WAY, WAY, 1), 1500)


def client(of: Carriage, *exchanges: Exchange) -> Client:
    stage = Stage(exchanges, opening=(Exchange((240,), (727,)), Exchange((80,))))
    return Client(of.paths[-1], (stage,), "reno", 5, 7, count=3)


def test_a_path_knows_all_packets_of_its_clients_and_no_other_path_does() -> None:
    of = carried()
    asked = client(of, Exchange((100,), (256, 2 * 1448 + 1)))
    made: Any = client_config([asked], of, seed=7, files_dir="/nowhere")
    (path,) = made["paths"]
    # SYN, acknowledgements, a full segment, and the end of each piece.
    lengths = {52, 60, 64, 72, 80, 1500, *(52 + n for n in (100, 256, 1, 240, 727, 80))}
    assert {one["packets"][0]["bytes"] for one in path["sizes"]} == lengths
    (one,) = made["clients"]
    (stage,) = one.pop("stages")
    assert one == {
        "path": 0,
        "segment_bytes": 1448,
        "window_bytes": 3 << 20,
        "congestion": "reno",
        "count": 3,
        "patience_ns": 5,
        "limit_ns": 7,
    }
    assert stage["opening"] == [
        {"request": (240,), "reply": (727,), "held": False},
        {"request": (80,), "reply": (), "held": False},
    ]
    assert stage["exchanges"] == [{"request": (100,), "reply": (256, 2897), "held": False}]
    assert made["seed"] == 7
    assert "tcp" not in made


def test_where_records_end_is_not_known_before() -> None:
    of = carried()
    ticket = Exchange((80,), (79, 79), goes_on=True)
    stage = Stage((Exchange((45,), (8136,)),), opening=(ticket,), turns=Turns(65_608, 16_384, 22))
    asked = Client(of.paths[-1], (stage,), "cubic", 5, 7)
    made: Any = client_config([asked], of, seed=7, files_dir="/nowhere")
    (path,) = made["paths"]
    assert {52 + n for n in range(1449)} <= {one["packets"][0]["bytes"] for one in path["sizes"]}
    (found,) = made["clients"][0]["stages"]
    assert found["turns"] == {"turn_bytes": 65_608, "record_bytes": 16_384, "seal_bytes": 22}
    (first,) = found["opening"]
    assert first == {"request": (80,), "reply": (79, 79), "held": False, "goes_on": True}


def test_what_the_simulator_did_not_tell_is_an_error() -> None:
    nothing = Simulated({}, {}, (), 0)
    with pytest.raises(LabError, match="reported nothing of the clients"):
        client_ends(nothing)
    end = ClientEnd(0, (), 0, 0)
    found = Simulated({}, {}, (), 0, clients=(end,), asked=AskSummary(1, None, ()))
    assert client_ends(found).clients == (end,)
