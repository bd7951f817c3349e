"""What programs read: JSON by its committed schema, Parquet with its types."""

import io
import json
import subprocess
import sys
from pathlib import Path

import jsonschema
import polars as pl
import pytest
from click.testing import CliRunner

from made_results import trial_result, write
from tunnelmark.cli.main import tunnelmark
from tunnelmark.report import plotly
from tunnelmark.report.document import schema, to_json
from tunnelmark.report.summary import Summary, summarise
from tunnelmark.report.tables import COLUMNS, to_csv, to_parquet
from tunnelmark.store import open_result

SCHEMA = Path(__file__).parents[3] / "docs" / "report.schema.json"
STUDY = """
format = 1
name = "made"
title = "Made"
[precision]
metric = "rtt_p50_ns"
min_repeats = 4
max_repeats = 4
[[tunnel]]
kind = "openvpn"
label = "openvpn"
[[link]]
kind = "serial"
rate = "8 Mbit/s"
label = "8 Mbit/s"
[[workload]]
kind = "udp_echo"
gap = "5 ms"
packets = 100
payload_bytes = [64, 1000]
[[hypothesis]]
name = "larger-is-slower"
kind = "shape"
metric = "rtt_p50_ns"
along = "payload_bytes"
shape = "rises_with"
"""


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    made = [
        trial_result(
            tunnel, size, repeat, {"rtt_p50_ns": rtt + repeat + size, "goodput_bit_s": 8e6}
        )
        for tunnel, rtt in (("openvpn", 2e6), ("none", 1e6))
        for size in (64, 1000)
        for repeat in (1, 2, 3, 4)
    ]
    made.append(trial_result("openvpn", 64, 5, {}, valid=False))
    return write(tmp_path, made, precision_metric="rtt_p50_ns", study_text=STUDY)


@pytest.fixture
def summary(directory: Path) -> Summary:
    return summarise(open_result(directory))


def test_the_committed_schema_is_that_of_the_models() -> None:
    assert SCHEMA.read_text() == schema(), "run: make report-schema"


def test_the_document_is_as_its_schema_says(summary: Summary) -> None:
    document = json.loads(to_json(summary))
    jsonschema.validate(document, json.loads(SCHEMA.read_text()))
    assert document["uses"][0]["recommended"] == ["openvpn"]
    assert document["verdicts"][0]["deciding"]["quantity"] == "relative_slope"
    assert "per 100 bytes" in document["verdicts"][0]["reason"]
    assert document["verdicts"][0]["reason"].startswith("RTT, median, slope along")
    assert document["invalid"][0]["reasons"] == ["made <b>so</b>"]
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({**document, "format": 3}, json.loads(SCHEMA.read_text()))


def test_parquet_has_the_rows_of_csv_with_their_types(summary: Summary) -> None:
    frame = pl.read_parquet(io.BytesIO(to_parquet(summary)))
    assert frame.schema == COLUMNS
    assert frame.height == to_csv(summary).count("\n") - 1
    rtt = frame.filter(
        (pl.col("tunnel") == "openvpn")
        & (pl.col("metric") == "rtt_p50_ns")
        & (pl.col("kind") == "estimate")
        & (pl.col("params").str.contains("1000"))
    )
    assert rtt["estimate"].to_list() == pytest.approx([2e6], rel=1e-2)


def test_pages_of_a_folder_share_one_plotly(directory: Path, tmp_path: Path) -> None:
    runner, folder = CliRunner(), tmp_path / "pages"
    folder.mkdir()
    for name in ("a.html", "b.html"):
        arguments = ["report", str(directory), "--format", "html", "--plotly", "beside"]
        done = runner.invoke(tunnelmark, [*arguments, "-o", str(folder / name)])
        assert done.exit_code == 0, done.output
    assert sorted(p.name for p in folder.iterdir()) == ["a.html", "b.html", plotly.FILE_NAME]
    refused = runner.invoke(tunnelmark, ["report", str(directory), "--plotly", "beside"])
    assert "-o FILE" in refused.output


def test_the_command_writes_every_format(directory: Path, tmp_path: Path) -> None:
    for form in ("terminal", "html", "markdown", "csv", "parquet", "latex", "json"):
        file = tmp_path / form
        arguments = ["report", str(directory), "--format", form, "-o", str(file)]
        done = CliRunner().invoke(tunnelmark, arguments)
        assert done.exit_code == 0, done.output
        assert file.stat().st_size > 200


def test_a_terminal_report_waits_for_nothing_that_it_does_not_need(tmp_path: Path) -> None:
    directory = write(tmp_path, [trial_result("none", 64, 1, {"rtt_p50_ns": 1e6})])
    script = """
import sys
from tunnelmark.cli import main
code = main.call(["report", sys.argv[1]])
print(code, sorted({"jinja2", "cryptography", "PIL", "matplotlib", "scipy.stats"} & {*sys.modules}))
"""
    done = subprocess.run(
        [sys.executable, "-c", script, str(directory)], capture_output=True, text=True, check=True
    )
    assert done.stdout.splitlines()[-1] == "0 []"
