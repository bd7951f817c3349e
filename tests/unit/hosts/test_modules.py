"""Kernel modules that a run had loaded are named at its end."""

from pathlib import Path

import pytest

from tunnelmark.hosts import modules
from tunnelmark.hosts.ledger import Ledger
from tunnelmark.lab.placement import Placement

_BEFORE = "veth 40960 0 - Live 0x0000000000000000\n"


def test_what_was_loaded_meanwhile_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "modules"
    loaded = modules.loaded
    monkeypatch.setattr(modules, "loaded", lambda: loaded(path))
    said: list[str] = []
    for after in ("", "wireguard 118784 0 - Live 0x0\nudp_tunnel 28672 1 wireguard, Live 0x0\n"):
        path.write_text(_BEFORE)
        with Ledger(tmp_path) as ledger, Placement(ledger, engine="", say=said.append):
            path.write_text(_BEFORE + after)
    names = "udp_tunnel wireguard"
    assert said == [
        f"kernel modules that the run loaded and left in place: {names} (modprobe -r {names})"
    ]


def test_a_kernel_without_modules_has_loaded_none(tmp_path: Path) -> None:
    assert modules.loaded(tmp_path / "gone") == frozenset()
