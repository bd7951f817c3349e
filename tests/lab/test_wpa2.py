"""WLAN security in a machine with a full kernel: hostapd, wpa_supplicant, radios, our medium."""

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from places import Places, interfaces
from tunnelmark.lab.lab import Lab
from tunnelmark.links.wlan import Wlan, WlanParams
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
