"""CSV for programs, Markdown for people."""

import csv
import io

from tunnelmark.analysis.estimates import PointEstimates
from tunnelmark.model.metrics import METRICS
from tunnelmark.report.show import change, figure, unit
from tunnelmark.report.summary import Summary

_FIELDS = (
    *("link", "device", "tunnel", "workload", "payload_bytes", "path", "kind", "metric", "unit"),
    *("estimate", "low", "high", "confidence", "method", "n", "valid_trials", "invalid_trials"),
)
_SHOWN = (
    "goodput_bit_s",
    "loss_forward_ratio",
    "loss_reverse_ratio",
    "rtt_p50_ns",
    "rtt_p99_ns",
    "cpu_tunnel_ratio",
    "overhead_bytes",
)


def to_csv(summary: Summary) -> str:
    """Return one row per estimate and per difference, in stored units, missing values empty."""
    out = io.StringIO()
    writer = csv.DictWriter(out, _FIELDS, lineterminator="\n")
    writer.writeheader()
    for point in (*summary.points, *summary.paths):
        for kind, found in (("estimate", point.estimates), ("difference", point.differences)):
            for metric, estimate in found.items():
                relative = kind == "difference" and METRICS[metric].scale == "log"
                writer.writerow(
                    {
                        **_place(point),
                        "kind": "ratio - 1" if relative else kind,
                        "metric": metric,
                        "unit": "ratio" if relative else METRICS[metric].unit,
                        "estimate": estimate.value,
                        "low": estimate.low,
                        "high": estimate.high,
                        "confidence": estimate.confidence,
                        "method": estimate.method,
                        "n": estimate.n,
                    }
                )
    return out.getvalue()


def to_markdown(summary: Summary) -> str:
    """Return the report as Markdown; what comes from the study is escaped."""
    manifest = summary.manifest
    lines = [f"# {escape(manifest.title)}", "", escape(manifest.description.strip()), ""]
    if summary.findings:
        lines += ["## What holds", "", *(f"- {escape(f)}" for f in summary.findings), ""]
    for link, device in sorted({(p.link, p.device) for p in summary.points}):
        points = [p for p in summary.points if (p.link, p.device) == (link, device)]
        heads = [f"{METRICS[m].title} [{unit(m).name or METRICS[m].unit}]" for m in _SHOWN]
        lines += [f"## {escape(link)}, {escape(device)}", ""]
        lines.append("| tunnel | workload | " + " | ".join(heads) + " | RTT against none | n |")
        lines.append("| --- " * (len(heads) + 4) + "|")
        for point in points:
            cells = [escape(point.tunnel), escape(point.workload)]
            cells += [figure(point.estimates.get(metric)) for metric in _SHOWN]
            cells.append(change(point.differences.get("rtt_p50_ns")))
            cells.append(f"{point.valid} valid, {point.invalid} invalid")
            lines.append("| " + " | ".join(cells) + " |")
        lines.append("")
    if summary.invalid:
        lines += ["## Invalid trials", ""]
        lines += [
            f"- {escape(i.tunnel)}, {escape(i.workload)}, repeat {i.repeat}, attempt {i.attempt}: "
            f"{escape('; '.join(i.reasons))}"
            for i in summary.invalid
        ]
        lines.append("")
    lines += ["## Environment", ""]
    lines += [f"- {escape(name)}: {escape(value)}" for name, value in manifest.environment.items()]
    return "\n".join(lines) + "\n"


def escape(text: str) -> str:
    """Return text that Markdown shows as it is."""
    special = "\\`*_{}[]<>()#+!|~"
    return "".join(f"\\{c}" if c in special else c for c in text.replace("\n", " "))


def _place(point: PointEstimates) -> dict[str, object]:
    return {
        "link": point.link,
        "device": point.device,
        "tunnel": point.tunnel,
        "workload": point.workload,
        "payload_bytes": point.payload_bytes,
        "path": point.path,
        "valid_trials": point.valid,
        "invalid_trials": point.invalid,
    }
