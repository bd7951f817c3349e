"""A link of a study that is run: its files are those of when the study was read."""

from pathlib import Path

import pytest

from tunnelmark.links.registry import link_of
from tunnelmark.links.trace import TraceParams
from tunnelmark.model.errors import LabError
from tunnelmark.model.trial import DriverSpec


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    path = tmp_path / "up.trace"
    path.write_text("1\n2\n3\n")
    return path


def recorded(**files: Path) -> DriverSpec:
    params = {name: str(path) for name, path in files.items()}
    columns = TraceParams.model_validate(params).columns()
    return DriverSpec("trace", "recorded", params, columns)


def test_a_trace_that_is_as_it_was_is_carried(trace: Path) -> None:
    spec = recorded(forward=trace)
    assert link_of(spec).mtu_bytes == 1500
    # A result of an earlier release does not say what its traces contained.
    assert link_of(DriverSpec("trace", "recorded", spec.params, {})).mtu_bytes == 1500
    assert link_of(DriverSpec("direct", "line", {}, {})).mtu_bytes == 1500


@pytest.mark.parametrize("way", ["forward", "reverse"])
def test_a_trace_that_is_another_is_named(trace: Path, way: str) -> None:
    other = trace.with_name("other.trace")
    other.write_text("4\n")
    spec = recorded(**{"forward": trace, way: other})
    other.write_text("5\n")
    with pytest.raises(LabError, match=r"^/\S+/other\.trace has changed since the study was read"):
        link_of(spec)


def test_a_trace_that_is_gone_is_named(trace: Path) -> None:
    spec = recorded(forward=trace)
    trace.unlink()
    with pytest.raises(LabError) as caught:
        link_of(spec)
    assert str(caught.value) == (
        f"link recorded: forward is '{trace}', which cannot be read: No such file or directory"
    )
