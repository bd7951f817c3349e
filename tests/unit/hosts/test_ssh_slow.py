"""A host that lets one wait, with a program in the place of ssh."""

import os
import threading
from pathlib import Path, PurePosixPath
from typing import cast

import pytest

from tunnelmark.hosts import ssh
from tunnelmark.hosts.inventory import HostEntry
from tunnelmark.hosts.ledger import Ledger
from tunnelmark.hosts.ssh import SshAgent
from tunnelmark.hosts.vm_channel import Channel
from tunnelmark.hosts.vm_payload import AGENT, ENGINE, Payload
from tunnelmark.model.child import Child
from tunnelmark.model.errors import LabError, LabFailedError


def test_a_login_that_takes_too_long_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it says later is not taken for the agent's words."""
    program = tmp_path / "ssh"
    program.write_text("#!/bin/sh\nsleep 1\necho Linux x86_64\nexec sleep 20\n", encoding="ascii")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setattr(ssh, "_CONNECT_LIMIT_S", 0.3)
    payload = Payload({AGENT: program, ENGINE: program})
    entry = HostEntry.model_validate({"ssh": "board", "address": "192.0.2.1"})
    with Ledger() as ledger, pytest.raises(LabError) as caught:
        SshAgent.connect(entry, role="client", ledger=ledger, payload=payload)
    assert str(caught.value) == (
        "client (board): the login there took longer than 0.3 s: see what its shell does at start "
        "(ssh board true)"
    )


class Stalled:
    """A channel on which the first signs of life have no answer, and a program that carries it."""

    def __init__(self, unanswered: int) -> None:
        self.unanswered = unanswered
        self.answered = threading.Semaphore(0)

    def ask(self, *_: object, **__: object) -> tuple[object, bytes]:
        if self.unanswered:
            self.unanswered -= 1
            raise LabFailedError("which got no response after 30 s")
        self.answered.release()
        return "/bin/sh", b""

    def poll(self) -> None:
        """It runs."""


def test_signs_of_life_go_on_when_a_line_works_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ssh, "_SIGNS", 100)
    line = Stalled(unanswered=2)
    agent = SshAgent(
        cast(Channel, line),
        cast(Child, line),
        tmp_path / "errors",
        name="client",
        directory=PurePosixPath("/none"),
        silence_s=1,
    )
    alive = threading.Thread(target=agent._live)
    alive.start()
    try:
        assert all(line.answered.acquire(timeout=10) for _ in range(3))
    finally:
        agent._closed.set()
        alive.join()
    assert line.unanswered == 0
