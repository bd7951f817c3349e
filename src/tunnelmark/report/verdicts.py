"""The hypotheses of a result's own study, judged by its trials."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from tunnelmark.analysis.hypotheses import Measured, judge
from tunnelmark.analysis.sequential import chances
from tunnelmark.model import toml
from tunnelmark.model.costs import BASIS, Basis
from tunnelmark.model.errors import LabError, StudyError
from tunnelmark.model.hypothesis import FRAGMENTATION_POINT, Verdict
from tunnelmark.model.rules import Precision
from tunnelmark.report.families import Deciding
from tunnelmark.store import Manifest, Result
from tunnelmark.study import parse_study
from tunnelmark.study.drivers import checked_table
from tunnelmark.study.parse import FORMAT, LARGEST_FILE_BYTES
from tunnelmark.study.scale import scaled

_LEAST_WORK: Final = (
    "; work on the device is that of the cipher alone: a real tunnel has a lower rate and more CPU"
)


def verdicts_of(result: Result) -> tuple[tuple[Verdict, ...], str | None]:
    """Return what a run says of its study's hypotheses, and why nothing if that is so.

    The study is the text in the manifest, as it was run. One that cannot be read any more (a driver
    or a trace is gone) has no verdicts; its figures are reported all the same.
    """
    manifest = result.manifest
    if "hypothesis" not in manifest.study_text:
        return (), None
    try:
        study = parse_study(manifest.study_text, manifest.study_source, manifest.scale)
    except (StudyError, LabError) as error:
        return (), f"The hypotheses of the study are not judged: {error}."
    if not study.hypotheses:
        return (), None
    precision = study.precision
    measured = Measured(
        trials=result.trials(),
        blocks=tuple(result.blocks.values()),
        confidence=manifest.confidence,
        moments=chances(precision.min_repeats, precision.max_repeats),
    )
    verdicts = judge(study.hypotheses, measured)
    least = any(
        agreed.details.get(BASIS) == Basis.CIPHER
        for block in measured.blocks
        for agreed in block.negotiated
    )
    return tuple(_of_least_work(one) for one in verdicts) if least else verdicts, None


def _of_least_work(verdict: Verdict) -> Verdict:
    """Return it with what to think of it where work on a device is a lower bound."""
    if verdict.outcome == "undecided" or verdict.hypothesis.metric == FRAGMENTATION_POINT:
        return verdict
    return replace(verdict, reason=f"{verdict.reason}{_LEAST_WORK}")


def moments_of(result: Result) -> int:
    """Return at how many moments a run could end a point; 1 if its study cannot be read."""
    precision = _precision(result.manifest)
    return 1 if precision is None else chances(precision.min_repeats, precision.max_repeats)


def deciding_of(result: Result) -> Mapping[str, Deciding]:
    """Return the metric by which the study decides, by kind of workload that was measured.

    Where the study cannot be read it is the study's own for every kind.
    """
    precision = _precision(result.manifest)
    if precision is None:
        precision = Precision.model_construct(metric=result.manifest.precision_metric)
    return {
        kind: Deciding(precision.metric_of(kind), own=kind in precision.metrics)
        for kind in result.trials()["workload_kind"].unique(maintain_order=True)
    }


def _precision(manifest: Manifest) -> Precision | None:
    """Return how well a study was to be measured; None if its text cannot be read.

    No driver and no file of it is asked: what became of them since the run changes no figure.
    """

    def fail(_place: object, message: str) -> StudyError:
        return StudyError(message)

    if len(manifest.study_text) > LARGEST_FILE_BYTES:
        return None
    try:
        document = toml.loads(manifest.study_text)
        if document.get("format") != FORMAT:
            return None
        table = scaled(document, manifest.scale, fail).document.get("precision", {})
        return checked_table(table, Precision, "precision", fail)
    # What a stranger wrote into a result may be anything.
    except (StudyError, ValueError, RecursionError, AttributeError):
        return None


def needed(verdict: Verdict) -> str:
    """Return what would settle an undecided verdict, in words; empty for others."""
    if verdict.outcome != "undecided" or verdict.deciding is None:
        return ""
    if verdict.repeats_to_settle is None:
        return "no number of repeats up to 10,000 is likely to settle it"
    return f"about {verdict.repeats_to_settle} repeats would settle it"


def as_event(verdict: Verdict) -> Mapping[str, object]:
    """Return a verdict as one JSON object, in stored units."""
    deciding = verdict.deciding
    return {
        "event": "verdict",
        "name": verdict.hypothesis.name,
        "claim": verdict.hypothesis.claim,
        "kind": verdict.hypothesis.kind,
        "family": verdict.hypothesis.family,
        "outcome": verdict.outcome,
        "reason": verdict.reason,
        "tests": verdict.tests,
        "p_confirm": verdict.p_confirm,
        "p_reject": verdict.p_reject,
        "repeats_to_settle": verdict.repeats_to_settle,
        "deciding": None if deciding is None else vars(deciding),
    }
