//! The same seed gives the same exchanges, to the nanosecond, whatever the platform and however the
//! state machine is written: a hash of everything on air. A change here is a change of the model.

mod wlan_support;

use tm_link::wlan::{
    BeaconConfig, Category, Config, ErrorConfig, Frame, PhyConfig, ProtectionConfig, RateConfig,
    Receiver, ACCESS_POINT,
};
use wlan_support::{a, b, frame, g, logged, n, saturate, EDCA, SECOND};

/// FNV-1a over the log of half a second in which both sides always have frames.
fn on_air(config: &Config, seed: u64) -> u64 {
    let mut medium = logged(config, seed);
    let mut senders = vec![];
    for category in [Category::BestEffort, Category::Voice] {
        senders.push((1, 700, Receiver::Station(ACCESS_POINT), category));
        senders.push((ACCESS_POINT, 1_500, Receiver::Station(1), category));
    }
    senders.push((ACCESS_POINT, 300, Receiver::Group, Category::BestEffort));
    for station in 2..=config.stations {
        let to = Receiver::Station(ACCESS_POINT);
        senders.push((station, 1_200, to, Category::Video));
    }
    let senders: Vec<_> = senders
        .into_iter()
        .map(|(station, bytes, receiver, category)| {
            let sent = Frame {
                receiver,
                category,
                ..frame(0, bytes)
            };
            (station, sent)
        })
        .collect();
    saturate(&mut medium, &senders, SECOND / 2);
    let mut hash = 0xcbf2_9ce4_8422_2325_u64;
    for one in medium.take_log() {
        let what = one.kind as u64 * 2 + u64::from(one.collided);
        for word in [one.start_ns, one.end_ns, u64::from(one.station), what] {
            for byte in word.to_be_bytes() {
                hash = (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
            }
        }
    }
    hash
}

#[test]
fn the_same_seed_gives_the_same_exchanges() {
    let beacon = BeaconConfig {
        interval_tu: 20,
        bytes: 200,
    };
    let errors = ErrorConfig::Snr { snr_db: 19.0 };
    let five = |config| Config {
        stations: 5,
        beacon: Some(beacon),
        ..config
    };
    let minstrel = |max_streams| RateConfig::Minstrel { max_streams };
    let cases = [
        ("b", b(&[1_000_000]), 10_648_493_130_796_809_430),
        (
            "five of b",
            five(b(&[1_000_000, 2_000_000])),
            6_689_621_609_014_596_459,
        ),
        (
            "a with categories, errors, RTS, fragments and Minstrel",
            Config {
                qos: Some(EDCA),
                errors,
                rts_threshold_bytes: 1_000,
                fragmentation_threshold_bytes: 800,
                rate: minstrel(1),
                ..five(a())
            },
            1_376_048_569_392_435_989,
        ),
        (
            "g with protection",
            Config {
                phy: PhyConfig::G {
                    short_slot: false,
                    short_preamble: true,
                },
                basic_rates_bit_s: vec![1_000_000, 2_000_000, 6_000_000, 24_000_000],
                protection: ProtectionConfig::CtsToSelf,
                ..five(g(false))
            },
            7_898_601_912_404_548_397,
        ),
        ("n", five(n(15, 40)), 11_697_518_249_470_539_696),
        (
            "n with errors and Minstrel",
            Config {
                errors,
                rate: minstrel(2),
                ..five(n(7, 20))
            },
            12_417_252_176_436_648_476,
        ),
        (
            "n with A-MSDUs",
            Config {
                errors: ErrorConfig::Fixed { probability: 0.1 },
                aggregation: n(7, 20)
                    .aggregation
                    .map(|a| tm_link::wlan::AggregationConfig {
                        amsdu_max_bytes: 3_839,
                        mpdu_spacing_ns: 16_000,
                        ..a
                    }),
                ..five(n(7, 20))
            },
            14_076_506_406_708_078_806,
        ),
    ];
    let got: Vec<_> = cases
        .iter()
        .map(|(name, config, _)| (*name, on_air(config, 1)))
        .collect();
    let expected: Vec<_> = cases.iter().map(|(name, _, hash)| (*name, *hash)).collect();
    assert_eq!(got, expected);
}
