"""Estimates to what a report shows: one structure for every format."""

from collections.abc import Sequence
from dataclasses import dataclass

import polars as pl

from tunnelmark.analysis.estimates import Estimate, PointEstimates, point_estimates
from tunnelmark.model.block import BlockRecord
from tunnelmark.report.show import change, figure, unit
from tunnelmark.store import Manifest, Result


@dataclass(frozen=True)
class Invalid:
    """One attempt that does not count."""

    trial_id: str
    tunnel: str
    workload: str
    repeat: int
    attempt: int
    reasons: tuple[str, ...]


@dataclass(frozen=True)
class Summary:
    """Everything a report is made of."""

    manifest: Manifest
    points: tuple[PointEstimates, ...]
    """Of all paths together."""
    paths: tuple[PointEstimates, ...]
    """Of each of several simultaneous tunnels; empty where there is one."""
    blocks: tuple[BlockRecord, ...]
    invalid: tuple[Invalid, ...]
    valid_trials: int
    findings: tuple[str, ...]
    """What holds, in words, as far as the intervals support it."""


def summarise(result: Result) -> Summary:
    """Return the summary of a result directory."""
    trials = result.trials()
    confidence = result.manifest.confidence
    points = point_estimates(trials, confidence=confidence)
    names = sorted(set(trials["path"]) - {"total"}, key=lambda n: (len(n), n))
    several = len(names) > 1
    paths = tuple(
        point
        for name in names
        for point in point_estimates(trials, confidence=confidence, path=name)
        if several
    )
    total = trials.filter(pl.col("path") == "total")
    blocks = tuple(result.blocks.values())
    return Summary(
        manifest=result.manifest,
        points=points,
        paths=paths,
        blocks=blocks,
        invalid=tuple(_invalid(total)),
        valid_trials=int(total["valid"].sum()),
        findings=tuple(_findings(points, blocks)),
    )


def unfinished(points: Sequence[PointEstimates]) -> tuple[PointEstimates, ...]:
    """Return the points without a single valid trial."""
    return tuple(point for point in points if point.valid == 0)


def _invalid(total: pl.DataFrame) -> list[Invalid]:
    return [
        Invalid(
            row["trial_id"],
            row["tunnel"],
            row["workload"],
            row["repeat"],
            row["attempt"],
            tuple(row["reasons"]),
        )
        for row in total.filter(~pl.col("valid")).iter_rows(named=True)
    ]


_TOLD = (
    ("rtt_p50_ns", "median round-trip delay"),
    ("goodput_bit_s", "goodput"),
    ("loss_forward_ratio", "forward loss"),
)


def _findings(points: Sequence[PointEstimates], blocks: Sequence[BlockRecord]) -> list[str]:
    found = [
        f"{block.tunnel} over {block.link} was given up: {block.error}."
        for block in blocks
        if block.error
    ]
    told: set[str] = set()
    for block in blocks:
        for tunnel, proofs in (("none", block.baseline_proofs), (block.tunnel, block.proofs)):
            key = f"{tunnel}/{block.link}"
            if key in told or not proofs:
                continue
            told.add(key)
            point = proofs[0].fragmentation_point_bytes
            if point is not None:
                found.append(
                    f"{tunnel} over {block.link}: the largest payload in one packet on the link "
                    f"is {point} byte."
                )
    tunnels = sorted({(p.link, p.device, p.tunnel) for p in points if not p.is_baseline})
    for link, device, tunnel in tunnels:
        own = [p for p in points if (p.link, p.device, p.tunnel) == (link, device, tunnel)]
        place = f"{link}" if device == "host" else f"{link}, {device}"
        for metric, title in _TOLD:
            if sentence := _difference(own, metric, title):
                found.append(f"{tunnel} over {place}: {sentence}")
    return found


def _difference(own: Sequence[PointEstimates], metric: str, title: str) -> str | None:
    """Say where a metric differs from the baseline; silent where no interval excludes 0."""
    clear = [
        (p, d) for p in own if (d := p.differences.get(metric)) is not None and _excludes_zero(d)
    ]
    if not clear:
        return None
    point, largest = max(clear, key=lambda entry: abs(entry[1].value))
    size = "" if point.payload_bytes is None else f" at {point.payload_bytes} byte"
    return (
        f"{title} differs from no tunnel at {len(clear)} of {len(own)} points, most{size}: "
        f"{figure(point.estimates.get(metric))} {unit(metric).name}, {change(largest)}."
    )


def _excludes_zero(estimate: Estimate) -> bool:
    if estimate.low is None or estimate.high is None:
        return False
    return estimate.low > 0 or estimate.high < 0
