"""The parameters of a WLAN: what they come to for the engine, and what they refuse."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from tunnelmark.engine.link import SharedLinkSpec
from tunnelmark.links.wlan import Wlan, WlanParams, _vht_valid

KEYS = {
    "type",
    "phy",
    "rate",
    "basic_rates_bit_s",
    "protection",
    "rts_threshold_bytes",
    "rts_counts",
    "fragmentation_threshold_bytes",
    "short_retry_limit",
    "long_retry_limit",
    "queue",
    "qos",
    "aggregation",
    "security",
    "four_addresses",
    "errors",
    "beacon",
    "eifs",
    "stations",
    "background",
}


def medium(**table: Any) -> dict[str, Any]:
    return WlanParams.model_validate(table).medium()


def refusal(**table: Any) -> str:
    with pytest.raises(ValidationError) as error:
        WlanParams.model_validate(table)
    return str(error.value.errors()[0]["msg"]).removeprefix("Value error, ")


@pytest.mark.parametrize("name", list(Wlan.presets))
def test_presets_are_whole(name: str) -> None:
    link = Wlan(WlanParams.model_validate(Wlan.presets[name]))
    spec = link.spec(7)
    assert isinstance(spec, SharedLinkSpec)
    config = spec.to_json(a="tm-a", b="tm-b", parent_pid=1, realtime_priority=None)
    assert config == json.loads(json.dumps(config))
    assert config["seed"] == 7
    assert set(spec.medium) == KEYS
    assert "a_to_b" not in config
    assert link.mtu_bytes == 1500


def test_the_preset_of_the_802_11b_study() -> None:
    spec = Wlan(WlanParams.model_validate(Wlan.presets["wlan-80211b-11"])).spec(1)
    assert spec.medium["phy"] == {"standard": "802.11b", "short_preamble": False}
    assert spec.medium["rate"] == {"type": "fixed", "rate_bit_s": 11_000_000}
    assert spec.medium["basic_rates_bit_s"] == [1_000_000, 2_000_000]
    assert spec.medium["qos"] is None
    assert spec.medium["aggregation"] is None
    assert spec.medium["beacon"] == {"interval_tu": 100, "bytes": 200}


def test_the_preset_of_the_802_11n_study() -> None:
    spec = Wlan(WlanParams.model_validate(Wlan.presets["wlan-80211n-ht40-2ss"])).spec(1)
    assert spec.medium["phy"] == {
        "standard": "802.11n",
        "band": "5 GHz",
        "short_slot": True,
        "short_preamble": False,
        "width_mhz": 40,
        "guard_interval_ns": 400,
        "greenfield": False,
    }
    assert spec.medium["rate"] == {"type": "mcs", "mcs": 15, "streams": 2}
    assert spec.medium["rts_threshold_bytes"] == 2347
    assert spec.medium["fragmentation_threshold_bytes"] == 2346
    assert spec.medium["protection"] == "none"
    assert spec.medium["aggregation"] == {
        "ampdu_max_bytes": 65535,
        "ampdu_max_frames": 64,
        "amsdu_max_bytes": 0,
        "mpdu_spacing_ns": 0,
    }


def test_defaults_follow_the_standard() -> None:
    assert medium(standard="802.11g")["rate"] == {"type": "fixed", "rate_bit_s": 54_000_000}
    assert medium(standard="802.11a")["basic_rates_bit_s"] == [6_000_000, 12_000_000, 24_000_000]
    defaults = dict.fromkeys(("background", "best_effort", "video", "voice"))
    assert medium(standard="802.11b", wmm=True)["qos"] == {
        "stations": defaults,
        "access_point": defaults,
    }
    n = medium(standard="802.11n", band="5 GHz", mcs=7, wmm=False)
    assert n["qos"] is None
    assert n["aggregation"] is None
    ac = medium(standard="802.11ac", width="80 MHz", mcs=9, streams=2)
    assert ac["aggregation"]["ampdu_max_bytes"] == 1_048_575
    ax = medium(standard="802.11ax", width="80 MHz", guard_interval="1600 ns", mcs=11, streams=2)
    assert ax["phy"] == {"standard": "802.11ax", "width_mhz": 80, "guard_interval_ns": 1600}
    assert ax["rate"] == {"type": "mcs", "mcs": 11, "streams": 2}
    assert (ax["aggregation"]["ampdu_max_bytes"], ax["aggregation"]["ampdu_max_frames"]) == (
        4_194_303,
        256,
    )
    protected = medium(standard="802.11n", band="2.4 GHz", mcs=7, protection="cts_to_self")
    assert 11_000_000 in protected["basic_rates_bit_s"]


def test_everything_that_can_be_set_arrives() -> None:
    assert medium(standard="802.11b", basic_rates="1 5.5")["basic_rates_bit_s"] == [
        1_000_000,
        5_500_000,
    ]
    assert medium(standard="802.11b", rate_control="minstrel")["rate"] == {
        "type": "minstrel",
        "max_streams": 1,
    }
    n = medium(standard="802.11n", band="2.4 GHz", rate_control="minstrel", streams=2)
    assert n["rate"] == {"type": "minstrel", "max_streams": 2}
    assert medium(standard="802.11b", frame_errors="2 %")["errors"] == {
        "type": "fixed",
        "probability": 0.02,
    }
    assert medium(standard="802.11b", snr_db=12.5)["errors"] == {"type": "snr", "snr_db": 12.5}
    assert medium(standard="802.11b", beacon_interval_tu=0)["beacon"] is None
    crowd = medium(standard="802.11b", background_stations=3, background_msdu=500)
    assert (crowd["stations"], crowd["background"]) == (4, {"msdu_bytes": 500})
    voice = {"aifsn": 1, "cw_min": 3, "cw_max": 7, "txop_limit": "1504 us"}
    reported = {"aifsn": 1, "cw_min": 3, "cw_max": 7, "txop_limit_ns": 1_504_000}
    qos = medium(standard="802.11b", wmm=True, voice=voice)["qos"]
    assert (qos["stations"]["voice"], qos["access_point"]["voice"]) == (reported, None)
    qos = medium(standard="802.11b", wmm=True, ap_voice=voice)["qos"]
    assert (qos["stations"]["voice"], qos["access_point"]["voice"]) == (None, reported)


@pytest.mark.parametrize(
    ("table", "message"),
    [
        (
            {"standard": "802.11b", "width": "40 MHz"},
            "width is 40 MHz, 802.11b has 20 MHz",
        ),
        (
            {"standard": "802.11n", "band": "5 GHz", "mcs": 7, "width": "80 MHz"},
            "width is 80 MHz, 802.11n has 20 MHz and 40 MHz",
        ),
        (
            {"standard": "802.11ac", "mcs": 9},
            "mcs is 9, which 802.11ac excludes at 20 MHz with 1 streams",
        ),
        ({"standard": "802.11b", "mcs": 3}, "mcs is 3, but 802.11b has none"),
        (
            {"standard": "802.11b", "rate": "54 Mbit/s"},
            "rate is 54 Mbit/s, 802.11b has 1, 2, 5.5, 11",
        ),
        (
            {"standard": "802.11n", "band": "5 GHz", "mcs": 15, "streams": 1},
            "streams is 1, but MCS 15 of 802.11n has 2",
        ),
        ({"standard": "802.11n", "mcs": 7}, "band is not set, must be 2.4 GHz or 5 GHz in 802.11n"),
        ({"standard": "802.11n", "band": "5 GHz"}, "mcs is not set, must be 0 to 31"),
        (
            {"standard": "802.11ac", "mcs": 10},
            "mcs is 10, 802.11ac has 0 to 9",
        ),
        (
            {"standard": "802.11ax", "mcs": 12},
            "mcs is 12, 802.11ax has 0 to 11",
        ),
        (
            {"standard": "802.11ax", "mcs": 0, "guard_interval": "400 ns"},
            "guard_interval is 400 ns, 802.11ax has 800 ns and 1600 ns and 3200 ns",
        ),
        (
            {"standard": "802.11ac", "mcs": 0, "ampdu_frames": 65},
            "ampdu_frames is 65, 802.11ac has at most 64",
        ),
        (
            {"standard": "802.11n", "band": "5 GHz", "mcs": 7, "short_slot": False},
            "short_slot is false, but slots in the 5 GHz band are 9 us",
        ),
        (
            {"standard": "802.11n", "band": "5 GHz", "mcs": 7, "security": "tkip"},
            "security is tkip, which 802.11n excludes",
        ),
        (
            {"standard": "802.11a", "protection": "rts_cts"},
            "protection is rts_cts, but 802.11a has no stations of 802.11b to protect from",
        ),
        (
            {"standard": "802.11b", "frame_errors": 0.1, "snr_db": 10},
            "frame_errors and snr_db are both set, at most one is allowed",
        ),
        (
            {"standard": "802.11b", "basic_rates": "6"},
            "basic_rates has 6 Mbit/s, must be of 1, 2, 5.5, 11",
        ),
        (
            {"standard": "802.11b", "basic_rates": "1.2.3"},
            "basic_rates is '1.2.3', must be numbers in Mbit/s",
        ),
        (
            {"standard": "802.11n", "band": "5 GHz", "mcs": 7, "ampdu_max": 10_000},
            "ampdu_max is 10000, must be 0 or a power of two less one, 8191 to 65535",
        ),
        (
            {"standard": "802.11n", "band": "5 GHz", "mcs": 7, "amsdu_max": 11398},
            "amsdu_max is 11398, 802.11n has at most 7935",
        ),
        (
            {"standard": "802.11n", "band": "5 GHz", "mcs": 7, "wmm": False, "ampdu_max": 8191},
            "ampdu_max or amsdu_max is set, but aggregation needs wmm",
        ),
        (
            {"standard": "802.11b", "voice": {"aifsn": 2, "cw_min": 3, "cw_max": 7}},
            "voice is set, but wmm is off",
        ),
        (
            {"standard": "802.11b", "ap_video": {"aifsn": 1, "cw_min": 3, "cw_max": 7}},
            "ap_video is set, but wmm is off",
        ),
        (
            {
                "standard": "802.11b",
                "wmm": True,
                "voice": {"aifsn": 2, "cw_min": 4, "cw_max": 7},
            },
            "cw_min is 4, must be a power of two less one",
        ),
        (
            {"standard": "802.11a", "rate": "6 Mbit/s", "rate_control": "minstrel"},
            "rate is set, but minstrel chooses it",
        ),
    ],
)
def test_what_the_standard_does_not_allow_is_refused(table: dict[str, Any], message: str) -> None:
    assert refusal(**table) == message


def test_an_unknown_key_is_refused() -> None:
    assert "Extra inputs" in refusal(standard="802.11b", speed=1)


def test_vht_combinations_are_those_of_the_tables() -> None:
    """IEEE Std 802.11-2020 Tables 21-30 to 21-57, one to four streams."""
    count = {
        width: sum(_vht_valid(mcs, streams, width) for mcs in range(10) for streams in range(1, 5))
        for width in (20, 40, 80)
    }
    assert count == {20: 37, 40: 40, 80: 39}
    assert _vht_valid(9, 3, 20)
    assert not _vht_valid(9, 4, 20)
    assert not _vht_valid(6, 3, 80)


@given(
    mcs=st.integers(0, 31),
    streams=st.none() | st.integers(1, 4),
    width=st.sampled_from(["20 MHz", "40 MHz"]),
)
def test_802_11n_takes_just_the_streams_of_its_mcs(
    mcs: int, streams: int | None, width: str
) -> None:
    table = {"standard": "802.11n", "band": "5 GHz", "mcs": mcs, "width": width}
    if streams is not None:
        table["streams"] = streams
    if streams in {None, mcs // 8 + 1}:
        assert medium(**table)["rate"]["streams"] == mcs // 8 + 1
    else:
        assert "streams" in refusal(**table)
