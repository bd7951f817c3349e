//! Frames per second of one direction of the link emulator, in virtual time.
//!
//! `cargo bench -p tm-link --bench direction`.

use criterion::{Criterion, Throughput};
use serde_json::json;
use tm_link::{Direction, DirectionConfig, Verdict};
use tm_wire::Instant;

const FRAMES: u64 = 100_000;

fn main() {
    let mut criterion = Criterion::default().configure_from_args();
    directions(&mut criterion);
    criterion.final_summary();
}

fn directions(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("link");
    group.throughput(Throughput::Elements(FRAMES));
    let none = json!({"type": "none"});
    let cases = [
        (
            "neither rate nor delay",
            json!(null),
            0,
            none.clone(),
            none.clone(),
        ),
        (
            "1 Gbit/s, 20 ms",
            json!(1_000_000_000),
            20_000_000,
            none.clone(),
            none,
        ),
        (
            "1 Gbit/s, 20 ms, 1 % loss, variation",
            json!(1_000_000_000),
            20_000_000,
            json!({"type": "independent", "probability": 0.01}),
            json!({"type": "uniform", "spread_ns": 1_000_000}),
        ),
    ];
    for (name, rate, delay_ns, loss, variation) in cases {
        let config: DirectionConfig = serde_json::from_value(json!({
            "rate_bit_s": rate,
            "delay_ns": delay_ns,
            "queue": {"type": "packets", "limit": 1_000},
            "frame_overhead_bytes": 10,
            "frame_min_bytes": 64,
            "loss": loss,
            "delay_variation": variation,
            "reorder": false,
        }))
        .expect("a configuration");
        config.check("bench").expect("within the limits");
        group.bench_function(name, |bencher| {
            bencher.iter(|| pass(&config));
        });
    }
    group.finish();
}

/// Offer a full-sized frame every 13 µs, a little below 1 Gbit/s, and take what has arrived.
fn pass(config: &DirectionConfig) {
    let mut direction = Direction::<Vec<u8>>::new(config.clone(), None, 1, "a_to_b");
    for number in 0..FRAMES {
        let now = Instant(i64::try_from(number * 13_000).expect("fits"));
        // The state machine keeps a handle of the frame; its bytes are the caller's matter.
        let verdict = direction.offer(now, 1_514, Vec::new());
        assert_eq!(verdict, Verdict::Accepted);
        while direction.poll(now).is_some() {}
    }
    while let Some(due) = direction.next_due() {
        while direction.poll(due).is_some() {}
    }
    let counters = direction.counters();
    assert_eq!(counters.delivered + counters.lost, FRAMES);
}
