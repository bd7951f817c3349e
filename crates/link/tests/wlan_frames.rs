//! What is on air in one exchange, to the microsecond, against IEEE Std 802.11-2020.

mod wlan_support;

use tm_link::wlan::{
    Config, ErrorConfig, Fate, Frame, PhyConfig, Ppdu, ProtectionConfig, QueueConfig, RateConfig,
    Receiver, SecurityConfig, Verdict, ACCESS_POINT, OFDM_RATES,
};
use wlan_support::{a, b, drain, frame, g, log_us, logged, medium, n, plain, saturate, SECOND, US};

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
    // bodies of 766, 766 and 68 bytes
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
    // 134 bytes at 6 Mbit/s: 46 symbols
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
fn link_security_costs_its_bytes() {
    let length_us = |security, fragmentation_threshold_bytes| {
        let config = Config {
            security,
            fragmentation_threshold_bytes,
            ..b(&[1_000_000])
        };
        let mut medium = logged(&config, 1);
        medium.offer(1_000 * US, 1, frame(0, 1_066)); // 1100 bytes on air when open
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
    // 5.484 ms at 6.5 Mbit/s: two MPDUs of 1538 bytes
    let (longest, count) = largest(&n(0, 20), 1_508);
    assert!(longest <= 5_484 && count == 100, "{longest} {count}");
    // 65535 bytes: 42 MPDUs of 1544 bytes with delimiter and padding, at 270 Mbit/s
    assert_eq!(largest(&n(15, 40), 1_508).1, 5);
    // 64 MPDUs
    assert_eq!(largest(&n(15, 40), 100).1, 4);
    let mut config = n(15, 40);
    config.aggregation.as_mut().unwrap().ampdu_max_frames = 10;
    assert_eq!(largest(&config, 100).1, 20);
    // 16 µs between the starts of MPDUs: 540 bytes at 270 Mbit/s instead of 136
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
    // subframes of 516 bytes with padding: seven are 3610 bytes, eight are too many
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
    // what was behind a frame that was given up waits until the receiver has heard of that
    for given_up in outcomes.iter().filter(|o| o.fate == Fate::RetryLimit) {
        let reported = log
            .iter()
            .find(|a| a.kind == Ppdu::BlockAckRequest && a.start_ns > given_up.time_ns)
            .unwrap();
        let next = outcomes
            .iter()
            .find(|o| o.fate == Fate::Delivered && o.time_ns > given_up.time_ns);
        assert!(next.is_none_or(|next| next.time_ns >= reported.end_ns));
    }
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

#[test]
fn an_amsdu_is_repeated_as_it_was() {
    let mut config = n(7, 20);
    config.errors = ErrorConfig::Fixed { probability: 1.0 };
    let aggregation = config.aggregation.as_mut().unwrap();
    aggregation.ampdu_max_bytes = 0;
    aggregation.amsdu_max_bytes = 7_935;
    let mut medium = logged(&config, 1);
    medium.offer(1_000 * US, 1, frame(0, 500));
    medium.offer(1_000 * US, 1, frame(1, 500));
    // on air since 1006, and there is room for more
    medium.offer(1_100 * US, 1, frame(2, 500));
    drain(&mut medium, SECOND);
    let lengths: Vec<_> = log_us(&mut medium).iter().map(|row| row.3).collect();
    let pair = 36 + 4 * ((516 + 514 + 30) * 8_u64 + 22).div_ceil(260);
    let single = 36 + 4 * (530 * 8_u64 + 22).div_ceil(260);
    assert_eq!(lengths, [[pair; 7], [single; 7]].concat());
}

#[test]
fn each_fragment_has_its_own_retry_count() {
    let config = Config {
        fragmentation_threshold_bytes: 800,
        errors: ErrorConfig::Fixed { probability: 0.5 },
        short_retry_limit: 3,
        ..b(&[1_000_000])
    };
    let mut most = 0;
    for seed in 0..500 {
        let mut medium = logged(&config, seed);
        medium.offer(1_000 * US, 1, frame(0, 1_600));
        let fate = drain(&mut medium, SECOND)[0].fate;
        let log = medium.take_log();
        let sent = log.iter().filter(|a| a.kind == Ppdu::Data).count();
        let arrived = log.iter().filter(|a| a.kind == Ppdu::Ack).count();
        match fate {
            Fate::Delivered => most = most.max(sent - arrived),
            Fate::RetryLimit => assert!(arrived < 3 && sent - arrived >= 3),
        }
    }
    assert_eq!(most, 6); // two failures of each of three fragments
}

#[test]
fn a_receiver_holds_back_no_more_than_the_window_of_the_block_ack() {
    let errors = ErrorConfig::Fixed { probability: 0.6 };
    let config = Config {
        errors,
        short_retry_limit: 255,
        queue: QueueConfig::Packets { limit: 20_000 },
        ..n(15, 40)
    };
    let mut medium = medium(&config, 1);
    for token in 0..20_000 {
        medium.offer(0, 1, frame(token, 100));
    }
    let outcomes = drain(&mut medium, 100 * SECOND);
    assert_eq!(outcomes.len(), 20_000);
    let bursts = outcomes.chunk_by(|a, b| a.time_ns == b.time_ns);
    let longest = bursts.map(<[_]>::len).max().unwrap();
    assert!((58..=64).contains(&longest), "{longest}");
}
