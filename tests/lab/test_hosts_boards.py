"""A host that is a board: agent and engine for ARM, over SSH, under QEMU's user emulation.

``TUNNELMARK_BOARDS`` names others than arm64. All else on the host are this computer's programs:
the kernel hands on to QEMU what is built for the board.
"""

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from boards import MACHINES, WINDOWS, built, runs_here
from skips import has_tools
from small_study import LOOSE_VALIDITY
from ssh_hosts import TwoHosts, two_hosts
from tunnelmark.hosts.ssh_programs import FOLDER_VARIABLE
from tunnelmark.store import open_result

BOARDS = [one for one in os.environ.get("TUNNELMARK_BOARDS", "arm64").split() if one != WINDOWS]
GIVEN_UP = 6
STUDY = (
    """\
format = 1
name = "over-a-board"
title = "A board"
seed = 7
precision = { min_repeats = 1, max_repeats = 1, bring_ups = 1, max_invalid = 1 }
[[tunnel]]
kind = "openvpn"
[[workload]]
kind = "udp_echo"
gap = "10 ms"
payload_bytes = 200
packets = 100
"""
    + LOOSE_VALIDITY
)

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(1800),
    pytest.mark.xdist_group("boards"),
    pytest.mark.lab,
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root: namespaces stand for hosts"),
    pytest.mark.skipif(not Path("/usr/sbin/sshd").exists(), reason="needs openssh-server"),
    pytest.mark.skipif(not has_tools(), reason="needs the tools of scripts/engines"),
]


@pytest.fixture
def hosts() -> Iterator[TwoHosts]:
    with two_hosts() as made:
        yield made


@pytest.mark.parametrize("board", BOARDS)
def test_a_tunnel_carries_traffic_between_a_board_and_a_server(
    board: str,
    study: Callable[[str], Any],
    hosts: TwoHosts,
    tmp_path: Path,
) -> None:
    machine = MACHINES[board]
    (tmp_path / "engines").mkdir()
    (tmp_path / "engines" / machine).symlink_to(built(board))
    one = study(STUDY)
    one.environment[FOLDER_VARIABLE] = str(tmp_path / "engines")
    hosts.client.presents(machine, hosts.folder)
    with runs_here(board):
        one.start(str(one.file), "--hosts", str(hosts.inventory()))
        assert one.finish() == GIVEN_UP, one.errors
    trials = one.of("trial_done")
    assert {trial["tunnel"] for trial in trials} == {"none", "openvpn"}
    for trial in trials:
        # A board's kernel tells when a packet came; QEMU does not pass that on. All else holds, but
        # that an emulated sender may need all of a core where the computer does other things too.
        assert set(trial["reasons"]) - {
            "the sender used all of a core and lost real-time priority"
        } == {"arrivals at the sender lack the kernel time"}
        assert trial["figures"]["unanswered_ratio"] == 0
    result = open_result(one.directory)
    for block in result.blocks.values():
        assert [proof.ok for proof in block.proofs] == [True]
    assert machine in str(result.manifest.environment), result.manifest.environment
