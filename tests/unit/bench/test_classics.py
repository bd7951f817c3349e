"""The page of the simulated publications: every claim stands there, and what nobody explains."""

from classics import Ran, page

from tunnelmark.published import claims
from tunnelmark.report.beside import Comparison, Judged

STUDY = "pptp-vs-ssl-2011"


def ran(*judged: Judged) -> Ran:
    return Ran(STUDY, 90.0, 7, Comparison("a report", (), (), (), (), judged))


def judged(claim_id: str, outcome: str | None) -> Judged:
    claim = next(one for one in claims() if one.claim_id == claim_id)
    return Judged(claim, outcome, "14 % | less")  # type: ignore[arg-type]  # a verdict's words


def test_a_claim_that_is_not_confirmed_needs_a_reason() -> None:
    one = ran(judged("pvs-01", "confirmed"), judged("pvs-06", "rejected"), judged("pvs-07", None))
    assert one.silent == []
    silent = ran(judged("pvs-01", "undecided"))
    assert [claim.claim.claim_id for claim in silent.silent] == ["pvs-01"]


def test_the_page_has_each_claim_with_its_verdict() -> None:
    text = page([ran(judged("pvs-01", "confirmed"), judged("pvs-06", "rejected"))])
    assert "Together 1.5 minutes; the goal is 15." in text
    assert f"| {STUDY} | 90 | 7 | 1 | 1 | 0 | 0 |" in text
    assert r"| rejected | 14 % \| less |" in text
