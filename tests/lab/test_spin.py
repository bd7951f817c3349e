"""A study says whether sender and emulator wait awake, and each trial for how long they did."""

from collections.abc import Callable
from typing import Any

import pytest

from small_study import one_echo

pytestmark = [pytest.mark.lab, pytest.mark.xdist_group("runs")]

_TUNNEL = '[[tunnel]]\nkind = "openvpn"\n'


def test_what_shall_not_spin_is_never_awake_for_nothing(study: Callable[[str], Any]) -> None:
    awake_s = {}
    for spin in (True, False):
        one = study(one_echo("made", "Made", f"[probes]\nspin = {str(spin).lower()}\n{_TUNNEL}"))
        one.run()
        trials = one.trials()
        assert trials["valid"].all(), trials["reasons"].to_list()
        awake_s[spin] = trials["cpu_awake_s"].drop_nulls().to_list()
    assert min(awake_s[True]) > 0
    assert set(awake_s[False]) == {0.0}
