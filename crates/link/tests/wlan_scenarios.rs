//! Who may transmit when, to the microsecond, against IEEE Std 802.11-2020.

mod wlan_support;

use tm_link::wlan::{
    BeaconConfig, CategoriesConfig, Category, Config, EdcaConfig, ErrorConfig, Fate, Frame, Ppdu,
    QueueConfig, Receiver, ACCESS_POINT,
};
use wlan_support::{
    a, b, drain, frame, log_us, logged, medium, of_stations, saturate, EDCA, SECOND, US,
};

#[test]
fn an_idle_medium_is_taken_at_once() {
    let mut medium = logged(&b(&[1_000_000]), 1);
    medium.offer(1_000 * US, 1, frame(7, 1_500));
    let outcomes = drain(&mut medium, SECOND);
    // 192 µs and 1534 bytes at 11 Mbit/s, rounded up
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
    // 536 bytes: 20 + 80, SIFS, Ack 28, SIFS: 160 µs each, so nine fit into 1504 µs
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
        let qos = of_stations(CategoriesConfig {
            best_effort: Some(edca(aifsn)),
            ..EDCA.stations
        });
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
fn edca_counts_down_at_a_boundary_on_which_another_starts() {
    let fixed = |cw_min, cw_max| {
        Some(EdcaConfig {
            aifsn: 2,
            cw_min,
            cw_max,
            txop_limit_ns: 0,
        })
    };
    // Voice starts at every first boundary, so there is never an idle slot; by the rule of DCF video
    // would never count down.
    let qos = of_stations(CategoriesConfig {
        voice: fixed(0, 0),
        video: fixed(7, 7),
        ..EDCA.stations
    });
    let config = Config {
        qos: Some(qos),
        stations: 2,
        ..a()
    };
    let waited = |seed| {
        let mut medium = medium(&config, seed);
        for token in 0..100 {
            medium.offer(
                0,
                1,
                Frame {
                    category: Category::Voice,
                    ..frame(token, 1_500)
                },
            );
        }
        // while the first exchange is on air, so with a backoff
        medium.offer(
            100 * US,
            2,
            Frame {
                category: Category::Video,
                ..frame(1_000, 1_500)
            },
        );
        while medium.counters(2).unwrap().attempts == 0 {
            let due_ns = medium.next_due().unwrap();
            while medium.poll(due_ns).is_some() {}
        }
        assert_eq!(medium.counters(2).unwrap().collisions, 1);
        medium.counters(1).unwrap().attempts
    };
    // one exchange, then as many as there were slots, then both start at once
    let waited: Vec<_> = (0..200).map(waited).collect();
    assert_eq!(
        (waited.iter().min(), waited.iter().max()),
        (Some(&2), Some(&9))
    );
}

#[test]
fn who_is_overtaken_before_difs_is_over_draws_a_backoff() {
    // An exchange that ends at 102399, a beacon due at 102400 that starts a PIFS after it, and a
    // frame that came in between and would have started at 102449.
    let start = |seed| {
        let beacon = BeaconConfig {
            interval_tu: 100,
            bytes: 100,
        };
        let config = Config {
            beacon: Some(beacon),
            stations: 2,
            ..b(&[1_000_000])
        };
        let mut medium = logged(&config, seed);
        medium.offer(100_777 * US, 1, frame(0, 1_500));
        medium.offer(102_405 * US, 2, frame(1, 100));
        drain(&mut medium, 150_000 * US);
        let log = medium.take_log();
        let kinds: Vec<_> = log.iter().map(|a| a.kind).collect();
        assert_eq!(
            kinds,
            [Ppdu::Data, Ppdu::Ack, Ppdu::Beacon, Ppdu::Data, Ppdu::Ack]
        );
        assert_eq!(log[2].start_ns, 102_429 * US);
        (log[3].start_ns - log[2].end_ns) / US
    };
    let starts: Vec<_> = (0..400).map(start).collect();
    assert_eq!(starts.iter().min(), Some(&50));
    assert_eq!(starts.iter().max(), Some(&(50 + 31 * 20)));
}

/// Slots between the end of an exchange and the next frame of a saturated sender, smallest and
/// largest of many.
fn waits(config: &Config, sender: u16, category: Category) -> (u64, u64) {
    let receiver = if sender == ACCESS_POINT {
        1
    } else {
        ACCESS_POINT
    };
    let sent = Frame {
        receiver: Receiver::Station(receiver),
        category,
        ..frame(0, 1_500)
    };
    let mut medium = logged(config, 1);
    saturate(&mut medium, &[(sender, sent)], 2 * SECOND);
    let log = log_us(&mut medium);
    let gaps = log.windows(2).filter_map(|pair| {
        let idle_us = pair[1].2 - pair[0].2 - pair[0].3;
        // those of SIFS belong to an exchange or a TXOP
        (idle_us > 16).then(|| (idle_us - 16) / 9)
    });
    let gaps: Vec<_> = gaps.collect();
    (*gaps.iter().min().unwrap(), *gaps.iter().max().unwrap())
}

#[test]
fn the_access_point_contends_with_its_own_set() {
    let config = Config {
        qos: Some(EDCA),
        ..a()
    };
    // AIFSN, and with it the smallest contention window
    for (category, station, access_point) in [
        (Category::Background, (7, 22), (7, 22)),
        (Category::BestEffort, (3, 18), (3, 18)),
        (Category::Video, (2, 9), (1, 8)),
        (Category::Voice, (2, 5), (1, 4)),
    ] {
        assert_eq!(waits(&config, 1, category), station, "{category:?}");
        let own = waits(&config, ACCESS_POINT, category);
        assert_eq!(own, access_point, "{category:?} of the access point");
    }
    // nothing arrives, so the window grows to its largest: 1023 of a station, 63 of the access point
    let deaf = Config {
        errors: ErrorConfig::Fixed { probability: 1.0 },
        short_retry_limit: 255,
        ..config
    };
    let (_, station) = waits(&deaf, 1, Category::BestEffort);
    let (_, access_point) = waits(&deaf, ACCESS_POINT, Category::BestEffort);
    assert!(station > 500, "{station}");
    // AIFSN 3, 63 slots, and the Ack timeout, which is 29 µs longer than a SIFS
    assert!((60..=71).contains(&access_point), "{access_point}");
}
