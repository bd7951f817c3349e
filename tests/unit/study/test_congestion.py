"""Built-in studies name the congestion control of all that goes over TCP."""

import tomllib
from importlib import resources

import pytest

from made_study import one_workload
from tunnelmark.model.errors import StudyError
from tunnelmark.model.registry import make
from tunnelmark.study import FULL, list_studies, load_study
from tunnelmark.study.parse import parse_study
from tunnelmark.study.plan import jobs
from tunnelmark.study.scale import names
from tunnelmark.tunnels.registry import tunnel_kinds
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
    tunnels = [(spec.label, make(tunnel_kinds(), spec)) for spec in study.tunnels]
    carried = [(label, one) for label, one in tunnels if one.carriers()]
    assert [label for label, one in carried if one.params.congestion is None] == []


def test_it_is_one_of_a_tunnels_parameters_and_not_of_its_baseline() -> None:
    text = one_workload('kind = "openvpn"\ntransport = "tcp"\ncongestion = ["cubic", "reno"]\n')
    made = list(jobs(parse_study(text, "mine.toml")))
    assert [job.block.tunnel.label for job in made] == ["openvpn-tcp-cubic", "openvpn-tcp-reno"]
    assert [job.block.tunnel.columns["congestion"] for job in made] == ["cubic", "reno"]
    assert all("congestion" not in job.block.baseline.columns for job in made)
    (plain,) = jobs(parse_study(one_workload('kind = "openvpn"\n'), "mine.toml"))
    assert "congestion" not in plain.block.tunnel.columns


@pytest.mark.parametrize(
    ("lines", "reason"),
    [
        (
            'kind = "wireguard"\ncongestion = "cubic"\n',
            (
                "congestion is 'cubic', but no TCP connection carries WireGuard with these "
                "parameters: leave it out"
            ),
        ),
        ('kind = "openvpn"\ntransport = "tcp"\ncongestion = "Cubic; id"\n', "congestion"),
    ],
)
def test_what_has_no_effect_or_is_no_name_is_refused(lines: str, reason: str) -> None:
    with pytest.raises(StudyError) as caught:
        parse_study(one_workload(lines), "mine.toml")
    assert reason in str(caught.value)
    assert str(caught.value).startswith("mine.toml:")
