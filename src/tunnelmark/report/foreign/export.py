"""Samples of a result in forms that other programs read; the result itself is not touched."""

import csv
import io
import json
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Literal

import numpy as np
import polars as pl

from tunnelmark.engine import records
from tunnelmark.engine.records import Table
from tunnelmark.model.errors import ResultError
from tunnelmark.model.faults import writing
from tunnelmark.report.foreign.flent import ENDING, flent_file
from tunnelmark.report.foreign.iperf3 import iperf3_file
from tunnelmark.report.foreign.packets import sendings
from tunnelmark.store.layout import write_atomically
from tunnelmark.store.result import Result

Form = Literal["parquet", "arrow", "csv"]
INDEX: Final = "index.csv"

_FLAGS: Final = {
    "not_sent": records.NOT_SENT,
    "send_error": records.SEND_ERROR,
    "late": records.LATE,
    "reordered": records.REORDERED,
    "user_time": records.USER_TIME,
}
_NAMES: Final = {"size": "size_bytes"}
_NO_COLUMN: Final = frozenset({"zero", "flags"})
_IPERF3: Final = ".iperf3-"
_RECORDS: Final = b"TMREC"
_UDP_LOAD: Final = "udp_load"
_FORMS: Final = ("samples", "iperf3", "flent")


@dataclass(frozen=True)
class Exported:
    """How many files were written."""

    samples: int = 0
    iperf3: int = 0
    flent: int = 0
    refused: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    """Trials that a form does not suit: for each form by their workload."""


def export(
    result: Result, into: Path, *, form: Form | None, iperf3: bool = False, flent: bool = False
) -> Exported:
    """Write samples into a folder, which is made, with an index that says which trial each is of.

    ``form``: each record file of packets as a table with times in ns, null where there was none.
    ``iperf3``: the reports of iperf3 as it wrote them, and UDP loads in their form. ``flent``: each
    trial that is a series over time as a data file of flent. Raises ``ResultError`` for a damaged
    or missing file, and if nothing has a requested form.
    """
    with writing(into):
        into.mkdir(parents=True, exist_ok=True)
    index: list[dict[str, object]] = []
    counts = dict.fromkeys(_FORMS, 0)
    refused: dict[str, Counter[str]] = {name: Counter() for name in _FORMS}
    asked = [
        name
        for name, wanted in zip(_FORMS, (form is not None, iperf3, flent), strict=True)
        if wanted
    ]
    for trial in _trials(result):
        samples = {name: result.samples(name) for name in _names(result, trial)}
        for name in asked:
            written = list(_made(name, trial, samples, form, result.manifest.title))
            for file, content in written:
                if not _is_file_name(file):
                    raise ResultError(
                        f"{result.directory}: a file of trial {trial['trial_id'][:80]!r} would be "
                        f"{file[:80]!r}, which is not a file name"
                    )
                write_atomically(into / file, content)
                index.append({"file": file, **{column: trial[column] for column in _TRIAL}})
            counts[name] += len(written)
            if not written:
                refused[name][_workload(trial)] += 1
    write_atomically(into / INDEX, _index(index))
    reasons = {name: dict(sorted(refused[name].items())) for name in asked if refused[name]}
    if not index:
        why = "; ".join(f"{name}: {refusals_as_text(reasons.get(name, {}))}" for name in asked)
        raise ResultError(f"{result.directory}: nothing to export ({why})")
    return Exported(**counts, refused=reasons)


def refusals_as_text(refused: Mapping[str, int]) -> str:
    """Return the workloads that a form does not suit, and how many trials of each."""
    trials = (f"{kind} ({count} trial{'s' * (count != 1)})" for kind, count in refused.items())
    return "no form for " + ", ".join(trials) if refused else "no trials"


def _made(
    name: str,
    trial: Mapping[str, Any],
    samples: Mapping[str, bytes],
    form: Form | None,
    title: str,
) -> Iterator[tuple[str, bytes]]:
    if name == "samples":
        return _tables(samples, form)
    if name == "iperf3":
        return _iperf3(trial, samples)
    return _flent(trial, samples, title)


def _workload(trial: Mapping[str, Any]) -> str:
    if not trial["samples"]:
        return f"{trial['workload_kind']} without samples"
    echo = trial["workload_kind"] == _UDP_LOAD and _is_echo(trial)
    return f"{trial['workload_kind']}{' echo' * echo}"


def _is_echo(trial: Mapping[str, Any]) -> bool:
    params = json.loads(trial["params"])
    return isinstance(params, dict) and params.get("direction") == "echo"


def _tables(samples: Mapping[str, bytes], form: Form | None) -> Iterator[tuple[str, bytes]]:
    for name, data in samples.items():
        if form is not None and data.startswith(_RECORDS) and _IPERF3 not in name:
            yield f"{name}.{form}", _written(table(records.read_any(data, name)), form)


def _iperf3(trial: Mapping[str, Any], samples: Mapping[str, bytes]) -> Iterator[tuple[str, bytes]]:
    for name, data in samples.items():
        if _IPERF3 in name:
            yield _ending(name, ".json"), data
    if trial["workload_kind"] == _UDP_LOAD and not _is_echo(trial):
        for sending in sendings(samples):
            way = "reverse" if sending.reverse else "forward"
            file = f"{trial['trial_id']}-{trial['attempt']}{_IPERF3}udp-{way}.json"
            yield file, iperf3_file(trial, sending)


def _flent(
    trial: Mapping[str, Any], samples: Mapping[str, bytes], title: str
) -> Iterator[tuple[str, bytes]]:
    if data := flent_file(trial, samples, title=title):
        yield f"{trial['trial_id']}-{trial['attempt']}{ENDING}", data


def table(packets: Table) -> pl.DataFrame:
    """Return record for record what the engine wrote, with units in the names.

    Flags are columns of their own; a time that never was is null.
    """
    columns: dict[str, Any] = {}
    for name in packets.dtype.names or ():
        if name in _NO_COLUMN:
            continue
        series = pl.Series(_NAMES.get(name, name), np.ascontiguousarray(packets[name]))
        if name == "residence_ns":
            series = series.set(series == records.UNKNOWN_RESIDENCE, None)
        elif series.dtype == pl.Int64:
            series = series.set(series == int(records.MISSING_NS), None)
        columns[series.name] = series
    flags = packets["flags"]
    columns |= {name: (flags & bit) != 0 for name, bit in _FLAGS.items()}
    return pl.DataFrame(columns)


_TRIAL: Final = (
    *("trial_id", "attempt", "tunnel", "link", "device", "workload", "repeat", "bring_up", "valid"),
)


def _trials(result: Result) -> Iterator[dict[str, Any]]:
    """Yield the row of each attempt."""
    trials = result.trials().filter(pl.col("path") == "total")
    columns = [*_TRIAL, "workload_kind", "params", "started_at", "reasons", "samples"]
    yield from trials.select(columns).iter_rows(named=True)


def _names(result: Result, trial: Mapping[str, Any]) -> list[str]:
    for name in trial["samples"]:
        if not _is_file_name(name):
            raise ResultError(
                f"{result.directory}: a sample of trial {trial['trial_id']} is {name[:80]!r}, "
                "which is not a file name"
            )
    return list(trial["samples"])


def _is_file_name(name: str) -> bool:
    return bool(name) and Path(name).name == name and "\0" not in name


def _written(frame: pl.DataFrame, form: Form) -> bytes:
    buffer = io.BytesIO()
    if form == "parquet":
        frame.write_parquet(buffer)
    elif form == "arrow":
        frame.write_ipc(buffer)
    else:
        frame.write_csv(buffer)
    return buffer.getvalue()


def _index(rows: list[dict[str, object]]) -> bytes:
    text = io.StringIO()
    writer = csv.DictWriter(text, ["file", *_TRIAL], lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue().encode()


def _ending(name: str, ending: str) -> str:
    return name if name.endswith(ending) else name + ending
