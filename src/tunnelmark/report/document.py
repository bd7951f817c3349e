"""The report as one JSON document, for programs: what was decided, with its method and p."""

import json
import math
from dataclasses import asdict
from typing import Any

from tunnelmark.analysis.estimates import Estimate, PointEstimates
from tunnelmark.report.summary import Summary
from tunnelmark.report.told import Told
from tunnelmark.report.verdicts import as_event


def to_json(summary: Summary) -> str:
    """Return the document; figures in stored units, differences as ratio minus 1 or in the unit."""
    manifest = summary.manifest
    document = {
        "study": manifest.study,
        "run_id": manifest.run_id,
        "scale": manifest.scale,
        "confidence": manifest.confidence,
        "findings": list(summary.findings),
        "decisions": [_told(one, summary) for one in summary.told],
        "verdicts": [as_event(one) for one in summary.verdicts],
        "points": [_point(one) for one in (*summary.points, *summary.paths)],
        "invalid": [asdict(one) for one in summary.invalid],
    }
    return json.dumps(document, indent=1, allow_nan=False) + "\n"


def _told(one: Told, summary: Summary) -> dict[str, Any]:
    section = next(s for s in summary.sections if s.key == one.section)
    decision = one.decision
    return {
        "link": section.link,
        "device": section.device,
        "workload_kind": one.part,
        "tunnel": one.tunnel,
        "against": one.rival or "none",
        "points": [point.point_id for point in one.points],
        "metric": decision.metric,
        "quantity": decision.contrast.quantity,
        "value": _finite(decision.value),
        "low": _finite(decision.low),
        "high": _finite(decision.high),
        "confidence": decision.confidence,
        "p": decision.p,
        "outcome": decision.outcome,
        "repeats": decision.contrast.spread.repeats,
        "bring_ups": decision.contrast.spread.bring_ups,
        "method": decision.contrast.method,
        "repeats_to_settle": decision.to_settle,
    }


def _point(point: PointEstimates) -> dict[str, Any]:
    return {
        "point_id": point.point_id,
        "tunnel": point.tunnel,
        "link": point.link,
        "device": point.device,
        "workload": point.workload,
        "params": dict(point.params),
        "path": point.path,
        "valid": point.valid,
        "invalid": point.invalid,
        "broken": point.broken,
        "estimates": {name: _estimate(one) for name, one in point.estimates.items()},
        "differences": {name: _estimate(one) for name, one in point.differences.items()},
    }


def _estimate(one: Estimate) -> dict[str, Any]:
    return {
        "value": _finite(one.value),
        "low": _finite(one.low),
        "high": _finite(one.high),
        "repeats": one.n,
        "bring_ups": one.bring_ups,
        "method": one.method,
    }


def _finite(value: float | None) -> float | None:
    """Return a number that JSON has."""
    return value if value is not None and math.isfinite(value) else None
