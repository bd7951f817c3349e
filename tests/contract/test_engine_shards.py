"""Sender and reflector shared by several threads: every flow as with one, over the loopback."""

import json
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tunnelmark.engine import config, traffic
from tunnelmark.engine.records import Table, read_reflect, read_send

FLOWS = 5
PACKETS = 100


def start(engine: str, command: str, document: dict[str, Any]) -> subprocess.Popen[str]:
    process = subprocess.Popen(
        [engine, command, "-"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdin is not None
    process.stdin.write(json.dumps(document))
    process.stdin.close()
    return process


def events(process: subprocess.Popen[str]) -> list[dict[str, Any]]:
    assert process.stdout is not None
    found = [json.loads(line) for line in process.stdout]
    assert process.wait() == (0 if found[-1]["event"] == "summary" else 2)
    return found


def sessions() -> list[config.Session]:
    return [config.Session(n, 1000 + n, bytes([n] * 16).hex()) for n in range(FLOWS)]


def flow(session: config.Session, target: str) -> config.Flow:
    return config.Flow(
        session=session,
        target=target,
        source=None,
        gap_ns=1_000_000,
        start_offset_ns=0,
        packets=PACKETS + session.flow,
        duration_ns=None,
        payload_bytes=800,
        content={"type": "random"},
        size=traffic.UniformSize(100, 800),
    )


def reflector(path: Path | None) -> dict[str, Any]:
    records = None if path is None else str(path)
    return config.reflect_config(
        ["127.0.0.1:0"], sessions(), records=records, realtime_priority=None, parent_pid=None
    )


def sender(target: str, path: Path | None) -> dict[str, Any]:
    return config.send_config(
        [flow(session, target) for session in sessions()],
        seed=3,
        # Longer than a busy machine holds a packet up.
        drain_ns=20 * 10**9,
        late_ns=20 * 10**9,
        records=None if path is None else str(path),
        realtime_priority=None,
        parent_pid=None,
    )


def exchange(engine: str, folder: Path, shards: int) -> tuple[Table, Table]:
    folder.mkdir()
    sent, received = folder / "send.rec", folder / "reflect.rec"
    with start(engine, "reflect", {**reflector(received), "shards": shards}) as far:
        assert far.stdout is not None
        target = json.loads(far.stdout.readline())["listen"][0]
        with start(engine, "send", {**sender(target, sent), "shards": shards}) as near:
            own = events(near)[-1]
        far.terminate()
        other = events(far)[-1]
    wanted = [PACKETS + number for number in range(FLOWS)]
    assert [one["flow"] for one in own["flows"]] == list(range(FLOWS))
    assert [one["sent"] for one in own["flows"]] == wanted
    assert [one["returned"] for one in own["flows"]] == wanted
    assert [one["received"] for one in other["flows"]] == wanted
    assert [one["duplicates"] for one in other["flows"]] == [0] * FLOWS
    assert other["residence_ns"]["count"] == sum(wanted)
    return (
        read_send(sent.read_bytes(), str(sent)),
        read_reflect(received.read_bytes(), str(received)),
    )


def packets(table: Table) -> dict[tuple[int, int], int]:
    columns = (np.asarray(table[name]).tolist() for name in ("flow", "seq", "size"))
    return {(number, seq): size for number, seq, size in zip(*columns, strict=True)}


def test_flows_are_the_same_with_any_number_of_threads(engine: str, tmp_path: Path) -> None:
    one = exchange(engine, tmp_path / "one", 1)
    three = exchange(engine, tmp_path / "three", 3)
    # The same seed gives the same packets, each with one record at each end.
    total = FLOWS * PACKETS + sum(range(FLOWS))
    for table, same in zip(three, one, strict=True):
        assert packets(table) == packets(same)
        assert len(packets(table)) == total == len(table["seq"])


def test_more_threads_than_flows_are_no_more_than_flows(engine: str, tmp_path: Path) -> None:
    exchange(engine, tmp_path / "many", 64)


@pytest.mark.parametrize(
    ("command", "changes", "message"),
    [
        ("send", {"shards": 0}, "shards is 0, must be 1 to 64"),
        ("reflect", {"shards": 65}, "shards is 65, must be 1 to 64"),
        ("send", {"shards": 2, "send_cpu": 0}, "send_cpu is 0, must be null with 2 shards"),
        ("send", {"shards": 2, "receive_cpu": 1}, "receive_cpu is 1, must be null with 2 shards"),
        ("reflect", {"shards": 2, "cpu": 0}, "cpu is 0, must be null with 2 shards"),
        (
            "reflect",
            {"shards": 2, "stamp": [{"flow": 9, "listen": "127.0.0.1:0", "key": None}]},
            "shards is 2, must be 1 with stamp: a STAMP reflector numbers its senders",
        ),
    ],
)
def test_shards_that_cannot_be(
    engine: str, command: str, changes: dict[str, Any], message: str
) -> None:
    document = reflector(None) if command == "reflect" else sender("127.0.0.1:9", None)
    with start(engine, command, {**document, **changes}) as process:
        assert events(process) == [{"event": "error", "message": message}]
