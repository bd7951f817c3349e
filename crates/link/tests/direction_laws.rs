//! Laws of one direction of a link, in virtual time.

use proptest::prelude::*;
use tm_link::{Direction, DirectionConfig, LossConfig, QueueConfig, VariationConfig, Verdict};

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
    }
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
    )
        .prop_map(
            |(rate_bit_s, delay_ns, queue, loss, delay_variation, reorder)| {
                let base = plain();
                DirectionConfig {
                    rate_bit_s,
                    delay_ns,
                    queue,
                    loss,
                    delay_variation,
                    reorder,
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
        let mut direction = Direction::new(config.clone(), seed, "a_to_b");
        let mut now = 1_000_000_000_i64;
        let mut came = Vec::new();
        let mut arrived = Vec::new();
        for (k, (step, bytes)) in frames.iter().enumerate() {
            now += step;
            while let Some(arrival) = direction.poll(now) {
                arrived.push(arrival);
            }
            came.push(now);
            direction.offer(now, *bytes, k);
            let c = direction.counters();
            prop_assert_eq!(c.offered, c.delivered + c.queue_dropped + c.lost + c.in_flight);
        }
        while let Some(due) = direction.next_due_ns() {
            while let Some(arrival) = direction.poll(due) {
                arrived.push(arrival);
            }
        }
        let c = direction.counters();
        prop_assert_eq!(c.in_flight, 0);
        prop_assert_eq!(c.offered, c.delivered + c.queue_dropped + c.lost);
        prop_assert_eq!(c.delivered, arrived.len() as u64);
        for pair in arrived.windows(2) {
            prop_assert!(pair[0].due_ns <= pair[1].due_ns);
            if !config.reorder {
                prop_assert!(pair[0].frame < pair[1].frame);
            }
        }
        for arrival in &arrived {
            prop_assert!(arrival.due_ns >= came[arrival.frame] + config.delay_ns);
        }
    }

    #[test]
    fn the_rate_is_exact_over_any_time(rate in 1_000_u64..40_000_000_000, bytes in 64_u64..1514) {
        let config = DirectionConfig {
            rate_bit_s: Some(rate),
            delay_ns: 0,
            queue: QueueConfig::Packets { limit: 1_000_000 },
            ..plain()
        };
        let mut direction = Direction::new(config, 1, "a_to_b");
        let frames = 5_000_u64;
        for k in 0..frames {
            direction.offer(0, bytes, k);
        }
        let mut last = 0;
        while let Some(due) = direction.next_due_ns() {
            while let Some(arrival) = direction.poll(due) {
                last = arrival.due_ns;
            }
        }
        let bits = u128::from(frames * (bytes - 14) * 8);
        let exact = (bits * 1_000_000_000).div_ceil(u128::from(rate));
        prop_assert_eq!(u128::try_from(last).unwrap(), exact);
    }

    #[test]
    fn the_queue_limit_is_exact_to_the_byte(limit in 0_u64..10_000, bytes in 64_u64..1514) {
        let queue = QueueConfig::Bytes { limit };
        let config = DirectionConfig { queue, ..plain() };
        let mut direction = Direction::new(config, 1, "a_to_b");
        let cost = bytes - 14;
        let accepted = (0..2_000).filter(|k| direction.offer(0, bytes, *k) == Verdict::Accepted);
        // one is being serialized, as many as fit wait
        prop_assert_eq!(accepted.count() as u64, (1 + limit / cost).min(2_000));
    }
}

#[test]
fn a_packet_of_1500_byte_takes_1500_microseconds_at_8_mbit_s() {
    let mut direction = Direction::new(plain(), 1, "a_to_b");
    direction.offer(0, 1514, ());
    assert_eq!(direction.next_due_ns(), Some(1_500_000 + 20_500_000));
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
    let mut direction = Direction::new(ethernet, 1, "a_to_b");
    direction.offer(0, 42, ());
    // RFC 2544: 14880 frames of 64 byte a second on 10 Mbit/s
    assert_eq!(direction.next_due_ns(), Some(67_200));
}

#[test]
fn a_lost_frame_takes_its_time_on_the_wire() {
    let loss = LossConfig::Independent { probability: 1.0 };
    let mut direction = Direction::new(DirectionConfig { loss, ..plain() }, 1, "a_to_b");
    direction.offer(0, 1514, ());
    assert_eq!(direction.counters().in_flight, 1);
    assert!(direction.poll(1_499_999).is_none());
    assert_eq!(direction.counters().lost, 0);
    assert!(direction.poll(1_500_000).is_none());
    assert_eq!(direction.counters().lost, 1);
}
