//! Single exchanges to the microsecond, against the figures of IEEE Std 802.11-2020.

mod wlan_support;

use tm_link::wlan::{
    Airtime, BeaconConfig, Category, Config, EdcaConfig, EifsConfig, ErrorConfig, Fate, Frame,
    Medium, Outcome, PhyConfig, Ppdu, ProtectionConfig, QosConfig, QueueConfig, RateConfig,
    Receiver, SecurityConfig, Verdict, ACCESS_POINT, OFDM_RATES,
};
use wlan_support::{a, b, frame, g, medium, n, plain, saturate, SECOND};

const US: u64 = 1_000;
const EDCA: QosConfig = QosConfig {
    background: None,
    best_effort: None,
    video: None,
    voice: None,
};

/// Poll whenever something is due, up to `until_ns`.
fn drain(medium: &mut Medium, until_ns: u64) -> Vec<Outcome> {
    let mut outcomes = vec![];
    while let Some(due_ns) = medium.next_due().filter(|&due_ns| due_ns <= until_ns) {
        outcomes.extend(std::iter::from_fn(|| medium.poll(due_ns)));
    }
    outcomes
}

/// (kind, station, start, length) in microseconds.
fn log_us(medium: &mut Medium) -> Vec<(Ppdu, u16, u64, u64)> {
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

fn logged(config: &Config, seed: u64) -> Medium {
    let mut medium = medium(config, seed);
    medium.keep_log(100_000);
    medium
}

#[test]
fn an_idle_medium_is_taken_at_once() {
    let mut medium = logged(&b(&[1_000_000]), 1);
    medium.offer(1_000 * US, 1, frame(7, 1_500));
    let outcomes = drain(&mut medium, SECOND);
    // 192 µs and 1534 byte at 11 Mbit/s, rounded up
    assert_eq!(outcomes[0].time_ns, (1_000 + 192 + 1_116) * US);
    assert_eq!((outcomes[0].token, outcomes[0].fate), (7, Fate::Delivered));
    let expected = [(Ppdu::Data, 1, 1_000, 1_308), (Ppdu::Ack, 0, 2_318, 304)];
    assert_eq!(log_us(&mut medium), expected);
}

#[test]
fn a_frame_that_comes_right_after_start_up_waits_for_difs() {
    let mut medium = logged(&b(&[1_000_000]), 1);
    medium.offer(0, 1, frame(0, 100));
    drain(&mut medium, SECOND);
    assert_eq!(log_us(&mut medium)[0].2, 50);
}

#[test]
fn stations_that_start_within_a_slot_collide_and_later_ones_wait() {
    let collide_after = |gap_us: u64| {
        let mut medium = logged(
            &Config {
                stations: 2,
                ..b(&[1_000_000])
            },
            3,
        );
        medium.offer(1_000 * US, 1, frame(0, 1_500));
        medium.offer((1_000 + gap_us) * US, 2, frame(1, 500));
        assert_eq!(drain(&mut medium, SECOND).len(), 2);
        (medium.counters(1).unwrap().collisions, medium.take_log())
    };
    for gap_us in [0, 1, 19] {
        let (collisions, log) = collide_after(gap_us);
        assert_eq!(collisions, 1, "{gap_us} µs");
        assert!(log[0].collided && log[1].collided && !log[2].collided);
        assert_eq!(log[1].start_ns - log[0].start_ns, gap_us * US);
    }
    for gap_us in [20, 21, 1_000] {
        let (collisions, log) = collide_after(gap_us);
        assert_eq!(collisions, 0, "{gap_us} µs");
        // the second waits for the exchange, DIFS and a number of slots
        let idle_ns = log[2].start_ns - log[1].end_ns - 50 * US;
        assert!(idle_ns.is_multiple_of(20 * US) && idle_ns <= 31 * 20 * US);
    }
}

#[test]
fn after_a_collision_those_that_heard_it_wait_for_eifs() {
    // two collide, a third hears it; it has the medium first if EIFS does not hold it back
    let earliest_us = |eifs| {
        (0..300)
            .map(|seed| {
                let config = Config {
                    stations: 3,
                    eifs,
                    ..b(&[1_000_000])
                };
                let mut medium = logged(&config, seed);
                medium.offer(1_000 * US, 1, frame(0, 1_500));
                medium.offer(1_000 * US, 2, frame(1, 1_500));
                medium.offer(1_500 * US, 3, frame(2, 1_500));
                drain(&mut medium, SECOND);
                let log = medium.take_log();
                let third = log.iter().find(|a| a.station == 3).unwrap().start_ns;
                let others = log[2..].iter().any(|a| a.start_ns < third);
                if others {
                    u64::MAX
                } else {
                    (third - log[0].end_ns) / US
                }
            })
            .min()
            .unwrap()
    };
    assert_eq!(earliest_us(EifsConfig::LowestRate), 364); // 10 + 304 + 50
    assert_eq!(earliest_us(EifsConfig::Dynamic), 308); // 10 + 248 + 50
    assert_eq!(earliest_us(EifsConfig::None), 50);
}

#[test]
fn the_contention_window_doubles_and_the_retry_limit_ends_it() {
    let errors = ErrorConfig::Fixed { probability: 1.0 };
    let mut widest = [0; 7];
    let mut sum = [0; 7];
    for seed in 0..2_000 {
        let mut medium = logged(
            &Config {
                errors,
                ..b(&[1_000_000])
            },
            seed,
        );
        medium.offer(1_000 * US, 1, frame(0, 100));
        let outcomes = drain(&mut medium, SECOND);
        assert_eq!(outcomes.len(), 1);
        assert_eq!(outcomes[0].fate, Fate::RetryLimit);
        let log = medium.take_log();
        assert_eq!(log.len(), 7); // dot11ShortRetryLimit
        for (i, pair) in log.windows(2).enumerate() {
            // AckTimeout: SIFS 10, slot 20, start delay 192; then DIFS 50
            let slots = (pair[1].start_ns - pair[0].end_ns - 272 * US) / (20 * US);
            assert_eq!(
                (pair[1].start_ns - pair[0].end_ns - 272 * US) % (20 * US),
                0
            );
            widest[i] = widest[i].max(slots);
            sum[i] += slots;
        }
    }
    for (i, cw) in [63, 127, 255, 511, 1_023, 1_023].into_iter().enumerate() {
        assert!(
            widest[i] <= cw && widest[i] > cw * 98 / 100,
            "{i}: {}",
            widest[i]
        );
        // standard error of the mean: cw / √(12 × 2000)
        let mean = sum[i] as f64 / 2_000.0;
        assert!((mean / cw as f64 - 0.5).abs() < 0.04, "{i}: {mean}");
    }
}

#[test]
fn rts_and_cts_go_before_what_is_longer_than_the_threshold() {
    let config = Config {
        rts_threshold_bytes: 1_000,
        ..b(&[1_000_000, 2_000_000])
    };
    let mut medium = logged(&config, 1);
    medium.offer(1_000 * US, 1, frame(0, 966)); // 1000 with MAC header and FCS
    drain(&mut medium, SECOND);
    medium.offer(100_000 * US, 1, frame(1, 967));
    drain(&mut medium, SECOND);
    let log = log_us(&mut medium);
    assert_eq!(
        log[..2].iter().map(|row| row.0).collect::<Vec<_>>(),
        [Ppdu::Data, Ppdu::Ack]
    );
    let expected = [
        (Ppdu::Rts, 1, 100_000, 192 + 80),
        (Ppdu::Cts, 0, 100_282, 192 + 56),
        (Ppdu::Data, 1, 100_540, 192 + 728),
        (Ppdu::Ack, 0, 101_470, 192 + 56),
    ];
    assert_eq!(log[2..], expected);
}

#[test]
fn the_long_retry_limit_counts_data_behind_rts() {
    let config = Config {
        rts_threshold_bytes: 0,
        errors: ErrorConfig::Fixed { probability: 1.0 },
        ..b(&[1_000_000])
    };
    let mut medium = logged(&config, 1);
    medium.offer(0, 1, frame(0, 500));
    assert_eq!(drain(&mut medium, SECOND)[0].fate, Fate::RetryLimit);
    let data = medium
        .take_log()
        .iter()
        .filter(|a| a.kind == Ppdu::Data)
        .count();
    assert_eq!(data, 4); // dot11LongRetryLimit
}

#[test]
fn a_collision_of_rts_frames_costs_no_data_frame() {
    let config = Config {
        stations: 2,
        rts_threshold_bytes: 0,
        ..b(&[1_000_000])
    };
    let mut medium = logged(&config, 5);
    medium.offer(1_000 * US, 1, frame(0, 2_304));
    medium.offer(1_000 * US, 2, frame(1, 2_304));
    drain(&mut medium, SECOND);
    let log = medium.take_log();
    assert!(log.iter().all(|a| !a.collided || a.kind == Ppdu::Rts));
    assert_eq!(log.iter().filter(|a| a.collided).count(), 2);
    assert_eq!(log.iter().filter(|a| a.kind == Ppdu::Data).count(), 2);
}

#[test]
fn fragments_follow_each_other_at_sifs() {
    let config = Config {
        fragmentation_threshold_bytes: 800,
        ..b(&[1_000_000])
    };
    let mut medium = logged(&config, 1);
    medium.offer(1_000 * US, 1, frame(0, 1_600));
    let outcomes = drain(&mut medium, SECOND);
    // bodies of 766, 766 and 68 byte
    let expected = [
        (Ppdu::Data, 1, 1_000, 192 + 582),
        (Ppdu::Ack, 0, 1_784, 304),
        (Ppdu::Data, 1, 2_098, 192 + 582),
        (Ppdu::Ack, 0, 2_882, 304),
        (Ppdu::Data, 1, 3_196, 192 + 75),
        (Ppdu::Ack, 0, 3_473, 304),
    ];
    assert_eq!(log_us(&mut medium), expected);
    assert_eq!(outcomes[0].time_ns, 3_463 * US);
    assert_eq!(medium.counters(1).unwrap().mpdus, 3);
}

#[test]
fn a_lost_fragment_is_repeated_alone() {
    let config = Config {
        fragmentation_threshold_bytes: 800,
        errors: ErrorConfig::Fixed { probability: 0.4 },
        short_retry_limit: 255,
        ..b(&[1_000_000])
    };
    for seed in 0..200 {
        let mut medium = logged(&config, seed);
        medium.offer(1_000 * US, 1, frame(0, 1_600));
        assert_eq!(drain(&mut medium, SECOND)[0].fate, Fate::Delivered);
        let log = medium.take_log();
        let acks = log.iter().filter(|a| a.kind == Ppdu::Ack).count();
        assert_eq!(acks, 3, "seed {seed}");
        let short = log.iter().rfind(|a| a.kind == Ppdu::Data).unwrap();
        assert_eq!(short.end_ns - short.start_ns, 267 * US);
    }
}

#[test]
fn protection_announces_ofdm_frames_at_a_rate_of_802_11b() {
    let with = |protection| {
        let basic = [
            1_000_000, 2_000_000, 5_500_000, 11_000_000, 6_000_000, 24_000_000,
        ];
        let phy = PhyConfig::G {
            short_slot: false,
            short_preamble: false,
        };
        let mut medium = logged(
            &Config {
                protection,
                ..plain(phy, 54_000_000, &basic)
            },
            1,
        );
        medium.offer(1_000 * US, 1, frame(0, 1_500));
        drain(&mut medium, SECOND);
        log_us(&mut medium)
    };
    let cts_us = 192 + 11;
    let to_self = [
        (Ppdu::Cts, 1, 1_000, cts_us),
        (Ppdu::Data, 1, 1_213, 20 + 228 + 6),
        (Ppdu::Ack, 0, 1_477, 20 + 8 + 6),
    ];
    assert_eq!(with(ProtectionConfig::CtsToSelf), to_self);
    let rts = with(ProtectionConfig::RtsCts);
    assert_eq!(rts[0], (Ppdu::Rts, 1, 1_000, 192 + 15));
    assert_eq!(rts[1], (Ppdu::Cts, 0, 1_217, cts_us));
    assert_eq!(rts[2].2, 1_430);
    assert_eq!(with(ProtectionConfig::None)[0], (Ppdu::Data, 1, 1_000, 254));
}

#[test]
fn group_addressed_frames_go_once_at_the_lowest_basic_rate() {
    let errors = ErrorConfig::Fixed { probability: 0.5 };
    let mut medium = logged(&Config { errors, ..g(true) }, 1);
    let group = Frame {
        receiver: Receiver::Group,
        ..frame(0, 100)
    };
    for token in 0..400 {
        medium.offer(token * 10_000 * US, ACCESS_POINT, Frame { token, ..group });
    }
    let delivered = drain(&mut medium, 10 * SECOND)
        .iter()
        .filter(|o| o.fate == Fate::Delivered)
        .count();
    assert!((140..260).contains(&delivered), "{delivered}"); // six standard deviations of 10
    let log = log_us(&mut medium);
    assert_eq!(log.len(), 400);
    // 134 byte at 6 Mbit/s: 46 symbols
    assert!(log
        .iter()
        .all(|row| (row.0, row.3) == (Ppdu::Data, 20 + 184 + 6)));
    assert_eq!(
        medium.offer(20 * SECOND, 1, group),
        Verdict::Refused,
        "a station has no group addressed frames of its own"
    );
}

#[test]
fn a_txop_carries_several_frames_and_keeps_its_limit() {
    let config = Config {
        qos: Some(EDCA),
        ..a()
    };
    let mut medium = logged(&config, 1);
    for token in 0..20 {
        let voice = Frame {
            category: Category::Voice,
            ..frame(token, 500)
        };
        medium.offer(1_000 * US, 1, voice);
    }
    drain(&mut medium, SECOND);
    let log = log_us(&mut medium);
    assert_eq!(log.len(), 40);
    let mut start_us = log[0].2;
    let mut in_txop = 0;
    let mut sizes = vec![];
    for pair in log.windows(2) {
        let gap_us = pair[1].2 - pair[0].2 - pair[0].3;
        if gap_us == 16 {
            in_txop += 1;
            assert!(pair[1].2 + pair[1].3 - start_us <= 1_504);
        } else {
            // SIFS 16 and AIFSN 2 with slots of 9, then the backoff
            assert!(
                gap_us >= 34 && (gap_us - 34).is_multiple_of(9) && gap_us <= 34 + 3 * 9,
                "{gap_us}"
            );
            sizes.push((in_txop + 1) / 2);
            (in_txop, start_us) = (0, pair[1].2);
        }
    }
    // 536 byte: 20 + 80, SIFS, Ack 28, SIFS: 160 µs each, so nine fit into 1504 µs
    assert_eq!(sizes, [9, 9]);
}

#[test]
fn urgent_categories_come_first() {
    let config = Config {
        qos: Some(EDCA),
        queue: QueueConfig::Packets { limit: 500 },
        ..a()
    };
    let mut medium = medium(&config, 1);
    let mut token = 0;
    let mut delivered = [0_u32; 4];
    let mut categories = std::collections::HashMap::new();
    for category in Category::ALL {
        for _ in 0..100 {
            medium.offer(
                0,
                1,
                Frame {
                    category,
                    ..frame(token, 1_500)
                },
            );
            categories.insert(token, category);
            token += 1;
        }
    }
    while let Some(due_ns) = medium.next_due().filter(|&due_ns| due_ns < 10 * SECOND) {
        while let Some(outcome) = medium.poll(due_ns) {
            let category = categories[&outcome.token];
            delivered[category as usize] += u32::from(outcome.fate == Fate::Delivered);
            medium.offer(
                due_ns,
                1,
                Frame {
                    category,
                    ..frame(token, 1_500)
                },
            );
            categories.insert(token, category);
            token += 1;
        }
    }
    assert!(
        delivered.windows(2).all(|pair| pair[0] < pair[1]),
        "{delivered:?}"
    );
    assert!(delivered[3] > 10 * delivered[1], "{delivered:?}");
    assert!(medium.counters(1).unwrap().internal_collisions > 100);
    assert_eq!(medium.counters(1).unwrap().collisions, 0);
}

#[test]
fn aifs_follows_the_configured_number() {
    let edca = |aifsn| EdcaConfig {
        aifsn,
        cw_min: 0,
        cw_max: 0,
        txop_limit_ns: 0,
    };
    for aifsn in [2, 3, 7, 15] {
        let qos = QosConfig {
            best_effort: Some(edca(aifsn)),
            ..EDCA
        };
        let mut medium = logged(
            &Config {
                qos: Some(qos),
                ..a()
            },
            1,
        );
        medium.offer(1_000 * US, 1, frame(0, 100));
        medium.offer(1_000 * US, 1, frame(1, 100));
        drain(&mut medium, SECOND);
        let log = log_us(&mut medium);
        assert_eq!(log[2].2 - log[1].2 - log[1].3, 16 + 9 * u64::from(aifsn));
    }
}

#[test]
fn beacons_come_at_their_interval_without_backoff() {
    let beacon = BeaconConfig {
        interval_tu: 100,
        bytes: 200,
    };
    let mut medium = logged(
        &Config {
            beacon: Some(beacon),
            ..b(&[1_000_000])
        },
        1,
    );
    assert_eq!(drain(&mut medium, SECOND), []);
    let log = log_us(&mut medium);
    assert_eq!(log.len(), 9);
    for (i, row) in (1..).zip(&log) {
        assert_eq!(*row, (Ppdu::Beacon, ACCESS_POINT, i * 102_400, 192 + 1_600));
    }
}

#[test]
fn link_security_costs_its_bytes() {
    let length_us = |security, fragmentation_threshold_bytes| {
        let config = Config {
            security,
            fragmentation_threshold_bytes,
            ..b(&[1_000_000])
        };
        let mut medium = logged(&config, 1);
        medium.offer(1_000 * US, 1, frame(0, 1_066)); // 1100 byte on air when open
        drain(&mut medium, SECOND);
        let log = log_us(&mut medium);
        log.iter()
            .filter(|row| row.0 == Ppdu::Data)
            .map(|row| row.3 - 192)
            .collect::<Vec<_>>()
    };
    let us = |bytes: u64| (bytes * 8).div_ceil(11);
    assert_eq!(length_us(SecurityConfig::None, 2_346), [us(1_100)]);
    assert_eq!(length_us(SecurityConfig::Wep, 2_346), [us(1_108)]);
    assert_eq!(length_us(SecurityConfig::Tkip, 2_346), [us(1_120)]);
    assert_eq!(length_us(SecurityConfig::Ccmp, 2_346), [us(1_116)]);
    assert_eq!(length_us(SecurityConfig::Gcmp, 2_346), [us(1_124)]);
    // in fragments: Michael once (8), the rest in each (12)
    assert_eq!(
        length_us(SecurityConfig::Tkip, 600),
        [us(600), us(1_066 + 8 - 554 + 46)]
    );
}

#[test]
fn aggregates_keep_all_their_limits() {
    let largest = |config: &Config, bytes: u32| {
        let mut medium = logged(config, 1);
        for token in 0..200 {
            medium.offer(0, 1, frame(token, bytes));
        }
        drain(&mut medium, SECOND);
        let log = medium.take_log();
        let longest = log
            .iter()
            .filter(|a| a.kind == Ppdu::Ampdu)
            .map(|a| a.end_ns - a.start_ns)
            .max();
        let count = log.iter().filter(|a| a.kind == Ppdu::Ampdu).count();
        (longest.unwrap_or(0) / US, count)
    };
    // 5.484 ms at 6.5 Mbit/s: two MPDUs of 1538 byte
    let (longest, count) = largest(&n(0, 20), 1_508);
    assert!(longest <= 5_484 && count == 100, "{longest} {count}");
    // 65535 byte: 42 MPDUs of 1544 byte with delimiter and padding, at 270 Mbit/s
    assert_eq!(largest(&n(15, 40), 1_508).1, 5);
    // 64 MPDUs
    assert_eq!(largest(&n(15, 40), 100).1, 4);
    let mut config = n(15, 40);
    config.aggregation.as_mut().unwrap().ampdu_max_frames = 10;
    assert_eq!(largest(&config, 100).1, 20);
    // 16 µs between the starts of MPDUs: 540 byte at 270 Mbit/s instead of 136
    config.aggregation.as_mut().unwrap().mpdu_spacing_ns = 16_000;
    assert_eq!(
        largest(&config, 100).0,
        40 + 4 * ((9 * 540 + 134) * 8_u64 + 22).div_ceil(1_080)
    );
}

#[test]
fn msdus_are_joined_up_to_the_largest_amsdu() {
    let mut config = n(7, 20);
    let aggregation = config.aggregation.as_mut().unwrap();
    aggregation.ampdu_max_bytes = 0;
    aggregation.amsdu_max_bytes = 3_839;
    let mut medium = logged(&config, 1);
    for token in 0..10 {
        medium.offer(1_000 * US, 1, frame(token, 500));
    }
    let outcomes = drain(&mut medium, SECOND);
    assert_eq!(
        outcomes.iter().map(|o| o.token).collect::<Vec<_>>(),
        (0..10).collect::<Vec<_>>()
    );
    // subframes of 516 byte with padding: seven are 3610 byte, eight are too many
    assert_eq!(
        outcomes
            .iter()
            .filter(|o| o.time_ns == outcomes[0].time_ns)
            .count(),
        7
    );
    let log = log_us(&mut medium);
    let air_us = |bytes: u64| 36 + 4 * (bytes * 8 + 22).div_ceil(260);
    // the first slot boundary after 1000: AIFS 43 and 107 slots
    assert_eq!(log[0], (Ppdu::Data, 1, 1_006, air_us(6 * 516 + 514 + 30)));
    assert_eq!(log[1].0, Ppdu::Ack);
    assert_eq!(log[2].3, air_us(2 * 516 + 514 + 30));
}

#[test]
fn a_lost_mpdu_holds_up_those_behind_it_until_it_comes_or_is_given_up() {
    let errors = ErrorConfig::Fixed { probability: 0.5 };
    let mut medium = logged(
        &Config {
            errors,
            short_retry_limit: 2,
            ..n(7, 20)
        },
        1,
    );
    for token in 0..640 {
        medium.offer(0, 1, frame(token, 500));
    }
    let outcomes = drain(&mut medium, 10 * SECOND);
    assert_eq!(outcomes.len(), 640);
    let delivered: Vec<_> = outcomes
        .iter()
        .filter(|o| o.fate == Fate::Delivered)
        .map(|o| o.token)
        .collect();
    assert!(delivered.windows(2).all(|pair| pair[0] < pair[1]));
    // a quarter fails twice; standard deviation 11
    assert!((420..540).contains(&delivered.len()), "{}", delivered.len());
    let log = medium.take_log();
    let count = |kind| log.iter().filter(|a| a.kind == kind).count();
    assert!(count(Ppdu::BlockAckRequest) > 0);
    assert_eq!(
        medium.counters(1).unwrap().retry_dropped,
        640 - delivered.len() as u64
    );
}

#[test]
fn fixed_errors_cost_what_they_should() {
    // one attempt each: throughput falls by the share of lost frames, less what no Ack saves
    let errors = ErrorConfig::Fixed { probability: 0.3 };
    let config = Config { errors, ..n(7, 20) };
    let clean = saturate(
        &mut medium(&n(7, 20), 1),
        &[(1, frame(0, 1_508))],
        10 * SECOND,
    );
    let lossy = saturate(
        &mut medium(&config, 1),
        &[(1, frame(0, 1_508))],
        10 * SECOND,
    );
    // repeats are within the aggregates, which stay full but for the window
    assert!((lossy / clean - 0.7).abs() < 0.03, "{lossy} of {clean}");
}

#[test]
fn both_directions_share_the_medium() {
    let config = b(&[1_000_000]);
    let alone = saturate(
        &mut medium(&config, 1),
        &[(1, frame(0, 1_500))],
        10 * SECOND,
    );
    let down = Frame {
        receiver: Receiver::Station(1),
        ..frame(0, 1_500)
    };
    let mut shared = medium(&config, 1);
    let both = saturate(
        &mut shared,
        &[(1, frame(0, 1_500)), (ACCESS_POINT, down)],
        10 * SECOND,
    );
    assert!(both < alone * 1.1, "{both} against {alone}");
    let [up, down] =
        [1, ACCESS_POINT].map(|station| shared.counters(station).unwrap().delivered as f64);
    assert!((up / down - 1.0).abs() < 0.05, "{up} up, {down} down");
}

#[test]
fn the_access_point_serves_its_stations_in_turn() {
    let config = Config {
        stations: 3,
        ..b(&[1_000_000])
    };
    let senders: Vec<_> = (1..=3)
        .map(|to| {
            (
                ACCESS_POINT,
                Frame {
                    receiver: Receiver::Station(to),
                    ..frame(0, 500)
                },
            )
        })
        .collect();
    let mut medium = medium(&config, 1);
    let mut to_each = [0_u32; 3];
    for (_, frame) in &senders {
        for token in 0..50 {
            medium.offer(0, ACCESS_POINT, Frame { token, ..*frame });
        }
    }
    for outcome in drain(&mut medium, SECOND / 20) {
        let Receiver::Station(to) = outcome.receiver else {
            panic!("{outcome:?}")
        };
        to_each[usize::from(to) - 1] += 1;
    }
    assert!(
        to_each[0] > 5 && to_each[0] - to_each[2] <= 1,
        "{to_each:?}"
    );
}

#[test]
fn queues_drop_at_their_limit_and_free_places_with_the_acknowledgement() {
    let config = Config {
        queue: QueueConfig::Packets { limit: 2 },
        ..b(&[1_000_000])
    };
    let mut medium = medium(&config, 1);
    assert_eq!(
        medium.offer(1_000 * US, 1, frame(0, 1_500)),
        Verdict::Queued
    );
    assert_eq!(
        medium.offer(1_000 * US, 1, frame(1, 1_500)),
        Verdict::Queued
    );
    assert_eq!(
        medium.offer(1_000 * US, 1, frame(2, 1_500)),
        Verdict::QueueFull
    );
    // the frame has arrived at 2308, its Ack ends at 2622
    assert_eq!(
        medium.offer(2_621 * US, 1, frame(3, 1_500)),
        Verdict::QueueFull
    );
    assert_eq!(
        medium.offer(2_622 * US, 1, frame(4, 1_500)),
        Verdict::Queued
    );
    assert_eq!(medium.counters(1).unwrap().queue_dropped, 2);
    let config = Config {
        queue: QueueConfig::Bytes { limit: 3_000 },
        ..b(&[1_000_000])
    };
    let mut medium = wlan_support::medium(&config, 1);
    assert_eq!(medium.offer(0, 1, frame(0, 1_500)), Verdict::Queued);
    assert_eq!(medium.offer(0, 1, frame(1, 1_501)), Verdict::QueueFull);
    assert_eq!(medium.offer(0, 1, frame(2, 1_500)), Verdict::Queued);
    assert_eq!(medium.offer(0, 1, frame(3, 2_305)), Verdict::Refused);
    assert_eq!(medium.offer(0, 9, frame(4, 100)), Verdict::Refused);
}

#[test]
fn minstrel_comes_near_the_best_rate_wherever_the_station_is() {
    for snr_db in [6.0, 12.0, 18.0, 24.0, 30.0] {
        let errors = ErrorConfig::Snr { snr_db };
        let mbit_s = |rate| {
            let config = Config {
                errors,
                rate,
                ..a()
            };
            saturate(
                &mut medium(&config, 1),
                &[(1, frame(0, 1_500))],
                20 * SECOND,
            )
        };
        let best = OFDM_RATES
            .map(|rate_bit_s| mbit_s(RateConfig::Fixed { rate_bit_s }))
            .into_iter()
            .fold(0.0, f64::max);
        let chosen = mbit_s(RateConfig::Minstrel { max_streams: 1 });
        assert!(chosen > 0.85 * best, "{snr_db} dB: {chosen} of {best}");
        assert!(chosen <= 1.01 * best, "{snr_db} dB: {chosen} of {best}");
    }
}

#[test]
fn minstrel_comes_near_the_best_rate_with_aggregation() {
    for snr_db in [10.0, 20.0, 35.0] {
        let errors = ErrorConfig::Snr { snr_db };
        let mbit_s = |rate| {
            let config = Config {
                errors,
                rate,
                ..n(0, 20)
            };
            saturate(
                &mut medium(&config, 1),
                &[(1, frame(0, 1_500))],
                20 * SECOND,
            )
        };
        let best = (0..16)
            .map(|mcs| {
                mbit_s(RateConfig::Mcs {
                    mcs,
                    streams: mcs / 8 + 1,
                })
            })
            .fold(0.0, f64::max);
        let chosen = mbit_s(RateConfig::Minstrel { max_streams: 2 });
        assert!(chosen > 0.75 * best, "{snr_db} dB: {chosen} of {best}");
    }
}
