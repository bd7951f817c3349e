//! Laws of one direction of a link, in virtual time.

use proptest::prelude::*;
use std::sync::Arc;

use tm_link::{
    Change, Direction, DirectionConfig, Frame, HoldBack, LossConfig, Opportunities, QueueConfig,
    TraceConfig, VariationConfig, Verdict,
};
use tm_wire::{Duration, Instant};

/// The number of a frame; damage is remembered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Number(usize, bool);

impl Frame for Number {
    fn corrupt(&mut self, _draw: u64) {
        self.1 = true;
    }
}

fn direction(config: DirectionConfig, seed: u64) -> Direction<Number> {
    Direction::new(config, None, seed, "a_to_b")
}

/// All that arrives: due time in ns, number, damaged.
fn rest(direction: &mut Direction<Number>) -> Vec<(i64, usize, bool)> {
    let mut found = Vec::new();
    while let Some(due) = direction.next_due() {
        while let Some(arrival) = direction.poll(due) {
            found.push((arrival.due.0, arrival.frame.0, arrival.frame.1));
        }
    }
    found
}

fn plain() -> DirectionConfig {
    DirectionConfig {
        rate_bit_s: Some(8_000_000),
        delay_ns: 20_500_000,
        queue: QueueConfig::Bytes { limit: 65_536 },
        frame_overhead_bytes: -14,
        frame_min_bytes: 0,
        loss: LossConfig::None {},
        delay_variation: VariationConfig::None {},
        reorder: false,
        trace: None,
        duplicate: 0.0,
        corrupt: 0.0,
        hold_back: HoldBack::default(),
        changes: Vec::new(),
    }
}

fn any_change() -> impl Strategy<Value = Change> {
    (
        0_i64..200_000_000,
        proptest::option::of(0_i64..30_000_000),
        0.0_f64..1.0,
    )
        .prop_map(|(at_ns, delay_ns, duplicate)| Change {
            at_ns,
            delay_ns,
            duplicate: Some(duplicate),
            ..Change::default()
        })
}

fn any_config() -> impl Strategy<Value = DirectionConfig> {
    (
        prop_oneof![Just(None), (1_000_u64..10_000_000_000).prop_map(Some)],
        0_i64..50_000_000,
        prop_oneof![
            (0_u64..20_000).prop_map(|limit| QueueConfig::Bytes { limit }),
            (0_u64..20).prop_map(|limit| QueueConfig::Packets { limit }),
        ],
        prop_oneof![
            Just(LossConfig::None {}),
            (0.0_f64..1.0).prop_map(|probability| LossConfig::Independent { probability }),
        ],
        prop_oneof![
            Just(VariationConfig::None {}),
            (0_i64..9_000_000).prop_map(|spread_ns| VariationConfig::Uniform { spread_ns }),
            (0_i64..9_000_000).prop_map(|mean_ns| VariationConfig::Exponential { mean_ns }),
        ],
        any::<bool>(),
        (0.0_f64..1.0, 0.0_f64..1.0, 0.0_f64..1.0, 0_i64..9_000_000),
        proptest::collection::vec(any_change(), 0..4),
    )
        .prop_map(
            |(rate_bit_s, delay_ns, queue, loss, delay_variation, reorder, more, mut changes)| {
                let (duplicate, corrupt, probability, extra_ns) = more;
                changes.sort_by_key(|change| change.at_ns);
                let base = plain();
                DirectionConfig {
                    rate_bit_s,
                    delay_ns,
                    queue,
                    loss,
                    delay_variation,
                    reorder,
                    duplicate,
                    corrupt,
                    hold_back: HoldBack {
                        probability,
                        extra_ns,
                    },
                    changes,
                    ..base
                }
            },
        )
}

proptest! {
    #[test]
    fn frames_are_conserved_and_arrive_in_time_and_order(
        config in any_config(),
        frames in proptest::collection::vec((0_i64..2_000_000, 60_u64..1514), 1..200),
        seed: u64,
    ) {
        let mut direction = direction(config.clone(), seed);
        let mut now = Instant(1_000_000_000);
        let mut came = Vec::new();
        let mut arrived = Vec::new();
        for (k, (step, bytes)) in frames.iter().enumerate() {
            now += Duration(*step);
            while let Some(arrival) = direction.poll(now) {
                arrived.push(arrival);
            }
            came.push(now);
            direction.offer(now, *bytes, Number(k, false));
            let c = direction.counters();
            prop_assert_eq!(c.offered + c.duplicated, c.delivered + c.queue_dropped + c.lost + c.in_flight);
        }
        while let Some(due) = direction.next_due() {
            while let Some(arrival) = direction.poll(due) {
                arrived.push(arrival);
            }
        }
        let c = direction.counters();
        prop_assert_eq!(c.in_flight, 0);
        prop_assert_eq!(c.offered + c.duplicated, c.delivered + c.queue_dropped + c.lost);
        prop_assert_eq!(c.delivered, arrived.len() as u64);
        for pair in arrived.windows(2) {
            prop_assert!(pair[0].due <= pair[1].due);
            if !config.reorder && c.held_back == 0 {
                prop_assert!(pair[0].frame.0 <= pair[1].frame.0);
            }
        }
        let least = config.changes.iter().filter_map(|change| change.delay_ns);
        let least = least.min().map_or(config.delay_ns, |delay| delay.min(config.delay_ns));
        let mut times = vec![0; came.len()];
        for arrival in &arrived {
            prop_assert!(arrival.due - came[arrival.frame.0] >= Duration(least));
            times[arrival.frame.0] += 1;
        }
        prop_assert!(times.iter().all(|count| *count <= 2));
        prop_assert_eq!(times.iter().filter(|count| **count == 2).count() as u64, c.duplicated);
        let damaged: Vec<usize> = arrived.iter().filter(|a| a.frame.1).map(|a| a.frame.0).collect();
        let damaged: std::collections::HashSet<_> = damaged.into_iter().collect();
        prop_assert_eq!(damaged.len() as u64, c.corrupted);
    }

    /// As the emulator does it: frames are seen only after naps of half of the delay, and nobody looks
    /// before `look_by`.
    #[test]
    fn who_looks_no_sooner_than_needed_forwards_the_same_frames_and_none_late(
        config in any_config(),
        rate in 1_000_000_u64..20_000_000,
        frames in proptest::collection::vec((0_i64..1_000_000, 60_u64..1514), 1..200),
        seed: u64,
    ) {
        let config = DirectionConfig { rate_bit_s: Some(rate), ..config };
        let mut came = Vec::new();
        let mut at = Instant(1_000_000_000);
        for (step, bytes) in frames {
            at += Duration(step);
            came.push((at, bytes));
        }
        let mut prompt = direction(config.clone(), seed);
        let mut seldom = direction(config, seed);
        let mut expected = Vec::new();
        for (k, (at, bytes)) in came.iter().enumerate() {
            while let Some(arrival) = prompt.poll(*at) {
                expected.push(arrival);
            }
            prompt.offer(*at, *bytes, Number(k, false));
        }
        while let Some(due) = prompt.next_due() {
            while let Some(arrival) = prompt.poll(due) {
                expected.push(arrival);
            }
        }
        let nap = Duration(seldom.least_delay().0 / 2);
        let mut found = Vec::new();
        let mut now = Instant(1_000_000_000);
        let mut taken = 0;
        loop {
            while let Some((at, bytes)) = came.get(taken).filter(|(at, _)| *at <= now) {
                seldom.offer(*at, *bytes, Number(taken, false));
                taken += 1;
            }
            while let Some(arrival) = seldom.poll(now) {
                prop_assert!(nap == Duration::ZERO || arrival.due == now, "late by {:?}", now - arrival.due);
                found.push(arrival);
            }
            let next = came.get(taken).map(|(at, _)| (*at).max(now + nap));
            now = match (next, seldom.look_by()) {
                (Some(next), Some(due)) => next.min(due),
                (next, due) => match next.or(due) {
                    Some(one) => one,
                    None => break,
                },
            };
        }
        prop_assert_eq!(found, expected);
        prop_assert_eq!(seldom.counters(), prompt.counters());
    }

    #[test]
    fn the_rate_is_exact_over_any_time(rate in 1_000_u64..40_000_000_000, bytes in 64_u64..1514) {
        let config = DirectionConfig {
            rate_bit_s: Some(rate),
            delay_ns: 0,
            queue: QueueConfig::Packets { limit: 1_000_000 },
            ..plain()
        };
        let mut direction = direction(config, 1);
        let frames = 5_000_usize;
        for k in 0..frames {
            direction.offer(Instant(0), bytes, Number(k, false));
        }
        let mut last = Instant(0);
        while let Some(due) = direction.next_due() {
            while let Some(arrival) = direction.poll(due) {
                last = arrival.due;
            }
        }
        let bits = frames as u128 * u128::from((bytes - 14) * 8);
        let exact = (bits * 1_000_000_000).div_ceil(u128::from(rate));
        prop_assert_eq!(u128::try_from(last.0).unwrap(), exact);
    }

    #[test]
    fn the_queue_limit_is_exact_to_the_byte(limit in 0_u64..10_000, bytes in 64_u64..1514) {
        let queue = QueueConfig::Bytes { limit };
        let config = DirectionConfig { queue, ..plain() };
        let mut direction = direction(config, 1);
        let cost = bytes - 14;
        let accepted = (0..2_000).filter(|k| {
            direction.offer(Instant(0), bytes, Number(*k, false)) == Verdict::Accepted
        });
        // one is being serialized, as many as fit wait
        prop_assert_eq!(accepted.count() as u64, (1 + limit / cost).min(2_000));
    }
}

#[test]
fn a_packet_of_1500_byte_takes_1500_microseconds_at_8_mbit_s() {
    let mut direction = direction(plain(), 1);
    direction.offer(Instant(0), 1514, Number(0, false));
    assert_eq!(direction.next_due(), Some(Instant(1_500_000 + 20_500_000)));
}

#[test]
fn ethernet_counts_what_is_on_the_wire() {
    let ethernet = DirectionConfig {
        rate_bit_s: Some(10_000_000),
        delay_ns: 0,
        frame_overhead_bytes: 24,
        frame_min_bytes: 84,
        ..plain()
    };
    let mut direction = direction(ethernet, 1);
    direction.offer(Instant(0), 42, Number(0, false));
    // RFC 2544: 14880 frames of 64 bytes a second on 10 Mbit/s
    assert_eq!(direction.next_due(), Some(Instant(67_200)));
}

#[test]
fn a_lost_frame_takes_its_time_on_the_wire() {
    let loss = LossConfig::Independent { probability: 1.0 };
    let mut direction = direction(DirectionConfig { loss, ..plain() }, 1);
    direction.offer(Instant(0), 1514, Number(0, false));
    assert_eq!(direction.counters().in_flight, 1);
    assert!(direction.poll(Instant(1_499_999)).is_none());
    assert_eq!(direction.counters().lost, 0);
    assert!(direction.poll(Instant(1_500_000)).is_none());
    assert_eq!(direction.counters().lost, 1);
}

#[test]
fn what_is_under_way_is_bounded() {
    let config = DirectionConfig {
        rate_bit_s: None,
        delay_ns: 60_000_000_000,
        ..plain()
    };
    let mut direction = direction(config, 1);
    let mebi = 1 << 20;
    let accepted = (0..2_000)
        .filter(|k| direction.offer(Instant(0), mebi, Number(*k, false)) == Verdict::Accepted)
        .count();
    assert_eq!(accepted, 1_024);
    let c = direction.counters();
    assert_eq!((c.in_flight, c.queue_dropped), (1_024, 976));
    // what has arrived makes room
    assert_eq!(rest(&mut direction).len(), 1_024);
    let verdict = direction.offer(Instant(61_000_000_000), mebi, Number(0, false));
    assert_eq!(verdict, Verdict::Accepted);
}

const MS: i64 = 1_000_000;

#[test]
fn a_change_is_for_frames_that_begin_after_it() {
    let changes = vec![
        Change {
            at_ns: 5 * MS,
            rate_bit_s: Some(4_000_000),
            ..Change::default()
        },
        Change {
            at_ns: 20 * MS,
            delay_ns: Some(200 * MS),
            ..Change::default()
        },
    ];
    let config = DirectionConfig {
        delay_ns: 10 * MS,
        changes,
        ..plain()
    };
    let mut direction = direction(config, 1);
    direction.restart(Instant(0));
    // 1500 bytes take 1.5 ms at 8 Mbit/s and 3 ms at 4: frames begin at 0, 1.5, 3, 4.5, 6, 9 … ms.
    for k in 0..8 {
        direction.offer(Instant(0), 1514, Number(k, false));
    }
    direction.offer(Instant(20 * MS), 1514, Number(8, false));
    let due: Vec<i64> = rest(&mut direction).iter().map(|frame| frame.0).collect();
    let tenths = |values: [i64; 9]| values.map(|value| value * MS / 10).to_vec();
    assert_eq!(due, tenths([115, 130, 145, 160, 190, 220, 250, 280, 2_230]));
    // Begun again it has its first rate and delay again.
    direction.restart(Instant(1_000 * MS));
    direction.offer(Instant(1_001 * MS), 1514, Number(9, false));
    assert_eq!(direction.next_due(), Some(Instant(1_012 * MS + MS / 2)));
}

/// A direction with a trace of opportunities of a full packet, begun at 0.
fn traced(trace: &[u8]) -> Direction<Number> {
    let trace = Opportunities::parse(trace, 1504).unwrap();
    let config = DirectionConfig {
        rate_bit_s: None,
        trace: Some(TraceConfig {
            path: "x".into(),
            opportunity_bytes: 1504,
        }),
        delay_ns: 0,
        frame_overhead_bytes: -10,
        ..plain()
    };
    let mut direction = Direction::new(config, Some(Arc::new(trace)), 1, "a_to_b");
    direction.restart(Instant(0));
    direction
}

#[test]
fn a_trace_gives_its_opportunities_to_whoever_waits() {
    let mut direction = traced(b"1\n2\n2\n10\n");
    // A full packet takes one opportunity; one of 1000 bytes leaves 504 of the next to the one behind.
    for (k, bytes) in [1514, 1010, 1010, 1514].into_iter().enumerate() {
        direction.offer(Instant(0), bytes, Number(k, false));
    }
    let due: Vec<i64> = rest(&mut direction).iter().map(|frame| frame.0).collect();
    assert_eq!(due, [MS, 2 * MS, 2 * MS, 10 * MS]);
    // Opportunities that nobody waited for are gone: after 10 ms comes 11.
    direction.offer(Instant(10 * MS), 100, Number(4, false));
    direction.offer(Instant(25 * MS), 100, Number(5, false));
    let due: Vec<i64> = rest(&mut direction).iter().map(|frame| frame.0).collect();
    assert_eq!(due, [11 * MS, 30 * MS]);
}

#[test]
fn a_trace_that_begins_again_counts_from_then_whatever_waits() {
    // An opportunity each ms, and none from 10 ms to 5 s.
    let mut direction = traced(b"1\n2\n3\n4\n5\n6\n7\n8\n9\n10\n5000\n");
    // It comes in the outage, and waits for its end.
    direction.offer(Instant(1_000 * MS), 1514, Number(0, false));
    direction.restart(Instant(4_998 * MS));
    direction.offer(Instant(4_999 * MS), 1514, Number(1, false));
    // 11 ms after it began again: the outage.
    direction.offer(Instant(5_009 * MS), 1514, Number(2, false));
    let due: Vec<i64> = rest(&mut direction).iter().map(|frame| frame.0).collect();
    // The second one waits for the first, and has the next opportunity of the new trace.
    assert_eq!(due, [5_000 * MS, 5_001 * MS, 9_998 * MS]);
}

#[test]
fn what_is_held_back_is_overtaken() {
    let hold_back = HoldBack {
        probability: 0.1,
        extra_ns: 5 * MS,
    };
    let mut direction = direction(
        DirectionConfig {
            hold_back,
            ..plain()
        },
        3,
    );
    for k in 0..1_000 {
        direction.offer(
            Instant(k * 2 * MS),
            100,
            Number(usize::try_from(k).unwrap(), false),
        );
    }
    let found = rest(&mut direction);
    assert!(found.windows(2).any(|pair| pair[0].1 > pair[1].1));
    let held = direction.counters().held_back;
    assert!((60..140).contains(&held), "{held} of 1000");
    let sent = |k: usize| i64::try_from(k).unwrap() * 2 * MS + 86_000 + 20_500_000;
    let late = found.iter().filter(|(due, k, _)| *due == sent(*k) + 5 * MS);
    assert_eq!(late.count() as u64, held);
}

#[test]
fn what_is_held_back_is_so_much_later_and_changes_no_other_frame() {
    let hold_back = HoldBack {
        probability: 0.1,
        extra_ns: 5 * MS,
    };
    let arrivals = |hold_back| {
        let delay_variation = VariationConfig::Exponential { mean_ns: 10 * MS };
        let config = DirectionConfig {
            hold_back,
            delay_variation,
            ..plain()
        };
        let mut direction = direction(config, 3);
        for k in 0..1_000 {
            let number = Number(usize::try_from(k).unwrap(), false);
            direction.offer(Instant(k * 2 * MS), 100, number);
        }
        let mut found = rest(&mut direction);
        found.sort_by_key(|(_, number, _)| *number);
        (found, direction.counters().held_back)
    };
    let ((with, held), (without, _)) = (arrivals(hold_back), arrivals(HoldBack::default()));
    let later: Vec<i64> = with
        .iter()
        .zip(&without)
        .map(|(one, other)| one.0 - other.0)
        .collect();
    assert!(later.iter().all(|ns| [0, 5 * MS].contains(ns)), "{later:?}");
    assert_eq!(later.iter().filter(|ns| **ns > 0).count() as u64, held);
}

#[test]
fn the_fate_of_frame_k_does_not_depend_on_what_else_is_switched_on() {
    let lost = |config: DirectionConfig| {
        let config = DirectionConfig {
            loss: LossConfig::Independent { probability: 0.3 },
            ..config
        };
        let mut direction = direction(config, 11);
        for k in 0..500 {
            direction.offer(
                Instant(k * 10 * MS),
                100,
                Number(usize::try_from(k).unwrap(), false),
            );
        }
        let mut found: Vec<usize> = rest(&mut direction).iter().map(|frame| frame.1).collect();
        found.sort_unstable();
        found.dedup();
        found
    };
    let all = DirectionConfig {
        duplicate: 0.5,
        corrupt: 0.5,
        delay_variation: VariationConfig::Exponential { mean_ns: MS },
        hold_back: HoldBack {
            probability: 0.5,
            extra_ns: MS,
        },
        ..plain()
    };
    assert_eq!(lost(plain()), lost(all));
}

#[test]
fn damage_is_one_bit_behind_the_ethernet_header() {
    let clean = vec![0_u8; 60];
    for draw in [0, 1, 367, 368, u64::MAX] {
        let mut frame = clean.clone();
        frame.corrupt(draw);
        let bits: u32 = frame.iter().map(|byte| byte.count_ones()).sum();
        assert_eq!((bits, &frame[..14]), (1, &clean[..14]));
    }
    let mut short = vec![0_u8; 14];
    short.corrupt(5);
    assert_eq!(short, [0; 14]);
}
