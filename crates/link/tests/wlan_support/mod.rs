//! What the tests of the WLAN share: configurations, and senders that never run dry.
#![allow(dead_code)] // each test binary uses its part

use tm_link::wlan::{
    AggregationConfig, Airtime, CategoriesConfig, Category, Config, EifsConfig, ErrorConfig, Fate,
    Frame, Medium, Outcome, PhyConfig, Ppdu, ProtectionConfig, QosConfig, QueueConfig, RateConfig,
    Receiver, RtsCounts, SecurityConfig, StationId, Verdict, ACCESS_POINT,
};

pub const SECOND: u64 = 1_000_000_000;

/// Nothing but the distributed coordination function; 34 bytes of MAC header and FCS.
pub fn plain(phy: PhyConfig, rate_bit_s: u64, basic: &[u64]) -> Config {
    Config {
        phy,
        rate: RateConfig::Fixed { rate_bit_s },
        basic_rates_bit_s: basic.to_vec(),
        protection: ProtectionConfig::None,
        rts_threshold_bytes: 2_347,
        rts_counts: RtsCounts::Psdu,
        fragmentation_threshold_bytes: 2_346,
        short_retry_limit: 7,
        long_retry_limit: 4,
        queue: QueueConfig::Packets { limit: 1_000 },
        qos: None,
        aggregation: None,
        security: SecurityConfig::None,
        four_addresses: true,
        errors: ErrorConfig::None {},
        beacon: None,
        eifs: EifsConfig::LowestRate,
        stations: 1,
        background: None,
    }
}

pub fn b(basic: &[u64]) -> Config {
    plain(
        PhyConfig::B {
            short_preamble: false,
        },
        11_000_000,
        basic,
    )
}

pub fn a() -> Config {
    plain(
        PhyConfig::A {},
        54_000_000,
        &[6_000_000, 12_000_000, 24_000_000],
    )
}

pub fn g(short_slot: bool) -> Config {
    let phy = PhyConfig::G {
        short_slot,
        short_preamble: false,
    };
    plain(phy, 54_000_000, &[6_000_000, 12_000_000, 24_000_000])
}

/// 802.11n in the 5 GHz band with A-MPDUs of at most 65535 bytes.
pub fn n(mcs: u8, width_mhz: u16) -> Config {
    Config {
        rate: RateConfig::Mcs {
            mcs,
            streams: mcs / 8 + 1,
        },
        rts_threshold_bytes: 1 << 20,
        qos: Some(EDCA),
        aggregation: Some(AggregationConfig {
            ampdu_max_bytes: 65_535,
            ampdu_max_frames: 64,
            amsdu_max_bytes: 0,
            mpdu_spacing_ns: 0,
        }),
        four_addresses: false,
        ..plain(
            PhyConfig::N {
                band: tm_link::wlan::BandConfig::Ghz5,
                short_slot: true,
                short_preamble: false,
                width_mhz,
                guard_interval_ns: 800,
                greenfield: false,
            },
            0,
            &[6_000_000, 12_000_000, 24_000_000],
        )
    }
}

/// 802.11ax in the 5 GHz band, one stream, A-MPDUs of at most so many MPDUs.
pub fn ax(mcs: u8, width_mhz: u16, guard_interval_ns: u16, frames: u16) -> Config {
    Config {
        phy: PhyConfig::Ax {
            width_mhz,
            guard_interval_ns,
        },
        rate: RateConfig::Mcs { mcs, streams: 1 },
        aggregation: n(0, 20).aggregation.map(|a| AggregationConfig {
            ampdu_max_bytes: 4_194_303,
            ampdu_max_frames: frames,
            ..a
        }),
        ..n(0, 20)
    }
}

pub fn medium(config: &Config, seed: u64) -> Medium {
    Medium::new(config.setup("medium").unwrap(), seed)
}

pub fn frame(token: u64, msdu_bytes: u32) -> Frame {
    Frame {
        token,
        msdu_bytes,
        receiver: Receiver::Station(ACCESS_POINT),
        category: Category::BestEffort,
    }
}

/// Let each of `senders` always have frames, for some virtual time; Mbit/s of MSDUs delivered.
pub fn saturate(medium: &mut Medium, senders: &[(StationId, Frame)], until_ns: u64) -> f64 {
    saturate_with(medium, senders, 130, until_ns)
}

/// The same with so many frames of each sender waiting: more than its longest aggregate takes.
pub fn saturate_with(
    medium: &mut Medium,
    senders: &[(StationId, Frame)],
    waiting: u32,
    until_ns: u64,
) -> f64 {
    let mut token = 0;
    let from_ns = medium.next_due().unwrap_or(0);
    for (station, frame) in senders {
        for _ in 0..waiting {
            let verdict = medium.offer(from_ns, *station, Frame { token, ..*frame });
            assert_eq!(verdict, Verdict::Queued);
            token += 1;
        }
    }
    let mut bits = 0;
    while let Some(due_ns) = medium.next_due().filter(|&due_ns| due_ns < until_ns) {
        while let Some(outcome) = medium.poll(due_ns) {
            assert_eq!(outcome.time_ns, due_ns);
            if outcome.fate == Fate::Delivered {
                bits += u64::from(outcome.msdu_bytes) * 8;
            }
            let (_, frame) = senders
                .iter()
                .find(|(s, f)| *s == outcome.sender && f.receiver == outcome.receiver)
                .unwrap();
            medium.offer(due_ns, outcome.sender, Frame { token, ..*frame });
            token += 1;
        }
    }
    bits as f64 * 1e3 / until_ns as f64
}

pub fn assert_close(what: &str, got: f64, expected: f64, tolerance: f64) {
    let error = got / expected - 1.0;
    assert!(
        error.abs() <= tolerance,
        "{what}: {got:.4}, expected {expected:.4}, {:+.2} % off, allowed {} %",
        error * 100.0,
        tolerance * 100.0
    );
    println!(
        "{what}: {got:.4}, expected {expected:.4}, {:+.2} %",
        error * 100.0
    );
}

pub const US: u64 = 1_000;
const DEFAULTS: CategoriesConfig = CategoriesConfig {
    background: None,
    best_effort: None,
    video: None,
    voice: None,
};
/// Access categories with the defaults of stations and access points.
pub const EDCA: QosConfig = QosConfig {
    stations: DEFAULTS,
    access_point: DEFAULTS,
};

/// Access categories of the stations, the access point with its defaults.
pub fn of_stations(stations: CategoriesConfig) -> QosConfig {
    QosConfig { stations, ..EDCA }
}

/// Poll whenever something is due, up to `until_ns`.
pub fn drain(medium: &mut Medium, until_ns: u64) -> Vec<Outcome> {
    let mut outcomes = vec![];
    while let Some(due_ns) = medium.next_due().filter(|&due_ns| due_ns <= until_ns) {
        outcomes.extend(std::iter::from_fn(|| medium.poll(due_ns)));
    }
    outcomes
}

/// (kind, station, start, length) in microseconds.
pub fn log_us(medium: &mut Medium) -> Vec<(Ppdu, u16, u64, u64)> {
    let row = |a: Airtime| {
        (
            a.kind,
            a.station,
            a.start_ns / US,
            (a.end_ns - a.start_ns) / US,
        )
    };
    medium.take_log().into_iter().map(row).collect()
}

pub fn logged(config: &Config, seed: u64) -> Medium {
    let mut medium = medium(config, seed);
    medium.keep_log(100_000);
    medium
}
