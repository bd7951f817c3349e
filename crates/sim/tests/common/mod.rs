//! What the tests of whole simulations share.

use tm_link::{DirectionConfig, HoldBack, LossConfig, QueueConfig, VariationConfig};

/// A direction that loses frames by chance and does nothing else to them; its cost counts no
/// Ethernet header.
pub fn direction(
    rate_bit_s: Option<u64>,
    delay_ns: i64,
    queue_packets: u64,
    loss: f64,
) -> DirectionConfig {
    DirectionConfig {
        rate_bit_s,
        delay_ns,
        queue: QueueConfig::Packets {
            limit: queue_packets,
        },
        frame_overhead_bytes: -14,
        frame_min_bytes: 0,
        loss: LossConfig::Independent { probability: loss },
        delay_variation: VariationConfig::None {},
        reorder: false,
        trace: None,
        duplicate: 0.0,
        corrupt: 0.0,
        hold_back: HoldBack::default(),
        changes: Vec::new(),
    }
}

/// FNV-1a, by which a golden holds many bytes.
pub fn hash(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    })
}
