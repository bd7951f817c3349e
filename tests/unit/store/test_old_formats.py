"""A result of format 1, as the Tunnelmark of its time wrote it, still reports the same."""

from pathlib import Path

import pytest

from tunnelmark.cli import main
from tunnelmark.model.errors import ResultError
from tunnelmark.report.summary import summarise
from tunnelmark.store import Writer, open_result

_OLD = Path(__file__).parents[2] / "data" / "result-format-1"
# What its own report said: RTT in ns and goodput in bit/s, geometric means of four valid repeats.
_REPORTED = {
    ("none", "udp_echo 64"): (2005062.7531561232, 5002563.87506406),
    ("none", "udp_echo 1000"): (2005998.7537379009, 5003499.875087432),
    ("openvpn", "udp_echo 64"): (3007562.129714284, 3335897.1459774314),
    ("openvpn", "udp_echo 1000"): (3008498.130296168, 3336833.146029988),
}
_DIFFERENCES = {
    "udp_echo 64": (0.49998404038983363, -0.33316250840780803),
    "udp_echo 1000": (0.49975074744699916, -0.33310018400436564),
}
_METRICS = ("rtt_p50_ns", "goodput_bit_s")


def test_its_figures_are_those_that_it_had() -> None:
    points = summarise(open_result(_OLD)).points
    reported = {
        (p.tunnel, p.workload): tuple(p.estimates[metric].value for metric in _METRICS)
        for p in points
    }
    assert set(reported) == set(_REPORTED)
    for key, values in reported.items():
        assert values == pytest.approx(_REPORTED[key])
    differences = {
        p.workload: tuple(p.differences[metric].value for metric in _METRICS)
        for p in points
        if p.differences
    }
    assert set(differences) == set(_DIFFERENCES)
    for workload, values in differences.items():
        assert values == pytest.approx(_DIFFERENCES[workload])


def test_where_it_was_measured_has_no_name_but_its_stratum_is_known() -> None:
    result = open_result(_OLD)
    trials = result.trials()
    assert trials.height == 17
    assert set(trials["worker"]) == set(trials["environment"]) == {""}
    assert set(trials["stratum"]) == {"namespaces"}
    assert set(trials["bring_up"]) == {1}
    assert result.manifest.sittings == ()


def test_it_is_reported_by_the_command_and_not_continued(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    copy = tmp_path / "old"
    (copy / "trials").mkdir(parents=True)
    (copy / "blocks").mkdir()
    for name in ("manifest.json", "trials/b1.parquet", "blocks/b1.json"):
        (copy / name).write_bytes((_OLD / name).read_bytes())
    assert main.call(["report", str(copy), "--format", "markdown"]) == 0
    assert "openvpn" in capsys.readouterr().out
    with pytest.raises(ResultError, match="has an older format, which can be read but not resumed"):
        Writer(copy)
