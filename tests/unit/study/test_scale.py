"""Scales of a study: what they change, and where a mistake in one is said to be."""

import tomllib

import pytest

from tunnelmark.model.errors import StudyError
from tunnelmark.study import Study, list_studies, load_study, parse_study
from tunnelmark.study.scale import FULL, names

STUDY = """\
format = 1
name = "a"
title = "A"
[precision]
metric = "rtt_p50_ns"
max_repeats = 9
[[tunnel]]
kind = "openvpn"
label = "gcm"
[[tunnel]]
kind = "wireguard"
[[link]]
preset = "serial-8m-41ms"
label = "8 Mbit/s"
[[link]]
preset = "serial-2m-115ms"
[[workload]]
kind = "udp_echo"
gap = "5 ms"
packets = 10000
payload_bytes = [25, 64, 1472]
"""
SMOKE = """\
[scale.smoke]
precision = { min_repeats = 2, max_repeats = 2 }
only.tunnel = ["wireguard"]
only.link = ["8 Mbit/s"]
[scale.smoke.workload.udp_echo]
packets = 50
payload_bytes = 64
"""


def parse(text: str, scale: str = FULL) -> Study:
    return parse_study(text, "a.toml", scale)


def complaint(text: str, scale: str = FULL) -> str:
    with pytest.raises(StudyError) as caught:
        parse(text, scale)
    return str(caught.value)


def test_a_scale_changes_what_it_names_and_nothing_else() -> None:
    full, smoke = parse(STUDY + SMOKE), parse(STUDY + SMOKE, "smoke")
    assert full.scale == "full"
    assert smoke.scale == "smoke"
    assert [t.label for t in full.tunnels] == ["gcm", "wireguard"]
    assert [t.label for t in smoke.tunnels] == ["wireguard"]
    assert [link.label for link in smoke.links] == ["8 Mbit/s"]
    assert [w.params["packets"] for w in full.workloads] == [10000] * 3
    assert [(w.params["packets"], w.params["payload_bytes"]) for w in smoke.workloads] == [(50, 64)]
    assert (full.precision.min_repeats, full.precision.max_repeats) == (3, 9)
    assert (smoke.precision.min_repeats, smoke.precision.max_repeats) == (2, 2)
    assert smoke.precision.metric == "rtt_p50_ns"
    assert smoke.text == full.text


def test_a_scale_without_devices_is_this_machine_as_it_is() -> None:
    device = '[[device]]\nkind = "pi-3"\n'
    found = parse(STUDY + device + "[scale.smoke.only]\ndevice = []\n", "smoke")
    assert [spec.label for spec in found.devices] == ["host"]
    said = complaint(STUDY + device + "[scale.smoke.only]\nlink = []\n")
    assert "scale.smoke.only.link must be a list of labels or kinds" in said


def test_a_study_without_the_scale_says_which_it_has() -> None:
    assert complaint(STUDY + SMOKE, "short") == (
        "a.toml:1: the study has no [scale.short], only smoke, full"
    )


@pytest.mark.parametrize(
    ("old", "new", "line", "words"),
    [
        ("packets = 50", "packets = 0", 27, "workload.packets is 0, must be at least 1"),
        ("packets = 50", "packet = 50", 27, "workload.packet is not a key of this workload"),
        ("max_repeats = 2", "max_repeats = 1", 23, "max_repeats is 1, must be at least"),
        (
            "workload.udp_echo",
            "workload.udp_eco",
            26,
            '"udp_eco" is not a [[workload]] of the study',
        ),
        ('["wireguard"]', '["wiregard"]', 24, '"wiregard" is not a [[tunnel]] of the study'),
        ("only.link", "only.lnk", 25, "scale.smoke.only.lnk is not a key, did you mean link?"),
        ("only.link = [", "links = [", 25, "scale.smoke.links is not a key of a scale"),
        ("[scale.smoke]", "[scale.smok]", 22, "scale.smok is not a scale, did you mean smoke?"),
        ("packets = 50", 'kind = "udp_load"', 27, "cannot be changed by a scale"),
    ],
)
def test_a_mistake_in_a_scale_is_said_where_it_stands(
    old: str, new: str, line: int, words: str
) -> None:
    text = STUDY + SMOKE
    assert text.count(old) >= 1
    changed = STUDY + SMOKE.replace(old, new)
    said = complaint(changed)
    assert said.startswith(f"a.toml:{line}: "), said
    assert words in said


@pytest.mark.parametrize("value", ["5", "true", '"smoke"', "[1]"])
def test_a_scale_that_is_no_table_is_said(value: str) -> None:
    said = complaint(STUDY.replace("format = 1\n", f"format = 1\nscale = {value}\n", 1))
    assert "scale must be written as [scale.smoke]" in said


def test_a_mistake_in_a_table_that_moved_is_said_where_it_stands() -> None:
    said = complaint(STUDY + SMOKE + "[scale.smoke.tunnel.wireguard]\ncount = 0\n")
    assert said == "a.toml:30: tunnel.count is 0, must be at least 1"


def test_workloads_may_have_metrics_of_their_own() -> None:
    both = STUDY + '[[workload]]\nkind = "tcp_bulk"\nduration = "2 s"\n'
    assert "precision.metric is" in complaint(both)
    own = both.replace(
        "max_repeats = 9", 'max_repeats = 9\nmetrics = { tcp_bulk = "tcp_goodput_bit_s" }'
    )
    precision = parse(own).precision
    assert precision.metric_of("tcp_bulk") == "tcp_goodput_bit_s"
    assert precision.metric_of("udp_echo") == "rtt_p50_ns"
    wrong = own.replace("{ tcp_bulk", "{ udp_load")
    assert complaint(wrong).startswith("a.toml:")
    assert "udp_load" in complaint(wrong)


@pytest.mark.parametrize("name", list_studies())
def test_every_built_in_study_has_every_scale_it_names(name: str) -> None:

    for scale in names(tomllib.loads(load_study(name).text)):
        assert load_study(name, scale).scale == scale


@pytest.mark.parametrize("name", list_studies())
def test_a_smaller_scale_of_a_built_in_study_keeps_the_names_of_what_it_compares(name: str) -> None:
    full = load_study(name)
    for scale in names(tomllib.loads(full.text)):
        smaller = load_study(name, scale)
        for section in ("tunnels", "links", "devices"):
            known = {spec.label for spec in getattr(full, section)} | {"host"}
            assert {spec.label for spec in getattr(smaller, section)} <= known
