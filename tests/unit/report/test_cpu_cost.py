"""What a tunnel costs in CPU stands in every format as two figures that nobody can mix up."""

import json
import re
from pathlib import Path

import pytest

from made_results import trial_result, write
from tunnelmark.report.document import to_json
from tunnelmark.report.html import to_html
from tunnelmark.report.summary import summarise
from tunnelmark.report.tables import to_markdown
from tunnelmark.store import Result, open_result

PROGRAMS = "cpu_cost_s_per_mpkt"
MACHINE = "cpu_machine_cost_s_per_mpkt"
# Programs, whole machine; the baseline's machine: 100.
COSTS: dict[str, tuple[float | None, float]] = {
    "in-programs": (300.0, 450.0),
    "in-kernel": (None, 180.0),
    "free": (None, 100.0),
    "none": (None, 100.0),
}


@pytest.fixture
def result(tmp_path: Path) -> Result:
    made = [
        trial_result(
            tunnel,
            1000,
            repeat,
            {
                "goodput_bit_s": 8e6,
                PROGRAMS: None if own is None else own + repeat,
                # Not in step with the baseline's, so that differences have intervals.
                MACHINE: whole + (repeat % 2 if tunnel == "none" else repeat // 2 % 2),
            },
        )
        for tunnel, (own, whole) in COSTS.items()
        for repeat in (1, 2, 3, 4)
    ]
    return open_result(write(tmp_path, made))


def test_the_document_has_both_costs_and_null_where_there_is_none(result: Result) -> None:
    points = {p["tunnel"]: p for p in json.loads(to_json(summarise(result)))["points"]}
    costs = {name: point["cpu_costs"].get(PROGRAMS) for name, point in points.items()}
    assert costs["none"] is None
    assert costs["in-programs"]["of_programs"]["value"] == pytest.approx(302.5)
    assert costs["in-programs"]["of_machine"]["value"] == pytest.approx(350)
    assert costs["in-programs"]["clear"]
    assert costs["in-kernel"]["of_programs"] is None
    assert costs["in-kernel"]["of_machine"]["value"] == pytest.approx(80)
    assert not costs["free"]["clear"]
    assert set(points["free"]["cpu_costs"]) == {PROGRAMS}


def test_the_tables_name_each_cost_and_say_where_there_is_no_clear_one(result: Result) -> None:
    summary = summarise(result)
    markdown = to_markdown(summary)
    table = markdown.split("**CPU cost of each tunnel.**")[1].split("\n\n")[1]
    head, _, *rows = table.splitlines()
    assert "programs of the tunnel" in head.split("|")[2]
    assert "above no tunnel" in head.split("|")[3]
    cells = {row.split("|")[1].strip(" "): row.split("|")[2:4] for row in rows}
    assert "none" not in cells
    assert cells["in-programs"][0].strip().startswith("302")
    assert cells["in-kernel"][0].strip() == "-"
    assert "80" in cells["in-kernel"][1]
    assert "no clear difference" not in cells["in-kernel"][1]
    assert "no clear difference" in cells["free"][1]
    page = to_html(summary, result)
    shown = page[page.index("CPU cost of each tunnel") :]
    row = re.search(r'<th scope="row">free</th><td>-</td><td>([^<]*)</td>', shown)
    assert row is not None
    assert row[1].endswith("no clear difference")
