//! When a frame has been sent: at a rate, exactly, or at the opportunities of a trace.

use std::sync::Arc;

use crate::opportunities::Opportunities;

/// Puts one frame after the other on the wire.
pub(crate) struct Serializer {
    /// When the last frame has been sent: whole ns, and a part of one as `part / rate`.
    ns: i64,
    part: u64,
    rate: u64,
    trace: Option<Trace>,
}

/// Where a trace stands.
struct Trace {
    opportunities: Arc<Opportunities>,
    epoch_ns: i64,
    /// Number of the next opportunity from the epoch on, rounds counted.
    next: u64,
    /// Bytes that are left of the one before.
    left: u64,
}

const NS_PER_S: u128 = 1_000_000_000;

impl Serializer {
    pub(crate) fn new(opportunities: Option<Arc<Opportunities>>) -> Self {
        Self {
            ns: i64::MIN,
            part: 0,
            rate: 1,
            trace: opportunities.map(|opportunities| Trace {
                opportunities,
                epoch_ns: 0,
                next: 0,
                left: 0,
            }),
        }
    }

    /// Begins the trace anew.
    pub(crate) fn restart(&mut self, now_ns: i64) {
        if let Some(trace) = &mut self.trace {
            (trace.epoch_ns, trace.next, trace.left) = (now_ns.max(self.ns), 0, 0);
        }
    }

    /// When it is free, rounded up, ns.
    pub(crate) fn free_ns(&self) -> i64 {
        self.ns.saturating_add(i64::from(self.part > 0))
    }

    /// Sends a frame of `cost` bytes from `start_ns`; returns when it has been sent, rounded up, ns.
    ///
    /// `waited`: the frame was in the queue when the one before it was done, and begins right then,
    /// to the part of a ns.
    pub(crate) fn send(
        &mut self,
        start_ns: i64,
        cost: u64,
        rate_bit_s: Option<u64>,
        waited: bool,
    ) -> i64 {
        if let Some(trace) = &mut self.trace {
            self.ns = trace.send(start_ns, cost, waited);
            return self.ns;
        }
        if !waited {
            (self.ns, self.part) = (start_ns, 0);
        }
        let Some(rate) = rate_bit_s else {
            // Without a rate a frame takes no time; what was left of a slower one is done.
            (self.ns, self.part) = (start_ns, 0);
            return start_ns;
        };
        if rate != self.rate {
            // The same part of a ns at the new rate.
            let part = u128::from(self.part) * u128::from(rate) / u128::from(self.rate);
            self.part = u64::try_from(part).unwrap_or(0);
            self.rate = rate;
        }
        let total = u128::from(cost) * 8 * NS_PER_S + u128::from(self.part);
        let ns = total / u128::from(rate);
        self.ns = self
            .ns
            .saturating_add(i64::try_from(ns).unwrap_or(i64::MAX));
        self.part = u64::try_from(total % u128::from(rate)).unwrap_or(0);
        self.free_ns()
    }
}

impl Trace {
    /// An opportunity belongs to whoever waits when it comes; what nobody uses is gone.
    fn send(&mut self, start_ns: i64, cost: u64, waited: bool) -> i64 {
        if !waited {
            self.left = 0;
            self.next = self
                .next
                .max(self.opportunities.first_after(start_ns - self.epoch_ns));
        }
        let mut sent_ns = start_ns;
        let mut need = cost;
        loop {
            let used = need.min(self.left);
            self.left -= used;
            need -= used;
            if need == 0 {
                return sent_ns;
            }
            let at = self.opportunities.at_ns(self.next);
            sent_ns = self.epoch_ns.saturating_add(at).max(start_ns);
            self.next += 1;
            self.left = self.opportunities.bytes();
        }
    }
}
