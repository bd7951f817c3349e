"""The conversation with the agent of a machine: requests with answers, and what it says unasked."""

import contextlib
import json
import socket
import struct
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, Protocol

from tunnelmark.hosts.vm_process import KILL
from tunnelmark.model.errors import LabError, LabFailedError

PROTOCOL: Final = 4
HEADER_MAX: Final = 512 * 1024
PAYLOAD_MAX: Final = 1024 * 1024

_KILL_LIMIT_S: Final = 30.0
_SILENT_S: Final = 3.0
"""Longest wait once an agent is silent: dozens of requests follow when its hosts are removed."""
_LENGTHS: Final = struct.Struct(">II")


class Listener(Protocol):
    """What listens to one program of the machine; called from the channel's thread."""

    def output(self, stream: int, data: bytes) -> None:
        """Take a piece of standard output (1) or standard error (2)."""

    def ended(self, returncode: int) -> None:
        """Take the exit status; minus the signal's number if one ended it."""

    def failed(self, error: Exception) -> None:
        """Take what the listener itself raised; its user must hear of it, the channel goes on."""


@dataclass(frozen=True)
class Ready:
    """How the agent introduced itself."""

    kernel: str
    uptime_s: float


class SilentError(LabFailedError):
    """The machine runs, but its agent says nothing."""


class Channel:
    """One connection. Requests may come from any thread; a lost connection fails them all.

    ``lost`` is asked for the reason when the connection ends without ``close``: it knows where the
    machine's last words are.
    """

    def __init__(self, connection: socket.socket, *, name: str, lost: Callable[[], str]) -> None:
        """Take a connected socket; ``name`` stands in error messages."""
        self._socket = connection
        self._name = name
        self._lost = lost
        self._send_lock = threading.Lock()
        self._state = threading.Condition()
        self._next_id = 0
        self._answers: dict[int, tuple[Mapping[str, object], bytes] | None] = {}
        self._listeners: dict[int, Listener] = {}
        self._early: dict[int, list[Callable[[Listener], None]]] = {}
        self._dropped: set[int] = set()
        """Programs to which nobody listens any more; an agent gives no number twice."""
        self._ready: Ready | None = None
        self._error: str | None = None
        self._heard = 0
        """Frames that came from the agent."""
        self._silent_since: int | None = None
        """How many had come when a request was given up during which none did."""
        self._reader = threading.Thread(target=self._read, name=f"{name}-channel", daemon=True)
        self._reader.start()

    def ready(self, timeout_s: float) -> Ready:
        """Wait until the agent is there; ``LabError`` if it does not come or speaks otherwise."""
        with self._state:
            self._state.wait_for(lambda: self._ready is not None or self._error, timeout_s)
            if self._error is not None:
                raise LabFailedError(self._error)
            if self._ready is None:
                raise SilentError(f"{self._name}: no sign of the agent after {timeout_s:g} s")
            return self._ready

    def ask(
        self, op: str, arguments: Mapping[str, object], payload: bytes = b"", *, timeout_s: float
    ) -> tuple[object, bytes]:
        """Ask and return the answer with its payload.

        Raises ``LabError`` with the agent's words, or when no answer comes in time. An agent that
        let a request go by and has said nothing at all since is not waited for that long again.
        """
        with self._state:
            if self._error is not None:
                raise LabFailedError(self._error)
            number = self._next_id
            self._next_id += 1
            self._answers[number] = None
            heard = self._heard
            if self._silent_since == heard:
                timeout_s = min(timeout_s, _SILENT_S)
        try:
            self._send({"id": number, "op": {op: dict(arguments)}}, payload)
            with self._state:
                self._state.wait_for(
                    lambda: self._answers[number] is not None or self._error, timeout_s
                )
                answer = self._answers[number]
                if answer is None:
                    self._silent_since = heard
                    late = f"{self._name}: {op} got no response after {timeout_s:g} s"
                    raise LabFailedError(self._error or late)
        finally:
            with self._state:
                self._answers.pop(number, None)
        header, data = answer
        if "error" in header:
            raise LabError(f"{self._name}: {header['error']}")
        return header.get("ok"), data

    def listen(self, process: int, listener: Listener) -> None:
        """Tell the listener all about a program from its start on, past and to come."""
        with self._state:
            for call in self._early.pop(process, ()):
                _passed_on(listener, call)
            self._listeners[process] = listener
            if self._error is not None:
                _passed_on(listener, _lost)

    def forget(self, process: int) -> None:
        """Drop all that a program has written and will write: nobody needs it any more."""
        with self._state:
            self._drop(process)

    def close(self) -> None:
        """End the conversation: the machine switches itself off. Idempotent."""
        with self._state:
            if self._error is None:
                self._error = f"{self._name}: the virtual machine was switched off"
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        if threading.current_thread() is not self._reader:
            self._reader.join(timeout=5)
        self._socket.close()

    def _send(self, header: Mapping[str, object], payload: bytes) -> None:
        text = json.dumps(header, ensure_ascii=False).encode()
        if len(text) > HEADER_MAX or len(payload) > PAYLOAD_MAX:
            raise LabError(
                f"{self._name}: a request of {len(text)} and {len(payload)} bytes, the limits are "
                f"{HEADER_MAX} and {PAYLOAD_MAX}"
            )
        try:
            with self._send_lock:
                self._socket.sendall(_LENGTHS.pack(len(text), len(payload)) + text + payload)
        except OSError:
            # The reader meets the same end and knows more about it.
            self._reader.join(timeout=5)
            raise LabFailedError(self._error or f"{self._name}: the connection is lost") from None

    def _read(self) -> None:
        reason = None
        try:
            while True:
                header, payload = self._frame()
                self._take(header, payload)
        except (EOFError, OSError):
            pass
        except (ValueError, KeyError, TypeError) as error:
            reason = f"{self._name}: the agent broke the protocol: {error}"
        with self._state:
            closed = self._error is not None
        # Outside the lock: finding the last words reads a file.
        words = reason or ("" if closed else f"{self._name}: {self._lost()}")
        with self._state:
            if not closed:
                self._error = words
            listeners = list(self._listeners.values())
            self._listeners.clear()
            self._state.notify_all()
        for listener in listeners:
            _passed_on(listener, _lost)

    def _frame(self) -> tuple[Mapping[str, object], bytes]:
        head, size = _LENGTHS.unpack(self._exactly(_LENGTHS.size))
        if not len(b"{}") <= head <= HEADER_MAX or size > PAYLOAD_MAX:
            raise ValueError(f"a frame of {head} and {size} bytes")
        header = json.loads(self._exactly(head))
        if not isinstance(header, dict):
            raise TypeError("a header that is not an object")
        return header, self._exactly(size)

    def _exactly(self, size: int) -> bytes:
        data = bytearray(size)
        view = memoryview(data)
        while view:
            got = self._socket.recv_into(view)
            if got == 0:
                raise EOFError
            view = view[got:]
        return bytes(data)

    def _take(self, header: Mapping[str, object], payload: bytes) -> None:
        with self._state:
            self._heard += 1
        if "event" not in header:
            number = header["id"]
            with self._state:
                if isinstance(number, int) and number in self._answers:
                    self._answers[number] = (header, payload)
                    self._state.notify_all()
                    return
                # An answer that nobody waits for any more is dropped, and with it the output of a
                # program that it names: nobody will ever listen to that one, or end it.
                answer = header.get("ok")
                if isinstance(answer, dict) and isinstance(late := answer.get("proc"), int):
                    self._drop(late)
                    threading.Thread(target=self._kill, args=(late,), daemon=True).start()
            return
        match header["event"]:
            case "ready":
                if header["protocol"] != PROTOCOL:
                    raise ValueError(f"protocol {header['protocol']}, ours is {PROTOCOL}")
                with self._state:
                    self._ready = Ready(str(header["kernel"]), _number(header["uptime_s"]))
                    self._state.notify_all()
            case "output":
                stream = int(_number(header["stream"]))
                self._tell(header["proc"], lambda listener: listener.output(stream, payload))
            case "exit":
                code, signal = header["code"], header["signal"]
                returncode = int(_number(code)) if code is not None else -int(_number(signal))
                self._tell(header["proc"], lambda listener: listener.ended(returncode))
            case other:
                raise ValueError(f"event {other!r}")

    def _tell(self, process: object, call: Callable[[Listener], None]) -> None:
        if not isinstance(process, int):
            raise TypeError(f"program {process!r}")
        with self._state:
            if process in self._dropped:
                return
            listener = self._listeners.get(process)
            if listener is None:
                # The first output can overtake the response with the program's number.
                self._early.setdefault(process, []).append(call)
                return
        _passed_on(listener, call)

    def _kill(self, process: int) -> None:
        """End a program; not for the reader, which must not wait for an answer."""
        with contextlib.suppress(LabError):
            arguments = {"proc": process, "signal": KILL, "group": True}
            self.ask("signal", arguments, timeout_s=_KILL_LIMIT_S)

    def _drop(self, process: int) -> None:
        self._dropped.add(process)
        self._listeners.pop(process, None)
        self._early.pop(process, None)


def _passed_on(listener: Listener, call: Callable[[Listener], None]) -> None:
    """Tell a listener; what it raises (a full disk here) is its own, and not the connection's."""
    try:
        call(listener)
    except Exception as error:  # noqa: BLE001 - handed to the listener, whose user raises it
        listener.failed(error)


def _lost(listener: Listener) -> None:
    listener.ended(-9)


def _number(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(f"{value!r} is not a number")
    return value
