"""Built-in studies name the congestion control of all that goes over TCP."""

import tomllib
from importlib import resources

import pytest

from tunnelmark.model.registry import make
from tunnelmark.study import FULL, list_studies, load_study
from tunnelmark.study.scale import names
from tunnelmark.workloads.congestion import TcpWorkload
from tunnelmark.workloads.registry import workload_kinds


@pytest.mark.parametrize("name", sorted(list_studies()))
@pytest.mark.parametrize("scale", ["smoke", "full"])
def test_no_built_in_study_leaves_it_to_the_kernel(name: str, scale: str) -> None:
    text = resources.files("tunnelmark.study").joinpath(f"builtin/{name}.toml").read_text("utf-8")
    study = load_study(name, scale if scale in names(tomllib.loads(text)) else FULL)
    made = [make(workload_kinds(), spec) for spec in study.workloads]
    over_tcp = [one for one in made if isinstance(one, TcpWorkload) and one.over_tcp]
    assert [one.kind for one in over_tcp if one.params.congestion is None] == []
