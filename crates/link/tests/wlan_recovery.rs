//! What follows when something does not arrive, against IEEE Std 802.11-2020.

mod wlan_support;

use tm_link::wlan::{
    CategoriesConfig, Category, Config, EdcaConfig, EifsConfig, ErrorConfig, Fate, Frame, Ppdu,
    RateConfig, Receiver, ACCESS_POINT,
};
use wlan_support::{a, b, drain, frame, log_us, logged, n, of_stations, EDCA, SECOND, US};

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

/// Start of the first frame of `late` after one of station 1 was lost on an otherwise idle medium,
/// in µs after its end, for many seeds; `late` has its frame `after_us` after that start.
fn starts_after_a_loss(late: u16, after_us: u64) -> Vec<u64> {
    let config = Config {
        stations: 2,
        errors: ErrorConfig::Fixed { probability: 1.0 },
        short_retry_limit: 1,
        ..b(&[1_000_000])
    };
    let receiver = if late == ACCESS_POINT {
        Receiver::Station(2)
    } else {
        Receiver::Station(ACCESS_POINT)
    };
    let start = |seed| {
        let mut medium = logged(&config, seed);
        medium.offer(1_000 * US, 1, frame(0, 1_500));
        medium.offer(
            (1_000 + after_us) * US,
            late,
            Frame {
                receiver,
                ..frame(1, 100)
            },
        );
        drain(&mut medium, SECOND);
        let log = medium.take_log();
        assert_eq!((log[0].station, log[1].station), (1, late));
        (log[1].start_ns - log[0].end_ns) / US
    };
    (0..400).map(start).collect()
}

#[test]
fn after_a_loss_each_station_waits_as_long_as_it_knows_of() {
    let spread = |starts: &[u64]| (*starts.iter().min().unwrap(), *starts.iter().max().unwrap());
    // The third station has read the duration in the lost frame: SIFS 10, Ack 304, then DIFS 50.
    // It came while the medium was busy, so it has a backoff of up to 31 slots.
    let third = starts_after_a_loss(2, 500);
    assert_eq!(spread(&third), (364, 364 + 31 * 20));
    // likewise if it came while the medium was idle but reserved: the frame ends at 1308
    let reserved = starts_after_a_loss(2, 1_350);
    assert_eq!(spread(&reserved), (364, 364 + 31 * 20));
    // The access point could not read the frame, so it waits for EIFS: with an Ack at 1 Mbit/s, the
    // only basic rate, just as long.
    let receiver = starts_after_a_loss(ACCESS_POINT, 500);
    assert_eq!(spread(&receiver), (364, 364 + 31 * 20));
}

#[test]
fn the_receiver_of_a_lost_frame_waits_for_eifs_not_for_the_announced_end() {
    // Ack at 24 Mbit/s 28 µs, but EIFS has it at 6 Mbit/s: 44 µs
    let config = Config {
        errors: ErrorConfig::Fixed { probability: 1.0 },
        short_retry_limit: 1,
        ..a()
    };
    let start = |seed| {
        let mut medium = logged(&config, seed);
        medium.offer(1_000 * US, 1, frame(0, 1_500));
        let down = Frame {
            receiver: Receiver::Station(1),
            ..frame(1, 100)
        };
        medium.offer(1_100 * US, ACCESS_POINT, down);
        drain(&mut medium, SECOND);
        let log = medium.take_log();
        (log[1].start_ns - log[0].end_ns) / US
    };
    assert_eq!((0..400).map(start).min(), Some(16 + 44 + 34));
}

#[test]
fn the_contention_window_starts_anew_at_the_retry_limit_of_the_station() {
    let config = Config {
        errors: ErrorConfig::Fixed { probability: 1.0 },
        ..n(7, 20)
    };
    let mut widest = [0; 7];
    for seed in 0..500 {
        let mut medium = logged(&config, seed);
        medium.offer(1_000 * US, 1, frame(0, 500));
        medium.offer(1_000 * US, 1, frame(1, 500));
        drain(&mut medium, SECOND);
        let log = medium.take_log();
        // seven A-MPDUs, then the request that tells the receiver to wait no longer
        assert_eq!(log[7].kind, Ppdu::BlockAckRequest);
        for (i, pair) in log[..8].windows(2).enumerate() {
            // timeout 16 + 9 + 28, AIFS 43
            widest[i] = widest[i].max((pair[1].start_ns - pair[0].end_ns) / US - 96);
        }
    }
    let windows = [31, 63, 127, 255, 511, 1_023, 15];
    for (widest, cw) in widest.into_iter().zip(windows) {
        assert!(
            widest <= cw * 9 && widest > cw * 9 * 95 / 100,
            "{widest} of {cw} slots"
        );
    }
}

#[test]
fn an_internal_collision_counts_as_an_attempt() {
    let fixed = Some(EdcaConfig {
        aifsn: 2,
        cw_min: 0,
        cw_max: 0,
        txop_limit_ns: 0,
    });
    let qos = of_stations(CategoriesConfig {
        voice: fixed,
        video: fixed,
        ..EDCA.stations
    });
    let config = Config {
        qos: Some(qos),
        short_retry_limit: 1,
        ..a()
    };
    let mut medium = logged(&config, 1);
    medium.offer(
        1_000 * US,
        1,
        Frame {
            category: Category::Video,
            ..frame(0, 100)
        },
    );
    medium.offer(
        1_000 * US,
        1,
        Frame {
            category: Category::Voice,
            ..frame(1, 100)
        },
    );
    let outcomes = drain(&mut medium, SECOND);
    let fates: Vec<_> = outcomes.iter().map(|o| (o.token, o.fate)).collect();
    assert_eq!(fates, [(1, Fate::Delivered), (0, Fate::RetryLimit)]);
    assert_eq!(medium.take_log().len(), 2); // the voice frame and its Ack
    assert_eq!(medium.counters(1).unwrap().internal_collisions, 1);
}

/// An RTS of station 1 at this signal-to-noise ratio is lost now and then, and so is a CTS; station
/// 1 gives up at once. What went before the first frame of station 2, and when that started, in µs
/// after the end of what went before; station 2 has its frame `after_us` after the start of the RTS.
fn starts_after_a_lost_reservation(after_us: u64) -> Vec<(Vec<Ppdu>, u64)> {
    let config = Config {
        rts_threshold_bytes: 0,
        short_retry_limit: 1,
        errors: ErrorConfig::Snr { snr_db: -7.2 },
        stations: 2,
        ..b(&[1_000_000])
    };
    let start = |seed| {
        let mut medium = logged(&config, seed);
        medium.offer(1_000 * US, 1, frame(0, 1_500));
        medium.offer((1_000 + after_us) * US, 2, frame(1, 100));
        drain(&mut medium, SECOND);
        let log = medium.take_log();
        let first = log.iter().position(|a| a.station == 2).unwrap();
        let before = log[..first].iter().map(|a| a.kind).collect();
        // Of two that collide, the log may have the later one first; such runs are not looked at.
        let idle_ns = log[first].start_ns.saturating_sub(log[first - 1].end_ns);
        (before, idle_ns / US)
    };
    (0..3_000).map(start).collect()
}

#[test]
fn a_cts_that_does_not_come_back_still_reserves_the_medium() {
    // while the RTS is on air; when nothing is on air any more
    for after_us in [100, 700] {
        let starts = starts_after_a_lost_reservation(after_us);
        let lost = || {
            starts
                .iter()
                .filter(|(before, _)| *before == [Ppdu::Rts, Ppdu::Cts])
        };
        // SIFS 10, data 1308, SIFS 10, Ack 304, DIFS 50
        assert_eq!(lost().map(|(_, start)| *start).min(), Some(1_682));
        assert_eq!(lost().map(|(_, start)| *start).max(), Some(1_682 + 31 * 20));
    }
}

#[test]
fn an_rts_without_cts_reserves_the_medium_no_longer_than_needed() {
    for after_us in [100, 300] {
        let starts = starts_after_a_lost_reservation(after_us);
        let lost = || starts.iter().filter(|(before, _)| *before == [Ppdu::Rts]);
        // 2 SIFS 20, CTS 304, start delay 192, 2 slots 40, DIFS 50
        assert_eq!(lost().map(|(_, start)| *start).min(), Some(606));
        assert_eq!(lost().map(|(_, start)| *start).max(), Some(606 + 31 * 20));
    }
}

#[test]
fn minstrel_falls_back_behind_rts_as_without_it() {
    // every rate loses as much, so the fastest is the best, and many frames need seven attempts
    let sevenths = |rts_threshold_bytes| {
        let config = Config {
            rate: RateConfig::Minstrel { max_streams: 1 },
            errors: ErrorConfig::Fixed { probability: 0.7 },
            rts_threshold_bytes,
            short_retry_limit: 8,
            long_retry_limit: 8,
            ..a()
        };
        let mut medium = logged(&config, 1);
        let mut sevenths = vec![];
        for token in 0..200_u64 {
            medium.offer(token * 50_000 * US, 1, frame(token, 1_500));
            drain(&mut medium, (token + 1) * 50_000 * US);
            let log = log_us(&mut medium).into_iter();
            let mut data = log.filter(|(kind, ..)| *kind == Ppdu::Data);
            sevenths.extend(data.nth(6).map(|(.., length_us)| length_us));
        }
        sevenths
    };
    for rts_threshold_bytes in [1 << 20, 0] {
        let sevenths = sevenths(rts_threshold_bytes);
        assert!(sevenths.len() >= 10, "{}", sevenths.len());
        // the slowest: 1534 bytes at 6 Mbit/s
        assert!(
            sevenths.iter().all(|&length_us| length_us == 2_072),
            "RTS threshold {rts_threshold_bytes}: {sevenths:?}"
        );
    }
}
