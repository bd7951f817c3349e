"""Whatever a study varies has its figure and its columns, for workloads that nobody named here."""

import io
import json
from dataclasses import replace

import pytest
from rich.console import Console

from made_points import point
from tunnelmark.analysis.estimates import PointEstimates
from tunnelmark.model.metrics import METRICS
from tunnelmark.report.charts import Chart, chart
from tunnelmark.report.decision import Decision, decide
from tunnelmark.report.drawn import render
from tunnelmark.report.families import draw, families
from tunnelmark.report.figures import to_json
from tunnelmark.report.parameters import in_words, number, parameter
from tunnelmark.report.sections import across, sections
from tunnelmark.report.statements import OFFERED, statements_of
from tunnelmark.report.terminal import _figures
from tunnelmark.report.uses import Use, uses_of

RATE = "tcp_goodput_bit_s"


def drawn(points: list[PointEstimates]) -> tuple[tuple[Chart, ...], tuple[str, ...]]:
    (family,) = families(points)
    return draw(family, key="k", order=["none", "a"], fragmentation={"a": 1400})


def test_a_parameter_with_several_values_is_the_axis() -> None:
    points = [
        point(tunnel, {"parallel": n, "direction": "forward"}, {RATE: (n * 1e6, 1e5)})
        for tunnel in ("none", "a")
        for n in (4, 1, 2)
    ]
    (family,) = families(points)
    assert (family.axis, family.headings) == ("parallel", ("parallel",))
    (figure,), notes = drawn(points)
    assert [line.name for line in figure.lines] == ["none", "a"]
    assert [dot.x for dot in figure.lines[0].dots] == [1, 2, 4]
    assert figure.lines[0].dots[0].value == pytest.approx(1.0)
    assert figure.lines[0].dots[0].low == pytest.approx(0.9)
    assert figure.lines[0].dots[0].high == pytest.approx(1.1)
    assert figure.y_title == "TCP goodput [Mbit/s]"
    assert notes == ()


def test_words_are_an_axis_too() -> None:
    points = [point("a", {"corpus": c}, {RATE: (1e6, 1e5)}) for c in ("photo", "audio")]
    figures, _ = drawn(points)
    assert figures[0].categories == ("audio", "photo")
    assert figures[0].joined


def test_a_second_parameter_gives_a_figure_for_each_value() -> None:
    points = [
        point("a", {"payload_bytes": size, "gap_ns": gap}, {"rtt_p50_ns": (size + gap, 1)})
        for size in (64, 512, 1500)
        for gap in (1_000_000, 5_000_000)
    ]
    figures, _ = drawn(points)
    assert [f.title for f in figures] == ["RTT, median, gap 1 ms", "RTT, median, gap 5 ms"]
    assert [mark.x for mark in figures[0].marks] == [1400]


def test_without_a_varied_parameter_tunnels_are_the_axis() -> None:
    points = [point(t, {"parallel": 1}, {RATE: (1e6, 1e5)}) for t in ("none", "a")]
    (figure,), _ = drawn(points)
    assert (figure.categories, figure.joined) == (("none", "a"), False)
    assert figure.named_on_axis
    layout = json.loads(to_json(figure))["layout"]
    assert layout["showlegend"] is False
    assert layout["xaxis"]["range"] == [-0.5, 1.5]


def test_points_that_share_no_curve_are_distinguished_by_name() -> None:
    points = [
        point("a", {"parallel": 1, "direction": "forward"}, {RATE: (1e6, 1e5)}),
        point("a", {"parallel": 4, "direction": "reverse"}, {RATE: (2e6, 1e5)}),
    ]
    (figure,), _ = drawn(points)
    assert figure.categories is not None
    assert len(figure.categories) == 2


def test_nothing_at_all_is_said_in_words() -> None:
    points = [
        point("a", {"payload_bytes": n}, {"loss_forward_ratio": (0.0, 0.0)}) for n in (64, 512)
    ]
    figures, notes = drawn(points)
    assert figures == ()
    assert notes == ("Loss, forward: 0 % at every point.",)


def test_a_family_without_a_headline_shows_its_first_figures() -> None:
    (family,) = families(
        [point("a", {}, {"search_s": (1.0, 0.1), "cpu_tunnel_ratio": (0.1, 0.01)})]
    )
    assert not METRICS["search_s"].headline
    assert "search_s" in family.metrics


def test_every_kind_of_workload_has_its_own_part() -> None:
    points = [
        point("a", {"payload_bytes": 64}, {"rtt_p50_ns": (1e6, 1)}, kind="udp_echo"),
        point("a", {"parallel": 1}, {RATE: (1e6, 1)}),
        point("a", {}, {"search_s": (1, 0.1)}, kind="not_known_here"),
    ]
    (section,) = sections(points, ())
    assert [part.title for part in section.parts] == [
        "UDP echo",
        "TCP bulk transfer",
        "not_known_here",
    ]


def test_devices_are_set_beside_each_other() -> None:
    points = [
        point("a", {"payload_bytes": n}, {"goodput_bit_s": (n, 1)}, device=device)
        for n in (64, 512)
        for device in ("pi-3", "pi-b")
    ]
    (figure,) = across(points)
    assert [line.name for line in figure.lines] == ["pi-3", "pi-b"]
    assert across([p for p in points if p.device == "pi-3"]) == ()


def decided(points: list[PointEstimates]) -> Decision:
    parts = sections(points, ())
    (found,) = decide(parts, (), statements_of(parts, confidence=0.95, moments=1))
    return found


def use(points: list[PointEstimates]) -> Use:
    parts = sections(points, ())
    (found,) = uses_of(parts, (), statements_of(parts, confidence=0.95, moments=1))
    return found


def test_who_leads_is_said_only_where_intervals_are_clear() -> None:
    def found(half: float) -> Use:
        points = [
            point("none", {}, {RATE: (9e6, 1.0)}),
            point("a", {}, {RATE: (8e6, half)}, changed=-0.11),
            point("b", {}, {RATE: (7e6, half)}, changed=-0.22),
        ]
        return use(points)

    clear = found(1e5)
    assert (clear.recommended, clear.clear, clear.recommendation) == (("a",), True, "a")
    assert clear.better_by.startswith("TCP goodput +14.1 % [")
    assert clear.better_by.endswith("] against b")
    unclear = found(1e6)
    assert (unclear.recommended, unclear.clear) == (("a", "b"), False)
    assert unclear.recommendation == "no tunnel is clearly best: a or b"
    assert unclear.better_by == "TCP goodput: no clear difference between a and b"
    assert unclear.unknown.startswith("which of a and b is better")


def test_tunnels_of_different_blocks_are_compared_by_their_own_baselines() -> None:
    """The second block ran on a machine half as fast: its tunnel costs as little."""
    points = [
        point("none", {}, {RATE: (9e6, 1.0)}),
        point("a", {}, {RATE: (8e6, 1e4)}, changed=-0.11),
        point("b", {}, {RATE: (4e6, 1e4)}, changed=-0.11),
    ]
    assert use(points).recommended == ("a", "b")


@pytest.mark.parametrize(
    ("programs", "above", "said"),
    [
        (
            0.12,
            0.14,
            "12.0 ±1.0 % of one core (its programs), 14.0 ±1.0 % above no tunnel (whole machine)",
        ),
        (
            0.12,
            0.005,
            (
                "12.0 ±1.0 % of one core (its programs), "
                "no clear difference from no tunnel (whole machine)"
            ),
        ),
        (0.12, None, "12.0 ±1.0 % of one core (its programs)"),
        (None, 0.14, "14.0 ±1.0 % of one core above no tunnel (whole machine)"),
        (None, 0.005, "no clear difference from no tunnel (whole machine)"),
        (None, None, None),
    ],
)
def test_a_tunnel_has_the_cpu_of_its_programs_and_what_the_machine_used_above_no_tunnel(
    programs: float | None, above: float | None, said: str | None
) -> None:
    figures = {OFFERED: (8e6, 1.0), "cpu_lab_ratio": (0.2, 0.01)}
    if programs is not None:
        figures["cpu_tunnel_ratio"] = (programs, 0.01)
    assert decided([point("a", {}, figures, changed=above)]).choices[0].cpu == (
        "-" if said is None else f"{said} at 8.0 Mbit/s"
    )


def test_the_cpu_is_that_of_the_point_which_carried_most_on_its_device() -> None:
    def figures(rate: float, share: float) -> dict[str, tuple[float, float]]:
        return {OFFERED: (rate, 1.0), "cpu_device_client_ratio": (share, 0.01)}

    points = [
        point("a", {"payload_bytes": size}, figures(rate, share), kind="udp_echo")
        for size, rate, share in ((64, 1e6, 0.9), (1400, 9e6, 0.4))
    ]
    assert use(points).cpu == "40.0 ±1.0 % of the client's device at 9.0 Mbit/s"


def test_what_has_no_valid_trial_is_not_known() -> None:
    points = [
        point("none", {}, {RATE: (9e6, 1.0)}),
        point("fine", {}, {RATE: (4e6, 1e4)}, changed=-0.5),
        replace(point("late", {}, {}), valid=0, invalid=3),
    ]
    found = use(points)
    assert found.recommended == ("fine",)
    assert "points without a valid trial, of late" in found.unknown
    assert use([points[0], points[2]]).recommendation == "none: no valid trial"


def test_what_carries_nothing_is_never_recommended() -> None:
    points = [
        point("none", {}, {RATE: (9e6, 1.0)}),
        point("fine", {}, {RATE: (4e6, 1e4)}, changed=-0.5),
        replace(point("dead", {}, {}), valid=5, dead=5),
    ]
    found = use(points)
    assert found.recommended == ("fine",)
    assert use(points[::2]).recommendation == "none: no tunnel carried every point"


@pytest.mark.parametrize(
    ("programs", "above", "said"),
    [
        (0.4, 0.5, ["40.0±1.0", "+50.0±1.0"]),
        (0.4, 0.005, ["40.0±1.0", "unclear"]),
        (0.4, None, ["40.0±1.0"]),
        (None, 0.3, ["+30.0±1.0"]),
        (None, 0.005, ["unclear"]),
        (None, None, []),
    ],
)
def test_the_terminal_has_the_cpu_of_programs_and_of_the_whole_machine_each_by_its_name(
    programs: float | None, above: float | None, said: list[str]
) -> None:
    figures = {RATE: (1e6, 1.0), "cpu_lab_ratio": (0.9, 0.1)}
    if programs is not None:
        figures["cpu_tunnel_ratio"] = (programs, 0.01)
    (section,) = sections([point("a", {}, figures, changed=above)], ())
    console = Console(width=100, file=io.StringIO(), record=True)
    console.print(_figures("there", section.parts[0], 100))
    text = console.export_text()
    row = next(line for line in text.splitlines() if line.startswith("a "))
    assert row.split()[-1 - len(said) : -1] == said
    assert ("programs" in text) == (programs is not None)
    assert ("whole" in text) == (above is not None)
    caption = "unclear: no clear difference from no tunnel"
    assert (caption in " ".join(text.split())) == ("unclear" in said)


@pytest.mark.parametrize("in_kernel", [False, True])
def test_a_narrow_terminal_has_the_machine_s_cpu_where_a_tunnel_has_no_other(
    *, in_kernel: bool
) -> None:
    figures = {RATE: (1e6, 1.0), "rtt_p50_ns": (2e6, 1e3), "cpu_lab_ratio": (0.9, 0.1)}
    programs = {**figures, "cpu_tunnel_ratio": (0.4, 0.01)}
    points = [point("a", {}, programs, changed=0.5)]
    points += [point("b", {}, figures, changed=0.5)] if in_kernel else []
    (section,) = sections(points, ())
    console = Console(width=49, file=io.StringIO(), record=True)
    console.print(_figures("there", section.parts[0], 49))
    text = console.export_text()
    assert ("+50.0" in text, "goodput" in text) == (in_kernel, not in_kernel)


def test_a_column_that_has_no_room_is_not_explained() -> None:
    figures = {RATE: (1e6, 1.0), "rtt_p50_ns": (2e6, 1e3), "cpu_tunnel_ratio": (0.4, 0.01)}
    figures["cpu_lab_ratio"] = (0.9, 0.1)
    (section,) = sections([point("a", {}, figures, changed=0.005)], ())
    texts = []
    for width in (100, 49):
        console = Console(width=width, file=io.StringIO(), record=True)
        console.print(_figures("there", section.parts[0], width))
        texts.append(" ".join(console.export_text().split()))
    assert ["unclear: " in text for text in texts] == [True, False]
    assert ["more columns" in text for text in texts] == [False, True]


def test_the_limit_of_a_cpu_is_that_of_a_thread_or_core_and_not_of_a_sum() -> None:
    def said(**figures: float) -> str:
        points = [point("a", {}, {name: (value, 0.001) for name, value in figures.items()})]
        return decided(points).choices[0].breaks

    # Two threads at 60 % are no limit.
    assert said(cpu_client_ratio=1.2, cpu_tunnel_thread_max_ratio=0.6) == (
        "no failure at the offered loads"
    )
    for name in ("cpu_tunnel_thread_max_ratio", "cpu_core_max_ratio"):
        assert said(**{name: 0.97}).startswith("a thread or core at its limit: ")


def test_what_breaks_first_names_the_first_point_that_loses() -> None:
    points = [
        point(
            "a",
            {"payload_bytes": size},
            {"loss_forward_ratio": (0.2, 0.01)},
            kind="udp_echo",
            changed=0.2 if size > 64 else 0.0,
        )
        for size in (64, 512, 1400)
    ]
    decision = decided(points)
    assert decision.choices[0].breaks == "loses more than no tunnel: 512 bytes and 1 more"


def test_a_loss_that_is_not_decided_is_not_called_nothing() -> None:
    points = [
        point(
            "a",
            {"payload_bytes": size},
            {"loss_forward_ratio": (0.2, 0.01)},
            kind="udp_echo",
            changed=0.2 if size > 64 else 0.0,
        )
        for size in (64, 512, 1400)
    ]
    (decision,) = decide(sections(points, ()), (), ())
    assert decision.choices[0].breaks == (
        "may lose more than no tunnel, with too few repeats to decide: 512 bytes and 1 more"
    )


@pytest.mark.parametrize("form", ["svg", "pdf"])
def test_figures_for_print_are_the_same_every_time_and_have_their_fonts(form: str) -> None:
    points = [
        point(tunnel, {"parallel": n}, {RATE: (n * 1e6, 1e5)}) for tunnel in "ab" for n in (1, 2)
    ]
    figure = chart(points, RATE, "parallel", key="k", title="costs $1 & more$ <b>")
    assert figure is not None
    first = render(figure, form)  # type: ignore[arg-type]
    assert first == render(figure, form)  # type: ignore[arg-type]
    if form == "svg":
        assert b"<text" not in first
    else:
        assert b"/FontFile2" in first


def test_an_interval_far_beyond_every_estimate_is_cut_off() -> None:
    points = [point("a", {"parallel": n}, {RATE: (n * 1e6, 1e9)}) for n in (1, 2)]
    figure = chart(points, RATE, "parallel", key="k")
    assert figure is not None
    assert figure.top == pytest.approx(5.0)
    assert json.loads(to_json(figure))["layout"]["yaxis"]["range"] == [-0.5, 5.0]
    narrow = [point("a", {"parallel": n}, {RATE: (n * 1e6, 1e5)}) for n in (1, 2)]
    figure = chart(narrow, RATE, "parallel", key="k")
    assert figure is not None
    assert figure.top is None


def test_no_axis_is_drawn_for_the_last_digits_of_a_figure() -> None:
    points = [point("a", {"parallel": n}, {RATE: (7e6 + n * 1e-9, 0)}) for n in (0, 1)]
    figure = chart(points, RATE, "parallel", key="k")
    assert figure is not None
    assert figure.constant == 7.0


def test_labels_cannot_leave_a_figure() -> None:
    evil = "</script><a href='http://example.org'>x"
    points = [point(evil, {"parallel": n}, {RATE: (n * 1e6, 1e5)}) for n in (1, 2)]
    figure = chart(points, RATE, "parallel", key="k", title=evil)
    assert figure is not None
    text = to_json(figure)
    assert "<" not in text
    assert json.loads(text)["data"][0]["name"].startswith("&lt;/script&gt;")


@pytest.mark.parametrize(
    ("name", "value", "words", "on_axis"),
    [
        ("payload_bytes", 64, "64 bytes", 64),
        ("gap_ns", 5_000_000, "5 ms", 5),
        ("rate_bit_s", 8_000_000, "8 Mbit/s", 8),
        ("rate_packet_s", 100, "100 packets/s", 100),
        ("load_ratio", 0.1, "10 %", 10),
        ("content", "random", "random", None),
        ("lzo", True, "yes", None),
    ],
)
def test_parameters_have_their_unit(
    name: str, value: str | float | bool, words: str, on_axis: float | None
) -> None:
    assert in_words(name, value) == words
    assert number(name, value) == on_axis


def test_a_heading_has_the_unit() -> None:
    assert parameter("payload_bytes").heading == "payload size [bytes]"
    assert parameter("server.threads").heading == "server threads"


def test_further_figures_stand_under_what_they_are_about_and_none_is_left_out() -> None:
    figures = {
        "tcp_goodput_bit_s": (1.0, 0.1),
        "lost_forward_link_queue_ratio": (0.1, 0.01),
        "delay_forward_link_p50_ns": (1e6, 1e3),
        "wire_packet_mean_bytes": (900.0, 1.0),
        "cpu_softirq_ratio": (0.1, 0.01),
        "cpu_load_average": (0.5, 0.1),
        "paths_fairness_ratio": (1.0, 0.0),
    }
    (family,) = families([point("none", {}, figures), point("wg", {}, figures)])
    groups = dict(family.further_groups)
    assert sorted(name for names in groups.values() for name in names) == sorted(family.further)
    assert "lost_forward_link_queue_ratio" in groups["Where packets were lost"]
    assert "delay_forward_link_p50_ns" in groups["Delay by place"]
    assert list(groups)[-1] == "All other figures" or "All other figures" not in groups
