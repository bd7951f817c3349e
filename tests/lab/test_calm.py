"""A run measures when others have left the computer alone, and says what it waits for."""

import json
import os
import signal
from collections.abc import Callable
from typing import Any

import pytest

from busy import busy
from small_study import LOOSE_VALIDITY, one_echo

pytestmark = [pytest.mark.lab, pytest.mark.timing]


def test_a_run_waits_for_others_and_measures_when_they_are_gone(
    study: Callable[[str], Any],
) -> None:
    text = one_echo("calm", "Calm", '[[tunnel]]\nkind = "wireguard"\n')
    # Far above what a shared computer's other users take, and below what these programs do.
    strict = LOOSE_VALIDITY.replace('steal = "100 %"', 'steal = "25 %"')
    assert strict != LOOSE_VALIDITY
    one = study(text.replace(LOOSE_VALIDITY, strict))
    with busy(own=False) as others:
        one.start()
        waiting = one.until(lambda event: event.get("phase") == "waiting")
        for pid in others:
            os.kill(pid, signal.SIGTERM)
        assert one.finish() == 0, one.errors
    assert waiting["message"].startswith("other programs or the hypervisor keep this computer busy")
    phases = [event["phase"] for event in one.of("block_phase")]
    # Before anything is measured: the lab's own part in a round trip is the first of it.
    assert phases[: phases.index("trials")] == ["lab", "tunnel", "proof", "warm", "waiting", "warm"]
    (path,) = one.directory.glob("blocks/*.json")
    seconds = json.loads(path.read_text())["seconds"]
    assert seconds["waiting"] > 0
    assert seconds["warm"] >= 0
    assert one.trials()["valid"].all()
    assert one.leftovers() == []
