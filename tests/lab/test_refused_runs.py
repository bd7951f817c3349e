"""Runs that cannot be: the reason is given before anything is made, and nothing is there after."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tunnelmark.hosts.ledger import Ledger
from tunnelmark.hosts.local import LocalHost

pytestmark = [pytest.mark.lab, pytest.mark.xdist_group("runs")]

_TEXT = """
format = 1
name = "refused"
title = "Refused"
seed = 7

[[tunnel]]
kind = "ipsec"
mode = "transport"

[[link]]
kind = "serial"
rate = "8 Mbit/s"
delay = "5 ms"

[[workload]]
kind = "udp_echo"
gap = "10 ms"
packets = 20
payload_bytes = 200
"""
_LAB_ERROR = 3
"""Exit status when this computer cannot run a study (docs/cli.md)."""


@pytest.fixture(autouse=True)
def _no_esp() -> None:
    with Ledger() as ledger:
        if LocalHost(ledger).has_kernel("esp"):
            pytest.skip("the kernel has ESP")


def _nothing_was_made(one: Any) -> None:
    assert one.of("run_started") == []
    assert list(one.folder.glob("results/*")) == []
    assert list(one.runtime.iterdir()) == []


def test_a_missing_kernel_feature_is_reported_before_anything_is_made(
    study: Callable[[str], Any],
) -> None:
    one = study(_TEXT)
    one.start(str(one.file), "--place", "local")
    assert one.finish() == _LAB_ERROR
    assert "ipsec-transport: the kernel has no esp" in one.errors
    _nothing_was_made(one)


def test_without_qemu_the_one_package_is_named(study: Callable[[str], Any], tmp_path: Path) -> None:
    one = study(_TEXT)
    # All programs of this computer but QEMU.
    programs = tmp_path / "programs"
    programs.mkdir()
    for folder in os.environ["PATH"].split(os.pathsep):
        for path in Path(folder).glob("*"):
            link = programs / path.name
            if not path.name.startswith("qemu") and not link.is_symlink():
                link.symlink_to(path)
    one.environment["PATH"] = str(programs)
    one.start()
    assert one.finish() == _LAB_ERROR
    assert "the kernel has no esp; nor in a virtual machine: " in one.errors
    assert "apt-get install qemu-system-x86" in one.errors
    _nothing_was_made(one)
