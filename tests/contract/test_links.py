"""Every link model against its base."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tunnelmark.engine.link import LinkSpec
from tunnelmark.links.base import Link
from tunnelmark.links.registry import link_kinds
from tunnelmark.model.params import Params

_PRESETS = [
    (kind, name)
    for kind, link in sorted(link_kinds().items())
    for name in sorted(link.presets)
    if kind != "direct"
]


def _preset(kind: str, name: str) -> Link:
    link = link_kinds()[kind]
    return link(link.params_type.model_validate(dict(link.presets[name])))


def test_there_are_the_links_that_the_readme_names() -> None:
    assert {"serial", "ethernet"} <= set(link_kinds())


@pytest.mark.parametrize("kind", sorted(link_kinds()))
def test_a_link_has_a_title_presets_and_strict_parameters(kind: str) -> None:
    link = link_kinds()[kind]
    assert link.kind == kind
    assert link.title
    # A recorded line is nothing without its record.
    assert link.presets or kind == "trace"
    assert issubclass(link.params_type, Params)
    assert link.params_type.model_config["extra"] == "forbid"
    assert link.params_type.model_config["frozen"]
    for name, field in link.params_type.model_fields.items():
        assert field.description, f"{kind}.{name} has no description"


@pytest.mark.parametrize(("kind", "name"), _PRESETS)
def test_a_preset_gives_a_specification_that_is_json(kind: str, name: str) -> None:
    link = _preset(kind, name)
    assert 576 <= link.mtu_bytes <= 9000
    spec = link.spec(7)
    assert spec is not None
    document = spec.to_json(a="a", b="b", parent_pid=1, realtime_priority=None)
    assert json.loads(json.dumps(document)) == document
    assert document["seed"] == 7


@pytest.mark.parametrize(("kind", "name"), _PRESETS)
def test_the_specification_follows_from_parameters_and_seed_alone(kind: str, name: str) -> None:
    assert _preset(kind, name).spec(1) == _preset(kind, name).spec(1)
    assert _preset(kind, name).spec(1) != _preset(kind, name).spec(2)


def test_a_direct_connection_emulates_nothing() -> None:
    link = _preset("direct", "direct")
    assert link.spec(7) is None
    assert link.mtu_bytes == 1500


def _serial(**params: object) -> LinkSpec:
    return _emulated("serial", {"rate": "8 Mbit/s", **params})


def _emulated(kind: str, params: dict[str, object]) -> LinkSpec:
    link = link_kinds()[kind]
    spec = link(link.params_type.model_validate(params)).spec(1)
    assert isinstance(spec, LinkSpec)
    return spec


@given(st.floats(0.001, 0.5), st.integers(2, 50))
def test_bursts_keep_the_share_that_was_asked_for(share: float, burst: int) -> None:
    loss = _serial(loss_forward=share, loss_burst=float(burst)).a_to_b.loss
    assert loss.type == "gilbert_elliott"
    stationary = loss.good_to_bad / (loss.good_to_bad + loss.bad_to_good)
    assert stationary == pytest.approx(share)
    assert 1 / loss.bad_to_good == pytest.approx(burst)


def test_each_direction_has_settings_of_its_own() -> None:
    spec = _serial(
        delay="10 ms", delay_reverse="30 ms", rate_reverse="1 Mbit/s", loss_reverse="3 %"
    )
    assert (spec.a_to_b.delay_ns, spec.b_to_a.delay_ns) == (10_000_000, 30_000_000)
    assert (spec.a_to_b.rate_bit_s, spec.b_to_a.rate_bit_s) == (8_000_000, 1_000_000)
    assert (spec.a_to_b.loss.type, spec.b_to_a.loss.probability) == ("none", 0.03)


def test_ethernet_counts_what_a_frame_costs_on_the_line() -> None:
    direction = _emulated("ethernet", {"rate": "10 Mbit/s"}).a_to_b
    # RFC 2544: 64-byte frames, 60 of which are seen without FCS, go at 14880 a second
    cost_bytes = max(direction.frame_min_bytes, 60 + direction.frame_overhead_bytes)
    assert direction.rate_bit_s is not None
    assert direction.rate_bit_s / (cost_bytes * 8) == pytest.approx(14880, abs=1)


def test_changes_belong_to_their_direction() -> None:
    spec = _serial(changes=[{"at": "5 s", "delay": "200 ms"}, {"at": "9 s", "loss_forward": "5 %"}])
    assert spec.has_schedule
    (first, second), (_, other) = spec.a_to_b.changes, spec.b_to_a.changes
    assert (first.at_ns, first.delay_ns, first.loss) == (5 * 10**9, 200_000_000, None)
    assert second.loss is not None
    assert second.loss.probability == 0.05
    assert other.loss is None
    with pytest.raises(ValueError, match="must be in order of time"):
        _serial(changes=[{"at": "5 s"}, {"at": "4 s"}])


def test_a_trace_is_handed_on_as_it_is(tmp_path: Path) -> None:
    kind = link_kinds()["trace"]
    path = tmp_path / "up"
    with pytest.raises(ValueError, match="cannot be read: No such file"):
        kind.params_type.model_validate({"forward": str(path)})
    path.write_bytes(b"1\n2\n")
    spec = kind(kind.params_type.model_validate({"forward": str(path)})).spec(1)
    assert isinstance(spec, LinkSpec)
    assert spec.files == {"forward.trace": b"1\n2\n", "reverse.trace": b"1\n2\n"}
    document = spec.to_json(a="a", b="b", parent_pid=1, realtime_priority=None, files_dir="/d")
    assert document["a_to_b"]["trace"] == {"path": "/d/forward.trace"}  # type: ignore[index]
    assert document["a_to_b"]["rate_bit_s"] is None  # type: ignore[index]
