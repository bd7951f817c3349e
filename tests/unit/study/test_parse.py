"""Study files that are right, and the one line that each mistake is answered with."""

import re
import tomllib
from dataclasses import fields
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tunnelmark.model.errors import StudyError
from tunnelmark.model.suites import MachineSystem
from tunnelmark.study import Study, list_studies, load_study, parse_study
from tunnelmark.study.drivers import MOST_POINTS
from tunnelmark.study.parse import LARGEST_FILE_BYTES
from tunnelmark.tunnels.registry import tunnel_kinds

GOOD = """\
format = 1
name = "a-study"
title = "A study"

[precision]
metric = "goodput_bit_s"
relative_half_width = "5 %"
min_repeats = 3
max_repeats = 10

[[tunnel]]
kind = "openvpn"
cipher = "AES-256-GCM"

[[link]]
kind = "serial"
rate = "8 Mbit/s"
delay = "20.5 ms"

[[workload]]
kind = "udp_echo"
gap = "5 ms"
packets = 200
payload_bytes = [
  64,
  1473,
]
"""


def parse(text: str) -> Study:
    return parse_study(text, "a.toml")


def complaint(text: str) -> str:
    with pytest.raises(StudyError) as caught:
        parse(text)
    return str(caught.value)


def with_line(old: str, new: str) -> str:
    assert GOOD.count(old) == 1
    return GOOD.replace(old, new)


def test_a_study_is_frozen_and_typed() -> None:
    study = parse(GOOD)
    assert study.precision.relative_half_width == 0.05
    assert [spec.label for spec in study.tunnels] == ["openvpn-aes-256-gcm"]
    assert [spec.label for spec in study.links] == ["serial-8mbit/s-20.5ms"]
    assert [spec.label for spec in study.workloads] == ["udp_echo 64", "udp_echo 1473"]
    assert study.workloads[1].params == {"gap": "5 ms", "packets": 200, "payload_bytes": 1473}
    assert study.workloads[1].columns["gap_ns"] == 5_000_000
    assert study.workloads[1].columns["payload_bytes"] == 1473
    assert study.links[0].columns["rate_bit_s"] == 8_000_000
    assert [spec.kind for spec in study.devices] == ["host"]
    assert study.text == GOOD
    with pytest.raises(AttributeError):
        study.seed = 2  # type: ignore[misc]


def test_a_percentile_of_all_paths_needs_their_pages_together() -> None:
    pages = with_line('metric = "goodput_bit_s"', 'metric = "web_page_p95_ns"')
    pages = pages[: pages.index("[[workload]]")] + '[[workload]]\nkind = "web"\npages = 20\n'
    words = "workload web: pages is 20, a 95th percentile needs at least 60: load more"
    assert words in complaint(pages)
    tunnel = 'cipher = "AES-256-GCM"\n'
    assert parse(pages.replace(tunnel, f"{tunnel}count = 4\n")).workloads
    # The tunnel with the fewest paths decides.
    other = f'{tunnel}[[tunnel]]\nkind = "wireguard"\ncount = 4\n'
    assert words in complaint(pages.replace(tunnel, other))
    other = f"{tunnel}count = 2\n{other.removeprefix(tunnel)}"
    assert "pages is 20 on each of 2 paths" in complaint(pages.replace(tunnel, other))


def test_a_device_is_chosen_by_kind_and_varied_like_everything() -> None:
    study = parse(
        GOOD + '\n[[device]]\nkind = "pi-3"\ncalibrate = ["BF-CBC", "system calls"]\n'
        '[[device]]\nkind = "host"\n'
    )
    assert [spec.label for spec in study.devices] == ["pi-3-bf-cbc", "pi-3-systemcalls", "host"]
    assert study.devices[0].columns == {"endpoint": "client", "calibrate": "BF-CBC"}


def test_a_router_is_part_of_the_study() -> None:
    assert parse(GOOD).topology.router == "none"
    assert parse(GOOD + '\n[topology]\nrouter = "nat"\n').topology.router == "nat"
    line = GOOD.count("\n") + 3
    assert complaint(GOOD + '\n[topology]\nrouter = "natt"\n') == (
        f'a.toml:{line}: topology.router is "natt", must be one of none, routed, nat, did you '
        "mean nat?"
    )


def test_the_place_names_the_system_of_its_machines() -> None:
    place = parse(GOOD + '[place]\nsuite = "trixie"\nkernel = "6.17.0-mine+"\n').place
    assert place.system == MachineSystem("trixie", "6.17.0-mine+")
    assert not parse(GOOD).place.system.is_named


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ('suite = "sid"', "place.suite is 'sid', must be "),
        ("suite = 13", "place.suite is 13, must be "),
        ('suite = ["trixie"]', "place.suite is "),
        ('suites = "trixie"', "place.suites is not a key of this place, did you mean suite?"),
        ('kernel = "../6.1"', "place.kernel is '../6.1'"),
        ('kernel = ""', "place.kernel is ''"),
    ],
)
def test_a_suite_that_does_not_exist_is_refused(line: str, words: str) -> None:
    found = complaint(f"{GOOD}[place]\n{line}\n")
    assert found.startswith(f"a.toml:{len(GOOD.splitlines()) + 2}: ")
    assert words.replace("'", '"') in found.replace("'", '"')


def test_an_unknown_device_is_refused_with_its_place() -> None:
    line = GOOD.count("\n") + 3
    assert complaint(GOOD + '\n[[device]]\nkind = "pi-33"\n') == (
        f'a.toml:{line}: device.kind is "pi-33", must be one of host, pc-300mhz, pc-1700mhz, '
        "core2duo-1870, amd-e450, pi-zero, pi-b, pi-2, pi-3, pi-4, pi-5, mt7621, n100, did you "
        "mean pi-3?"
    )
    assert complaint(GOOD + '\n[[device]]\nkind = "pi-5"\ncalibrate = "SHA1"\n') == (
        f'a.toml:{line + 1}: device.calibrate is "SHA1", must be one of tunnel cipher, '
        "AES-128-CBC, AES-256-CBC, AES-256-GCM, ChaCha20-Poly1305, system calls"
    )
    assert "device.endpoint is not a key of this device" in complaint(
        GOOD + '\n[[device]]\nkind = "host"\nendpoint = "client"\n'
    )


@pytest.mark.parametrize(
    ("old", "new", "wanted"),
    [
        (
            'cipher = "AES-256-GCM"',
            'cypher = "AES-256-GCM"',
            "a.toml:13: tunnel.cypher is not a key of this tunnel, did you mean cipher?",
        ),
        (
            'cipher = "AES-256-GCM"',
            'cipher = "AES-256-GMC"',
            (
                'a.toml:13: tunnel.cipher is "AES-256-GMC", must be one of BF-CBC, AES-128-CBC, '
                "AES-256-CBC, AES-128-GCM, AES-256-GCM, CHACHA20-POLY1305, did you mean "
                "AES-256-GCM?"
            ),
        ),
        (
            'cipher = "AES-256-GCM"',
            "count = 65",
            "a.toml:13: tunnel.count is 65, must be at most 64",
        ),
        (
            'cipher = "AES-256-GCM"',
            'count = "2"',
            'a.toml:13: tunnel.count is "2", must be a whole number',
        ),
        (
            'cipher = "AES-256-GCM"',
            "count = true",
            "a.toml:13: tunnel.count is true, must be a whole number",
        ),
        (
            'cipher = "AES-256-GCM"',
            "count = [1, 2, 65]",
            "a.toml:13: tunnel.count is 65, must be at most 64",
        ),
        (
            'cipher = "AES-256-GCM"',
            "count = [1, 2, 1]",
            "a.toml:13: tunnel.count has 1 more than once",
        ),
        (
            'cipher = "AES-256-GCM"',
            "count = []",
            "a.toml:13: tunnel.count is an empty list, must have at least one value",
        ),
        (
            'cipher = "AES-256-GCM"',
            "count = 2026-11-21",
            "a.toml:13: tunnel.count is 2026-11-21, must be a single value",
        ),
        (
            'kind = "openvpn"',
            'kind = "openpvn"',
            (
                f'a.toml:12: tunnel.kind is "openpvn", must be one of {", ".join(tunnel_kinds())}, '
                "did you mean openvpn?"
            ),
        ),
        (
            'rate = "8 Mbit/s"',
            'rate = "8 Mbps"',
            (
                "a.toml:17: link.rate is \"8 Mbps\", which has the unit 'Mbps'; known: bit/s, "
                "kbit/s, Mbit/s, Gbit/s"
            ),
        ),
        (
            'rate = "8 Mbit/s"',
            'rate = "0 Mbit/s"',
            'a.toml:17: link.rate is "0 Mbit/s", must be more than 0',
        ),
        (
            'rate = "8 Mbit/s"\n',
            "",
            "a.toml:15: link.rate is missing",
        ),
        (
            'delay = "20.5 ms"',
            'delay = "2 min"',
            'a.toml:18: link.delay is "2 min", must be at most 60 s',
        ),
        (
            'gap = "5 ms"',
            'gap = "0 ms"',
            'a.toml:22: workload.gap is "0 ms", must be at least 1 us',
        ),
        (
            'gap = "5 ms"',
            "gap = 5",
            "a.toml:22: workload.gap is 5, which has no unit; write it as '5 ms'",
        ),
        (
            'delay = "20.5 ms"',
            'delay = "20.5 ms"\nloss_forward = "1"',
            (
                "a.toml:19: link.loss_forward is \"1\", which has no unit; write it as '2 %', or "
                "as a number below 1 (0.02 is 2 %)"
            ),
        ),
        (
            'delay = "20.5 ms"',
            'delay = "20.5 ms"\nloss_reverse = [0.01, 1]',
            "a.toml:19: link.loss_reverse is 1, which has no unit; write it as '2 %', or as",
        ),
        (
            'relative_half_width = "5 %"',
            "relative_half_width = 5",
            "a.toml:7: precision.relative_half_width is 5, which has no unit; write it as '2 %'",
        ),
        (
            "  1473,",
            "  65508,",
            "a.toml:26: workload.payload_bytes is 65508, must be at most 65507",
        ),
        (
            "packets = 200",
            'packets = 200\nduration = "1 s"',
            "a.toml:20: workload needs either packets or duration",
        ),
        (
            'relative_half_width = "5 %"',
            'relative_half_width = "0 %"',
            'a.toml:7: precision.relative_half_width is "0 %", must be more than 0',
        ),
        (
            'metric = "goodput_bit_s"',
            'metric = "goodput"',
            (
                'a.toml:6: precision.metric is "goodput", which is not a metric, '
                "did you mean goodput_bit_s?"
            ),
        ),
        (
            "max_repeats = 10",
            "max_repeats = 2",
            "a.toml:9: precision.max_repeats is 2, must be at least min_repeats, 3",
        ),
        ("[precision]", "[precison]", "a.toml:5: precison is not a key of a study, did you mean "),
        ("[[link]]", "[link]", "a.toml:15: link must be written as [[link]]"),
        ("format = 1", "format = 2", "a.toml:1: format is 2, must be 1"),
        ("format = 1\n", "", "a.toml:1: format is missing, must be 1"),
        ('name = "a-study"', 'name = "../x"', 'a.toml:2: name is "../x", must be 1 to 64 lower'),
        ('name = "a-study"', 'name = "x\\n"', 'a.toml:2: name is "x\\n", must be 1 to 64 lower'),
        ('title = "A study"', "title = 5", "a.toml:3: title is 5, must be a string"),
        ("[precision]", "seed = -1\n[precision]", "a.toml:5: seed is -1, must be 0 to "),
        ("[precision]", "seed = 1.5\n[precision]", "a.toml:5: seed is 1.5, must be 0 to "),
        ('title = "A study"', "title = ", "a.toml:3: invalid value"),
        ('title = "A study"', 'name = "b"', "a.toml:3: cannot overwrite a value"),
    ],
)
def test_a_mistake_is_named_with_its_place(old: str, new: str, wanted: str) -> None:
    found = complaint(with_line(old, new))
    assert found.startswith(wanted)
    assert "\n" not in found
    assert not found.endswith(".")


def test_a_label_is_plain_and_taken_once() -> None:
    second = '\n[[tunnel]]\nkind = "wireguard"\nlabel = "openvpn-aes-256-gcm"\n'
    assert complaint(GOOD + second) == (
        'a.toml:31: tunnel.label is "openvpn-aes-256-gcm", which is taken'
    )
    assert "must be 1 to 64 letters" in complaint(with_line("packets", 'label = "\\n"\npackets'))


def test_the_same_driver_twice_is_refused_however_it_is_written() -> None:
    again = '\n[[link]]\nkind = "serial"\nrate = "8000 kbit/s"\ndelay = "20500 us"\nlabel = "x"\n'
    assert complaint(GOOD + again) == ("a.toml:29: link x repeats serial-8mbit/s-20.5ms")


def test_generated_labels_are_made_unique() -> None:
    text = GOOD + '\n[[tunnel]]\nkind = "openvpn"\ncipher = "AES-256-GCM"\nauth = "SHA512"\n'
    text = text.replace('cipher = "AES-256-GCM"\n\n', 'cipher = "AES-256-GCM"\nlabel = "a"\n\n')
    labels = [spec.label for spec in parse(text).tunnels]
    assert labels == ["a", "openvpn-aes-256-gcm-sha512"]
    twins = GOOD + '\n[[link]]\nkind = "serial"\nrate = "8 MBIT/S"\n'.replace("MBIT/S", "Mbit/s")
    twins += 'delay = "20.5 ms"\nreorder = true\nmtu = 1400\n'
    assert len({spec.label for spec in parse(twins).links}) == 2


def test_every_parameter_of_every_driver_can_be_varied() -> None:
    study = parse(with_line('cipher = "AES-256-GCM"', 'cipher = ["BF-CBC", "AES-256-GCM"]'))
    assert [spec.label for spec in study.tunnels] == ["openvpn-bf-cbc", "openvpn-aes-256-gcm"]
    study = parse(with_line('rate = "8 Mbit/s"', 'rate = ["2 Mbit/s", "8 Mbit/s"]\nlabel = "wan"'))
    assert [spec.label for spec in study.links] == ["wan-2mbit/s", "wan-8mbit/s"]


def test_a_preset_gives_what_the_table_does_not() -> None:
    link = '[[link]]\nkind = "serial"\nrate = "8 Mbit/s"\ndelay = "20.5 ms"\n'
    preset = '[[link]]\npreset = "serial-8m-41ms"\nloss_forward = "2 %"\n'
    spec = parse(GOOD.replace(link, preset)).links[0]
    assert spec.label == "serial-8m-41ms"
    assert spec.params["rate"] == "8 Mbit/s"
    assert spec.columns["loss_forward_ratio"] == 0.02
    wrong = GOOD.replace(link, '[[link]]\npreset = "serial-8m-14ms"\n')
    assert complaint(wrong).endswith(", did you mean serial-8m-41ms?")
    both = GOOD.replace(link, '[[link]]\nkind = "serial"\npreset = "serial-8m-41ms"\n')
    assert complaint(both) == ("a.toml:16: link has both preset and kind; a preset sets the kind")
    assert "tunnel has no presets" in complaint(with_line("cipher =", "preset ="))


def test_a_metric_that_a_workload_does_not_give_is_refused() -> None:
    found = complaint(with_line('metric = "goodput_bit_s"', 'metric = "overhead_bytes"') + "x = 1")
    assert "workload.x is not a key" in found
    assert parse(with_line('metric = "goodput_bit_s"', 'metric = "cpu_client_ratio"'))


def test_more_tunnels_than_packets_are_refused() -> None:
    text = with_line('cipher = "AES-256-GCM"', "count = 3").replace("packets = 200", "packets = 2")
    assert complaint(text) == (
        "a.toml:20: workload udp_echo 64: packets is 2, must be at least the 3 tunnels over "
        "which they are spread"
    )


def test_size_depth_and_points_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    long = GOOD + "#" * LARGEST_FILE_BYTES
    assert complaint(long) == f"a.toml: has {len(long)} bytes, must be at most {LARGEST_FILE_BYTES}"
    assert complaint(GOOD + "x = " + "[" * 9 + "]" * 9) == "a.toml: is nested more than 8 deep"
    assert "nested more than 8 deep" in complaint("x = " + "[" * 100_000)
    assert complaint(GOOD + ".".join("a" * 33) + " = 1").startswith("a.toml:")
    assert "key with more than 32 parts" in complaint(GOOD + ".".join("a" * 33) + " = 1")
    assert "too long" in complaint("x = " + "9" * 5000)
    sizes = ", ".join(map(str, range(25, 425)))
    wide = GOOD.replace("  64,\n  1473,\n", sizes).replace("200", f"[{sizes}]")
    assert f"varies over 160000 points, at most {MOST_POINTS} are allowed" in complaint(wide)
    # As many points as are allowed take seconds to check.
    monkeypatch.setattr("tunnelmark.study.parse.MOST_POINTS", 10_000)
    sizes = ", ".join(map(str, range(25, 6025)))
    deep = GOOD.replace("  64,\n  1473,\n", sizes)
    assert complaint(deep) == (
        "a.toml:1: the study has 12000 points in 1 blocks, at most 10000 points are allowed"
    )


def test_without_link_or_workload_there_is_no_study() -> None:
    without = GOOD[: GOOD.index("[[link]]")] + GOOD[GOOD.index("[[workload]]") :]
    assert complaint(without) == "a.toml:1: the study has no [[link]]"


def test_none_alone_is_a_study() -> None:
    study = parse(with_line('kind = "openvpn"\ncipher = "AES-256-GCM"', 'kind = "none"'))
    assert study.tunnels == ()
    study = parse(with_line('kind = "openvpn"\ncipher = "AES-256-GCM"', 'kind = "none"\ncount = 2'))
    assert [spec.columns for spec in study.tunnels] == [{"count": 2, "inner": "ipv4"}]
    beside = with_line("[[link]]", '[[tunnel]]\nkind = "none"\ncount = 2\n\n[[link]]')
    assert complaint(beside).startswith("a.toml:15: tunnel none has parameters")


def test_built_in_studies_load_by_name_and_all_others_by_path(tmp_path: Any) -> None:
    assert "quickstart" in list_studies()
    for name in list_studies():
        assert load_study(name).name == name
    path = tmp_path / "mine.toml"
    path.write_text(GOOD, encoding="utf-8")
    assert load_study(str(path)).text == GOOD
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(StudyError, match=r"mine\.toml: cannot be read"):
        load_study(str(path))
    with pytest.raises(StudyError, match="is neither a file nor a built-in study"):
        load_study("quickstrat")


LINES = GOOD.splitlines()


@settings(suppress_health_check=[HealthCheck.too_slow], max_examples=200, deadline=None)
@given(
    at=st.integers(0, len(LINES) - 1),
    new=st.one_of(
        st.text(max_size=30),
        st.sampled_from(LINES),
        st.builds(
            "{} = {}".format,
            st.sampled_from(["kind", "rate", "gap", "count", "label", "seed", "packets", "metric"]),
            st.sampled_from(
                [
                    "1",
                    "-1",
                    "1e400",
                    "inf",
                    "nan",
                    "true",
                    '""',
                    '"1 s"',
                    "[]",
                    "[1]",
                    "{}",
                    "{a = 1}",
                    "[[1]]",
                    "1979-05-27",
                    '"\\u0000"',
                    "9" * 400,
                    '["a", "b"]',
                ]
            ),
        ),
    ),
)
def test_whatever_is_written_there_is_a_study_or_one_line(at: int, new: str) -> None:
    text = "\n".join([*LINES[:at], new, *LINES[at + 1 :]]) + "\n"
    outcome = outcome_of(text)
    if isinstance(outcome, Study):
        assert tomllib.loads(text)
        assert all(getattr(outcome, field.name) is not None for field in fields(outcome))
        return
    assert re.match(r"^a\.toml(:\d+)?: [^\n]*[^.\n]$", outcome)
    line = re.match(r"^a\.toml:(\d+):", outcome)
    assert line is None or 1 <= int(line[1]) <= len(text.splitlines()) + 1


def outcome_of(text: str) -> Study | str:
    try:
        return parse(text)
    except StudyError as error:
        return str(error)


def test_a_metric_that_parameters_withhold_does_not_decide() -> None:
    text = """format = 1
name = "calls"
title = "Calls"
seed = 1
precision = { metric = "voip_mos_p50" }
[[link]]
kind = "serial"
rate = "8 Mbit/s"
delay = "20 ms"
[[workload]]
kind = "voip"
codec = "opus-24k"
"""
    assert complaint(text).startswith(
        "a.toml:10: workload voip: codec opus-24k has no published impairment"
    )
    for change in (
        ("opus-24k", "g711"),
        ("voip_mos_p50", "voip_mouth_to_ear_ns"),
        ('24k"', '24k"\nequipment_impairment = 10\nloss_robustness = 20'),
    ):
        assert parse_study(text.replace(*change), "a.toml").workloads
