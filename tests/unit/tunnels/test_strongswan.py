"""Files for strongSwan, its last words, and what both ends must agree on."""

from dataclasses import replace
from pathlib import PurePosixPath
from typing import Any

import pytest

from tunnelmark.model.errors import TunnelError
from tunnelmark.tunnels.esp.sas import ChildSa, IkeSa
from tunnelmark.tunnels.esp.suites import SUITE_NAMES, Agreement, check_pair, esp_rule
from tunnelmark.tunnels.strongswan.charon import CHARON, Charon, last_words
from tunnelmark.tunnels.strongswan.config import render

CLIENT = ChildSa(
    name="esp0",
    state="INSTALLED",
    mode="TUNNEL",
    protocol="ESP",
    udp_encapsulation=False,
    ipcomp=False,
    spi_in="c1",
    spi_out="c2",
    encryption="AES_CBC",
    key_bits=128,
    integrity="HMAC_SHA1_96",
    local=("198.19.0.2/32",),
    remote=("198.19.0.1/32",),
)
SERVER = replace(CLIENT, spi_in="c2", spi_out="c1", local=CLIENT.remote, remote=CLIENT.local)
WANTED = Agreement(2, "tunnel", "AES-128-CBC-SHA1", udp_encapsulation=False, ipcomp=False)


def ike(*children: ChildSa, **other: Any) -> IkeSa:
    return replace(IkeSa("tm", 2, "ESTABLISHED", "AES_CBC/128", (), children), **other)


def checked(client: IkeSa, server: IkeSa, wanted: Agreement = WANTED) -> ChildSa:
    return check_pair(wanted, "esp0", ("the client", [client]), ("the server", [server]))[1]


def test_settings_are_nested_and_quoted() -> None:
    text = render({"charon": {"threads": 24, "plugins": {"vici": {"socket": "unix:///a b"}}}})
    assert text == (
        'charon {\n  threads = "24"\n  plugins {\n    vici {\n      socket = "unix:///a b"\n'
        "    }\n  }\n}\n"
    )
    assert render({"secrets": {}}) == "secrets {\n}\n"


@pytest.mark.parametrize("value", ['"', "a\nb", "\\", "\0", "x" * 1001])
def test_what_needs_escaping_is_refused_and_not_repeated(value: str) -> None:
    with pytest.raises(ValueError, match="the value of 'secret' has a character") as caught:
        render({"secret": f"hunter{value}"})
    assert "hunter" not in str(caught.value)


@pytest.mark.parametrize("name", ["", "a b", "a{", "x" * 61])
def test_a_name_that_is_none_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="is not a setting name"):
        render({name: 1})


def test_an_end_that_fell_back_from_ip_tfs_to_tunnel_mode_is_refused() -> None:
    wanted = replace(WANTED, mode="iptfs")
    client, server = (replace(one, mode="IPTFS") for one in (CLIENT, SERVER))
    assert checked(ike(client), ike(server), wanted) == client
    with pytest.raises(TunnelError, match="mode is 'TUNNEL', the study asks for 'IPTFS'"):
        checked(ike(client), ike(SERVER), wanted)


def test_both_ends_that_agree_pass() -> None:
    assert checked(ike(CLIENT), ike(SERVER)) == CLIENT


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"encryption": "NULL", "key_bits": None}, "encryption is 'NULL', the study asks for"),
        ({"key_bits": 256}, "the key length is 256, the study asks for 128"),
        ({"integrity": "HMAC_MD5_96"}, "the integrity is 'HMAC_MD5_96'"),
        ({"mode": "TRANSPORT"}, "the mode is 'TRANSPORT', the study asks for 'TUNNEL'"),
        ({"protocol": "AH"}, "the protocol is 'AH'"),
        ({"esn": True}, "whether sequence numbers are of 64 bits is True, the study asks for Fals"),
        ({"group": "ECP_256"}, "the group of ESP's key exchange is 'ECP_256', the study asks for"),
        ({"state": "REKEYED"}, "the state of ESP is 'REKEYED'"),
        ({"udp_encapsulation": True}, "UDP encapsulation is True, the study asks for False"),
        ({"ipcomp": True}, "compression is True, the study asks for False"),
    ],
)
@pytest.mark.parametrize("side", ["client", "server"])
def test_each_difference_is_an_error_at_either_end(
    side: str, change: dict[str, Any], words: str
) -> None:
    client, server = CLIENT, SERVER
    if side == "client":
        client = replace(client, **change)
    else:
        server = replace(server, **change)
    with pytest.raises(TunnelError) as caught:
        checked(ike(client), ike(server))
    assert str(caught.value).startswith(f"the {side}, association esp0: ")
    assert words in str(caught.value)


def test_the_other_version_of_ike_is_an_error() -> None:
    with pytest.raises(TunnelError, match=r"the IKE version is 1, the study asks for 2"):
        checked(ike(CLIENT, version=1), ike(SERVER))


def test_associations_that_are_not_each_other_s_are_an_error() -> None:
    with pytest.raises(TunnelError, match=r"is not that of the server \(SPI ff in, c1 out\)"):
        checked(ike(CLIENT), ike(replace(SERVER, spi_in="ff")))
    with pytest.raises(TunnelError, match="selectors"):
        checked(ike(CLIENT), ike(replace(SERVER, local=("0.0.0.0/0",))))


@pytest.mark.parametrize("children", [(), (CLIENT, replace(CLIENT, spi_in="ff"))])
def test_none_or_two_of_a_name_are_an_error(children: tuple[ChildSa, ...]) -> None:
    words = rf"the client has {len(children)} associations esp0, must have 1"
    with pytest.raises(TunnelError, match=words):
        checked(ike(*children), ike(SERVER))


def test_only_null_is_marked_as_not_encrypted() -> None:
    readable = {
        suite for suite in SUITE_NAMES if not esp_rule(suite, udp_encapsulation=False).encrypted
    }
    assert readable == {"NULL-SHA1"}
    assert esp_rule("AES-128-GCM", udp_encapsulation=True).ip_protocols == (17,)
    assert esp_rule("AES-128-GCM", udp_encapsulation=False).ip_protocols == (50, 17)


@pytest.mark.parametrize(
    ("log", "words"),
    [
        (
            (
                "09[IKE] received NO_PROPOSAL_CHOSEN notify, no CHILD_SA built\n"
                "09[IKE] failed to establish CHILD_SA, keeping IKE_SA\n"
                "09[NET] sending packet: from 198.18.0.1[4500] to 198.18.0.2[4500] (80 bytes)\n"
            ),
            "[IKE] received NO_PROPOSAL_CHOSEN notify, no CHILD_SA built",
        ),
        (
            (
                "24[KNL] installing route failed: 198.19.0.2/32 dev ipsec0\n"
                "24[IKE] unable to install IPsec policies (SPD) in kernel\n"
            ),
            "[KNL] installing route failed: 198.19.0.2/32 dev ipsec0",
        ),
        (
            "11[IKE] tried 1 shared key for 'a' - 'b', but MAC mismatched\n11[ENC] generating\n",
            "[IKE] tried 1 shared key for 'a' - 'b', but MAC mismatched",
        ),
        ("00[DMN] Starting IKE charon daemon\n00[JOB] spawning 24 worker threads\n", "24 worker"),
        ("", "nothing in its log"),
    ],
)
def test_the_line_that_tells_is_found(log: str, words: str) -> None:
    assert words in last_words(log)


def test_a_secret_is_in_no_command_and_in_no_file_that_others_read(hosts: Any) -> None:
    host = hosts[0]
    charon = Charon("client", host)
    charon.load({"secrets": {"ike-tm": {"secret": "hunter2"}}})
    assert host.spawned[0].argv == (CHARON,)
    assert host.spawned[0].private_dirs == ("/run",)
    assert not any("hunter2" in word for argv, _ in host.ran for word in argv)
    assert {mode for _, mode in host.files.values()} == {0o600}
    assert any(b"hunter2" in data for data, _ in host.files.values())


def test_a_dead_daemon_is_reported_with_its_last_words(hosts: Any) -> None:
    charon = Charon("server", hosts[1])
    hosts[1].spawned[0].status = 64
    hosts[1].spawned[0].log = "00[LIB] plugin 'openssl': failed to load - no such file\n"
    with pytest.raises(TunnelError) as caught:
        charon.sas()
    assert str(caught.value) == (
        "charon of the server on server ended with status 64 before it could do swanctl "
        "--list-sas: [LIB] plugin 'openssl': failed to load - no such file"
    )


def test_a_socket_path_that_no_socket_can_have_is_refused(
    hosts: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(type(hosts[0]), "work_dir", PurePosixPath("/" + "x" * 100))
    with pytest.raises(TunnelError, match="is longer than 107 characters"):
        Charon("client", hosts[0])


def test_a_refused_configuration_is_reported_by_the_line_that_failed(hosts: Any) -> None:
    text = (
        "opening directory '/x' failed: No such file\nloading connection 'tm' failed: invalid\n"
        "loaded 0 of 1 connections, 1 failed to load, 0 unloaded\n"
    )
    hosts[0].answer = lambda argv, _stdin: (22, text) if "--load-all" in argv else (0, "")
    with pytest.raises(TunnelError, match="refused its configuration: loading connection 'tm'"):
        Charon("client", hosts[0]).load({})


def test_a_group_that_only_later_keys_have_may_be_missing_from_the_first() -> None:
    later = replace(WANTED, group="ECP_256")
    assert checked(ike(CLIENT), ike(SERVER), later) == CLIENT
    with pytest.raises(TunnelError, match="the group of ESP's key exchange is None"):
        checked(ike(CLIENT), ike(SERVER), replace(later, group_needed=True))
