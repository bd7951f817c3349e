"""Two builds of one program as two tunnels of a study."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from small_study import one_echo

pytestmark = [pytest.mark.lab, pytest.mark.slow, pytest.mark.xdist_group("runs")]

TUNNELS = """\
[[tunnel]]
kind = "wireguard"
implementation = "wireguard-go"
program = {programs}
"""


def test_two_builds_are_measured_and_distinguished(
    study: Callable[[str], Any], tmp_path: Path
) -> None:
    found = shutil.which("wireguard-go")
    assert found is not None
    other = tmp_path / "wireguard-go"
    # What stands behind the end of an ELF file is of no effect, but another build it is.
    other.write_bytes(Path(found).read_bytes() + b"\0")
    other.chmod(0o755)
    tunnels = TUNNELS.replace("{programs}", json.dumps([found, str(other)]))
    one = study(one_echo("builds", "Two builds", tunnels))
    one.run()
    reported = [
        json.loads(path.read_text("utf-8"))["negotiated"][0]["details"]["program_wireguard-go"]
        for path in (one.directory / "blocks").glob("*.json")
    ]
    assert sorted(words.split(" (")[0] for words in reported) == sorted([found, str(other)])
    assert len({words.split(" (")[1] for words in reported}) == 2
    assert one.leftovers() == []
