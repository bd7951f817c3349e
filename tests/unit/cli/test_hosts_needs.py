"""What `hosts check` asks of both hosts for a study."""

from pathlib import Path
from typing import Any

from tunnelmark.cli.hosts import _needs

STUDY = """format = 1
name = "a"
title = "A"
[precision]
metric = "rtt_p50_ns"
[[link]]
kind = "direct"
[[background]]
kind = "tcp_bulk"
[[workload]]
kind = "udp_echo"
gap = "5 ms"
packets = 9
payload_bytes = 64
"""


def test_the_programs_of_loads_are_needed_too(tmp_path: Path) -> None:
    file = tmp_path / "study.toml"
    file.write_text(STUDY)
    host: Any = None
    programs = {program for need in _needs(str(file), host) for program in need.programs}
    assert "iperf3" in programs
