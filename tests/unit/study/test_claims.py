"""The claims of each publication as hypotheses over its built-in study."""

import pytest

from tunnelmark.published import claims
from tunnelmark.study import SCALES, list_studies, load_study

PUBLISHED = {claim.claim_id: claim.study for claim in claims()}
CLASSICS = sorted(set(PUBLISHED.values()) & set(list_studies()))


@pytest.mark.parametrize("name", CLASSICS)
def test_a_claim_stands_under_its_own_id_in_its_own_study(name: str) -> None:
    hypotheses = load_study(name).hypotheses
    assert hypotheses
    for one in hypotheses:
        # ``mun-05-recovers`` is the second half of mun-05.
        claim_id = "-".join(one.name.split("-")[:2])
        assert PUBLISHED[claim_id] == name
        assert one.claim, one.name
        assert one.family == name


@pytest.mark.parametrize("name", CLASSICS)
@pytest.mark.parametrize("scale", SCALES)
def test_a_smaller_scale_has_the_same_claims(name: str, scale: str) -> None:
    whole = [one.name for one in load_study(name).hypotheses]
    assert [one.name for one in load_study(name, scale).hypotheses] == whole
