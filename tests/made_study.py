"""A small study of one link and two payload sizes, for tests that run none of it."""

from collections.abc import Sequence

_TEXT = """
format = 1
name = "made"
title = "Made"
seed = 3
[precision]
metric = "rtt_p50_ns"
relative_half_width = "5 %"
{precision}
{tunnels}
[[link]]
kind = "serial"
rate = "8 Mbit/s"
[[workload]]
kind = "udp_echo"
gap = "5 ms"
packets = 10
payload_bytes = [100, 1000]
{more}
"""


def made_text(precision: str, *, tunnels: Sequence[str] = ("",), more: str = "") -> str:
    """Return its file, with further lines of ``[precision]`` and of each WireGuard tunnel."""
    tables = "\n".join(f'[[tunnel]]\nkind = "wireguard"\n{lines}' for lines in tunnels)
    return _TEXT.format(precision=precision, tunnels=tables, more=more)


def one_workload(tunnel: str) -> str:
    """Return the file of a study of one echo over one link, with the lines of its only tunnel."""
    return _ONE + tunnel


_ONE = """\
format = 1
name = "mine"
title = "Mine"
[[link]]
kind = "serial"
rate = "8 Mbit/s"
[[workload]]
kind = "udp_echo"
gap = "5 ms"
packets = 9
payload_bytes = 64
[[tunnel]]
"""
