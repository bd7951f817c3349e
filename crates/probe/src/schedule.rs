//! When packet k is due: an absolute schedule, so that a late packet does not shift the next.

use tm_wire::Nanos;

/// When a flow ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// After this many packets.
    Packets(u64),
    /// When a packet would be due this long after the start, or later.
    Duration(Nanos),
}

/// What happens to packets that were due while the sender was held up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Missed {
    /// They are sent at once, with their true time.
    Send,
    /// Those more than one gap late are counted as not sent.
    Skip,
}

/// A packet that is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slot {
    /// Sequence number.
    pub seq: u32,
    /// When it should have left.
    pub scheduled: Nanos,
    /// False: too late, not to be sent.
    pub send: bool,
}

/// Hands out the packets of one flow as they become due.
#[derive(Clone, Debug)]
pub struct Pacer {
    start: Nanos,
    gap: Nanos,
    count: u64,
    next: u64,
    missed: Missed,
}

impl Pacer {
    /// A flow whose packet k is due at `start + k × gap`; `gap` is at least 1 ns.
    #[must_use]
    pub fn new(start: Nanos, gap: Nanos, stop: Stop, missed: Missed) -> Self {
        let gap = Nanos(gap.0.max(1));
        let count = match stop {
            Stop::Packets(packets) => packets,
            // Packets due at 0, gap, 2 gap … before the end: the quotient rounded up.
            Stop::Duration(duration) => {
                u64::try_from(duration.0.max(0).saturating_add(gap.0 - 1) / gap.0).unwrap_or(0)
            }
        };
        // The sequence number on the wire has 32 bits.
        Self {
            start,
            gap,
            count: count.min(u64::from(u32::MAX)),
            next: 0,
            missed,
        }
    }

    /// Packets that the flow has in all.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.count
    }

    /// When the next packet is due; None when there is none.
    #[must_use]
    pub fn next_due(&self) -> Option<Nanos> {
        (self.next < self.count).then(|| self.due(self.next))
    }

    /// The next packet if it is due at `now`.
    pub fn poll(&mut self, now: Nanos) -> Option<Slot> {
        let scheduled = self.next_due().filter(|due| *due <= now)?;
        let seq = u32::try_from(self.next).ok()?;
        self.next += 1;
        let too_late = self.missed == Missed::Skip && (now - scheduled) > self.gap;
        Some(Slot {
            seq,
            scheduled,
            send: !too_late,
        })
    }

    fn due(&self, k: u64) -> Nanos {
        // i128: k × gap of a run of any length cannot overflow on the way.
        let offset = i128::from(k) * i128::from(self.gap.0);
        self.start + Nanos(i64::try_from(offset).unwrap_or(i64::MAX - self.start.0.max(0)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn lateness_never_shifts_the_schedule(
            gap in 1_i64..10_000_000, steps in proptest::collection::vec(0_i64..50_000_000, 1..60),
        ) {
            let start = Nanos(1_000);
            let mut pacer = Pacer::new(start, Nanos(gap), Stop::Packets(40), Missed::Send);
            let mut now = start;
            let mut seen = 0_i64;
            for step in steps {
                now = now + Nanos(step);
                while let Some(slot) = pacer.poll(now) {
                    prop_assert_eq!(i64::from(slot.seq), seen);
                    prop_assert_eq!(slot.scheduled, start + Nanos(seen * gap));
                    prop_assert!(slot.scheduled <= now);
                    prop_assert!(slot.send);
                    seen += 1;
                }
                prop_assert!(pacer.next_due().map_or(seen == 40, |due| due > now));
            }
        }

        #[test]
        fn skip_leaves_out_what_is_more_than_a_gap_late(gap in 1_i64..1_000, held in 0_i64..100_000) {
            let mut pacer = Pacer::new(Nanos(0), Nanos(gap), Stop::Packets(50), Missed::Skip);
            while let Some(slot) = pacer.poll(Nanos(held)) {
                prop_assert_eq!(slot.send, held - slot.scheduled.0 <= gap);
            }
        }
    }

    #[test]
    fn a_duration_holds_the_packets_due_before_its_end() {
        let count = |duration| {
            Pacer::new(
                Nanos(0),
                Nanos(10),
                Stop::Duration(Nanos(duration)),
                Missed::Send,
            )
            .count()
        };
        assert_eq!(
            [count(0), count(1), count(10), count(11), count(100)],
            [0, 1, 1, 2, 10]
        );
    }
}
