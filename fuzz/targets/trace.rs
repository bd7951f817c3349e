//! Any file as the trace of a sender: its packets are in order and within their limits.
#![no_main]

use libfuzzer_sys::fuzz_target;
use tm_probe::Trace;

fuzz_target!(|data: &[u8]| {
    if let Ok(trace) = Trace::parse(data) {
        let packets: Vec<_> = (0..trace.length())
            .filter_map(|k| trace.packet(k))
            .collect();
        assert_eq!(packets.len(), trace.length());
        assert!(packets.windows(2).all(|pair| pair[0].0 <= pair[1].0));
        assert_eq!(packets.last().map(|last| last.0), Some(trace.end()));
    }
});
