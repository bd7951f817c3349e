"""What a session in a lab does with what fails in it."""

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from made_results import block_record
from made_study import made_text
from tunnelmark.lab.session import session as session_module
from tunnelmark.lab.session.calm import Calm
from tunnelmark.lab.session.floor import Floor, Floors
from tunnelmark.lab.session.proving import hold
from tunnelmark.lab.session.session import LabSession
from tunnelmark.model.block import ProofVerdict, Stratum
from tunnelmark.model.errors import RefusedError, TunnelError
from tunnelmark.model.job import Job
from tunnelmark.model.registry import make
from tunnelmark.model.tunnel import DataPath
from tunnelmark.model.validity import Check
from tunnelmark.probes.busy import Busy
from tunnelmark.study import parse_study
from tunnelmark.study.plan import jobs
from tunnelmark.tunnels.registry import tunnel_kinds


def session_of(job: Job, folder: Path, floors: Floors, calm: Calm | None = None) -> LabSession:
    """Return a session of nothing but its job."""
    nothing: Any = None
    watching: Any = SimpleNamespace(
        during=lambda _step: nullcontext(),
        waiting=lambda _why: nullcontext(),
        cancelled=lambda: False,
    )
    return LabSession(
        job,
        nothing,
        nothing,
        engine="",
        folder=folder,
        keep_samples=False,
        observer=watching,
        floors=floors,
        calm=calm or Calm(counted([])),
    )


def counted(looks: list[float]) -> Callable[[float], Busy]:
    """Return a look at a calm computer."""

    def look(look_s: float) -> Busy:
        looks.append(look_s)
        return Busy(0, 0.0)

    return look


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


def test_a_wire_that_is_not_as_modelled_is_brought_up_once_more(tmp_path: Path) -> None:
    """All 41 trials of such a bring-up were invalid, one after the other."""
    (job,) = jobs(parse_study(made_text(""), "made.toml"))
    session = session_of(job, tmp_path, {})
    other = Check("wire_as_modelled", ok=False, message="the one of 64 bytes took 120, not 108")
    session._repeat_once(replace(other, ok=True), 1)
    for bring_up in (1, 2):
        with pytest.raises(TunnelError, match="took 120, not 108") as caught:
            session._repeat_once(other, bring_up)
        assert caught.value.transient
        # What is really otherwise is shown, in trials that are invalid.
        session._repeat_once(other, bring_up)


@pytest.mark.parametrize(
    ("place", "in_kernel", "link", "measured"),
    [
        ("here", False, "serial-8mbit/s", 1),
        ("a machine", False, "serial-8mbit/s", 2),
        ("here", True, "serial-8mbit/s", 2),
        ("here", False, "slower", 2),
    ],
)
def test_the_floor_is_measured_once_for_labs_that_are_alike(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    *,
    place: str,
    in_kernel: bool,
    link: str,
    measured: int,
) -> None:
    floor = Floor(1.0, 2.0, 3.0, 10)
    found = iter([floor, None])
    monkeypatch.setattr(session_module, "measure_floor", lambda *_, **__: next(found))
    monkeypatch.setattr(session_module, "warm_up", lambda *_, **__: None)
    (first,) = jobs(parse_study(made_text(""), "made.toml"))
    block = replace(first.block, link=replace(first.block.link, label=link))
    agreed = SimpleNamespace(data_path=DataPath.KERNEL if in_kernel else DataPath.USER_SPACE)
    floors: Floors = {}
    had = []
    looks: list[float] = []
    calm = Calm(counted(looks))
    for job, where, path in (
        (first, "here", SimpleNamespace(data_path=DataPath.USER_SPACE)),
        (first, "here", SimpleNamespace(data_path=DataPath.USER_SPACE)),
        (replace(first, block=block), place, agreed),
    ):
        lab = SimpleNamespace(
            place=SimpleNamespace(placed_on=where, stratum=Stratum.NAMESPACES, limits={})
        )
        made: Any = SimpleNamespace(up=SimpleNamespace(negotiated=(path,)), base=None, lab=lab)
        tunnel = make(tunnel_kinds(), job.block.tunnel)
        had.append(session_of(job, tmp_path, floors, calm)._warm(made, tunnel))
    assert had == [floor, floor, floor if measured == 1 else None]
    assert len(floors) == measured
    assert len(looks) == measured, "each on a calm computer"


@pytest.mark.parametrize(
    ("stratum", "limits", "looks"),
    [
        (Stratum.NAMESPACES, {}, 1),
        (Stratum.EMULATED, {}, 1),
        (Stratum.HOSTS, {}, 0),
        (Stratum.NAMESPACES, {"steal": 1.0, "starvation": 2.0}, 0),
    ],
)
def test_it_waits_for_this_computer_where_it_measures_and_has_limits(
    tmp_path: Path, stratum: Stratum, limits: dict[str, float], looks: int
) -> None:
    (job,) = jobs(parse_study(made_text(""), "made.toml"))
    job = replace(job, limits=job.limits.model_copy(update=limits))
    seen: list[float] = []
    calm = Calm(counted(seen))
    calm.doubt()
    place = SimpleNamespace(stratum=stratum, limits={}, engine="", link_engine="")
    lab: Any = SimpleNamespace(place=place)
    session_of(job, tmp_path, {}, calm)._wait_for_calm(lab)
    assert len(seen) == looks


def test_what_cannot_be_taken_down_does_not_keep_the_rest(tmp_path: Path) -> None:
    (job,) = jobs(parse_study(made_text(""), "made.toml"))
    session = session_of(job, tmp_path, {})
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
