import errno
import json
import socket
import struct
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from tunnelmark.hosts.vm_channel import HEADER_MAX, PAYLOAD_MAX, PROTOCOL, Channel
from tunnelmark.model.errors import LabError


class Peer:
    """The other side of a channel, by hand."""

    def __init__(self) -> None:
        ours, self.socket = socket.socketpair()
        self.socket.settimeout(10)
        self.channel = Channel(ours, name="machine a", lost=lambda: "it burnt down")

    def say(self, header: dict[str, Any], payload: bytes = b"") -> None:
        text = json.dumps(header).encode()
        self.socket.sendall(struct.pack(">II", len(text), len(payload)) + text + payload)

    def hear(self) -> tuple[dict[str, Any], bytes]:
        head, size = struct.unpack(">II", self.exactly(8))
        return json.loads(self.exactly(head)), self.exactly(size)

    def exactly(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            piece = self.socket.recv(size - len(data))
            assert piece
            data += piece
        return data

    def answering(self, **answer: object) -> threading.Thread:
        def serve() -> None:
            request, _ = self.hear()
            self.say({"id": request["id"], **answer}, b"payload")

        thread = threading.Thread(target=serve)
        thread.start()
        return thread


@pytest.fixture
def peer() -> Iterator[Peer]:
    peer = Peer()
    yield peer
    peer.channel.close()
    peer.socket.close()


class Notes:
    def __init__(self) -> None:
        self.pieces: list[tuple[int, bytes]] = []
        self.end = threading.Event()
        self.returncode: int | None = None
        self.failures: list[Exception] = []

    def output(self, stream: int, data: bytes) -> None:
        self.pieces.append((stream, data))

    def ended(self, returncode: int) -> None:
        self.returncode = returncode
        self.end.set()

    def failed(self, error: Exception) -> None:
        self.failures.append(error)


class Full(Notes):
    """Stands on a full disk."""

    def output(self, stream: int, data: bytes) -> None:
        super().output(stream, data)
        raise OSError(errno.ENOSPC, "No space left on device")


def test_the_agent_introduces_itself(peer: Peer) -> None:
    peer.say({"event": "ready", "protocol": PROTOCOL, "kernel": "6.1", "uptime_s": 2.5})
    ready = peer.channel.ready(10)
    assert (ready.kernel, ready.uptime_s) == ("6.1", 2.5)


def test_silence_is_named_with_its_limit(peer: Peer) -> None:
    with pytest.raises(LabError, match=r"machine a: no sign of the agent after 0\.05 s"):
        peer.channel.ready(0.05)


def test_another_protocol_is_refused(peer: Peer) -> None:
    peer.say({"event": "ready", "protocol": PROTOCOL + 1, "kernel": "6.1", "uptime_s": 2.5})
    with pytest.raises(LabError, match=f"protocol {PROTOCOL + 1}, ours is {PROTOCOL}"):
        peer.channel.ready(10)


def test_an_answer_comes_with_its_payload(peer: Peer) -> None:
    thread = peer.answering(ok={"end": True})
    assert peer.channel.ask("get", {"path": "/a"}, timeout_s=10) == ({"end": True}, b"payload")
    thread.join()


def test_the_agents_error_is_ours(peer: Peer) -> None:
    thread = peer.answering(error="spawn x: no such file")
    with pytest.raises(LabError, match="machine a: spawn x: no such file"):
        peer.channel.ask("spawn", {"argv": ["x"]}, timeout_s=10)
    thread.join()


def test_a_late_answer_disturbs_nobody(peer: Peer) -> None:
    with pytest.raises(LabError, match=r"get got no response after 0\.05 s"):
        peer.channel.ask("get", {}, timeout_s=0.05)
    request, _ = peer.hear()
    peer.say({"id": request["id"], "ok": "late"})
    thread = peer.answering(ok="right")
    assert peer.channel.ask("get", {}, timeout_s=10)[0] == "right"
    thread.join()


def late(channel: Channel, timeout_s: float) -> str:
    with pytest.raises(LabError, match="got no response after") as caught:
        channel.ask("signal", {}, timeout_s=timeout_s)
    return str(caught.value).rpartition(" after ")[2]


def test_an_agent_that_says_nothing_is_not_waited_for_as_long_each_time(
    peer: Peer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tunnelmark.hosts.vm_channel._SILENT_S", 0.01)
    assert [late(peer.channel, 0.05) for _ in range(3)] == ["0.05 s", "0.01 s", "0.01 s"]
    # It only hung: whatever it says, it has all the time again.
    notes = Notes()
    peer.channel.listen(3, notes)
    peer.say({"event": "exit", "proc": 3, "code": 0, "signal": None})
    assert notes.end.wait(10)
    assert late(peer.channel, 0.05) == "0.05 s"


def test_an_agent_that_is_busy_with_something_else_is_not_silent(
    peer: Peer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tunnelmark.hosts.vm_channel._SILENT_S", 0.01)
    notes = Notes()
    peer.channel.listen(3, notes)

    def exits() -> None:
        peer.hear()
        peer.say({"event": "exit", "proc": 3, "code": 0, "signal": None})
        assert notes.end.wait(10)

    thread = threading.Thread(target=exits)
    thread.start()
    assert late(peer.channel, 2) == "2 s"
    thread.join()
    assert late(peer.channel, 0.05) == "0.05 s"


def test_output_that_overtakes_the_listener_is_kept_in_order(peer: Peer) -> None:
    peer.say({"event": "output", "proc": 3, "stream": 1}, b"a")
    peer.say({"event": "output", "proc": 3, "stream": 2}, b"b")
    peer.say({"event": "exit", "proc": 3, "code": 7, "signal": None})
    peer.say({"event": "ready", "protocol": PROTOCOL, "kernel": "6.1", "uptime_s": 2.5})
    peer.channel.ready(10)  # all before it has been read
    notes = Notes()
    peer.channel.listen(3, notes)
    assert (notes.pieces, notes.returncode) == ([(1, b"a"), (2, b"b")], 7)


def test_a_listener_that_fails_hears_of_it_and_the_connection_stays(peer: Peer) -> None:
    full, early = Full(), Full()
    peer.channel.listen(3, full)
    peer.say({"event": "output", "proc": 3, "stream": 1}, b"a")
    peer.say({"event": "output", "proc": 4, "stream": 1}, b"early")
    thread = peer.answering(ok="here")
    assert peer.channel.ask("which", {}, timeout_s=10)[0] == "here"
    thread.join()
    peer.channel.listen(4, early)
    for one in (full, early):
        assert [str(error) for error in one.failures] == ["[Errno 28] No space left on device"]
    peer.say({"event": "exit", "proc": 3, "code": 0, "signal": None})
    assert full.end.wait(10)
    assert full.returncode == 0


def test_what_nobody_listens_to_any_more_is_not_kept(peer: Peer) -> None:
    notes = Notes()
    peer.channel.listen(3, notes)
    peer.channel.forget(3)
    peer.say({"event": "output", "proc": 3, "stream": 1}, b"a")
    # A program whose number came too late: nobody will ever listen to it, so it is ended.
    with pytest.raises(LabError, match="spawn got no response"):
        peer.channel.ask("spawn", {}, timeout_s=0.05)
    request, _ = peer.hear()
    peer.say({"event": "output", "proc": 4, "stream": 1}, b"before")
    peer.say({"id": request["id"], "ok": {"proc": 4, "pid": 7}})
    peer.say({"event": "output", "proc": 4, "stream": 1}, b"behind")
    peer.say({"event": "exit", "proc": 4, "code": 0, "signal": None})
    assert peer.hear()[0]["op"] == {"signal": {"proc": 4, "signal": 9, "group": True}}
    thread = peer.answering(ok="all is read")
    peer.channel.ask("which", {}, timeout_s=10)
    thread.join()
    assert (peer.channel._listeners, peer.channel._early) == ({}, {})
    assert (notes.pieces, notes.returncode) == ([], None)


def test_a_signal_is_a_negative_status(peer: Peer) -> None:
    notes = Notes()
    peer.channel.listen(3, notes)
    peer.say({"event": "exit", "proc": 3, "code": None, "signal": 15})
    assert notes.end.wait(10)
    assert notes.returncode == -15


def test_a_lost_connection_ends_programs_and_names_the_reason(peer: Peer) -> None:
    notes = Notes()
    peer.channel.listen(3, notes)
    peer.socket.close()
    assert notes.end.wait(10)
    assert notes.returncode == -9
    with pytest.raises(LabError, match="machine a: it burnt down"):
        peer.channel.ask("get", {}, timeout_s=10)
    late = Notes()
    peer.channel.listen(4, late)
    assert late.returncode == -9


def test_a_request_under_way_does_not_outwait_a_lost_connection(peer: Peer) -> None:
    thread = threading.Thread(target=lambda: (peer.hear(), peer.socket.close()))
    thread.start()
    with pytest.raises(LabError, match="it burnt down"):
        peer.channel.ask("get", {}, timeout_s=60)
    thread.join()


def test_a_closed_channel_says_so(peer: Peer) -> None:
    peer.channel.close()
    peer.channel.close()
    with pytest.raises(LabError, match="the virtual machine was switched off"):
        peer.channel.ask("get", {}, timeout_s=1)
    assert peer.socket.recv(1) == b""


@pytest.mark.parametrize(
    "frame",
    [
        struct.pack(">II", HEADER_MAX + 1, 0),
        struct.pack(">II", 2, PAYLOAD_MAX + 1),
        struct.pack(">II", 1, 0),
        struct.pack(">II", 2, 0) + b"[]",
        struct.pack(">II", 2, 0) + b"{}",
        struct.pack(">II", 3, 0) + b"{x}",
        struct.pack(">II", 15, 0) + b'{"event":"fly"}',
        struct.pack(">II", 31, 0) + b'{"event":"exit","proc":"three"}',
    ],
)
def test_what_is_not_the_protocol_ends_it(peer: Peer, frame: bytes) -> None:
    peer.socket.sendall(frame)
    with pytest.raises(LabError, match="the agent broke the protocol"):
        peer.channel.ready(10)


def test_an_oversized_request_is_refused_here(peer: Peer) -> None:
    with pytest.raises(LabError, match=f"the limits are {HEADER_MAX} and {PAYLOAD_MAX}"):
        peer.channel.ask("put", {}, bytes(PAYLOAD_MAX + 1), timeout_s=1)
