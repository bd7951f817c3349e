"""A host that lets one wait, with a program in the place of ssh."""

import os
from pathlib import Path

import pytest

from tunnelmark.hosts import ssh
from tunnelmark.hosts.inventory import HostEntry
from tunnelmark.hosts.ledger import Ledger
from tunnelmark.hosts.ssh import SshAgent
from tunnelmark.hosts.vm_payload import AGENT, ENGINE, Payload
from tunnelmark.model.errors import LabError


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
