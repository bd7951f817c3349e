"""How busy others keep this computer is known apart from what this program has started itself."""

import os
from pathlib import Path

import pytest

from busy import busy
from tunnelmark.hosts.vm_payload import AGENT, installed
from tunnelmark.model.errors import LabError
from tunnelmark.probes.busy import look

pytestmark = pytest.mark.timing


def test_programs_of_others_take_time_and_those_of_this_one_do_not() -> None:
    agent = str(installed().programs[AGENT])
    affinity = os.sched_getaffinity(0)
    with busy(own=False):
        by_others = look(agent, 2.0)
    with busy(own=True):
        by_own = look(agent, 2.0)
    assert 0.3 < by_others.taken_ratio <= 1
    assert by_own.taken_ratio < by_others.taken_ratio / 2
    assert by_others.late_ns > 0
    assert os.sched_getaffinity(0) == affinity


def test_an_agent_that_is_killed_may_do_better_next_time(tmp_path: Path) -> None:
    agent = tmp_path / "tunnelmark-agent"
    agent.write_text("#!/bin/sh\nkill -9 $$\n")
    agent.chmod(0o755)
    with pytest.raises(LabError) as caught:
        look(str(agent), 0.1)
    assert caught.value.transient


@pytest.mark.parametrize("agent", ["/nowhere/tunnelmark-agent", "/bin/echo", "/bin/true"])
def test_a_program_that_is_no_agent_is_named(agent: str) -> None:
    affinity = os.sched_getaffinity(0)
    with pytest.raises(LabError, match=f"^{agent} steadiness: "):
        look(agent, 0.1)
    assert os.sched_getaffinity(0) == affinity
