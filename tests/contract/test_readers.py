"""One result read by others: DuckDB, pandas, a spreadsheet, LaTeX, Wireshark.

The result is simulated, with losses, so that some figures are missing; it is the same on every
computer. Captures are our own program's, of the loopback in a user namespace.
"""

import csv
import io
import json
import re
import shutil
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import duckdb
import openpyxl
import pandas as pd
import polars as pl
import pytest

from tunnelmark.cli import main

pytestmark = pytest.mark.usefixtures("engine")

DOCS = Path(__file__).parents[2] / "docs"
TITLE = 'Made "so", for 5 % of $1_000 & {more} \\\\ ~^#'
STUDY = f"""
format = 1
name = "quickstart"
title = {json.dumps(TITLE)}
[precision]
metric = "rtt_p50_ns"
min_repeats = 4
max_repeats = 4
bring_ups = 1
[[tunnel]]
kind = "openvpn"
label = "open_vpn"
[[link]]
kind = "serial"
label = "a_line 8 Mbit/s"
rate = "8 Mbit/s"
loss_forward = "20 %"
delay_variation = "2 ms"
[[workload]]
kind = "udp_echo"
gap = "5 ms"
packets = 40
payload_bytes = [64, 1472]
"""
DATAGRAMS = 20
# Starts the capture, waits until it listens, sends datagrams, ends it.
CAPTURE = """
import socket, subprocess, sys
subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
sniff = [sys.executable, "-m", "tunnelmark.probes.sniff", "lo", sys.argv[1], "1000", "2000"]
process = subprocess.Popen(sniff, stderr=subprocess.PIPE, text=True)
process.stderr.readline()
sink = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
sink.bind(("127.0.0.1", 7790))
sender = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
for number in range(int(sys.argv[2])):
    sender.sendto(bytes([number]) * (100 + number), ("127.0.0.1", 7790))
process.terminate()
sys.exit(process.wait())
"""


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder ``results`` with the only result."""
    folder = tmp_path_factory.mktemp("readers")
    (folder / "made.toml").write_text(STUDY, encoding="utf-8")
    words = ["run", str(folder / "made.toml"), "--backend", "sim", "--quiet"]
    assert main.call([*words, "--results", str(folder / "results")]) == 0
    return folder / "results"


@pytest.fixture(scope="module")
def directory(results: Path) -> Path:
    (found,) = results.iterdir()
    return found


def report(directory: Path, form: str) -> Path:
    file = directory.parent.parent / f"report.{form}"
    assert main.call(["report", str(directory), "--format", form, "-o", str(file)]) == 0
    return file


def rows(directory: Path) -> list[dict[str, str]]:
    """Return the report's CSV as the strictest reader has it."""
    with report(directory, "csv").open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file, strict=True))


def test_duckdb_answers_the_query_of_the_docs(
    results: Path, directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = (DOCS / "reading-a-report.md").read_text(encoding="utf-8")
    (query,) = re.findall(r"```sql\n(.*?)```", page, re.DOTALL)
    monkeypatch.chdir(results.parent)
    with duckdb.connect() as base:
        answer = base.sql(query).fetchall()
    trials = pl.read_parquet(directory / "trials" / "*.parquet").filter(
        pl.col("valid") & (pl.col("path") == "total")
    )
    expected = (
        trials.group_by("tunnel", "param_payload_bytes")
        .agg(pl.col("rtt_p50_ns").median() / 1e6)
        .sort("tunnel", "param_payload_bytes")
    )
    assert [row[:2] for row in answer] == [row[:2] for row in expected.rows()]
    assert [row[2] for row in answer] == pytest.approx(expected["rtt_p50_ns"].to_list())
    assert len(answer) == 2 * 2


def test_duckdb_reads_csv_and_parquet_of_a_report_as_the_same(directory: Path) -> None:
    tables = []
    for form in ("csv", "parquet"):
        with duckdb.connect() as base:
            found = base.sql(
                f"SELECT tunnel, kind, metric, estimate, low, n FROM '{report(directory, form)}'"  # noqa: S608 - a path of ours
            )
            assert dict(zip(found.columns, map(str, found.types), strict=True)) == {
                **dict.fromkeys(("tunnel", "kind", "metric"), "VARCHAR"),
                **dict.fromkeys(("estimate", "low"), "DOUBLE"),
                "n": "BIGINT",
            }
            tables.append(found.fetchall())
    assert tables[0] == tables[1]
    # Missing is not zero, in either: repeats that are all alike have no interval.
    assert any(row[4] is None for row in tables[0])
    assert len(tables[0]) == len(rows(directory))


def test_pandas_reads_trials_report_and_document(directory: Path) -> None:
    trials = pd.read_parquet(directory / "trials")
    assert len(trials[trials["path"] == "total"]) == 2 * 2 * 4
    # Where no tunnel is, none has a CPU of its own: missing, in pandas too.
    totals = trials[trials["path"] == "total"]
    assert (totals["cpu_tunnel_ratio"].isna() == totals["is_baseline"]).all()
    assert trials["loss_forward_ratio"].between(0.01, 0.6).all()
    figures = pd.read_csv(report(directory, "csv"))
    typed = pd.read_parquet(report(directory, "parquet"))
    assert list(figures.columns) == list(typed.columns)
    pd.testing.assert_frame_equal(figures, typed, check_dtype=False, check_exact=True)
    document = json.loads(report(directory, "json").read_text(encoding="utf-8"))
    points = pd.json_normalize(document["points"])
    assert len(points) == 2 * 2
    assert points["estimates.rtt_p50_ns.value"].notna().all()
    assert document["title"] == TITLE


def test_pandas_reads_the_records_of_every_packet(directory: Path, tmp_path: Path) -> None:
    for form, read in (("csv", pd.read_csv), ("parquet", pd.read_parquet)):
        into = tmp_path / form
        assert main.call(["export", str(directory), "--samples", form, "--into", str(into)]) == 0
        index = pd.read_csv(into / "index.csv")
        assert len(index) == 2 * 2 * 4 * 2
        sent = read(into / next(name for name in index["file"] if ".send" in name))
        assert len(sent) == 40
        # One in five is lost on its way there.
        assert 0 < sent["returned_ns"].isna().sum() < 40


def test_a_spreadsheet_has_the_rows_and_their_numbers(directory: Path, tmp_path: Path) -> None:
    """What a spreadsheet does with CSV: text and numbers to cells, saved and opened again."""
    found = rows(directory)
    numbers = {"estimate", "low", "high", "confidence", "n", "bring_ups"}
    book = openpyxl.Workbook()
    sheet = book.active
    assert sheet is not None
    sheet.append(list(found[0]))
    for row in found:
        assert list(row) == list(found[0])
        # One that begins so would be a formula.
        assert not any(text.startswith(("=", "+", "@", "\t")) for text in row.values())
        cells = {k: (float(v) if v else None) if k in numbers else v for k, v in row.items()}
        sheet.append(list(cells.values()))
    book.save(tmp_path / "figures.xlsx")
    with closing(openpyxl.load_workbook(tmp_path / "figures.xlsx", read_only=True)) as opened:
        assert opened.active is not None
        lines = list(opened.active.iter_rows(values_only=True))
    assert len(lines) == len(found) + 1
    at = lines[0].index("estimate")
    assert all(isinstance(line[at], float | int) for line in lines[1:])
    # A spreadsheet keeps 15 digits.
    values = [float(row["estimate"]) for row in found]
    assert [line[at] for line in lines[1:]] == pytest.approx(values, rel=1e-14)


def test_latex_has_whole_tables_and_nothing_it_cannot_set(directory: Path, tmp_path: Path) -> None:
    text = report(directory, "latex").read_text(encoding="utf-8")
    assert "open\\_vpn" in text
    assert "a\\_line 8 Mbit/s" in text
    tables = re.findall(r"\\begin\{table\}(.*?)\\end\{table\}", text, re.DOTALL)
    assert len(tables) == 1
    for body in tables:
        (columns, inside) = re.search(
            r"\\begin\{tabular\}\{([lr]+)\}\n(.*?)\\end\{tabular\}", body, re.DOTALL
        ).groups()  # type: ignore[union-attr]  # a table without one fails here
        lines = [line for line in inside.splitlines() if not line.startswith("\\") or "&" in line]
        assert len(lines) == 1 + 2 * 2
        for line in lines:
            assert line.endswith(" \\\\")
            cells = re.split(r"(?<!\\)&", line.removesuffix(" \\\\"))
            assert len(cells) == len(columns)
            assert all(_balanced(cell) for cell in cells)
    # What TeX takes for its own, outside of our commands.
    bare = re.sub(r"(?m)^%.*$|\\[a-z]+(?:\{[^{}]*\})*|\\[&%$#_{}()\\]", "", text)
    assert not re.search(r"[$#_^~%]", bare)
    assert text.isascii()
    if (tex := shutil.which("pdflatex")) is not None and _has_booktabs():
        head = r"\documentclass{article}\usepackage{booktabs}\usepackage[T1]{fontenc}"
        page = [head, r"\begin{document}", text, r"\end{document}"]
        (tmp_path / "page.tex").write_text("\n".join(page), encoding="utf-8")
        words = [tex, "-halt-on-error", "-interaction=nonstopmode", "page.tex"]
        done = subprocess.run(
            words, cwd=tmp_path, capture_output=True, check=False, text=True, timeout=200
        )
        assert done.returncode == 0, done.stdout[-2000:]


def _has_booktabs() -> bool:
    """Debian has TeX itself in texlive-latex-base, and booktabs in texlive-latex-recommended."""
    return subprocess.run(["kpsewhich", "booktabs.sty"], capture_output=True).returncode == 0  # noqa: PLW1510 - its status is the answer


def _balanced(text: str) -> bool:
    depth = 0
    for brace in re.findall(r"(?<!\\)[{}]", text):
        depth += 1 if brace == "{" else -1
        if depth < 0:
            return False
    return depth == 0


def test_wireshark_reads_what_we_captured(tmp_path: Path) -> None:
    if shutil.which("tshark") is None:
        pytest.skip("no tshark")
    unshare = ["unshare", "--user", "--map-root-user", "--net"]
    if subprocess.run([*unshare, "true"], capture_output=True, check=False).returncode != 0:
        pytest.skip("no user namespaces")
    file = tmp_path / "made.pcap"
    words = [*unshare, sys.executable, "-c", CAPTURE, str(file), str(DATAGRAMS)]
    subprocess.run(words, check=True, capture_output=True, timeout=60)
    fields = ("frame.time_epoch", "frame.len", "udp.length", "udp.payload", "_ws.malformed")
    tshark = ["tshark", "-n", "-r", str(file), "-Y", "udp.dstport == 7790", "-T", "fields"]
    done = subprocess.run(
        [*tshark, *(word for name in fields for word in ("-e", name))],
        capture_output=True,
        text=True,
        check=True,
        timeout=100,
    )
    lines = list(csv.reader(io.StringIO(done.stdout), delimiter="\t"))
    # The loopback shows each packet twice: as it leaves and as it arrives.
    assert len(lines) == 2 * DATAGRAMS
    for number, (_, frame, udp, payload, malformed) in enumerate(lines[::2]):
        assert bytes.fromhex(payload) == bytes([number]) * (100 + number)
        assert (int(frame), int(udp)) == (100 + number + 14 + 20 + 8, 100 + number + 8)
        assert malformed == ""
    times = [float(line[0]) for line in lines]
    assert times == sorted(times)
    assert times[-1] - times[0] < 60
