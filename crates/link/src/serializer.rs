//! When a frame has been sent: at a rate, exactly, or at the opportunities of a trace.

use std::sync::Arc;

use tm_wire::{Duration, Instant};

use crate::opportunities::Opportunities;

/// Puts one frame after the other on the wire.
pub(crate) struct Serializer {
    /// When the last frame has been sent, and a part of a ns more as `part / rate`.
    sent: Instant,
    part: u64,
    rate: u64,
    trace: Option<Trace>,
}

/// Where a trace stands.
struct Trace {
    opportunities: Arc<Opportunities>,
    epoch: Instant,
    /// Number of the next opportunity from the epoch on, rounds counted.
    next: u64,
    /// Bytes that are left of the one before.
    left: u64,
}

const NS_PER_S: u128 = 1_000_000_000;

impl Serializer {
    pub(crate) fn new(opportunities: Option<Arc<Opportunities>>) -> Self {
        Self {
            sent: Instant::MIN,
            part: 0,
            rate: 1,
            trace: opportunities.map(|opportunities| Trace {
                opportunities,
                epoch: Instant(0),
                next: 0,
                left: 0,
            }),
        }
    }

    /// Begins the trace again at `now`; a frame that waits for an opportunity keeps the wire until then.
    pub(crate) fn restart(&mut self, now: Instant) {
        if let Some(trace) = &mut self.trace {
            (trace.epoch, trace.next, trace.left) = (now, 0, 0);
            if self.sent > now {
                trace.next = trace.opportunities.first_after(self.sent - now);
            }
        }
    }

    /// When it is free, rounded up.
    pub(crate) fn free_at(&self) -> Instant {
        let rest = Duration(i64::from(self.part > 0));
        self.sent.saturating_add(rest)
    }

    /// Sends a frame of `cost` bytes from `start` on; returns when it has been sent, rounded up.
    ///
    /// `waited`: the frame was in the queue when the one before it was done, and begins right then,
    /// to the part of a ns.
    pub(crate) fn send(
        &mut self,
        start: Instant,
        cost: u64,
        rate_bit_s: Option<u64>,
        waited: bool,
    ) -> Instant {
        if let Some(trace) = &mut self.trace {
            self.sent = trace.send(start, cost, waited);
            return self.sent;
        }
        if !waited {
            (self.sent, self.part) = (start, 0);
        }
        let Some(rate) = rate_bit_s else {
            // Without a rate a frame takes no time; what was left of a slower one is done.
            (self.sent, self.part) = (start, 0);
            return start;
        };
        if rate != self.rate {
            // The same part of a ns at the new rate.
            let part = u128::from(self.part) * u128::from(rate) / u128::from(self.rate);
            self.part = u64::try_from(part).unwrap_or(0);
            self.rate = rate;
        }
        let total = u128::from(cost) * 8 * NS_PER_S + u128::from(self.part);
        let ns = total / u128::from(rate);
        let takes = Duration(i64::try_from(ns).unwrap_or(i64::MAX));
        self.sent = self.sent.saturating_add(takes);
        self.part = u64::try_from(total % u128::from(rate)).unwrap_or(0);
        self.free_at()
    }
}

impl Trace {
    /// An opportunity belongs to whoever waits when it comes; what nobody uses is gone.
    fn send(&mut self, start: Instant, cost: u64, waited: bool) -> Instant {
        if !waited {
            self.left = 0;
            self.next = self
                .next
                .max(self.opportunities.first_after(start - self.epoch));
        }
        let mut sent = start;
        let mut need = cost;
        loop {
            let used = need.min(self.left);
            self.left -= used;
            need -= used;
            if need == 0 {
                return sent;
            }
            let offset = self.opportunities.offset(self.next);
            sent = self.epoch.saturating_add(offset).max(start);
            self.next += 1;
            self.left = self.opportunities.bytes();
        }
    }
}
