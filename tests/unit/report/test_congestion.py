"""A report says which congestion control stands behind the figures of TCP."""

import json

import polars as pl

from tunnelmark.report.congestion import congestion_notes


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
