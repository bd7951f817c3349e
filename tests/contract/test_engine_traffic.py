"""Schedules and sizes of ``send`` as its records and a plain socket see them, over the loopback."""

import json
import socket
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tunnelmark.engine import config, traffic
from tunnelmark.engine.records import MISSING_NS, Table, read_reflect, read_send

MS = 1_000_000


@dataclass(frozen=True)
class Raw:
    """A schedule or size that only this test asks for, in the engine's form."""

    form: dict[str, Any]

    def to_json(self) -> dict[str, Any]:
        return self.form


def mixed(*shares: tuple[int, int]) -> Raw:
    """Return sizes in bytes, each with its weight."""
    form = [{"payload_bytes": size, "weight": weight} for size, weight in shares]
    return Raw({"type": "mix", "shares": form})


def flow(number: int, target: str, **changes: Any) -> config.Flow:
    return config.Flow(
        session=config.Session(number, 1000 + number, bytes([number] * 16).hex()),
        target=target,
        source=None,
        duration_ns=None,
        payload_bytes=64,
        content={"type": "random"},
        **{"packets": 200, "gap_ns": 1 * MS, "start_offset_ns": 0, **changes},
    )


def exchange(
    engine: str,
    tmp_path: Path,
    changes: list[dict[str, Any]],
    *,
    segment: bool = False,
    **options: int,
) -> tuple[Table, Table]:
    """Run a sender against our reflector; return both tables of records.

    ``options`` are keys of both configurations.
    """
    flows = [flow(number, "", **one) for number, one in enumerate(changes)]
    reflect = config.reflect_config(
        ["127.0.0.1:0"],
        [one.session for one in flows],
        records=str(tmp_path / "reflect.rec"),
        realtime_priority=None,
        parent_pid=None,
    )
    with subprocess.Popen(
        [engine, "reflect", "-"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as reflector:
        assert reflector.stdin is not None
        assert reflector.stdout is not None
        reflector.stdin.write(json.dumps({**reflect, **options}))
        reflector.stdin.close()
        target = json.loads(reflector.stdout.readline())["listen"][0]
        flows = [flow(number, target, **one) for number, one in enumerate(changes)]
        send = config.send_config(
            flows,
            seed=5,
            # Longer than a busy machine holds a packet up.
            drain_ns=20_000 * MS,
            late_ns=20_000 * MS,
            records=str(tmp_path / "send.rec"),
            realtime_priority=None,
            parent_pid=None,
            segment=segment,
        )
        subprocess.run(
            [engine, "send", "-"],
            input=json.dumps({**send, **options}),
            capture_output=True,
            text=True,
            timeout=120,
            check=True,
        )
        reflector.terminate()
        reflector.stdout.read()
        reflector.wait(20)
    return (
        read_send((tmp_path / "send.rec").read_bytes(), "send.rec"),
        read_reflect((tmp_path / "reflect.rec").read_bytes(), "reflect.rec"),
    )


def test_each_schedule_and_each_size_leaves_as_it_was_asked_for(
    engine: str, tmp_path: Path
) -> None:
    trace = tmp_path / "trace.txt"
    trace.write_text("# offset_ns payload_bytes\n0 100\n3000000 200\n3000000 300\n")
    mix = mixed((64, 7), (576, 4), (1400, 1))
    sent, reflected = exchange(
        engine,
        tmp_path,
        [
            {"schedule": Raw({"type": "poisson", "mean_gap_ns": 2 * MS}), "size": mix},
            {"schedule": traffic.OnOff(MS, (20 * MS, 40 * MS), (50 * MS, 90 * MS))},
            {"schedule": traffic.PacketRate(300)},
            {
                "schedule": Raw({"type": "bit_rate", "bit_s": 1_000_000}),
                "size": traffic.UniformSize(24, 1400),
            },
            {
                "schedule": Raw({"type": "trace", "path": str(trace), "period_ns": 5 * MS}),
                "size": Raw({"type": "trace"}),
                "packets": 30,
            },
        ],
    )
    by_flow = [sent[sent["flow"] == number] for number in range(5)]
    assert [len(one) for one in by_flow] == [200, 200, 200, 200, 30]
    gaps = [np.diff(one["scheduled_ns"]) for one in by_flow]
    # Poisson: exponential gaps vary as much as their mean, give or take 40 % in 200.
    assert 0.6 < gaps[0].std() / gaps[0].mean() < 1.4
    assert set(by_flow[0]["size"]) <= {64, 576, 1400}
    silences = gaps[1][gaps[1] != MS]
    assert len(silences) > 2
    assert ((silences >= 50 * MS) & (silences <= 91 * MS)).all()
    offsets = by_flow[2]["scheduled_ns"] - by_flow[2]["scheduled_ns"][0]
    assert (offsets == np.arange(200) * 10**9 // 300).all()
    bits = np.concatenate([[0], np.cumsum(by_flow[3]["size"].astype(np.int64) * 8)])[:-1]
    offsets = by_flow[3]["scheduled_ns"] - by_flow[3]["scheduled_ns"][0]
    assert (offsets == bits * 1000).all()
    assert by_flow[4]["size"].tolist() == [100, 200, 300] * 10
    offsets = by_flow[4]["scheduled_ns"] - by_flow[4]["scheduled_ns"][0]
    wanted = [round_ * 5 * MS + at for round_ in range(10) for at in (0, 3 * MS, 3 * MS)]
    assert offsets.tolist() == wanted
    # What the sender says of sizes is what the reflector got.
    for number, one in enumerate(by_flow):
        other = reflected[reflected["flow"] == number]
        assert (other["size"][np.argsort(other["seq"])] == one["size"]).all()
        assert (one["sent_ns"] >= one["scheduled_ns"]).all()


@pytest.mark.paced
def test_sixty_four_sessions_in_one_process(engine: str, tmp_path: Path) -> None:
    gap = traffic.FixedGap(10 * MS)
    changes = [
        {"start_offset_ns": number * 100_000, "packets": 50, "schedule": gap}
        for number in range(64)
    ]
    sent, reflected = exchange(engine, tmp_path, changes)
    assert len(sent) == 64 * 50
    assert len(reflected) == 64 * 50
    assert (sent["returned_ns"] != MISSING_NS).all()
    for number in range(64):
        one = sent[sent["flow"] == number]
        assert one["seq"].tolist() == list(range(50))


def test_packets_do_not_wait_for_who_reads_the_events(engine: str, tmp_path: Path) -> None:
    """A line on 1,000 flows each half second filled the pipe, and the reflector stood still."""
    flows: list[dict[str, Any]] = [{"packets": 45, "gap_ns": 100 * MS}] * 250
    sent, reflected = exchange(engine, tmp_path, flows)
    assert len(reflected) == len(sent) == 250 * 45
    assert (sent["returned_ns"] - sent["sent_ns"]).max() < 2_000 * MS


def test_gathered_packets_leave_together_and_none_is_missing(engine: str, tmp_path: Path) -> None:
    sent, reflected = exchange(engine, tmp_path, [{}], coalesce_ns=5 * MS)
    assert len(reflected) == len(sent) == 200
    assert (sent["returned_ns"] != MISSING_NS).all()
    late_ns = sent["sent_ns"] - sent["scheduled_ns"]
    assert (late_ns >= 0).all()
    # The first of each group has waited for the whole time, and five others with it for a part.
    assert late_ns.max() >= 5 * MS
    assert (late_ns >= 1 * MS).mean() > 0.5


def test_packets_are_not_gathered_for_longer_than_10_ms(engine: str) -> None:
    done = subprocess.run(
        [engine, "reflect", "-"],
        input=json.dumps(
            {
                **config.reflect_config(
                    ["127.0.0.1:0"],
                    [flow(0, "").session],
                    records=None,
                    realtime_priority=None,
                    parent_pid=None,
                ),
                "coalesce_ns": 10_000_001,
            }
        ),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 2
    assert "coalesce_ns is 10000001, must be 0 to 10000000" in done.stdout


def test_the_smallest_packets_have_a_short_header_and_come_back(
    engine: str, tmp_path: Path
) -> None:
    sizes = range(18, 27)
    sent, reflected = exchange(
        engine, tmp_path, [{"size": traffic.FixedSize(size), "packets": 40} for size in sizes]
    )
    assert (sent["returned_ns"] != MISSING_NS).all()
    for number, size in enumerate(sizes):
        arrived = reflected[reflected["flow"] == number]
        assert sorted(arrived["seq"]) == list(range(40))
        assert set(arrived["size"]) == {size}


def test_sessions_that_a_short_header_does_not_tell_apart_are_refused(
    engine: str, tmp_path: Path
) -> None:
    document = config.reflect_config(
        ["127.0.0.1:0"],
        [config.Session(0, 5, "00" * 16), config.Session(1, 5 + (3 << 16), "00" * 16)],
        records=str(tmp_path / "reflect.rec"),
        realtime_priority=None,
        parent_pid=None,
    )
    done = subprocess.run(
        [engine, "reflect", "-"],
        input=json.dumps(document),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 2
    (event,) = map(json.loads, done.stdout.splitlines())
    assert "its lower 16 bits are 5, as those of sessions[0]" in event["message"]


# At 50 packets per ms a busy machine would lose some.
@pytest.mark.timing
@pytest.mark.parametrize("segment", [False, True])
def test_runs_that_the_kernel_cuts_are_the_packets_that_were_asked_for(
    engine: str, tmp_path: Path, segment: bool
) -> None:
    mix = mixed((64, 8), (18, 1), (1400, 2))
    sent, reflected = exchange(
        engine,
        tmp_path,
        [{"gap_ns": MS // 50, "size": mix, "packets": 3000}],
        segment=segment,
        coalesce_ns=2 * MS,
    )
    assert (sent["returned_ns"] != MISSING_NS).all()
    assert set(sent["size"]) == {18, 64, 1400}
    by_number = dict(zip(reflected["seq"], reflected["size"], strict=True))
    assert by_number == dict(zip(sent["seq"], sent["size"], strict=True))
    # What was one packet until it was cut arrived at one time.
    together = len(reflected) - len(set(reflected["received_ns"]))
    assert (together > len(reflected) / 4) is segment


@pytest.mark.parametrize("wrong", [{"records": "/nowhere/send.rec"}, {"receive_cpu": 1000}])
def test_a_sender_that_cannot_begin_ends_and_says_why(engine: str, wrong: dict[str, Any]) -> None:
    """One thread that cannot prepare itself does not leave the other waiting, or sending."""
    send = config.send_config(
        [flow(0, "127.0.0.1:9", packets=1_000_000, gap_ns=MS)],
        seed=5,
        drain_ns=MS,
        late_ns=MS,
        records=None,
        realtime_priority=None,
        parent_pid=None,
    )
    text = json.dumps({**send, **wrong})
    done = subprocess.run(
        [engine, "send", "-"], input=text, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode != 0
    assert next(iter(wrong)) in done.stderr or "cpu" in done.stderr


@pytest.mark.parametrize(
    ("address", "level", "option"),
    [
        ("127.0.0.1", socket.IPPROTO_IP, socket.IP_RECVTOS),
        ("::1", socket.IPPROTO_IPV6, socket.IPV6_RECVTCLASS),
    ],
)
def test_each_flow_has_its_own_traffic_class(
    engine: str, address: str, level: int, option: int
) -> None:
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.socket(family, socket.SOCK_DGRAM) as receiver:
        receiver.bind((address, 0))
        receiver.setsockopt(level, option, 1)
        receiver.settimeout(20)
        target = config.address(address, receiver.getsockname()[1])
        flows = [
            flow(number, target, packets=1, traffic_class=value)
            for number, value in enumerate((0, 0x0A, 0xB8))
        ]
        send = config.send_config(
            flows,
            seed=5,
            drain_ns=1,
            late_ns=1000 * MS,
            records=None,
            realtime_priority=None,
            parent_pid=None,
        )
        subprocess.run(
            [engine, "send", "-"],
            input=json.dumps(send),
            capture_output=True,
            text=True,
            timeout=120,
            check=True,
        )
        seen = []
        for _ in flows:
            _, ancillary, _, _ = receiver.recvmsg(2048, socket.CMSG_SPACE(4))
            seen += [data[0] for _, _, data in ancillary]
    assert sorted(seen) == [0, 0x0A, 0xB8]
