"""What a session in a lab does with what fails in it."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from made_results import block_record
from made_study import made_text
from tunnelmark.lab.session.proving import hold
from tunnelmark.lab.session.session import LabSession
from tunnelmark.model.block import ProofVerdict
from tunnelmark.model.errors import RefusedError, TunnelError
from tunnelmark.study import parse_study
from tunnelmark.study.plan import jobs


@pytest.mark.parametrize(
    ("verdict", "kind"),
    [(ProofVerdict.COULD_NOT_SEE, TunnelError), (ProofVerdict.SAW_WRONG, RefusedError)],
)
def test_a_proof_that_could_not_see_is_repeated_and_one_that_saw_wrong_is_not(
    verdict: ProofVerdict, kind: type[TunnelError]
) -> None:
    (job,) = jobs(parse_study(made_text(""), "made.toml"))
    (good,) = block_record().proofs
    with pytest.raises(TunnelError) as caught:
        hold(job.block, replace(good, verdict=verdict))
    assert caught.type is kind


def test_what_cannot_be_taken_down_does_not_keep_the_rest(tmp_path: Path) -> None:
    (job,) = jobs(parse_study(made_text(""), "made.toml"))
    nothing: Any = None
    session = LabSession(
        job,
        nothing,
        nothing,
        engine="",
        folder=tmp_path,
        keep_samples=False,
        observer=nothing,
    )
    done = []

    def stuck() -> None:
        done.append("tunnel")
        raise RuntimeError("stuck")

    def late() -> None:
        done.append("baseline")
        raise RuntimeError("its consequence")

    session._closing = [lambda: done.append("lab"), late, stuck]
    with pytest.raises(RuntimeError, match="stuck"):
        session.down()
    assert done == ["tunnel", "baseline", "lab"]
    session.down()
    assert done == ["tunnel", "baseline", "lab"]
