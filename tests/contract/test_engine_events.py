"""docs/engine.md, the engine's events and their Python readers report the same things alike."""

import dataclasses
import json
import re
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tunnelmark.engine import config
from tunnelmark.engine.records import Flow, join, read_reflect, read_send
from tunnelmark.engine.summary import (
    Histogram,
    ReflectFlow,
    ReflectSummary,
    SendFlow,
    SendSummary,
    parse_reflect_summary,
    parse_send_summary,
)

MS = 1_000_000
DOCS = Path(__file__).parents[2] / "docs" / "engine.md"


def run(engine: str, tmp_path: Path, **options: Any) -> tuple[dict[str, Any], dict[str, Any], Flow]:
    """Run 300 packets over the loopback; return both summaries and the joined records."""
    session = config.Session(0, 1000, bytes(16).hex())
    reflect = config.reflect_config(
        ["127.0.0.1:0"],
        [session],
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
        flow = config.Flow(
            session=session,
            target=target,
            source=None,
            gap_ns=MS,
            start_offset_ns=0,
            packets=300,
            duration_ns=None,
            payload_bytes=64,
            content={"type": "random"},
        )
        send = config.send_config(
            [flow],
            seed=5,
            drain_ns=2000 * MS,
            late_ns=2000 * MS,
            records=str(tmp_path / "send.rec"),
            realtime_priority=None,
            parent_pid=None,
        )
        mine = {key: value for key, value in options.items() if key == "receive_time"}
        done = subprocess.run(
            [engine, "send", "-"],
            input=json.dumps({**send, **mine}),
            capture_output=True,
            text=True,
            timeout=120,
            check=True,
        )
        reflector.terminate()
        reported = reflector.stdout.read()
        reflector.wait(20)
    joined = join(
        read_send((tmp_path / "send.rec").read_bytes(), "send.rec"),
        read_reflect((tmp_path / "reflect.rec").read_bytes(), "reflect.rec"),
        0,
    )
    return json.loads(done.stdout.splitlines()[-1]), json.loads(reported.splitlines()[-1]), joined


def documented() -> list[dict[str, Any]]:
    """Return the summaries that docs/engine.md shows, with an empty object for ``{…}``."""
    text = DOCS.read_text(encoding="utf-8").replace("{…}", "{}")
    decoder = json.JSONDecoder()
    starts = [found.start() for found in re.finditer(r'\{"event":"summary"', text)]
    return [decoder.raw_decode(text[at:])[0] for at in starts]


def names(of: type) -> set[str]:
    return {field.name for field in dataclasses.fields(of)}


def test_what_is_documented_is_what_is_reported_and_what_is_read(
    engine: str, tmp_path: Path
) -> None:
    sent, heard, _ = run(engine, tmp_path)
    shown = documented()
    (send,) = [one for one in shown if "start_ns" in one]
    (reflect,) = [one for one in shown if "residence_ns" in one]
    for reported, docs, summary, flow in (
        (sent, send, SendSummary, SendFlow),
        (heard, reflect, ReflectSummary, ReflectFlow),
    ):
        assert set(reported) == set(docs) == names(summary) | {"event"}
        assert set(reported["flows"][0]) == set(docs["flows"][0]) == names(flow)
    histogram = sent["flows"][0]["rtt_ns"]
    assert set(histogram) == set(send["flows"][0]["rtt_ns"]) == names(Histogram)


@pytest.mark.paced
@pytest.mark.parametrize("receive_time", ["kernel", "user"])
@pytest.mark.parametrize("coalesce_ns", [0, 5 * MS])
def test_a_round_trip_is_one_thing_in_events_and_records(
    engine: str, tmp_path: Path, coalesce_ns: int, receive_time: str
) -> None:
    """The reflector lies on packets for 5 ms, far beyond a millisecond: no delay of the path."""
    sent, heard, flow = run(engine, tmp_path, coalesce_ns=coalesce_ns, receive_time=receive_time)
    (reported,) = parse_send_summary(sent).flows
    assert reported.rtt_ns is not None
    assert reported.residence_unknown == 0
    assert (reported.returned, reported.late, reported.unrecorded) == (300, 0, 0)
    assert sent["timestamps"] == heard["timestamps"] == receive_time
    # Records and events have the same residence times; a histogram has three digits.
    for mine, theirs in (
        (flow.rtt_ns, reported.rtt_ns),
        (flow.owd_forward_ns, reported.owd_forward_ns),
        ((flow.returned_ns - flow.arrived_ns - flow.residence_ns), reported.owd_reverse_ns),
    ):
        assert theirs is not None
        assert theirs.count == len(mine) == 300
        assert theirs.max == pytest.approx(int(mine.max()), rel=2e-3)
        assert theirs.p50 == pytest.approx(int(np.sort(mine)[149]), rel=2e-3)
    # What the answer tells in 20 bits is what the reflector wrote down.
    written = flow.answered_ns - flow.arrived_ns
    assert (np.abs(written - flow.residence_ns) <= written // 65536 + 1).all()
    if coalesce_ns and receive_time == "kernel":
        assert int(np.median(written)) > MS
        assert np.median(flow.rtt_ns) < MS
    assert parse_reflect_summary(heard).residence_ns is not None
