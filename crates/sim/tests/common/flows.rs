//! Flows that the tests of whole simulations share.

use tm_probe::{Content, Format, OutgoingFlow, Schedule, SessionPlan, Size, Stop};
use tm_sim::FlowPlan;
use tm_wire::{Duration, Key};

/// A flow of so many packets of one size, in our own format.
pub fn flow(
    path: usize,
    number: u16,
    start_offset: Duration,
    schedule: Schedule,
    packets: u64,
    payload: u32,
) -> FlowPlan {
    let (session, key) = (u32::from(number) + 7, Key::Secret([3; 16]));
    FlowPlan {
        path,
        session: SessionPlan {
            flow: number,
            session,
            key,
        },
        outgoing: OutgoingFlow {
            format: Format::Own { session, key },
            start_offset,
            schedule,
            end: Stop::Packets(packets),
            size: Size::Fixed(payload),
            content: Content::Zero,
            seed: u64::from(number),
        },
    }
}
