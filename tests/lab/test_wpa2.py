"""WLAN security in a machine with a full kernel: hostapd, wpa_supplicant, radios, our medium."""

import json
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from places import Places, interfaces
from small_study import LOOSE_VALIDITY
from tunnelmark.lab.lab import Lab
from tunnelmark.links.wlan import Wlan, WlanParams
from tunnelmark.model.errors import TunnelError
from tunnelmark.model.tunnel import TunnelUp
from tunnelmark.tunnels.wpa2 import Wpa2Params, Wpa2Tunnel

pytestmark = [pytest.mark.lab, pytest.mark.machine, pytest.mark.slow]

B, G, N = "wlan-80211b-11", "wlan-80211g-54", "wlan-80211n-ht20"
N_WIDE = "wlan-80211n-ht40-2ss"
VARIANTS: list[tuple[str, dict[str, object], str, str | None, str]] = [
    (B, {"security": "open"}, "NONE", None, "11 Mbit/s"),
    (B, {"security": "wep"}, "NONE", "WEP-104", "11 Mbit/s"),
    (G, {"security": "wpa2-tkip"}, "WPA2-PSK", "TKIP", "54 Mbit/s"),
    (G, {"security": "wpa2-ccmp", "inner": "ipv6"}, "WPA2-PSK", "CCMP", "54 Mbit/s"),
    (N, {"security": "wpa2-ccmp", "count": 2}, "WPA2-PSK", "CCMP", "65 Mbit/s MCS 7"),
    (N, {"security": "open"}, "NONE", None, "65 Mbit/s MCS 7"),
    (N_WIDE, {"security": "wpa3-sae"}, "SAE", "CCMP", "300 Mbit/s MCS 15 short GI"),
]


@pytest.fixture
def lab_of(places: Places) -> Iterator[Callable[..., Lab]]:
    with ExitStack() as stack:

        def make(preset: str, **more: object) -> Lab:
            link = Wlan(WlanParams.model_validate(dict(Wlan.presets[preset]) | more))
            return places.lab(stack, places.machine(), link.spec(1), emulate=False)

        yield make


def wpa2(params: dict[str, object]) -> Wpa2Tunnel:
    return Wpa2Tunnel(Wpa2Params.model_validate(params))


def answered(lab: Lab, up: TunnelUp, number: int) -> bool:
    path = up.paths[number]
    words = ("ping", "-n", "-c", "3", "-i", "0.1", "-W", "5", "-I", path.client_address)
    return lab.client_host.run([*words, path.server_address], check=False).returncode == 0


def nothing_stays(lab: Lab) -> None:
    for host in (lab.client_host, lab.server_host):
        assert interfaces(host) == {"lo", "eth0"}
        assert host.run(["iw", "phy"]).text() == ""
        assert [process.name for process in host.spawned if process.poll() is None] == []


@pytest.mark.parametrize("variant", VARIANTS, ids=lambda v: f"{v[0]} {v[1]}")
def test_what_was_asked_for_is_on_air_and_nothing_stays(
    lab_of: Callable[..., Lab], variant: tuple[str, dict[str, object], str, str | None, str]
) -> None:
    preset, params, key_management, cipher, rate = variant
    lab, tunnel = lab_of(preset), wpa2(params)
    for end in (lab.client, lab.server):
        assert tunnel.unavailable(end.host) is None
    try:
        up = tunnel.up(lab.site)
        lab.adopt(up.medium)
        assert len(up.paths) == len(up.negotiated) == tunnel.params.count
        assert all(answered(lab, up, number) for number in range(tunnel.params.count))
        for agreed in up.negotiated:
            assert agreed.cipher == cipher
            assert agreed.details["key_management"] == key_management
            assert agreed.details["rate_forward"] == agreed.details["rate_reverse"] == rate
        reference = up.reference
        assert reference is not None
        assert reference.negotiated[0].cipher is None
        assert reference.negotiated[0].details["rate_forward"] == rate
        assert answered(lab, reference, 0)
        assert tunnel.problem() is None
        tunnel.check_agreed()
        assert lab.problem() is None
        counters = lab.counters()
        assert counters is not None
        for one in (counters.forward, counters.reverse):
            ends = sum(int(one[k]) for k in ("delivered", "queue_dropped", "lost", "in_flight"))
            assert one["offered"] == ends
            assert one["delivered"] > 0
    finally:
        tunnel.down()
        tunnel.down()
    nothing_stays(lab)


def eventually(tunnel: Wpa2Tunnel) -> str | None:
    for _ in range(200):
        if problem := tunnel.problem():
            return problem
        time.sleep(0.05)
    return None


@pytest.mark.parametrize("number", [0, 1, 2])
def test_each_process_that_dies_is_a_problem(lab_of: Callable[..., Lab], number: int) -> None:
    lab, tunnel = lab_of(G), wpa2({})
    try:
        up = tunnel.up(lab.site)
        assert up.medium is not None
        victim = [*(process for _, process in up.processes), up.medium.process][number]
        victim.kill()
        problem = eventually(tunnel)
        assert problem is not None
        assert victim.name in problem or "the medium of the radios ended" in problem
    finally:
        tunnel.down()
    nothing_stays(lab)


@pytest.mark.parametrize(
    ("preset", "more", "params", "words"),
    [
        (N, {}, {"security": "wep"}, "security is wep, which 802.11n excludes"),
        (G, {"security": "ccmp"}, {}, "security is ccmp, but real encryption adds its own"),
        (G, {"background_stations": 3}, {}, "background_stations is 3, but there are two radios"),
        (N, {"mcs": 16}, {}, "mcs is 16, the kernel's simulated radios have 2 streams: 0 to 15"),
    ],
)
def test_a_mode_that_cannot_be_is_reported_and_never_replaced(
    lab_of: Callable[..., Lab],
    preset: str,
    more: dict[str, object],
    params: dict[str, object],
    words: str,
) -> None:
    lab, tunnel = lab_of(preset, **more), wpa2(params)
    try:
        with pytest.raises(TunnelError) as caught:
            tunnel.up(lab.site)
    finally:
        tunnel.down()
    assert words in str(caught.value)
    nothing_stays(lab)


STUDY = f"""
format = 1
name = "wpa2"
title = "On air"
seed = 7

[precision]
metric = "rtt_p50_ns"
relative_half_width = "90 %"
min_repeats = 2
max_repeats = 2

{LOOSE_VALIDITY}
[[tunnel]]
kind = "wpa2"
inner = "ipv6"

[[link]]
preset = "wlan-80211b-11"

[[workload]]
kind = "udp_echo"
gap = "40 ms"
packets = 20
payload_bytes = 512
"""


def test_the_proof_on_air(study: Callable[[str], Any]) -> None:
    one = study(STUDY)
    one.start(str(one.file), "--place", "machine")
    # A busy computer makes an emulated sender late: such trials are invalid, and no failure here.
    assert one.finish() in {0, 6}, one.errors
    (block,) = [json.loads(path.read_text()) for path in one.directory.glob("blocks/*.json")]
    assert block["error"] is None
    (proof,), (bare,) = block["proofs"], block["baseline_proofs"]
    assert proof["verdict"] == "proved"
    assert bare["verdict"] == "proved"
    assert proof["encrypted_expected"]
    assert not proof["marker_seen"]
    assert bare["marker_seen"]
    outer = {
        name: {s["payload_bytes"]: s["outer_packet_bytes"] for s in one["samples"]}
        for name, one in (("wpa2", proof), ("open", bare))
    }
    # 24 MAC header, 8 SNAP, 40 IPv6, 8 UDP, 512, 4 FCS; CCMP brings 16.
    assert outer["open"][512] == [596]
    assert outer["wpa2"][512] == [612]
    assert all(one["equal"] for one in block["layers"])
