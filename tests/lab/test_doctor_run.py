"""What ``doctor`` says of a tunnel is what a run does with it, as root and without."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from small_study import LOOSE_VALIDITY
from tunnelmark.lab.ability import usual_params
from tunnelmark.lab.rootless import cannot_run_rootless
from tunnelmark.tunnels.base import Tunnel
from tunnelmark.tunnels.registry import tunnel_kinds

pytestmark = pytest.mark.lab

# A user namespace in which this process is nobody: no privilege and no way back to one, but files
# that only root may read (an interpreter below /root) can be read.
_NOBODY = ("unshare", "--user", "--map-user=65534", "--map-group=65534")
_HEAD = f"""
format = 1
name = "asked"
title = "Asked"
seed = 3

[precision]
metric = "rtt_p50_ns"
min_repeats = 1
max_repeats = 1

{LOOSE_VALIDITY}
[[link]]
kind = "serial"
rate = "8 Mbit/s"
delay = "1 ms"

[[workload]]
kind = "udp_echo"
gap = "10 ms"
packets = 20
payload_bytes = 64
"""


def _over_a_wire() -> dict[str, type[Tunnel]]:
    return {kind: driver for kind, driver in tunnel_kinds().items() if not driver.is_link}


def _study() -> str:
    """Every tunnel over a wire with its usual parameters, as the table of ``doctor`` has them."""
    tables = []
    for kind, driver in _over_a_wire().items():
        required = {
            name for name, field in driver.params_type.model_fields.items() if field.is_required()
        }
        usual = usual_params(driver.params_type)
        lines = [f'{name} = "{getattr(usual, name)}"' for name in sorted(required)]
        tables.append("\n".join([f'[[tunnel]]\nkind = "{kind}"\nlabel = "{kind}"', *lines]))
    return _HEAD + "\n".join(tables)


class Asked:
    """The command, as a user with or without privileges calls it."""

    def __init__(self, folder: Path, prefix: Sequence[str]) -> None:
        self.folder = folder
        self._prefix = prefix
        (folder / "runtime").mkdir(mode=0o700)
        self.environment = {**os.environ, "TUNNELMARK_RUNTIME": str(folder / "runtime")}

    def start(self, *words: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [*self._prefix, sys.executable, "-m", "tunnelmark.cli", *words],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=self.folder,
            env=self.environment,
            start_new_session=True,
        )

    def doctor(self) -> dict[str, Any]:
        process = self.start("doctor", "--no-machine", "--json")
        out, err = process.communicate(timeout=120)
        assert process.returncode in {0, 3}, err
        said: dict[str, Any] = json.loads(out)
        return said


@pytest.fixture(params=["root", "nobody"])
def asked(request: pytest.FixtureRequest, tmp_path: Path) -> Asked:
    if request.param == "nobody" and (reason := cannot_run_rootless()):
        pytest.skip(f"user namespaces are not allowed: {reason}")
    return Asked(tmp_path, _NOBODY if request.param == "nobody" else ())


def test_a_run_skips_what_doctor_says_and_for_the_same_reason(asked: Asked) -> None:
    said = {tunnel["kind"]: tunnel["local"] for tunnel in asked.doctor()["tunnels"]}
    assert said["none"] is None, "a lab without a tunnel can stand here"
    (asked.folder / "study.toml").write_text(_study(), encoding="utf-8")
    process = asked.start("run", "--json", "--place", "local", "study.toml")
    assert process.stdout is not None
    line = process.stdout.readline()
    # To the process that was started, as `kill` does it: what runs in namespaces must hear of it.
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=120)
    assert line, err
    event = json.loads(line)
    assert event["event"] == "run_started"
    skipped = dict(event["skipped"])
    assert skipped == {kind: said[kind] for kind in _over_a_wire() if said[kind] is not None}


def test_what_doctor_says_can_run_runs(asked: Asked) -> None:
    said = {tunnel["kind"]: tunnel["local"] for tunnel in asked.doctor()["tunnels"]}
    kind = next(kind for kind in ("openvpn", "wireguard", "none") if said.get(kind) is None)
    table = f'[[tunnel]]\nkind = "{kind}"\n'
    (asked.folder / "study.toml").write_text(_HEAD + table, encoding="utf-8")
    process = asked.start("run", "--json", "--place", "local", "study.toml")
    out, err = process.communicate(timeout=240)
    events = [json.loads(line) for line in out.splitlines()]
    (ended,) = [event for event in events if event["event"] == "run_ended"]
    # A busy machine makes trials invalid; that the tunnel came up and was measured is the matter.
    assert ended["outcome"] == "complete", err
    assert list((asked.folder / "runtime").iterdir()) == []
