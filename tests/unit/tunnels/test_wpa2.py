"""Parameters, configuration texts and what both sides say, without a radio."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from tunnelmark.engine.link import SharedLinkSpec
from tunnelmark.links.wlan import Wlan, WlanParams
from tunnelmark.model.errors import RefusedError, StudyError, TunnelError
from tunnelmark.model.tunnel import Endpoint, SharedMedium, Site
from tunnelmark.study import parse_study
from tunnelmark.tunnels.wpa2 import says
from tunnelmark.tunnels.wpa2.agreed import disagreement, is_wanted
from tunnelmark.tunnels.wpa2.config import (
    MTU_MAX_BYTES,
    Bss,
    Radio,
    Security,
    hostapd_text,
    new_secret,
    radio_of,
    supplicant_text,
)
from tunnelmark.tunnels.wpa2.driver import Wpa2Params, Wpa2Tunnel, _Link
from tunnelmark.tunnels.wpa2.radios import Radios

B, G, N = "wlan-80211b-11", "wlan-80211g-54", "wlan-80211n-ht20"
N_WIDE = "wlan-80211n-ht40-2ss"
SECURITIES: tuple[Security, ...] = ("open", "wep", "wpa2-tkip", "wpa2-ccmp", "wpa3-sae")


def medium(preset: str, **more: object) -> dict[str, object]:
    return WlanParams.model_validate(dict(Wlan.presets[preset]) | more).medium()


def radio(preset: str, **more: object) -> Radio:
    found = radio_of(medium(preset, **more))
    assert isinstance(found, Radio), found
    return found


def bss(security: Security) -> Bss:
    secret = {"open": "", "wep": "00112233445566778899aabbcc"}.get(security, "a-secret-word")
    return Bss("tm0w0s", "02:74:6d:00:10:00", "tm0-0", security, secret)


@pytest.mark.parametrize(
    ("preset", "more", "expected"),
    [
        (B, {}, {"band": "2.4 GHz", "width_mhz": 20, "mcs": None, "wmm": False, "ht": False}),
        (B, {"rate": "5.5 Mbit/s"}, {"rates_bit_s": (1_000_000, 2_000_000, 5_500_000)}),
        (
            G,
            {},
            {
                "frequency_mhz": 2437,
                "basic_bit_s": (6_000_000, 12_000_000, 24_000_000),
                "rates_bit_s": tuple(r * 1_000_000 for r in (6, 9, 12, 18, 24, 36, 48, 54)),
            },
        ),
        (N, {}, {"band": "5 GHz", "frequency_mhz": 5180, "mcs": 7, "wmm": True, "ht": True}),
        (N, {"band": "2.4 GHz"}, {"band": "2.4 GHz", "frequency_mhz": 2437}),
        (
            N_WIDE,
            {},
            {"width_mhz": 40, "short_guard": True, "mcs": 15, "rts_bytes": 2347, "beacon_tu": 100},
        ),
        (G, {"fragmentation_threshold": "512 B"}, {"fragment_bytes": 512}),
        (G, {"fragmentation_threshold": "2346 B"}, {"fragment_bytes": None, "rts_bytes": None}),
    ],
)
def test_radios_are_set_to_what_the_link_says(
    preset: str, more: dict[str, object], expected: dict[str, object]
) -> None:
    found = radio(preset, **more)
    assert {name: getattr(found, name) for name in expected} == expected


@pytest.mark.parametrize(
    ("preset", "more", "words"),
    [
        (G, {"security": "ccmp"}, "security is ccmp, but real encryption adds its own bytes"),
        (G, {"background_stations": 3}, "background_stations is 3, but there are two radios"),
        (G, {"four_addresses": True}, "four_addresses is true, stations have three"),
        (G, {"beacon_interval_tu": 0}, "beacon_interval_tu is 0, a real access point has at"),
        (G, {"beacon_interval_tu": 14}, "beacon_interval_tu is 14, hostapd has at least 15"),
        (G, {"protection": "cts_to_self"}, "protection is cts_to_self, but the access point"),
        (N, {"greenfield": True}, "greenfield is true, which hostapd does not do here"),
        (N, {"mcs": 16}, "mcs is 16, the kernel's simulated radios have 2 streams: 0 to 15"),
        (N, {"wmm": False}, "wmm is false, but stations of 802.11n need it"),
        (G, {"rate": "18 Mbit/s"}, "basic_rates has 24 Mbit/s, but the highest rate is 18 Mbit/s"),
    ],
)
def test_what_real_radios_cannot_be_is_reported(
    preset: str, more: dict[str, object], words: str
) -> None:
    found = radio_of(medium(preset, **more))
    assert isinstance(found, str)
    assert found.startswith(words)


def test_an_802_11ac_link_and_minstrel_with_802_11n_are_reported() -> None:
    ac = WlanParams.model_validate({"standard": "802.11ac", "mcs": 9, "width": "80 MHz"})
    assert radio_of(ac.medium()) == "standard is 802.11ac, radios may be 802.11a, b, g or n"
    ax = WlanParams.model_validate({"standard": "802.11ax", "mcs": 9})
    assert radio_of(ax.medium()) == "standard is 802.11ax, radios may be 802.11a, b, g or n"
    chosen = WlanParams.model_validate(
        {"standard": "802.11n", "band": "5 GHz", "rate_control": "minstrel"}
    )
    assert str(radio_of(chosen.medium())).startswith("rate_control is minstrel, but")


@pytest.mark.parametrize(
    ("security", "access_point", "station"),
    [
        ("open", [], ["key_mgmt=NONE"]),
        ("wep", ["wep_key0=00112233445566778899aabbcc"], ["wep_key0=00112233445566778899aabbcc"]),
        (
            "wpa2-tkip",
            ["wpa=2", "rsn_pairwise=TKIP", "wpa_passphrase=a-secret-word"],
            ["key_mgmt=WPA-PSK", "pairwise=TKIP", "group=TKIP", 'psk="a-secret-word"'],
        ),
        (
            "wpa2-ccmp",
            ["wpa=2", "rsn_pairwise=CCMP", "wpa_passphrase=a-secret-word"],
            ["key_mgmt=WPA-PSK", "pairwise=CCMP", "group=CCMP", 'psk="a-secret-word"'],
        ),
        (
            "wpa3-sae",
            ["wpa_key_mgmt=SAE", "ieee80211w=2", "sae_password=a-secret-word"],
            ["key_mgmt=SAE", "ieee80211w=2", 'sae_password="a-secret-word"'],
        ),
    ],
)
def test_both_texts_ask_for_the_same_protection(
    security: Security, access_point: list[str], station: list[str]
) -> None:
    lines = hostapd_text(radio(G), [bss(security)], control="/c").splitlines()
    assert [line for line in access_point if line not in lines] == []
    assert ("wpa=2" in lines) == security.startswith("wpa")
    theirs = [
        one.strip() for one in supplicant_text(radio(G), bss(security), control="/c").split("\n")
    ]
    assert [line for line in station if line not in theirs] == []
    assert "freq_list=2437" in theirs


def test_the_text_of_the_access_point_holds_standard_rates_and_thresholds() -> None:
    lines = hostapd_text(radio(B), [bss("open")], control="/c").splitlines()
    assert {"hw_mode=b", "channel=6", "supported_rates=10 20 55 110", "basic_rates=10 20"} <= set(
        lines
    )
    assert "ieee80211n=1" not in lines
    lines = hostapd_text(radio(N_WIDE), [bss("open")], control="/c").splitlines()
    assert {"hw_mode=a", "ieee80211n=1", "ht_capab=[HT40+][SHORT-GI-40]", "wmm_enabled=1"} <= set(
        lines
    )
    assert "rts_threshold=2347" in lines
    lines = hostapd_text(
        radio(G, fragmentation_threshold="512 B"), [bss("open")], control="/c"
    ).splitlines()
    assert "fragm_threshold=512" in lines
    assert not any(line.startswith("rts_threshold") for line in lines)


def test_several_networks_share_the_radio() -> None:
    two = [bss("wpa2-ccmp"), Bss("tm0w1s", "02:74:6d:00:10:01", "tm0-1", "open", "")]
    lines = hostapd_text(radio(G), two, control="/c").splitlines()
    at = lines.index("bss=tm0w1s")
    assert lines[0] == "interface=tm0w0s"
    assert lines[at + 1 : at + 3] == ["bssid=02:74:6d:00:10:01", "ssid=tm0-1"]
    assert [line for line in lines[at:] if line.startswith("wpa")] == []


def test_a_station_uses_a_short_guard_interval_only_where_the_link_has_it() -> None:
    assert " disable_sgi=1" in supplicant_text(radio(N), bss("open"), control="/c").splitlines()
    assert "disable_sgi" not in supplicant_text(radio(N_WIDE), bss("open"), control="/c")
    assert "disable_sgi" not in supplicant_text(radio(G), bss("open"), control="/c")


@pytest.mark.parametrize("security", SECURITIES)
def test_secrets_are_new_each_time_and_of_the_length_that_is_needed(security: Security) -> None:
    one, other = new_secret(security), new_secret(security)
    if security == "open":
        assert one == ""
    elif security == "wep":
        assert len(bytes.fromhex(one)) == 13
        assert one != other
    else:
        assert 8 <= len(one) <= 63
        assert one != other


SUITE = "00-0f-ac-4"
CLIENT = {"pairwise_cipher": "CCMP", "key_mgmt": "WPA2-PSK", "freq": "2437"}
SERVER = {"dot11RSNAStatsSelectedPairwiseCipher": SUITE, "AKMSuiteSelector": "00-0f-ac-2"}
CHANNEL = says.Channel(6, 2437, 20, ht=False)
CHANNELS: dict[str, says.Channel | None] = {"client": CHANNEL, "server": CHANNEL}


def test_what_was_asked_for_is_no_disagreement() -> None:
    assert disagreement("wpa2-ccmp", radio(G), CLIENT, SERVER, CHANNELS) is None
    bare = {"pairwise_cipher": "NONE", "key_mgmt": "NONE", "freq": "2437"}
    assert disagreement("open", radio(G), bare, {}, CHANNELS) is None
    wep = bare | {"pairwise_cipher": "WEP-104"}
    assert disagreement("wep", radio(G), wep, {}, CHANNELS) is None


@pytest.mark.parametrize(
    ("security", "client", "server", "channels", "words"),
    [
        (
            "wpa2-ccmp",
            {"pairwise_cipher": "TKIP"},
            {},
            {},
            "wpa_supplicant: pairwise cipher is 'TKIP', the study asks for 'CCMP'",
        ),
        (
            "wpa2-ccmp",
            {},
            {"dot11RSNAStatsSelectedPairwiseCipher": "00-0f-ac-2"},
            {},
            "hostapd: pairwise cipher is 'TKIP', the study asks for 'CCMP'",
        ),
        (
            "wpa3-sae",
            {"key_mgmt": "SAE"},
            {},
            {},
            "hostapd: key management is 'WPA2-PSK', the study asks for 'SAE'",
        ),
        (
            "open",
            {"pairwise_cipher": "NONE", "key_mgmt": "NONE"},
            {},
            {},
            "hostapd: pairwise cipher is 'CCMP', the study asks for 'none'",
        ),
        (
            "wpa2-ccmp",
            {"freq": "2412"},
            {},
            {},
            "wpa_supplicant: frequency is '2412', the study asks for '2437'",
        ),
        (
            "wpa2-ccmp",
            {},
            {},
            {"server": says.Channel(6, 2437, 20, ht=True)},
            "iw on server: width is '20 MHz', the study asks for '20 MHz, no HT'",
        ),
        (
            "wpa2-ccmp",
            {},
            {},
            {"client": None},
            "iw on client: width is None, the study asks for '20 MHz, no HT'",
        ),
    ],
)
def test_whoever_says_something_else_is_named(
    security: Security,
    client: dict[str, str],
    server: dict[str, str],
    channels: dict[str, says.Channel | None],
    words: str,
) -> None:
    said = disagreement(security, radio(G), CLIENT | client, SERVER | server, CHANNELS | channels)
    assert said == words


DUMP = """Station 02:74:6d:00:10:00 (on tm0w0c)
\tinactive time:\t12 ms
\trx bytes:\t1234
\tsignal:  \t-30 dBm
\ttx bitrate:\t300.0 MBit/s MCS 15 40MHz short GI
\trx bitrate:\t54.0 MBit/s
"""


def test_rates_are_read_as_iw_writes_them() -> None:
    fast = says.bitrate(DUMP, "tx")
    slow = says.bitrate(DUMP, "rx")
    assert fast == says.Bitrate(300.0, 15, 40, short_guard=True)
    assert slow == says.Bitrate(54.0, None, 20, short_guard=False)
    assert str(fast) == "300 Mbit/s MCS 15 short GI"
    assert str(slow) == "54 Mbit/s"
    assert says.bitrate("tx bitrate: none", "tx") is None
    assert fast is not None
    assert slow is not None
    assert is_wanted(fast, radio(N_WIDE))
    assert not is_wanted(fast, radio(N))
    assert not is_wanted(slow, radio(N_WIDE))
    assert is_wanted(slow, radio(G))
    assert not is_wanted(slow, radio(B))


def test_channels_are_read_as_iw_writes_them() -> None:
    text = "Interface tm0w0c\n\tchannel 6 (2437 MHz), width: 20 MHz (no HT), center1: 2437 MHz\n"
    assert says.channel(text) == says.Channel(6, 2437, 20, ht=False)
    wide = "\tchannel 36 (5180 MHz), width: 40 MHz, center1: 5190 MHz\n"
    assert says.channel(wide) == says.Channel(36, 5180, 40, ht=True)
    assert says.channel("Interface tm0w0c\n\ttype managed\n") is None


def test_the_first_of_two_equal_keys_counts_and_other_lines_do_not() -> None:
    text = "Selected interface 'x'\nwpa_state=COMPLETED\nwpa_state=SCANNING\nssid=a=b\n"
    assert says.pairs(text) == {"wpa_state": "COMPLETED", "ssid": "a=b"}


@given(st.text(max_size=400))
def test_no_text_is_too_strange_to_be_read(text: str) -> None:
    assert all(isinstance(value, str) for value in says.pairs(text).values())
    found = says.bitrate("\ttx bitrate:\t" + text, "tx")
    assert found is None or found.mbit_s >= 0
    seen = says.channel("\tchannel " + text)
    assert seen is None or seen.number >= 0
    assert says.program_version(text)


def test_versions_are_the_first_line_that_names_the_program() -> None:
    assert says.program_version("hostapd v2.10\nUser space daemon\n") == "hostapd v2.10"
    assert says.program_version("usage: nothing") == "unknown version"


def test_wep_is_for_one_network_alone() -> None:
    with pytest.raises(ValidationError, match="count is 2, with WEP it must be 1"):
        Wpa2Params.model_validate({"security": "wep", "count": 2})
    assert Wpa2Params.model_validate({"security": "wpa2-tkip", "count": 2}).count == 2
    with pytest.raises(ValidationError, match="outer"):
        Wpa2Params.model_validate({"outer": "ipv6"})


class Untouched:
    """A host that nothing may be done with."""

    name = "untouched"

    def __getattr__(self, name: str) -> Any:
        raise AssertionError(f"{name} of a host was used before the check")


def site(shared: SharedMedium | None, mtu_bytes: int = 1500) -> Site:
    host: Any = Untouched()
    inner: Callable[[int], tuple[str, str]] = lambda _n: ("198.19.0.1", "198.19.0.2")  # noqa: E731
    end = Endpoint(host, "198.18.0.1", "fd00::1", "eth0", mtu_bytes)
    return Site(end, end, prefix="tm0", inner_ipv4=inner, inner_ipv6=inner, shared=shared)


@pytest.mark.parametrize(
    ("shared", "params", "mtu_bytes", "words"),
    [
        (None, {}, 1500, "wpa2 is on air itself, so the study's link must be of kind wlan"),
        (medium(N), {"security": "wep"}, 1500, "security is wep, which 802.11n excludes"),
        (medium(N), {"security": "wpa2-tkip"}, 1500, "security is wpa2-tkip, which 802.11n"),
        (medium(G), {}, MTU_MAX_BYTES + 1, "the link's mtu is 2255, the kernel's simulated radio"),
        (medium(G, security="wep"), {}, 1500, "real radios cannot be the link of the study: sec"),
    ],
)
def test_a_link_that_cannot_be_is_refused_before_anything_is_touched(
    shared: dict[str, object] | None, params: dict[str, object], mtu_bytes: int, words: str
) -> None:
    tunnel = Wpa2Tunnel(Wpa2Params.model_validate(params))
    given_link = None if shared is None else SharedMedium(shared, 1)
    with pytest.raises(TunnelError) as caught:
        tunnel.up(site(given_link, mtu_bytes))
    assert str(caught.value).startswith(words)
    link = None if shared is None else SharedLinkSpec(shared, 1)
    assert tunnel.unfit(link, mtu_bytes) == str(caught.value)
    assert tunnel.problem() is None
    tunnel.down()


STUDY = """
format = 1
name = "a"
title = "A"

[[tunnel]]
kind = "wpa2"
{tunnel}
[[link]]
{link}

[[workload]]
kind = "udp_echo"
gap = "50 ms"
packets = 9
payload_bytes = 64
"""


@pytest.mark.parametrize(
    ("tunnel", "link", "words"),
    [
        ("", 'preset = "serial-8m-41ms"', "a.toml:6: tunnel wpa2: wpa2 is on air itself, so the"),
        (
            'security = "wpa2-tkip"',
            'preset = "wlan-80211n-ht20"',
            "a.toml:6: tunnel wpa2-wpa2-tkip: security is wpa2-tkip, which 802.11n excludes (li",
        ),
    ],
)
def test_a_study_with_such_a_link_is_refused_at_its_line(
    tunnel: str, link: str, words: str
) -> None:
    with pytest.raises(StudyError) as caught:
        parse_study(STUDY.format(tunnel=tunnel, link=link), source="a.toml")
    assert str(caught.value).startswith(words)


def test_a_study_over_a_wlan_is_taken() -> None:
    text = STUDY.format(tunnel="", link='preset = "wlan-80211n-ht20"')
    assert parse_study(text, source="a.toml").tunnels[0].kind == "wpa2"


def test_a_station_that_joined_anew_with_another_cipher_is_reported(hosts: Any) -> None:
    """check_agreed asks both daemons again, as up did."""
    said = dict(CLIENT)
    answers: dict[str, Callable[[], str]] = {
        "wpa_cli": lambda: "\n".join(f"{key}={value}" for key, value in said.items()),
        "hostapd_cli": lambda: "\n".join(f"{key}={value}" for key, value in SERVER.items()),
        "iw": lambda: "\tchannel 6 (2437 MHz), width: 20 MHz (no HT), center1: 2437 MHz\n",
    }
    for host in hosts:
        host.answer = lambda argv, _stdin: (0, answers[argv[0]]())
    ends = [Endpoint(host, "198.18.0.1", "fd00::1", "eth0", 1500) for host in hosts]
    tunnel = Wpa2Tunnel(Wpa2Params.model_validate({}))
    tunnel._site = replace(site(SharedMedium(medium(G), 1)), client=ends[0], server=ends[1])
    tunnel._links = [_Link(0, bss("wpa2-ccmp"), "tm0a0c", "02:74:6d:00:20:00")]
    tunnel.check_agreed()
    said["pairwise_cipher"] = "TKIP"
    with pytest.raises(RefusedError, match=r"^wpa_supplicant: pairwise cipher is 'TKIP'"):
        tunnel.check_agreed()


def test_the_end_of_the_medium_is_the_reason_though_its_radios_vanish_first(
    hosts: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kernel takes the radios down before the process that made them counts as ended."""
    for host in hosts:
        host.answer = lambda _argv, _stdin: (0, "[]")
    process = hosts[1].spawn(["wlan-medium"], name="medium")
    process.log = "killed"
    monkeypatch.setattr(process, "wait", lambda _timeout_s: process.kill())
    ends = [Endpoint(host, "198.18.0.1", "fd00::1", "eth0", 1500) for host in hosts]
    made = replace(site(SharedMedium(medium(G), 1)), client=ends[0], server=ends[1])
    tunnel = Wpa2Tunnel(Wpa2Params.model_validate({}))
    tunnel._site, tunnel._radios = made, Radios(made, SharedMedium(medium(G), 1))
    tunnel._radios._process = process
    tunnel._links = [_Link(0, bss("wpa2-ccmp"), "tm0a0c", "02:74:6d:00:20:00")]
    assert process.poll() is None
    assert tunnel.problem() == "the medium of the radios ended: killed"
