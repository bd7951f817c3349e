//! Any file as the trace of a link, which then carries frames.
#![no_main]

use std::sync::Arc;

use libfuzzer_sys::fuzz_target;
use tm_link::{Direction, DirectionConfig, Opportunities};
use tm_wire::Instant;

fuzz_target!(|data: &[u8]| {
    let Ok(trace) = Opportunities::parse(data, 1504) else {
        return;
    };
    let text = br#"{"rate_bit_s": null, "delay_ns": 5, "queue": {"type": "packets", "limit": 4},
        "frame_overhead_bytes": -10, "frame_min_bytes": 0, "loss": {"type": "none"},
        "delay_variation": {"type": "none"}, "reorder": false, "trace": {"path": "-"}}"#;
    let Ok(config) = serde_json::from_slice::<DirectionConfig>(text) else {
        return;
    };
    let mut link = Direction::new(config, Some(Arc::new(trace)), 1, "a_to_b");
    for k in 0..6 {
        link.offer(Instant(k * 700_000), 1514, vec![0_u8; 20]);
    }
    let mut last = Instant(0);
    while let Some(due) = link.next_due() {
        while let Some(arrival) = link.poll(due) {
            assert!(arrival.due >= last);
            last = arrival.due;
        }
    }
    let c = link.counters();
    assert_eq!(c.offered, c.delivered + c.queue_dropped);
});
