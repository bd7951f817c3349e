"""Limits by place: wider on an emulated CPU and for an engine on a device, never narrower."""

from types import SimpleNamespace
from typing import Any

import pytest

from tunnelmark.lab.session.limits import limits_at
from tunnelmark.model.block import Stratum
from tunnelmark.model.rules import Limits

MS = 1_000_000


def place(*, emulated: bool, link: str = "/e", waits: tuple[int, ...] = ()) -> Any:
    limits = {str(n): SimpleNamespace(engine_wait_ns=wait) for n, wait in enumerate(waits)}
    stratum = Stratum.EMULATED if emulated else Stratum.NAMESPACES
    return SimpleNamespace(stratum=stratum, engine="/e", link_engine=link, limits=limits)


@pytest.mark.parametrize(
    ("where", "sender_ms", "link_ms"),
    [
        (place(emulated=False), 1, 2),
        (place(emulated=False, waits=(0,)), 1, 2),
        (place(emulated=True), 5, 5),
        (place(emulated=True, link="/native"), 5, 2),
        (place(emulated=True, link="/native", waits=(20 * MS, 3)), 25, 2),
    ],
)
def test_lateness_by_place(where: Any, sender_ms: int, link_ms: int) -> None:
    found = limits_at(Limits(), where)
    assert (found.sender_lateness, found.link_lateness) == (sender_ms * MS, link_ms * MS)
    assert found.steal == Limits().steal
    assert found.starvation == Limits().starvation


def test_what_the_study_allows_is_never_taken_back() -> None:
    wide = Limits.model_validate({"sender_lateness": "30 ms", "link_lateness": "40 ms"})
    found = limits_at(wide, place(emulated=True))
    assert (found.sender_lateness, found.link_lateness) == (30 * MS, 40 * MS)


def test_a_study_may_set_that_of_emulated_places() -> None:
    found = limits_at(Limits.model_validate({"emulated_lateness": "9 ms"}), place(emulated=True))
    assert (found.sender_lateness, found.link_lateness) == (9 * MS, 9 * MS)
