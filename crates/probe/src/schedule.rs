//! When packet k is due: an absolute schedule, so that a late packet does not shift the next.

use std::sync::Arc;

use tm_wire::{Duration, Instant};

use crate::size::{Size, Sizes};
use crate::stream::Stream;
use crate::trace::Trace;

/// When the packets of a flow are due, counted from its start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Schedule {
    /// Packet k at k × gap.
    Fixed {
        /// From packet to packet, at least 1 ns.
        gap: Duration,
    },
    /// Packet k at k × per / packets, so that any rate is exact over any time.
    PacketRate {
        /// At least 1.
        packets: u64,
        /// In this time, at least 1 ns.
        per: Duration,
    },
    /// Each packet when the payload before it would have been sent at this rate.
    BitRate {
        /// Payload bits per second, at least 1.
        bit_s: u64,
    },
    /// Gaps drawn from an exponential distribution: packets come as of many independent sources.
    Poisson {
        /// At least 1 ns.
        mean_gap: Duration,
    },
    /// Bursts at a fixed gap, and silence between them; the lengths of both are uniform.
    OnOff {
        /// From packet to packet within a burst, at least 1 ns.
        gap: Duration,
        /// Shortest and longest burst.
        on: (Duration, Duration),
        /// Shortest and longest silence.
        off: (Duration, Duration),
    },
    /// As a trace has it.
    Trace {
        /// The packets.
        trace: Arc<Trace>,
        /// From one replay to the start of the next; None: once.
        period: Option<Duration>,
    },
}

/// When a flow ends; a trace that is replayed once also ends it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// After this many packets.
    Packets(u64),
    /// When a packet would be due this long after the start, or later.
    Duration(Duration),
}

/// What happens to packets that were due while the sender was held up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Missed {
    /// They are sent at once, with their true time.
    Send,
    /// Those behind which another should have left already are counted as not sent.
    Skip,
}

/// A packet that is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slot {
    /// Sequence number.
    pub seq: u32,
    /// When it should have left.
    pub scheduled: Instant,
    /// Payload bytes.
    pub size: u32,
    /// False: too late, not to be sent.
    pub send: bool,
}

/// Hands out the packets of one flow as they become due.
#[derive(Clone, Debug)]
pub struct Pacer {
    start: Instant,
    missed: Missed,
    stop: Stop,
    offsets: Offsets,
    sizes: Sizes,
    /// Sequence number, offset and size of the next packet.
    next: Option<(u64, Duration, u32)>,
    last_gap: Duration,
}

impl Pacer {
    /// A flow that begins at `start`; its gaps and its sizes have a random stream each.
    #[must_use]
    pub fn new(
        start: Instant,
        schedule: Schedule,
        size: Size,
        stop: Stop,
        missed: Missed,
        seed: u64,
    ) -> Self {
        let mut pacer = Self {
            start,
            missed,
            stop,
            offsets: Offsets::new(schedule, Stream::named(seed, "schedule")),
            sizes: Sizes::new(size, Stream::named(seed, "size")),
            next: None,
            last_gap: Duration::ZERO,
        };
        pacer.next = pacer.after(None, 0);
        pacer
    }

    /// Moves the whole schedule by `by`: for a start that is known only when all is ready.
    pub fn shift(&mut self, by: Duration) {
        self.start = self.start.saturating_add(by);
    }

    /// When the next packet is due; None when there is none.
    #[must_use]
    pub fn next_due(&self) -> Option<Instant> {
        self.next.map(|(_, offset, _)| self.due(offset))
    }

    /// The next packet if it is due at `now`.
    pub fn poll(&mut self, now: Instant) -> Option<Slot> {
        let (number, offset, size) = self.next?;
        let scheduled = self.due(offset);
        if scheduled > now {
            return None;
        }
        let seq = u32::try_from(number).ok()?;
        self.next = self.after(Some(number), size);
        if let Some((_, following, _)) = self.next {
            self.last_gap = following - offset;
        }
        let too_late = self.missed == Missed::Skip && now - scheduled > self.last_gap;
        Some(Slot {
            seq,
            scheduled,
            size,
            send: !too_late,
        })
    }

    fn due(&self, offset: Duration) -> Instant {
        self.start.saturating_add(offset)
    }

    fn after(&mut self, last: Option<u64>, last_size: u32) -> Option<(u64, Duration, u32)> {
        let number = last.map_or(0, |number| number + 1);
        // The sequence number on the wire has 32 bits.
        if number > u64::from(u32::MAX) {
            return None;
        }
        let (offset, traced) = self.offsets.next(number, last_size)?;
        let over = match self.stop {
            Stop::Packets(packets) => number >= packets,
            Stop::Duration(duration) => offset >= duration,
        };
        (!over).then(|| (number, offset, self.sizes.next(traced)))
    }
}

/// The offsets of a schedule, one after the other.
#[derive(Clone, Debug)]
struct Offsets {
    schedule: Schedule,
    random: Stream,
    /// Poisson: offset of the packet before. `OnOff`: start of the burst.
    base: Duration,
    /// `OnOff`: end of the burst, and packets in it so far.
    burst_end: Duration,
    burst_packets: i64,
    /// `BitRate`: payload bits before the packet.
    bits: u128,
}

impl Offsets {
    fn new(schedule: Schedule, mut random: Stream) -> Self {
        let burst_end = match &schedule {
            Schedule::OnOff { on, .. } => drawn(&mut random, *on),
            _ => Duration::ZERO,
        };
        Self {
            schedule,
            random,
            base: Duration::ZERO,
            burst_end,
            burst_packets: 0,
            bits: 0,
        }
    }

    /// Offset of packet `k`, asked for in order, and its size where a trace says it.
    fn next(&mut self, k: u64, last_size: u32) -> Option<(Duration, Option<u32>)> {
        let wide = i128::from(k);
        let offset = match &self.schedule {
            Schedule::Fixed { gap } => narrow(wide * i128::from(gap.0.max(1))),
            Schedule::PacketRate { packets, per } => {
                narrow(wide * i128::from(per.0.max(1)) / i128::from((*packets).max(1)))
            }
            Schedule::BitRate { bit_s } => {
                self.bits += u128::from(last_size) * 8;
                let ns = self.bits * 1_000_000_000 / u128::from((*bit_s).max(1));
                Duration(i64::try_from(ns).unwrap_or(i64::MAX))
            }
            Schedule::Poisson { mean_gap } => {
                if k > 0 {
                    let gap = -self.random.unit().ln() * mean_gap.0 as f64;
                    #[allow(clippy::cast_possible_truncation)] // saturates
                    let gap = Duration(gap.round() as i64);
                    self.base = self.base.saturating_add(gap);
                }
                self.base
            }
            Schedule::OnOff { gap, on, off } => {
                let (gap, on, off) = (Duration(gap.0.max(1)), *on, *off);
                let mut at = self
                    .base
                    .saturating_add(gap.saturating_mul(self.burst_packets));
                if at >= self.burst_end && k > 0 {
                    let silence = drawn(&mut self.random, off);
                    // Never closer than the gap, however short burst and silence are.
                    at = at.max(self.burst_end.saturating_add(silence));
                    self.base = at;
                    self.burst_end = at.saturating_add(drawn(&mut self.random, on));
                    self.burst_packets = 0;
                }
                self.burst_packets += 1;
                at
            }
            Schedule::Trace { trace, period } => {
                let length = trace.length() as u64;
                let (round, index) = (k / length, k % length);
                if round > 0 && period.is_none() {
                    return None;
                }
                let (at, size) = trace.packet(usize::try_from(index).ok()?)?;
                let shift = i128::from(round) * i128::from(period.map_or(0, |period| period.0));
                return Some((narrow(i128::from(at.0) + shift), Some(size)));
            }
        };
        Some((offset, None))
    }
}

fn drawn(random: &mut Stream, (least, most): (Duration, Duration)) -> Duration {
    let bound = |ns: Duration| u64::try_from(ns.0).unwrap_or(0);
    let ns = random.between(bound(least), bound(most).max(bound(least)));
    Duration(i64::try_from(ns).unwrap_or(i64::MAX))
}

fn narrow(offset: i128) -> Duration {
    Duration(i64::try_from(offset).unwrap_or(i64::MAX))
}

#[cfg(test)]
#[path = "schedule_tests.rs"]
mod tests;
