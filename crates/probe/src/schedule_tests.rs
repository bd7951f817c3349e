use std::sync::Arc;

use proptest::prelude::*;
use tm_wire::{Duration, Instant};

use super::{Missed, Pacer, Schedule, Stop};
use crate::size::{Share, Size};
use crate::trace::Trace;

fn pacer(schedule: Schedule, stop: Stop, missed: Missed) -> Pacer {
    Pacer::new(Instant(1_000), schedule, Size::Fixed(64), stop, missed, 7)
}

/// Offsets and sizes of all packets.
fn all(mut pacer: Pacer) -> Vec<(i64, u32)> {
    std::iter::from_fn(|| pacer.poll(Instant::MAX))
        .map(|slot| (slot.scheduled.0 - 1_000, slot.size))
        .collect()
}

fn schedules() -> impl Strategy<Value = Schedule> {
    let trace = Trace::parse(b"0 30\n5 40\n5 50\n900 60\n").unwrap();
    prop_oneof![
        (1_i64..10_000_000).prop_map(|gap| Schedule::Fixed { gap: Duration(gap) }),
        (1_u64..1_000_000).prop_map(|packets| Schedule::PacketRate {
            packets,
            per: Duration(1_000_000_000)
        }),
        (1_000_u64..10_000_000_000).prop_map(|bit_s| Schedule::BitRate { bit_s }),
        (1_i64..10_000_000).prop_map(|gap| Schedule::Poisson {
            mean_gap: Duration(gap)
        }),
        (1_i64..100_000, 0_i64..1_000_000, 0_i64..1_000_000).prop_map(|(gap, on, off)| {
            Schedule::OnOff {
                gap: Duration(gap),
                on: (Duration(on), Duration(on * 2)),
                off: (Duration(off), Duration(off * 3)),
            }
        }),
        Just(Schedule::Trace {
            trace: Arc::new(trace),
            period: Some(Duration(1_000)),
        }),
    ]
}

proptest! {
    #[test]
    fn lateness_never_shifts_the_schedule(
        schedule in schedules(), steps in proptest::collection::vec(0_i64..50_000_000, 1..60),
    ) {
        let expected = all(pacer(schedule.clone(), Stop::Packets(40), Missed::Send));
        prop_assert_eq!(expected.len(), 40);
        prop_assert!(expected.windows(2).all(|pair| pair[0].0 <= pair[1].0), "time went back");
        let mut pacer = pacer(schedule, Stop::Packets(40), Missed::Send);
        let mut now = Instant(1_000);
        let mut seen = 0_usize;
        for step in steps {
            now += Duration(step);
            while let Some(slot) = pacer.poll(now) {
                prop_assert_eq!(slot.seq as usize, seen);
                prop_assert_eq!(slot.scheduled.0, 1_000 + expected[seen].0);
                prop_assert!(slot.scheduled <= now && slot.send);
                seen += 1;
            }
            prop_assert!(pacer.next_due().map_or(seen == 40, |due| due > now));
        }
    }

    #[test]
    fn skip_leaves_out_what_is_more_than_a_gap_late(gap in 1_i64..1_000, held in 0_i64..100_000) {
        let schedule = Schedule::Fixed { gap: Duration(gap) };
        let mut pacer = pacer(schedule, Stop::Packets(50), Missed::Skip);
        while let Some(slot) = pacer.poll(Instant(1_000 + held)) {
            prop_assert_eq!(slot.send, 1_000 + held - slot.scheduled.0 <= gap);
        }
    }

    #[test]
    fn a_duration_holds_what_is_due_before_its_end(schedule in schedules(), ns in 1_i64..300_000) {
        let found = all(pacer(schedule.clone(), Stop::Duration(Duration(ns)), Missed::Send));
        prop_assert!(found.iter().all(|(offset, _)| *offset < ns));
        let more = all(pacer(schedule, Stop::Packets(found.len() as u64 + 1), Missed::Send));
        prop_assert!(more[found.len()].0 >= ns, "a packet is missing");
    }

    #[test]
    fn a_packet_rate_is_exact_over_any_time(packets in 1_u64..1_000_000, k in 0_u64..4_000) {
        let schedule = Schedule::PacketRate { packets, per: Duration(1_000_000_000) };
        let offsets = all(pacer(schedule, Stop::Packets(k + 1), Missed::Send));
        let exact = u128::from(k) * 1_000_000_000 / u128::from(packets);
        prop_assert_eq!(u128::try_from(offsets.last().unwrap().0).unwrap(), exact);
    }

    #[test]
    fn a_bit_rate_is_exact_whatever_the_sizes(bit_s in 1_000_u64..1_000_000_000, seed: u64) {
        let found = all(Pacer::new(
            Instant(1_000), Schedule::BitRate { bit_s }, Size::Uniform(24, 1500), Stop::Packets(200),
            Missed::Send, seed,
        ));
        let bits: u128 = found[..199].iter().map(|(_, size)| u128::from(*size) * 8).sum();
        let exact = bits * 1_000_000_000 / u128::from(bit_s);
        prop_assert_eq!(u128::try_from(found[199].0).unwrap(), exact);
    }

    #[test]
    fn the_same_seed_gives_the_same_flow(schedule in schedules(), seed: u64) {
        let run = |seed| all(Pacer::new(
            Instant(1_000), schedule.clone(), Size::Uniform(24, 1500), Stop::Packets(60),
            Missed::Send, seed,
        ));
        prop_assert_eq!(run(seed), run(seed));
    }
}

#[test]
fn poisson_gaps_have_mean_and_deviation_of_an_exponential() {
    let schedule = Schedule::Poisson {
        mean_gap: Duration(1_000_000),
    };
    let found = all(pacer(schedule, Stop::Packets(100_001), Missed::Send));
    let gaps: Vec<f64> = found.windows(2).map(|p| (p[1].0 - p[0].0) as f64).collect();
    let mean = gaps.iter().sum::<f64>() / gaps.len() as f64;
    let spread = gaps.iter().map(|gap| (gap - mean).powi(2)).sum::<f64>() / gaps.len() as f64;
    // Four standard errors of the mean are 1.3 %; the deviation equals the mean.
    assert!((mean / 1e6 - 1.0).abs() < 0.013, "{mean}");
    assert!(
        (spread.sqrt() / 1e6 - 1.0).abs() < 0.03,
        "{}",
        spread.sqrt()
    );
}

#[test]
fn bursts_and_silences_stay_within_their_limits() {
    let ms = |ms: i64| Duration(ms * 1_000_000);
    let schedule = Schedule::OnOff {
        gap: ms(1),
        on: (ms(100), ms(300)),
        off: (ms(1_000), ms(2_000)),
    };
    let found = all(pacer(schedule, Stop::Packets(20_000), Missed::Send));
    let mut burst = 1;
    let (mut bursts, mut shortest, mut longest) = (0, i64::MAX, 0);
    for pair in found.windows(2) {
        let gap = pair[1].0 - pair[0].0;
        if gap == ms(1).0 {
            burst += 1;
            continue;
        }
        // From the last packet to the next burst: the rest of its gap, then the silence.
        assert!(
            (ms(1_000).0..=ms(2_001).0).contains(&gap),
            "silence of {gap} ns"
        );
        shortest = shortest.min(burst);
        longest = longest.max(burst);
        (bursts, burst) = (bursts + 1, 1);
    }
    assert!(bursts > 50, "{bursts} bursts");
    assert!(
        shortest >= 100 && longest <= 301,
        "{shortest} to {longest} packets in a burst"
    );
    assert!(
        longest - shortest > 100,
        "bursts do not vary: {shortest} to {longest}"
    );
}

#[test]
fn a_trace_is_replayed_with_its_sizes_once_or_over_and_over() {
    let trace = Arc::new(Trace::parse(b"0 30\n7 40\n").unwrap());
    let run = |period| {
        let schedule = Schedule::Trace {
            trace: Arc::clone(&trace),
            period,
        };
        all(Pacer::new(
            Instant(1_000),
            schedule,
            Size::Trace,
            Stop::Packets(5),
            Missed::Send,
            1,
        ))
    };
    assert_eq!(run(None), [(0, 30), (7, 40)]);
    assert_eq!(
        run(Some(Duration(10))),
        [(0, 30), (7, 40), (10, 30), (17, 40), (20, 30)]
    );
}

#[test]
fn the_sizes_of_a_mix_go_with_any_schedule() {
    let shares = [(64, 7), (576, 4), (1472, 1)].map(|(bytes, weight)| Share { bytes, weight });
    let found = all(Pacer::new(
        Instant(1_000),
        Schedule::Fixed { gap: Duration(10) },
        Size::Mix(shares.to_vec()),
        Stop::Packets(1_000),
        Missed::Send,
        3,
    ));
    for bytes in [64, 576, 1472] {
        assert!(found.iter().any(|(_, size)| *size == bytes));
    }
}

#[test]
fn bursts_of_nothing_are_never_closer_than_the_gap() {
    let ms = |count: i64| Duration(count * 1_000_000);
    let nothing = (ms(0), ms(0));
    for (on, off) in [
        (nothing, nothing),
        (nothing, (ms(0), ms(3))),
        ((Duration(1), Duration(9)), nothing),
    ] {
        let schedule = Schedule::OnOff {
            gap: ms(1),
            on,
            off,
        };
        let found = all(pacer(schedule, Stop::Packets(200), Missed::Send));
        let least = found.windows(2).map(|pair| pair[1].0 - pair[0].0).min();
        assert!(least.unwrap() >= ms(1).0, "{least:?}");
    }
}

#[test]
fn a_schedule_that_is_moved_is_the_one_that_starts_later() {
    let pacer = |start| {
        Pacer::new(
            start,
            Schedule::Poisson {
                mean_gap: Duration(1_000_000),
            },
            Size::Fixed(100),
            Stop::Packets(50),
            Missed::Send,
            7,
        )
    };
    let mut later = pacer(Instant(3_000));
    let mut moved = pacer(Instant(1_000));
    moved.shift(Duration(2_000));
    while let Some(due) = later.next_due() {
        assert_eq!(moved.next_due(), Some(due));
        assert_eq!(moved.poll(due), later.poll(due));
    }
    assert_eq!(moved.next_due(), None);
}
