"""Every published claim is judged by its study, or the report says why it cannot be."""

import pytest

from tunnelmark.analysis.testing import FEWEST
from tunnelmark.published import Claim, claims
from tunnelmark.report.classics import load_classic
from tunnelmark.study import list_studies, load_study


@pytest.mark.parametrize("claim", claims(), ids=lambda one: one.claim_id)
def test_a_claim_has_a_hypothesis_or_a_reason(claim: Claim) -> None:
    study = claim.study
    claim_id = claim.claim_id
    assert study in list_studies()
    classic = load_classic(study)
    assert classic is not None
    judged = {one.name for one in load_study(study).hypotheses}
    assert (claim_id in judged) != (claim_id in classic.unjudged)


@pytest.mark.parametrize("study", list_studies())
def test_a_study_that_claims_has_as_many_repeats_as_a_verdict_needs(study: str) -> None:
    """The stop rule ends at the least where all are alike, as in a simulation."""
    loaded = load_study(study)
    assert not loaded.hypotheses or loaded.precision.min_repeats >= FEWEST
