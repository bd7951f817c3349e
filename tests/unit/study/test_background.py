"""Loads beside workloads in a study: who has which, what is refused, what points are called."""

import pytest

from tunnelmark.model.errors import StudyError
from tunnelmark.study.parse import parse_study
from tunnelmark.study.points import blocks

HEAD = """format = 1
name = "a"
title = "A"
[precision]
metric = "cpu_machine_ratio"
[[link]]
preset = "serial-8m-41ms"
"""
BURSTS = '[[background]]\nkind = "bursts"\nlabel = "office"\n'
FLOOD = (
    '[[background]]\nkind = "udp_load"\nlabel = "flood"\npath = "outside"\n'
    'payload_bytes = 1000\nload = "90 %"\n'
)
ECHO = '[[workload]]\nkind = "udp_echo"\ngap = "5 ms"\npackets = 9\npayload_bytes = 64\n'
DELAY = '[[workload]]\nkind = "latency_under_load"\n'


def beside(text: str) -> list[tuple[str, list[tuple[str, str]]]]:
    study = parse_study(HEAD + text, "a.toml")
    return [(w.label, [(b.label, b.path) for b in w.background]) for w in study.workloads]


def test_all_loads_are_beside_every_workload() -> None:
    both = [("office", "inside"), ("flood", "outside")]
    assert beside(BURSTS + FLOOD + ECHO + DELAY) == [
        ("udp_echo", both),
        ("latency_under_load", both),
    ]


def test_a_workload_may_choose_and_vary() -> None:
    assert beside(BURSTS + FLOOD + ECHO + 'background = ["none", "office", "flood"]\n') == [
        ("udp_echo + none", []),
        ("udp_echo + office", [("office", "inside")]),
        ("udp_echo + flood", [("flood", "outside")]),
    ]
    assert beside(BURSTS + ECHO + 'background = "none"\n') == [("udp_echo", [])]


def test_a_list_of_parameters_varies_beside_it() -> None:
    text = BURSTS + ECHO.replace("64", "[64, 99]") + 'background = ["none", "office"]\n'
    assert [label for label, _ in beside(text)] == [
        *("udp_echo 64 + none", "udp_echo 64 + office"),
        *("udp_echo 99 + none", "udp_echo 99 + office"),
    ]


def test_the_same_workload_with_another_load_is_another_point() -> None:
    text = BURSTS + ECHO + 'label = "a"\nbackground = "none"\n' + ECHO + 'label = "b"\n'
    study = parse_study(HEAD + text, "a.toml")
    (block,) = blocks(study)
    assert len({point.point_id for point in block.points}) == len(block.points) == 2
    assert [spec.columns["background"] for spec in study.workloads] == ["none", "office"]


def test_points_of_a_study_without_loads_keep_their_names() -> None:
    plain = parse_study(HEAD + ECHO, "a.toml")
    loaded = parse_study(HEAD + BURSTS + ECHO, "a.toml")
    (one,), (other,) = blocks(plain), blocks(loaded)
    assert one.points[0].point_id != other.points[0].point_id
    assert "background" not in plain.workloads[0].columns


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (BURSTS + ECHO + 'background = "ofice"\n', "a.toml:16: workload.background is 'ofice'"),
        (ECHO + 'background = "office"\n', "must be one of none"),
        (ECHO + "background = []\n", "must have at least one label"),
        (ECHO + 'background = ["none", "none"]\n', "more than once"),
        (FLOOD + ECHO + ECHO + 'background = "flood"\n', "a.toml:19: workload udp_echo-2 repeats"),
        (
            FLOOD + ECHO + 'background = ["none", "flood"]\n' + ECHO + 'background = "none"\n',
            "workload udp_echo-2 repeats udp_echo + none, with none beside both",
        ),
        (DELAY, "needs a background load: add a [[background]]"),
        (BURSTS + DELAY + 'background = "none"\n', "needs a background load"),
        (BURSTS.replace("office", "none") + ECHO, "which means no load"),
        (BURSTS + 'path = "around"\n' + ECHO, "must be inside or outside"),
        (BURSTS + "packet_rate = [1, 2]\n" + ECHO, "background has several values"),
        ('[[background]]\nkind = "latency_under_load"\n' + ECHO, "must be a kind of load"),
        ('[[background]]\nkind = "voip_capacity"\n' + ECHO, "must be a kind of load"),
        (
            '[[background]]\nkind = "rate_search"\npayload_bytes = 99\n' + ECHO,
            "must be a kind of load",
        ),
        ('[[background]]\nkind = "burst"\n' + ECHO, "background.kind is 'burst'"),
        (BURSTS + 'on_min = "4 s"\n' + ECHO, "on_max is"),
        (BURSTS + "ports = [80, 80]\n" + ECHO, "more than once"),
        (BURSTS + "colour = 1\n" + ECHO, "colour"),
    ],
)
def test_what_is_wrong_is_named(text: str, words: str) -> None:
    with pytest.raises(StudyError) as caught:
        parse_study(HEAD + text, "a.toml")
    assert words.replace("'", '"') in str(caught.value).replace("'", '"')


@pytest.mark.parametrize(
    "text",
    [
        'kind = "rate_search"\npayload_bytes = 64\nloss = 1e-8\n',
        'kind = "bursts"\npacket_rate = 1000000\nduration = "60 min"\n',
        'kind = "voip"\ncalls = 512\nduration = "60 min"\n',
        'kind = "voip_capacity"\nmost_calls = 512\nduration = "60 min"\n',
    ],
)
def test_more_packets_than_a_trial_may_have_are_refused(text: str) -> None:
    with pytest.raises(StudyError, match="packets a trial, at most 50000000 are allowed"):
        parse_study(f"{HEAD}[[workload]]\n{text}", "a.toml")
    label = 'label = "beside"\n'
    if not text.startswith(('kind = "rate_search"', 'kind = "voip_capacity"')):
        with pytest.raises(StudyError, match="background beside: would send"):
            parse_study(f"{HEAD}[[background]]\n{label}{text}{ECHO}", "a.toml")
