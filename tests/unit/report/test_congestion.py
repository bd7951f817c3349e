"""A report says which congestion control stands behind the figures of TCP."""

import json
from dataclasses import replace

import polars as pl

from made_results import block_record
from tunnelmark.model.block import BlockRecord
from tunnelmark.model.tunnel import Negotiated
from tunnelmark.report.congestion import carrier_notes, congestion_notes


def row(workload: str, name: str | None, *, chosen: bool = False) -> dict[str, object]:
    reported = {} if name is None else {"client": name, "server": name, "chosen": chosen}
    details = {"congestion_control": reported} if reported else {}
    return {"path": "total", "workload": workload, "details": json.dumps(details)}


def test_what_the_study_says_and_what_is_the_kernels_own_are_distinguished() -> None:
    trials = pl.DataFrame(
        [
            row("web", "bbr"),
            row("files", "bbr"),
            row("bulk", "cubic", chosen=True),
            row("bulk", "cubic", chosen=True),
            row("echo", None),
        ]
    )
    assert congestion_notes(trials) == [
        (
            "TCP of files, web used the congestion control bbr, the kernel's default (the study "
            "names none)."
        ),
        "TCP of bulk used the congestion control cubic, as the study requires.",
    ]


def test_without_tcp_there_is_no_note() -> None:
    assert congestion_notes(pl.DataFrame([row("echo", None)])) == []


def carried(tunnel: str, name: str | None) -> BlockRecord:
    details = {} if name is None else {"carrier_congestion": name}
    agreed = Negotiated(None, "1.0", "program", 1400, data_path=None, details=details)
    return replace(block_record(), tunnel=tunnel, negotiated=(agreed,))


def test_tunnels_whose_tcp_differs_are_named() -> None:
    blocks = [carried("sstp", "cubic"), carried("ssh", "bbr"), carried("openvpn", None)]
    (note,) = carrier_notes([*blocks, carried("vtun", "bbr")])
    assert "not the same for all: ssh, vtun with bbr; sstp with cubic." in note
    assert carrier_notes(blocks[1:]) == []
    assert carrier_notes(blocks[2:]) == []
