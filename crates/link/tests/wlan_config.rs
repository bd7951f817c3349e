//! The configuration as JSON: what is taken, and what is refused with which words.

use serde_json::{json, Value};
use tm_link::wlan::Config;

fn base() -> Value {
    json!({
        "phy": {"standard": "802.11b", "short_preamble": false},
        "rate": {"type": "fixed", "rate_bit_s": 11_000_000},
        "basic_rates_bit_s": [1_000_000, 2_000_000],
        "protection": "none",
        "rts_threshold_bytes": 2347,
        "rts_counts": "mpdu",
        "fragmentation_threshold_bytes": 2346,
        "short_retry_limit": 7,
        "long_retry_limit": 4,
        "queue": {"type": "packets", "limit": 100},
        "qos": null,
        "aggregation": null,
        "security": "ccmp",
        "four_addresses": false,
        "errors": {"type": "none"},
        "beacon": {"interval_tu": 100, "bytes": 200},
        "eifs": "lowest_rate",
        "stations": 1,
        "background": null
    })
}

fn n() -> Value {
    with(
        base(),
        &[
            (
                "/phy",
                json!({"standard": "802.11n", "band": "5 GHz", "short_slot": true,
                    "short_preamble": false, "width_mhz": 40, "guard_interval_ns": 400,
                    "greenfield": false}),
            ),
            ("/rate", json!({"type": "mcs", "mcs": 15, "streams": 2})),
            (
                "/basic_rates_bit_s",
                json!([6_000_000, 12_000_000, 24_000_000]),
            ),
            (
                "/qos",
                json!({
                    "stations": {"background": null, "best_effort": null, "video": null,
                        "voice": {"aifsn": 2, "cw_min": 3, "cw_max": 7, "txop_limit_ns": 1_504_000}},
                    "access_point": {"background": null, "best_effort": null, "video": null,
                        "voice": {"aifsn": 1, "cw_min": 3, "cw_max": 7, "txop_limit_ns": 1_504_000}},
                }),
            ),
            (
                "/aggregation",
                json!({"ampdu_max_bytes": 65535, "ampdu_max_frames": 64,
                    "amsdu_max_bytes": 3839, "mpdu_spacing_ns": 4000}),
            ),
        ],
    )
}

fn ac() -> Value {
    with(
        n(),
        &[
            (
                "/phy",
                json!({"standard": "802.11ac", "width_mhz": 80, "guard_interval_ns": 400}),
            ),
            ("/rate", json!({"type": "mcs", "mcs": 9, "streams": 2})),
        ],
    )
}

fn ax() -> Value {
    with(
        n(),
        &[
            (
                "/phy",
                json!({"standard": "802.11ax", "width_mhz": 80, "guard_interval_ns": 1600}),
            ),
            ("/rate", json!({"type": "mcs", "mcs": 11, "streams": 2})),
            (
                "/aggregation",
                json!({"ampdu_max_bytes": 4_194_303, "ampdu_max_frames": 256,
                    "amsdu_max_bytes": 0, "mpdu_spacing_ns": 0}),
            ),
        ],
    )
}

fn with(mut value: Value, changes: &[(&str, Value)]) -> Value {
    for (place, new) in changes {
        *value.pointer_mut(place).unwrap() = new.clone();
    }
    value
}

fn refusal(value: Value) -> String {
    match serde_json::from_value::<Config>(value) {
        Err(error) => error.to_string(),
        Ok(config) => config
            .setup("medium")
            .expect_err("must be refused")
            .to_string(),
    }
}

#[test]
fn all_standards_are_taken() {
    let a = with(
        base(),
        &[
            ("/phy", json!({"standard": "802.11a"})),
            ("/rate", json!({"type": "minstrel", "max_streams": 1})),
            ("/basic_rates_bit_s", json!([6_000_000])),
        ],
    );
    let g = with(
        base(),
        &[
            (
                "/phy",
                json!({"standard": "802.11g", "short_slot": false, "short_preamble": true}),
            ),
            ("/rate", json!({"type": "fixed", "rate_bit_s": 54_000_000})),
            ("/protection", json!("cts_to_self")),
        ],
    );
    for value in [base(), a, g, n(), ac(), ax()] {
        serde_json::from_value::<Config>(value)
            .unwrap()
            .setup("medium")
            .unwrap();
    }
}

#[test]
fn unknown_and_missing_keys_are_refused() {
    let mut extra = base();
    extra["speed"] = json!(1);
    assert!(refusal(extra).contains("unknown field `speed`"));
    let mut inner = base();
    inner["phy"]["width_mhz"] = json!(40);
    assert!(
        refusal(inner).contains("unknown field `width_mhz`"),
        "40 MHz in 802.11b"
    );
    let mut missing = base();
    missing.as_object_mut().unwrap().remove("eifs");
    assert!(refusal(missing).contains("missing field `eifs`"));
    let mut errors = base();
    errors["errors"] = json!({"type": "none", "probability": 0.1});
    assert!(!refusal(errors).is_empty());
}

#[test]
#[allow(clippy::too_many_lines)] // a table
fn what_the_standard_does_not_allow_is_refused_with_place_value_and_limit() {
    let cases = [
        (
            with(base(), &[("/rate/rate_bit_s", json!(22_000_000))]),
            "medium.rate.rate_bit_s is 22000000, must be one of 1000000, 2000000, 5500000, 11000000",
        ),
        (
            with(base(), &[("/basic_rates_bit_s", json!([6_000_000]))]),
            "medium.basic_rates_bit_s[0] is 6000000, must be one of 1000000, 2000000, 5500000, 11000000",
        ),
        (
            with(base(), &[("/basic_rates_bit_s", json!([]))]),
            "medium.basic_rates_bit_s length is 0, must be 1 to 12",
        ),
        (
            with(base(), &[("/basic_rates_bit_s", json!([1_000_000, 1_000_000]))]),
            "medium.basic_rates_bit_s[1] is 1000000, which is listed twice",
        ),
        (
            with(base(), &[("/rate", json!({"type": "mcs", "mcs": 0, "streams": 1}))]),
            "medium.rate.type is mcs, must be fixed or minstrel in 802.11a, b and g",
        ),
        (
            with(base(), &[("/protection", json!("rts_cts"))]),
            "medium.protection is set, but only OFDM in the 2.4 GHz band has stations to protect from",
        ),
        (
            with(base(), &[("/fragmentation_threshold_bytes", json!(255))]),
            "medium.fragmentation_threshold_bytes is 255, must be 256 to 11500",
        ),
        (
            with(base(), &[("/short_retry_limit", json!(0))]),
            "medium.short_retry_limit is 0, must be 1 to 255",
        ),
        (
            with(base(), &[("/queue", json!({"type": "bytes", "limit": 2303}))]),
            "medium.queue.limit is 2303, must be 2304 to 1073741824",
        ),
        (
            with(base(), &[("/stations", json!(2008))]),
            "medium.stations is 2008, must be 1 to 2007",
        ),
        (
            with(base(), &[("/errors", json!({"type": "fixed", "probability": 1.5}))]),
            "medium.errors.probability is 1.5, must be 0 to 1",
        ),
        (
            with(base(), &[("/background", json!({"msdu_bytes": 1500}))]),
            "medium.background is set, but stations is 1, must be at least 2",
        ),
        (
            with(n(), &[("/phy/width_mhz", json!(80))]),
            "medium.phy.width_mhz is 80, must be one of 20, 40",
        ),
        (
            with(n(), &[("/phy/short_slot", json!(false))]),
            "medium.phy.short_slot is false, but slots in the 5 GHz band are 9 µs",
        ),
        (
            with(n(), &[("/rate/mcs", json!(32))]),
            "medium.rate.mcs is 32, must be 0 to 31",
        ),
        (
            with(n(), &[("/rate/streams", json!(1))]),
            "medium.rate.mcs is 15 with 1 streams, but in 802.11n this MCS has 2 (19.5)",
        ),
        (
            with(n(), &[("/security", json!("tkip"))]),
            "medium.security is wep or tkip, which 802.11n, ac and ax exclude",
        ),
        (
            with(n(), &[("/qos", json!(null))]),
            "medium.aggregation is set, but needs qos",
        ),
        (
            with(n(), &[("/qos/stations/voice/cw_min", json!(4))]),
            "medium.qos.stations.voice.cw_min is 4, must be a power of two less one",
        ),
        (
            with(n(), &[("/qos/stations/voice/cw_min", json!(15))]),
            "medium.qos.stations.voice.cw_min is 15, must be at most cw_max, 7",
        ),
        (
            with(n(), &[("/qos/stations/voice/txop_limit_ns", json!(1_000))]),
            "medium.qos.stations.voice.txop_limit_ns is 1000, must be a multiple of 32000",
        ),
        (
            with(n(), &[("/qos/access_point/voice/aifsn", json!(0))]),
            "medium.qos.access_point.voice.aifsn is 0, must be 1 to 15",
        ),
        (
            with(n(), &[("/aggregation/ampdu_max_bytes", json!(131_071))]),
            "medium.aggregation.ampdu_max_bytes is 131071, must be 8191 to 65535",
        ),
        (
            with(n(), &[("/aggregation/ampdu_max_bytes", json!(10_000))]),
            "medium.aggregation.ampdu_max_bytes is 10000, must be 0 or a power of two less one",
        ),
        (
            with(n(), &[("/aggregation/amsdu_max_bytes", json!(11_398))]),
            "medium.aggregation.amsdu_max_bytes is 11398, must be one of 0, 3839, 7935",
        ),
        (
            with(ac(), &[("/phy/width_mhz", json!(20)), ("/rate/streams", json!(1))]),
            "medium.rate.mcs is 9 with 1 streams at 20 MHz, which 802.11ac excludes (21.5)",
        ),
        (
            with(ac(), &[("/rate/streams", json!(5))]),
            "medium.rate.streams is 5, must be 1 to 4",
        ),
        (
            with(ac(), &[("/aggregation/ampdu_max_frames", json!(65))]),
            "medium.aggregation.ampdu_max_frames is 65, must be 1 to 64",
        ),
        (
            with(ax(), &[("/aggregation/ampdu_max_frames", json!(257))]),
            "medium.aggregation.ampdu_max_frames is 257, must be 1 to 256",
        ),
        (
            with(ax(), &[("/rate/mcs", json!(12))]),
            "medium.rate.mcs is 12, must be 0 to 11",
        ),
        (
            with(ax(), &[("/phy/guard_interval_ns", json!(400))]),
            "medium.phy.guard_interval_ns is 400, must be one of 800, 1600, 3200",
        ),
        (
            with(ax(), &[("/security", json!("wep"))]),
            "medium.security is wep or tkip, which 802.11n, ac and ax exclude",
        ),
    ];
    for (value, expected) in cases {
        assert_eq!(refusal(value), expected);
    }
}
