"""Makes a study as small as it can be: does it run at all? Its figures are of no use."""

from collections.abc import Mapping
from typing import Any, Final

LOOSE: Final = {
    "sender_lateness": "10 s",
    "link_lateness": "10 s",
    "steal": "100 %",
    "starvation": "1000 %",
    "measuring_cpu": "400 %",
}
"""Limits of validity that a busy computer meets too."""
LOOSE_VALIDITY: Final = "[validity]\n" + "".join(
    f'{key} = "{value}"\n' for key, value in LOOSE.items()
)
"""The same as a table of a study file: for tests that run beside others and ask for no figure."""

_ECHO: Final = """\
format = 1
name = "{name}"
title = "{title}"

[precision]
metric = "rtt_p50_ns"
min_repeats = 1
max_repeats = 1
bring_ups = 1

{loose}
[[link]]
preset = "serial-8m-41ms"

[[workload]]
kind = "udp_echo"
gap = "20 ms"
packets = 20
payload_bytes = 64

{tunnels}"""


def one_echo(name: str, title: str, tunnels: str) -> str:
    """Return the file of a study with one short echo through each of ``tunnels``, their tables."""
    return _ECHO.format(name=name, title=title, loose=LOOSE_VALIDITY, tunnels=tunnels)


def smallest(document: Mapping[str, Any], keys: Mapping[str, object] | None = None) -> Any:
    """Return the study with one trial of each point and one value of each varied parameter.

    ``keys`` replace values of workloads that have them. It is valid on a busy computer, so that
    a run does not wait for the other tests to end.
    """
    small = dict(document)
    small["validity"] = {**small.get("validity", {}), **LOOSE}
    small["precision"] = {
        **small["precision"],
        "min_repeats": 1,
        "max_repeats": 1,
        "max_invalid": 1,
        "bring_ups": 1,
    }
    small["workload"] = [
        {key: (keys or {}).get(key, _first(value)) for key, value in workload.items()}
        for workload in small["workload"]
    ]
    # What is claimed of many values cannot be claimed of one.
    small.pop("hypothesis", None)
    return small


def _first(value: Any) -> Any:
    return value[0] if isinstance(value, list) else value
