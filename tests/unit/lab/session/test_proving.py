"""A later bring-up looks for the fragmentation point where the one before found it."""

from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from made_results import block_record
from made_study import made_text
from tunnelmark.engine.link import Direction, LinkSpec, Queue
from tunnelmark.lab.session import proving
from tunnelmark.model.block import Stratum
from tunnelmark.study import parse_study
from tunnelmark.study.plan import jobs


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> tuple[list[int | None], Callable[[], None]]:
    """Return what each proof expects, and what makes the proofs of a bring-up."""
    (job,) = jobs(parse_study(made_text(""), "made.toml"))
    (good,) = block_record().proofs
    found = iter([1420, 1400, None, 1380])
    expected: list[int | None] = []

    def proof(*_: Any, expected_bytes: int | None, **_more: Any) -> Any:
        expected.append(expected_bytes)
        return replace(good, fragmentation_point_bytes=next(found))

    nothing: Any = None
    path: Any = type("Path", (), {"name": "0"})
    monkeypatch.setattr(proving, "_proof", proof)
    monkeypatch.setattr(proving, "_listened_to", lambda _lab, _up: [path])
    points: dict[str, int] = {}

    def bring_up() -> None:
        for _ in proving.proofs_before(
            job.block,
            nothing,
            nothing,
            beside=(),
            expected=lambda _size: None,
            seed=lambda _name: 1,
            keep=lambda _name, _pcap: None,
            points=points,
        ):
            pass

    return expected, bring_up


def test_the_last_point_is_expected_and_one_that_was_not_found_is_forgotten(
    asked: tuple[list[int | None], Callable[[], None]],
) -> None:
    expected, bring_up = asked
    for _ in range(4):
        bring_up()
    assert expected == [None, 1420, 1400, None]


@pytest.mark.parametrize(
    ("rate_bit_s", "limits", "tcp_ports", "stratum", "wait_ns"),
    [
        (100_000_000, {}, (), Stratum.NAMESPACES, 240_490_880),
        # Probes would wait for one another: replies come when their queue is empty.
        (1_000_000, {}, (), Stratum.NAMESPACES, 10**9),
        (100_000_000, {"server": "a slow CPU"}, (), Stratum.NAMESPACES, 10**9),
        (100_000_000, {}, (443,), Stratum.NAMESPACES, 10**9),
        (100_000_000, {}, (), Stratum.EMULATED, 10**9),
    ],
)
def test_a_proof_waits_for_what_may_still_come(
    rate_bit_s: int,
    limits: dict[str, str],
    tcp_ports: tuple[int, ...],
    stratum: Stratum,
    wait_ns: int,
) -> None:
    way = Direction(rate_bit_s, 20_000_000, Queue("bytes", 65536))
    lab: Any = SimpleNamespace(
        link=LinkSpec(way, way, seed=1),
        client=SimpleNamespace(mtu_bytes=1500),
        place=SimpleNamespace(stratum=stratum, limits=limits),
    )
    up: Any = SimpleNamespace(wire=SimpleNamespace(tcp_ports=tcp_ports))
    assert proving._drain_ns(lab, up) == wait_ns
