"""The agent on two pipes, as sshd gives them, and its watchdog."""

import json
import struct
import subprocess
from collections.abc import Iterator

import pytest

from tunnelmark.hosts.vm_payload import AGENT, installed

LIMIT_S = 30


@pytest.fixture
def agent(request: pytest.FixtureRequest) -> Iterator["subprocess.Popen[bytes]"]:
    words = [str(installed().programs[AGENT]), "stdio", str(request.param)]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        yield process
        process.kill()


def ask(agent: "subprocess.Popen[bytes]", op: dict[str, object]) -> None:
    assert agent.stdin is not None
    text = json.dumps({"id": 1, "op": op}).encode()
    agent.stdin.write(struct.pack(">II", len(text), 0) + text)
    agent.stdin.flush()


def reported(agent: "subprocess.Popen[bytes]") -> dict[str, object]:
    assert agent.stdout is not None
    head, size = struct.unpack(">II", agent.stdout.read(8))
    header: dict[str, object] = json.loads(agent.stdout.read(head))
    agent.stdout.read(size)
    return header


@pytest.mark.parametrize("agent", [60], indirect=True)
def test_it_answers_and_ends_when_it_is_asked_to(agent: "subprocess.Popen[bytes]") -> None:
    assert reported(agent)["event"] == "ready"
    ask(agent, {"which": {"program": "sh"}})
    assert str(reported(agent)["ok"]).endswith("/sh")
    ask(agent, {"power_off": {}})
    assert reported(agent) == {"id": 1, "ok": None}
    assert agent.wait(LIMIT_S) == 0


@pytest.mark.parametrize("agent", [60], indirect=True)
def test_it_ends_with_its_input(agent: "subprocess.Popen[bytes]") -> None:
    reported(agent)
    assert agent.stdin is not None
    agent.stdin.close()
    assert agent.wait(LIMIT_S) == 0


@pytest.mark.parametrize("agent", [1], indirect=True)
def test_it_ends_what_it_started_when_nothing_is_heard(agent: "subprocess.Popen[bytes]") -> None:
    reported(agent)
    ask(agent, {"spawn": {"argv": ["sleep", "300"]}})
    assert reported(agent)["id"] == 1
    # Its output is a pipe of the agent's: that it closes shows that the program is gone, too.
    assert agent.wait(LIMIT_S) == 0
