"""Hypotheses of a study: what they freeze to, and the line that answers each mistake."""

import re
import tomllib
from pathlib import Path

import jsonschema
import pytest

from tunnelmark.model.errors import StudyError
from tunnelmark.model.hypothesis import Hypothesis, Margin, Range, Selection
from tunnelmark.study import parse_study
from tunnelmark.study.schema import study_schema

STUDY = """\
format = 1
name = "a-study"
title = "A study"

[[tunnel]]
kind = "openvpn"
cipher = ["AES-256-GCM", "AES-256-CBC"]
[[tunnel]]
kind = "wireguard"
label = "wg"

[[link]]
kind = "serial"
rate = "8 Mbit/s"
delay = "20.5 ms"

[[workload]]
kind = "udp_echo"
gap = ["1 ms", "5 ms"]
packets = 200
payload_bytes = [64, 512, 1473]

[[hypothesis]]
name = "h"
"""
FIRST_LINE = STUDY.count("\n")
"""Line of ``name``; the next is one further."""
TWO = 'groups = [{ tunnel = "wg" }, { tunnel = "none" }]\n'
SUPERIOR = 'kind = "superiority"\nmetric = "goodput_bit_s"\n' + TWO
SHAPE = 'kind = "shape"\nmetric = "goodput_bit_s"\nalong = "payload_bytes"\n'
THRESHOLD = 'kind = "threshold"\nmetric = "goodput_bit_s"\n'


def parsed(hypothesis: str) -> Hypothesis:
    text = STUDY + hypothesis
    jsonschema.Draft202012Validator(study_schema()).validate(tomllib.loads(text))
    return parse_study(text, "a.toml").hypotheses[0]


def complaint(hypothesis: str) -> str:
    with pytest.raises(StudyError) as caught:
        parse_study(STUDY + hypothesis, "a.toml")
    return str(caught.value)


def test_a_comparison_with_a_margin_and_a_place() -> None:
    found = parsed(
        'kind = "non_inferiority"\nmetric = "rtt_p50_ns"\nmargin = "5 %"\nclaim = "as good"\n'
        + TWO
        + 'where = { gap = "5 ms", payload_bytes = { from = 64, to = 600 } }\n'
    )
    assert found == Hypothesis(
        name="h",
        kind="non_inferiority",
        metric="rtt_p50_ns",
        claim="as good",
        groups=(Selection({"tunnel": ("wg",)}), Selection({"tunnel": ("none",)})),
        over=Selection(params={"gap_ns": (5_000_000,), "payload_bytes": Range(64, 600)}),
        better="lower",
        margin=Margin(0.05, relative=True),
    )


@pytest.mark.parametrize(
    ("metric", "written", "margin"),
    [
        ("goodput_bit_s", "2 Mbit/s", Margin(2e6, relative=False)),
        ("goodput_bit_s", "12.5 %", Margin(0.125, relative=True)),
        ("rtt_p50_ns", "0.5 ms", Margin(5e5, relative=False)),
        ("loss_forward_ratio", "2 points", Margin(0.02, relative=False)),
        ("loss_forward_ratio", "10 % relative", Margin(0.1, relative=True)),
        ("overhead_bytes", "32 byte", Margin(32, relative=False)),
        ("outer_packets", "1", Margin(1, relative=False)),
        ("cpu_cost_s_per_gib", "2 s/GiB", Margin(2, relative=False)),
    ],
)
def test_margins_have_the_unit_of_their_metric(metric: str, written: str, margin: Margin) -> None:
    text = f'kind = "equivalence"\nmetric = "{metric}"\nmargin = "{written}"\n{TWO}'
    assert parsed(text).margin == margin


@pytest.mark.parametrize(
    ("by", "margin", "wanted"),
    [
        ("-87.5 %", "5 %", Margin(-0.875, relative=True)),
        ("672 %", "5 %", Margin(6.72, relative=True)),
        ("-3 Mbit/s", "1 Mbit/s", Margin(-3e6, relative=False)),
    ],
)
def test_a_claimed_gain_may_be_a_loss(by: str, margin: str, wanted: Margin) -> None:
    text = f'kind = "equivalence"\nmetric = "goodput_bit_s"\nby = "{by}"\nmargin = "{margin}"\n'
    assert parsed(text + TWO).by == wanted


def test_orders_shapes_and_thresholds() -> None:
    order = parsed(
        'kind = "order"\nmetric = "goodput_bit_s"\n'
        'groups = [{ tunnel = "none" }, { tunnel = "wg" }, { tunnel = "openvpn*" }]\n'
    )
    assert [group.labels["tunnel"] for group in order.groups] == [
        ("none",),
        ("wg",),
        ("openvpn-aes-256-gcm", "openvpn-aes-256-cbc"),
    ]
    shape = parsed(SHAPE + 'shape = "falls_past"\nat = "fragmentation point"\n')
    assert (shape.along, shape.shape, shape.at) == (
        "payload_bytes",
        "falls_past",
        "fragmentation_point",
    )
    gap = (
        'kind = "shape"\nmetric = "goodput_bit_s"\nalong = "gap"\nshape = "peaks_at"\nat = "5 ms"\n'
    )
    assert (parsed(gap).along, parsed(gap).at) == ("gap_ns", 5e6)
    limit = parsed(THRESHOLD + 'at_least = "4.94 Mbit/s"\nof = "highest"\n')
    assert (limit.bound, limit.limit, limit.of) == ("at_least", 4.94e6, "highest")
    point = parsed(
        'kind = "threshold"\nmetric = "fragmentation_point_bytes"\nnear = "1438 byte"\n'
        'margin = "0 byte"\nwhere = { tunnel = "openvpn" }\n'
    )
    assert (point.limit, point.margin) == (1438, Margin(0, relative=False))


@pytest.mark.parametrize(
    ("text", "line", "message"),
    [
        (
            SUPERIOR + "margin = 5\n",
            4,
            'hypothesis.margin is 5, which has no unit; write it as "5 Mbit/s"',
        ),
        (
            SUPERIOR + 'margin = "5"\n',
            4,
            'hypothesis.margin is "5", which has no unit; write it as "5 Mbit/s"',
        ),
        (
            SUPERIOR + 'margin = "5 ms"\n',
            4,
            (
                "hypothesis.margin is \"5 ms\", has the unit 'ms'; goodput_bit_s can have bit/s, "
                "kbit/s, Mbit/s, Gbit/s, %"
            ),
        ),
        (
            SUPERIOR.replace("goodput_bit_s", "loss_forward_ratio") + 'margin = "5 %"\n',
            4,
            (
                'hypothesis.margin is "5 %", which is ambiguous, since loss_forward_ratio is '
                'itself a share: write "5 points" or "5 % relative"'
            ),
        ),
        (
            'kind = "equivalence"\nmetric = "goodput_bit_s"\n' + TWO,
            0,
            'hypothesis.margin is missing: equivalence needs it with its unit, such as "5 %"',
        ),
        (
            SUPERIOR.replace('"superiority"', '"superiorty"'),
            1,
            (
                'hypothesis.kind is "superiorty", must be one of superiority, non_inferiority, '
                "equivalence, order, shape, threshold, did you mean superiority?"
            ),
        ),
        (
            SUPERIOR.replace('"wg"', '"wgg"'),
            3,
            'hypothesis.groups.0.tunnel is "wgg", which the study does not have, did you mean wg?',
        ),
        (
            SUPERIOR.replace("goodput_bit_s", "goodput"),
            2,
            'hypothesis.metric is "goodput", which is not a metric, did you mean goodput_bit_s?',
        ),
        (
            SUPERIOR.replace("goodput_bit_s", "tcp_goodput_bit_s"),
            2,
            "hypothesis.metric is tcp_goodput_bit_s, which udp_echo do not give",
        ),
        (
            SUPERIOR + "where = { payload_bytes = 65 }\n",
            4,
            "hypothesis.where.payload_bytes is 65, a value that no workload of the study has",
        ),
        (
            SUPERIOR + "where = { payload_bytes = { from = 2000 } }\n",
            4,
            'hypothesis.where.payload_bytes is {"from": 2000}, a range in which the study has no',
        ),
        (
            SUPERIOR + "where = { gap = 5 }\n",
            4,
            "hypothesis.where.gap is 5, has no unit; write it as '5 ms'",
        ),
        (
            SUPERIOR + "where = { payload_byte = 64 }\n",
            4,
            "hypothesis.where.payload_byte is not part of a point, did you mean payload_bytes?",
        ),
        (SUPERIOR + 'along = "gap"\n', 4, "hypothesis.along has no meaning for superiority"),
        (SUPERIOR + "colour = 1\n", 4, "hypothesis.colour is not a key of this hypothesis"),
        (
            SUPERIOR.replace(', { tunnel = "none" }', ""),
            3,
            "hypothesis.groups are 1, must be two",
        ),
        (
            SUPERIOR.replace('"none"', '"wg"'),
            3,
            "hypothesis.groups has the same group twice",
        ),
        (
            SHAPE + 'shape = "falls_past"\n',
            4,
            'hypothesis.shape is "falls_past", which needs at',
        ),
        (
            SHAPE.replace("payload_bytes", "packets") + 'shape = "rises_with"\n',
            3,
            (
                'hypothesis.along is "packets", which the study does not vary; known: gap, '
                "payload_bytes"
            ),
        ),
        (
            'kind = "equivalence"\nmetric = "goodput_bit_s"\nby = "5 %"\nmargin = "1 Mbit/s"\n'
            + TWO,
            3,
            'hypothesis.by is "5 %", must have the same kind of unit as the margin',
        ),
        (
            'kind = "equivalence"\nmetric = "goodput_bit_s"\nby = "-80 %"\nmargin = "30 %"\n' + TWO,
            3,
            'hypothesis.by is "-80 %" with a margin of "30 %", must be above -70 %',
        ),
        (
            THRESHOLD,
            0,
            "hypothesis has none of at_least, at_most and near, a threshold needs one",
        ),
        (
            THRESHOLD + 'near = "5 Mbit/s"\n',
            0,
            "hypothesis.margin belongs to near, and near needs a margin",
        ),
        (
            THRESHOLD.replace("goodput_bit_s", "fragmentation_point_bytes") + "near = 1438\n"
            'margin = "0 byte"\n',
            3,
            'hypothesis.near is 1438, which has no unit; write it as "5 B"',
        ),
        (
            SUPERIOR.replace("goodput_bit_s", "wire_forward_bit_s"),
            0,
            "hypothesis.better is missing: neither direction of wire_forward_bit_s is better",
        ),
    ],
)
def test_mistakes_are_answered_with_place_value_and_remedy(
    text: str, line: int, message: str
) -> None:
    found = complaint(text)
    assert found.startswith(f"a.toml:{FIRST_LINE - (not line) + line}: {message}"), found


@pytest.mark.parametrize("loads_first", [True, False])
def test_a_name_that_two_workloads_have_means_the_one_with_such_a_value(
    *, loads_first: bool
) -> None:
    """``load`` of udp_load is a share of the link, that of udp_echo how paths share it."""
    head, echo = STUDY[: STUDY.index("[[workload]]")], STUDY[STUDY.index("[[workload]]") :]
    loads = '[[workload]]\nkind = "udp_load"\npayload_bytes = 64\nload = ["10 %", "50 %", "90 %"]\n'
    one, other = (loads, "") if loads_first else ("", loads)
    text = head + one + echo.replace("[[hypothesis]]", other + "[[hypothesis]]")
    rises = SHAPE.replace('"payload_bytes"', '"load"') + 'shape = "rises_with"\n'
    shape = parse_study(text + rises, "a").hypotheses[0]
    assert shape.along == "load_ratio"
    over = 'where = { load = "10 %" }\n'
    claim = parse_study(text + SUPERIOR + over, "a").hypotheses[0]
    assert claim.over.params == {"load_ratio": (0.1,)}
    with pytest.raises(StudyError, match="load is"):
        parse_study(text + SUPERIOR + over.replace("10 %", "11 %"), "a")


def test_names_are_unique() -> None:
    again = SUPERIOR + '[[hypothesis]]\nname = "h"\n' + SUPERIOR
    assert 'hypothesis.name is "h", which is taken' in complaint(again)


def test_a_smaller_scale_keeps_the_claims_of_the_whole_study() -> None:
    scale = "[scale.smoke.workload.udp_echo]\npayload_bytes = 64\n[[hypothesis]]\n"
    text = STUDY.replace("[[hypothesis]]\n", scale)
    text += SUPERIOR + "where = { payload_bytes = 64 }\n"
    text += '[[hypothesis]]\nname = "large"\n' + SUPERIOR + "where = { payload_bytes = 512 }\n"
    text += '[[hypothesis]]\nname = "label"\n' + SUPERIOR + 'where = { workload = "udp_echo*" }\n'
    whole = parse_study(text, "a.toml").hypotheses
    smoke = parse_study(text, "a.toml", "smoke").hypotheses
    assert [one.name for one in smoke] == ["h", "large", "label"]
    assert smoke[0] == whole[0]
    assert smoke[1].over == whole[1].over
    assert smoke[1].left_out == (
        "where.payload_bytes is 512, a value that no workload of the study has"
    )
    assert len(smoke[2].over.labels["workload"]) < len(whole[2].over.labels["workload"])


def test_the_example_of_the_documentation_is_one() -> None:
    page = Path(__file__).parents[3] / "docs" / "statistics.md"
    found = re.search(r"```toml\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL)
    assert found is not None
    text = STUDY.replace('[[hypothesis]]\nname = "h"\n', "").replace('label = "wg"\n', "")
    text = text.replace('delay = "20.5 ms"', 'delay = "20.5 ms"\nlabel = "8 Mbit/s 41 ms"')
    assert parse_study(text + found[1], "a.toml").hypotheses[0].kind == "non_inferiority"
