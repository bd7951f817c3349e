"""``tunnelmark-engine sim`` as docs/engine.md has it: events and records in virtual time."""

import json
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from tunnelmark.engine import config
from tunnelmark.engine.link import Direction, Queue
from tunnelmark.engine.records import join, read_reflect, read_send
from tunnelmark.engine.summary import (
    parse_link_direction,
    parse_reflect_summary,
    parse_send_summary,
)
from tunnelmark.model.overhead import Encapsulation, datagram, ip_layer, udp_layer
from tunnelmark.sim import simulate as simulation

MS = 1_000_000
PAYLOAD = 1400
COST_NS = 50_000
PACKETS = 400


def work(packet_ns: int) -> dict[str, object]:
    return {"packet_ns": packet_ns, "byte_ps": 0, "scatter": 0.0, "most_waiting": 100}


def document(tmp_path: Path, *, mtu_bytes: int = 1500, payload: int = PAYLOAD) -> dict[str, Any]:
    """Return an echo through IP in UDP, both ends of which work on each packet for 50 us."""
    link = Direction(8_000_000, 10 * MS, Queue("packets", 50)).to_json("/nowhere")
    tunnel = Encapsulation(lambda _bytes: (ip_layer(4), udp_layer()), inner_mtu_bytes=1500)
    wire = datagram(PAYLOAD, link_mtu_bytes=mtu_bytes, encapsulation=tunnel)
    packets = [{"bytes": PAYLOAD + 28, "on_link": list(wire.outer_packet_bytes)}]
    session = config.Session(0, 1000, bytes(16).hex())
    flow = config.Flow(
        session=session,
        target="198.18.0.2:7000",
        source=None,
        gap_ns=5 * MS,
        start_offset_ns=0,
        packets=PACKETS,
        duration_ns=None,
        payload_bytes=payload,
        content={"type": "random"},
    )
    send = config.send_config(
        [flow],
        seed=5,
        drain_ns=500 * MS,
        late_ns=1000 * MS,
        records=str(tmp_path / "send.rec"),
        realtime_priority=None,
        parent_pid=None,
    )
    reflect = config.reflect_config(
        [flow.target],
        [session],
        records=str(tmp_path / "reflect.rec"),
        realtime_priority=None,
        parent_pid=None,
    )

    def end() -> dict[str, object]:
        return {"servers": 1, "in_order": True, "wrap": work(COST_NS), "unwrap": work(COST_NS)}

    return {
        "protocol": config.PROTOCOL,
        "seed": 1,
        "a_to_b": link,
        "b_to_a": dict(link),
        "paths": [
            {
                "sizes": [{"payload_bytes": PAYLOAD, "packets": packets}],
                "tunnel": {"client": end(), "server": end(), "drops_copies": True},
            }
        ],
        "forward": {"send": send, "reflect": reflect, "paths": [0]},
        "reverse": None,
    }


def simulate(engine: str, asked: Mapping[str, Any]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [engine, "sim", "-"],
        input=json.dumps(asked),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.mark.parametrize(("mtu_bytes", "pieces"), [(1500, 1), (1000, 2)])
def test_every_delay_is_that_of_the_model_to_the_nanosecond(
    engine: str, tmp_path: Path, mtu_bytes: int, pieces: int
) -> None:
    asked = document(tmp_path, mtu_bytes=mtu_bytes)
    on_link = asked["paths"][0]["sizes"][0]["packets"][0]["on_link"]
    assert len(on_link) == pieces
    done = simulate(engine, asked)
    assert done.returncode == 0, done.stdout
    summary = json.loads(done.stdout)
    one_way_ns = 2 * COST_NS + sum(on_link) * 1000 + 10 * MS
    joined = join(
        read_send((tmp_path / "send.rec").read_bytes(), "send.rec"),
        read_reflect((tmp_path / "reflect.rec").read_bytes(), "reflect.rec"),
        0,
    )
    assert joined.arrived.all()
    assert {*(joined.arrived_ns - joined.sent_ns).tolist()} == {one_way_ns}
    (flow,) = parse_send_summary(summary["forward"]["send"]).flows
    assert (flow.sent, flow.returned, flow.late) == (PACKETS, PACKETS, 0)
    assert flow.rtt_ns is not None
    assert flow.rtt_ns.p50 == pytest.approx(2 * one_way_ns, rel=1e-3)
    (heard,) = parse_reflect_summary(summary["forward"]["reflect"]).flows
    assert (heard.received, heard.answered) == (PACKETS, PACKETS)
    for way in ("a_to_b", "b_to_a"):
        counted = parse_link_direction(summary[way], way)
        assert counted.delivered == PACKETS * pieces
        assert counted.delivered_bytes == PACKETS * (sum(on_link) + 14 * pieces)
    (path,) = summary["paths"]
    for end in ("client", "server"):
        assert path[end]["wrap"] == path[end]["unwrap"]
        assert path[end]["wrap"] == {
            "offered": PACKETS,
            "dropped": 0,
            "busy_ns": PACKETS * COST_NS,
        }
    assert summary["reverse"] is None


def test_the_same_configuration_gives_the_same_bytes(engine: str, tmp_path: Path) -> None:
    asked = document(tmp_path)
    asked["a_to_b"]["loss"] = {"type": "independent", "probability": 0.2}
    asked["paths"][0]["tunnel"]["client"]["wrap"]["scatter"] = 0.5
    first = simulate(engine, asked).stdout, (tmp_path / "send.rec").read_bytes()
    assert (simulate(engine, asked).stdout, (tmp_path / "send.rec").read_bytes()) == first
    other = simulate(engine, {**asked, "seed": 2}).stdout
    assert other != first[0]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda asked: asked["paths"].clear(), "paths: number of paths is 0"),
        (lambda asked: asked.update(cores={"client": 0}), "cores.client is 0"),
        (lambda asked: asked.update(cores={"server": 1025}), "cores.server is 1025"),
        (lambda asked: asked["forward"].update(paths=[1]), "forward.paths[0] is 1"),
        (lambda asked: asked["forward"].update(paths=[]), "must have one for each of the 1 flows"),
        (
            lambda asked: asked["forward"]["reflect"]["sessions"][0].update(session=5),
            "forward.send.flows[0].session is 1000, which the reflector does not know",
        ),
        (
            lambda asked: asked["paths"][0]["tunnel"]["server"].update(servers=0),
            "paths[0].tunnel.server.servers is 0",
        ),
        (
            lambda asked: asked["paths"][0]["tunnel"]["client"]["wrap"].update(scatter=-1.0),
            "paths[0].tunnel.client.wrap.scatter is -1",
        ),
        (lambda asked: asked["paths"][0]["sizes"][0].update(packets=[]), "must become 1 to 64"),
        (lambda asked: asked["forward"]["send"].update(flows=[]), "forward.send: flows: number"),
    ],
)
def test_what_makes_no_sense_is_refused_by_its_place(
    engine: str, tmp_path: Path, change: Callable[[dict[str, Any]], object], words: str
) -> None:
    asked = document(tmp_path)
    change(asked)
    done = simulate(engine, asked)
    assert done.returncode == 2
    assert words in json.loads(done.stdout)["message"]


def test_a_payload_that_the_path_does_not_know_is_refused(engine: str, tmp_path: Path) -> None:
    done = simulate(engine, document(tmp_path, payload=700))
    assert done.returncode == 2
    words = "a payload of 700 bytes is not among paths[0].sizes"
    assert words in json.loads(done.stdout)["message"]


def test_documents_and_summaries_may_be_longer_than_a_mebibyte(engine: str, tmp_path: Path) -> None:
    asked = document(tmp_path)
    slow = {**asked["a_to_b"], "rate_bit_s": 100_000}
    sizes = [
        {"payload_bytes": size, "packets": [{"bytes": size + 28, "on_link": [size + 28]}]}
        for size in range(18, 1518)
    ]
    connection = {
        "way": "forward",
        "path": 9,
        "segment_bytes": 1448,
        "window_bytes": 65536,
        "congestion": "cubic",
        "seconds": 3600,
    }
    asked |= {
        "a_to_b": slow,
        "b_to_a": slow,
        "forward": None,
        "tcp": [connection] * 3,
        "paths": [{"sizes": sizes, "tunnel": None}] * 10,
    }
    assert len(json.dumps(asked)) > 1 << 20
    found = simulation.simulate(engine, asked, lambda: False)
    assert [len(one.seconds) for one in found.tcp] == [3600] * 3
