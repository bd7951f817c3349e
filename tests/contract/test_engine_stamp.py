"""STAMP (RFC 8762) against other implementations: scapy's packets, and hmac of the library."""

import hashlib
import hmac
import json
import socket
import struct
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from scapy.contrib.stamp import (
    STAMPSessionReflectorTestUnauthenticated,
    STAMPSessionSenderTestUnauthenticated,
)

from tunnelmark.engine.records import join, read_reflect, read_send

KEY = bytes(range(32))
PACKETS = 40
NTP_ERA_S = 2_208_988_800


@contextmanager
def reflector(engine: str, tmp_path: Path, **stamp: object) -> Iterator[tuple[Any, int]]:
    """Run our reflector on the loopback; gives the process and its port."""
    config = {
        "protocol": 2,
        "listen": [],
        "sessions": [],
        "stamp": [{"flow": 5, "listen": "127.0.0.1:0", "key": None, **stamp}],
        "records": str(tmp_path / "reflect.rec"),
        "realtime_priority": None,
        "cpu": None,
        "socket_buffer_bytes": 1 << 20,
    }
    with subprocess.Popen(
        [engine, "reflect", "-"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(json.dumps(config))
        process.stdin.close()
        ready = json.loads(process.stdout.readline())
        assert ready["event"] == "ready", ready
        try:
            yield process, int(ready["listen"][0].rpartition(":")[2])
        finally:
            process.terminate()
            process.wait(20)


def summary(process: Any) -> dict[str, Any]:
    process.terminate()
    events = [json.loads(line) for line in process.stdout]
    assert events[-1]["event"] == "summary", events
    found: dict[str, Any] = events[-1]
    return found


def client(port: int) -> socket.socket:
    one = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    one.bind(("127.0.0.1", 0))
    one.connect(("127.0.0.1", port))
    one.settimeout(20)
    return one


def ntp(time_s: float) -> int:
    return int((time_s + NTP_ERA_S) * 2**32)


@pytest.mark.parametrize("stateful", [False, True])
def test_our_reflector_answers_scapy_s_sender(
    engine: str, tmp_path: Path, *, stateful: bool
) -> None:
    with reflector(engine, tmp_path, stateful=stateful) as (process, port), client(port) as one:
        one.setsockopt(socket.IPPROTO_IP, socket.IP_TTL, 77)
        for count, seq in enumerate((7, 8, 100)):
            question = STAMPSessionSenderTestUnauthenticated(seq=seq, ssid=0x1234)
            before = time.time()
            one.send(bytes(question) + b"padding")
            data = one.recv(2000)
            after = time.time()
            assert len(data) == len(bytes(question)) + 7
            assert data.endswith(b"padding")
            answer = STAMPSessionReflectorTestUnauthenticated(data[:44])
            assert answer.seq_sender == seq
            assert answer.seq == (count if stateful else seq)
            assert answer.ssid == 0x1234
            assert answer.ttl_sender == 77
            assert data[28:36] == bytes(question)[4:12]
            received, answered = (struct.unpack("!Q", data[at : at + 8])[0] for at in (16, 4))
            assert ntp(before - 0.001) <= received <= answered <= ntp(after + 0.001)
        found = summary(process)
    assert found["flows"][0]["flow"] == 5
    assert found["flows"][0]["received"] == 3


def authenticated(seq: int, key: bytes) -> bytes:
    """Return a packet of figure 4 of the RFC, made of the library's hmac."""
    head = struct.pack("!I12xQH70x", seq, ntp(time.time()), 1)
    return head + hmac.new(key, head, hashlib.sha256).digest()[:16]


def test_our_reflector_verifies_and_signs(engine: str, tmp_path: Path) -> None:
    with reflector(engine, tmp_path, key=KEY.hex()) as (process, port), client(port) as one:
        one.send(authenticated(1, b"another key"))
        one.send(bytes(STAMPSessionSenderTestUnauthenticated(seq=1)) + bytes(100))
        one.send(authenticated(2, KEY))
        data = one.recv(2000)
        assert len(data) == 112
        assert data[96:] == hmac.new(KEY, data[:96], hashlib.sha256).digest()[:16]
        assert struct.unpack("!I", data[48:52]) == (2,)
        found = summary(process)
    assert found["rejected"] == 2
    assert found["flows"][0]["received"] == 1


def test_a_stranger_is_not_answered(engine: str, tmp_path: Path) -> None:
    with reflector(engine, tmp_path, peer="127.0.0.9") as (process, port), client(port) as one:
        one.send(bytes(STAMPSessionSenderTestUnauthenticated(seq=1)))
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as friend:
            friend.bind(("127.0.0.9", 0))
            friend.settimeout(20)
            friend.sendto(bytes(STAMPSessionSenderTestUnauthenticated(seq=2)), ("127.0.0.1", port))
            assert len(friend.recv(2000)) == 44
        assert summary(process)["rejected"] == 1


def test_a_session_is_a_pair_of_addresses_and_ports(engine: str, tmp_path: Path) -> None:
    with (
        reflector(engine, tmp_path, stateful=True) as (process, port),
        client(port) as one,
        client(port) as other,
    ):
        for count in range(3):
            for sock, seq in ((one, count), (other, 4_000_000_000 + count)):
                sock.send(bytes(STAMPSessionSenderTestUnauthenticated(seq=seq)))
                answer = STAMPSessionReflectorTestUnauthenticated(sock.recv(2000))
                assert (answer.seq, answer.seq_sender) == (count, seq)
        names = [f"127.0.0.1:{sock.getsockname()[1]}" for sock in (one, other)]
        (flow,) = summary(process)["flows"]
    assert (flow["received"], flow["duplicates"]) == (6, 0)
    assert [sender["address"] for sender in flow["senders"]] == names
    assert [sender["received"] for sender in flow["senders"]] == [3, 3]
    table = read_reflect((tmp_path / "reflect.rec").read_bytes(), "reflect.rec")
    assert table["session"].tolist() == [0, 1] * 3


def test_an_answer_gets_no_answer(engine: str, tmp_path: Path) -> None:
    with reflector(engine, tmp_path) as (process, port), client(port) as one:
        one.send(bytes(STAMPSessionSenderTestUnauthenticated(seq=1)))
        answer = one.recv(2000)
        assert struct.unpack("!H", answer[12:14])[0] & 0xFF, "the multiplier is never 0"
        # As another reflector would do that took the answer for a question.
        one.send(answer)
        one.send(bytes(STAMPSessionSenderTestUnauthenticated(seq=2)))
        assert STAMPSessionReflectorTestUnauthenticated(one.recv(2000)).seq_sender == 2
        assert summary(process)["rejected"] == 1


def test_a_packet_of_twamp_light_is_answered_within_its_size(engine: str, tmp_path: Path) -> None:
    with reflector(engine, tmp_path) as (process, port), client(port) as one:
        question = bytes(STAMPSessionSenderTestUnauthenticated(seq=9))
        one.send(question[:40])
        one.send(question[:41])
        answer = one.recv(2000)
        assert len(answer) == 41
        assert struct.unpack("!I", answer[24:28]) == (9,)
        assert summary(process)["rejected"] == 1


def test_only_the_port_of_the_peer_is_answered_where_one_is_named(
    engine: str, tmp_path: Path
) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as friend:
        friend.bind(("127.0.0.1", 0))
        friend.settimeout(20)
        peer = f"127.0.0.1:{friend.getsockname()[1]}"
        with reflector(engine, tmp_path, peer=peer) as (process, port), client(port) as one:
            one.send(bytes(STAMPSessionSenderTestUnauthenticated(seq=1)))
            friend.sendto(bytes(STAMPSessionSenderTestUnauthenticated(seq=2)), ("127.0.0.1", port))
            assert len(friend.recv(2000)) == 44
            assert summary(process)["rejected"] == 1


def serve(sock: socket.socket, answer: Callable[[bytes, int], bytes | None]) -> threading.Thread:
    """Answer packets in a thread until the socket is closed."""

    def run() -> None:
        count = 0
        while True:
            try:
                data, source = sock.recvfrom(65535)
            except OSError:
                return
            reply = answer(data, count)
            count += 1
            if reply is not None:
                sock.sendto(reply, source)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    return thread


def send(engine: str, tmp_path: Path, port: int, key: bytes | None, size: int) -> dict[str, Any]:
    config = {
        "protocol": 2,
        "flows": [
            {
                "flow": 5,
                "stamp": {"key": key.hex() if key else None},
                "target": f"127.0.0.1:{port}",
                "source": None,
                "interface": None,
                "start_offset_ns": 0,
                "schedule": {"type": "fixed", "gap_ns": 2_000_000},
                "stop": {"type": "packets", "packets": PACKETS},
                "size": {"type": "fixed", "payload_bytes": size},
                "content": {"type": "random"},
            }
        ],
        "seed": 1,
        # Longer than a busy machine holds a packet up.
        "drain_ns": 10_000_000_000,
        "late_ns": 10_000_000_000,
        "missed": "send",
        "dont_fragment": False,
        "records": str(tmp_path / "send.rec"),
        "realtime_priority": None,
        "send_cpu": None,
        "receive_cpu": None,
        "socket_buffer_bytes": 1 << 20,
    }
    done = subprocess.run(
        [engine, "send", "-"],
        input=json.dumps(config),
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    assert found["event"] == "summary"
    return found


def answer_unauthenticated(data: bytes, count: int) -> bytes | None:
    """Answer as a stateful reflector built on scapy; every eighth question is lost before it."""
    question = STAMPSessionSenderTestUnauthenticated(data[:44])
    if question.seq % 8 == 3:
        return None
    answer = STAMPSessionReflectorTestUnauthenticated(
        seq=count, ssid=question.ssid, seq_sender=question.seq, ttl_sender=64
    )
    raw = bytearray(bytes(answer))
    now = ntp(time.time())
    raw[4:12] = struct.pack("!Q", now + (3 << 32) // 1000)
    raw[16:24] = struct.pack("!Q", now)
    raw[28:36] = data[4:12]
    return bytes(raw) + data[44:]


def test_our_sender_measures_a_stateful_reflector_of_scapy(engine: str, tmp_path: Path) -> None:
    seen: list[int] = []

    def answer(data: bytes, _count: int) -> bytes | None:
        assert len(data) == 200
        reply = answer_unauthenticated(data, len(seen))
        if reply is not None:
            seen.append(struct.unpack("!I", data[:4])[0])
        return reply

    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.bind(("127.0.0.1", 0))
        thread = serve(sock, answer)
        found = send(engine, tmp_path, sock.getsockname()[1], None, 200)
        sock.close()
        thread.join(1)
    (flow,) = found["flows"]
    lost = len([seq for seq in range(PACKETS) if seq % 8 == 3])
    assert flow["sent"] == PACKETS
    assert flow["returned"] == PACKETS - lost
    assert flow["remote_received"] == PACKETS - lost
    assert flow["rejected"] == 0
    table = read_send((tmp_path / "send.rec").read_bytes(), "send.rec")
    joined = join(table, read_reflect(b"TMREC\0\0\0" + EMPTY_REFLECT, "none"), 5)
    assert int(joined.arrived.sum()) == PACKETS - lost
    # The reflector says that it had each packet for 3 ms: they are not in the round trip.
    reported = table["residence_ns"][joined.returned]
    assert (abs(reported.astype(int) - 3_000_000) < 10).all()
    whole = joined.returned_ns[joined.returned] - joined.sent_ns[joined.returned]
    assert (joined.rtt_ns == whole - reported).all()


EMPTY_REFLECT = struct.pack("<HHIQq32x", 1, 2, 40, 0, 0)


def test_our_sender_signs_and_verifies(engine: str, tmp_path: Path) -> None:
    forged: list[int] = []

    def answer(data: bytes, _count: int) -> bytes:
        assert len(data) == 112
        assert data[96:] == hmac.new(KEY, data[:96], hashlib.sha256).digest()[:16]
        (seq,) = struct.unpack("!I", data[:4])
        now = ntp(time.time())
        head = struct.pack("!I12xQH6xQ8xI12x8sH6xB15x", seq, now, 1, now, seq, data[16:24], 1, 64)
        tag = hmac.new(KEY, head, hashlib.sha256).digest()[:16]
        if seq % 10 == 0:
            forged.append(seq)
            tag = bytes(16)
        return head + tag

    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.bind(("127.0.0.1", 0))
        thread = serve(sock, answer)
        found = send(engine, tmp_path, sock.getsockname()[1], KEY, 112)
        sock.close()
        thread.join(1)
    (flow,) = found["flows"]
    assert len(forged) == PACKETS / 10
    assert flow["returned"] == PACKETS - len(forged)
    assert flow["rejected"] == len(forged)
