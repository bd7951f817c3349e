"""What a study gives of its own: programs, options, lines of files; each is used or refused."""

from pathlib import PurePosixPath
from typing import Any

import pytest
from pydantic import ValidationError

from made_study import one_workload
from tunnelmark.model.errors import RefusedError, StudyError
from tunnelmark.model.tunnel import Site
from tunnelmark.study import parse_study
from tunnelmark.tunnels.base import TunnelParams
from tunnelmark.tunnels.openvpn import OpenVpnParams, OpenVpnTunnel
from tunnelmark.tunnels.tailored import TailoredHost, Tailoring, reported
from tunnelmark.tunnels.tinc import TincParams, TincTunnel

OURS = Tailoring(
    words={"tool": "/usr/lib/tool", "helper": "helper"},
    programs={"tool": "/opt/tool"},
    options={"tool": ("--fast", "a b")},
    append={"tool.conf": "More = yes"},
)


def test_a_program_is_replaced_and_its_daemon_has_the_options(hosts: Any) -> None:
    host = TailoredHost(hosts[0], OURS)
    host.run(["/usr/lib/tool", "--version"])
    host.spawn(["unshare", "--pid", "/usr/lib/tool", "-c", "x"], name="tool")
    host.spawn(["other", "/usr/lib/tool"], name="other")
    host.put(PurePosixPath("/x/tool.conf"), b"A = 1")
    host.put(PurePosixPath("/x/more.conf"), b"B = 1", mode=0o644)
    assert hosts[0].ran[0][0] == ("/opt/tool", "--version")
    first, second = (process.argv for process in hosts[0].spawned)
    assert first == ("unshare", "--pid", "/opt/tool", "-c", "x", "--fast", "a b")
    assert second == ("other", "/usr/lib/tool")
    assert hosts[0].files == {
        PurePosixPath("/x/tool.conf"): (b"A = 1\nMore = yes\n", 0o600),
        PurePosixPath("/x/more.conf"): (b"B = 1", 0o644),
    }
    hosts[0].answer = lambda _argv, _stdin: (0, "0123456789abcdef0123  /opt/tool\n")
    assert reported(OURS, [host]) == {
        "program_tool": "/opt/tool (SHA-256 0123456789abcdef)",
        "options_tool": "--fast 'a b'",
        "appended_tool.conf": "More = yes",
    }


def test_options_lead_where_the_first_of_two_counts(hosts: Any) -> None:
    given = Tailoring(words={"ssh": "ssh"}, options={"ssh": ("-4",)}, lead=frozenset({"ssh"}))
    TailoredHost(hosts[0], given).spawn(["ssh", "-F", "x", "server"], name="ssh")
    assert hosts[0].spawned[0].argv == ("ssh", "-4", "-F", "x", "server")


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"programs": {"helper": "/x"}}, "gives the program helper, which this tunnel did not sta"),
        ({"options": {"helper": ("x",)}}, "gives options for helper, which this tunnel did not"),
        ({"append": {"x": "y"}}, "appends to x, a file that this tunnel does not write; it writes"),
    ],
)
def test_what_has_no_effect_is_refused(hosts: Any, given: Any, words: str) -> None:
    tailoring = Tailoring(words=OURS.words, **given)
    host = TailoredHost(hosts[0], tailoring)
    host.spawn(["/usr/lib/tool"], name="tool")
    with pytest.raises(RefusedError, match=words):
        reported(tailoring, [host])


def test_a_program_that_is_not_there_is_reported_before_anything_runs(hosts: Any) -> None:
    hosts[0].programs = {"openvpn", "ip", "ping"}
    hosts[0].kernel = {"tun"}
    params = OpenVpnParams.model_validate({"program": "/opt/openvpn"})
    assert OpenVpnTunnel(params).unavailable(hosts[0]) == (
        "/opt/openvpn, which the study gives as openvpn, is not a program here"
    )
    # It stands for the one on the PATH, which need not be there.
    hosts[0].programs = {"/opt/openvpn", "ip", "ping"}
    assert OpenVpnTunnel(params).unavailable(hosts[0]) is None


def test_the_driver_starts_what_the_study_gives(hosts: Any, site: Site) -> None:
    params = {"program": {"tincd": "/opt/tincd"}, "append": {"tinc.conf": "ReplayWindow = 8"}}
    tunnel = TincTunnel(TincParams.model_validate(params))

    def dies(process: Any) -> None:
        process.status = 1

    hosts[1].started = dies
    with pytest.raises(Exception, match="ended with status 1 before it could start"):
        tunnel.up(site)
    assert hosts[1].spawned[0].argv[0] == "/opt/tincd"
    text, _ = hosts[1].files[PurePosixPath("/fake/server/tinc-0/tinc.conf")]
    assert text.endswith(b"ReplayWindow = 8\n")


def test_with_options_or_lines_of_one_s_own_there_is_no_model() -> None:
    assert OpenVpnTunnel(OpenVpnParams.model_validate({"program": "/opt/openvpn"})).modelled
    assert not OpenVpnTunnel(OpenVpnParams.model_validate({"options": ["--fragment 9"]})).modelled
    assert not TincTunnel(TincParams.model_validate({"append": {"x": "y"}})).modelled


@pytest.mark.parametrize(
    "wrong",
    [
        {"program": "openvpn"},
        {"program": {"openvpn": "/opt/a b"}},
        {"options": ["--x 'y"]},
        {"options": [""]},
        {"append": {"x": 5}},
    ],
)
def test_what_is_no_program_option_or_text_is_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        TunnelParams.model_validate(wrong)


def test_columns_tell_it_only_where_it_is_given() -> None:
    assert not {"program", "options", "append"} & TunnelParams.model_validate({}).columns().keys()
    given = TunnelParams.model_validate({"program": "/opt/x", "options": ["-a"]}).columns()
    assert (given["program"], given["options"]) == ("/opt/x", '["-a"]')


STUDY = one_workload("")


def test_two_builds_are_two_tunnels_of_a_study() -> None:
    own = 'kind = "wireguard"\nprogram = ["/opt/a/wireguard-go", "/opt/b/wireguard-go"]\n'
    study = parse_study(STUDY + own, "mine.toml")
    assert [spec.params["program"] for spec in study.tunnels] == [
        "/opt/a/wireguard-go",
        "/opt/b/wireguard-go",
    ]
    assert len({spec.label for spec in study.tunnels}) == 2


def test_a_program_that_no_driver_starts_is_reported_at_its_line() -> None:
    with pytest.raises(StudyError, match=r"^mine.toml:12: tunnel .*program cannot be set"):
        parse_study(
            STUDY + 'kind = "wireguard"\nlabel = "w"\nprogram = { openvpn = "/opt/a" }\n',
            "mine.toml",
        )
    with pytest.raises(StudyError, match="options cannot be set"):
        parse_study(STUDY + 'kind = "vxlan"\noptions = ["-x"]\n', "mine.toml")
