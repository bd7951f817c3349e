"""Whether a TCP connection to a port of the other end comes about."""

import json
import random
from typing import Final

from tunnelmark.engine import config, events, transactions
from tunnelmark.engine.transactions import Message
from tunnelmark.lab.place import Joined
from tunnelmark.model.errors import LabError
from tunnelmark.model.tunnel import TrafficPath

_BYTES: Final = 64
_ASKED_NS: Final = 500_000_000
_TIMEOUT_NS: Final = 3_000_000_000
_LIMIT_S: Final = 15.0


def tcp_open(
    joined: Joined, path: TrafficPath, port: int, *, engine: str, owner_pid: int
) -> str | None:
    """Listen at a port of the server, connect from the client; None, or why it fails."""
    stream = random.Random(port)  # noqa: S311 - a number of a session
    message = Message("connect", stream.getrandbits(63), _BYTES, _BYTES)
    target = config.address(path.server_address, port)
    answering = transactions.answer_config(
        message,
        [config.address(path.server_listens, port)],
        realtime_priority=None,
        parent_pid=owner_pid,
    )
    asking = transactions.ask_config(
        message,
        [(target, config.address(path.client_address, 0))],
        outstanding=1,
        duration_ns=_ASKED_NS,
        timeout_ns=_TIMEOUT_NS,
        realtime_priority=None,
        parent_pid=owner_pid,
    )
    try:
        server = joined.server.spawn(
            [engine, "answer", "-"],
            name=f"answer-{port}",
            stdin=json.dumps(answering).encode(),
            lines=True,
        )
        try:
            events.wait_for(server, "ready", limit_s=_LIMIT_S)
            done = joined.client.run(
                [engine, "ask", "-"],
                stdin=json.dumps(asking).encode(),
                timeout_s=_LIMIT_S,
                check=False,
            )
        finally:
            server.stop()
    except LabError as error:
        return str(error)
    return None if done.returncode == 0 else _reason(done.stdout) or done.last_words()


def _reason(output: bytes) -> str:
    """Return the message of the error event, if there is one."""
    for text in output.decode("utf-8", "replace").splitlines():
        try:
            event = json.loads(text)
        except ValueError:
            continue
        if isinstance(event, dict) and event.get("event") == "error":
            return str(event.get("message", ""))
    return ""
