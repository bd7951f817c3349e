//! Waiting for a point in time to a few microseconds: asleep, and awake for the last stretch.

use tm_wire::Nanos;

use crate::clock;

/// Longest stretch that is spent awake.
const LONGEST: i64 = 100_000;
const SHORTEST: i64 = 1_000;
/// At most this share of the time between two points is spent awake, so that a sender at a short
/// gap does not take the processor from what it measures, and the kernel's limit for real-time
/// threads is never met.
const SHARE: i64 = 4;

/// Learns how late the kernel wakes the calling thread and gets up so much earlier.
pub struct Alarm {
    /// Estimate of the 95th percentile of how late a sleeper wakes, ns.
    late: i64,
    /// The last point that was waited for.
    last: Nanos,
}

impl Default for Alarm {
    fn default() -> Self {
        Self {
            late: 50_000,
            last: clock::now(),
        }
    }
}

impl Alarm {
    /// Waits until `due`, or returns early after at most 100 ms so that the caller sees a request to
    /// stop; returns at once if it has passed.
    pub fn wait_until(&mut self, due: Nanos) {
        let stretch = self.stretch(due);
        let up = due - stretch;
        let now = clock::now();
        if up > now {
            clock::sleep_until(up);
            let woke = clock::now();
            if woke < up {
                return;
            }
            self.learn(woke - up);
        }
        while clock::now() < due {
            std::hint::spin_loop();
        }
        self.last = due;
    }

    /// Waits for `due` or for something else, whichever comes first; `sleep` waits until the point
    /// that it is given, or for the other thing. Near to `due` it returns without sleeping, so that a
    /// caller that looks at both in turn is awake when it comes.
    pub fn wait_or(&mut self, due: Option<Nanos>, sleep: impl FnOnce(Option<Nanos>)) {
        let Some(due) = due else {
            return sleep(None);
        };
        let up = due - self.stretch(due);
        if clock::now() >= up {
            std::hint::spin_loop();
            return;
        }
        sleep(Some(up));
        let woke = clock::now();
        // Woken before: the other thing came, which says nothing of how late a sleeper wakes.
        if woke >= up {
            self.learn(woke - up);
        }
    }

    /// How long before `due` to get up.
    #[must_use]
    pub fn stretch(&self, due: Nanos) -> Nanos {
        Nanos(self.late.min((due - self.last).0.max(0) / SHARE))
    }

    /// A sleeper woke this much later than asked.
    pub fn learn(&mut self, late: Nanos) {
        // Up by an eighth, down by a 160th: at rest one wake in twenty is later than the estimate.
        self.late = if late.0 > self.late {
            self.late + self.late / 8 + 100
        } else {
            self.late - self.late / 160
        }
        .clamp(SHORTEST, LONGEST);
    }

    /// The point that was waited for has been dealt with.
    pub fn passed(&mut self, due: Nanos) {
        self.last = due;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_estimate_settles_where_one_in_twenty_is_later() {
        let mut alarm = Alarm::default();
        let mut later = 0;
        for k in 0..200_000_i64 {
            // 0 to 40 µs, evenly spread: the 95th percentile is 38 µs.
            let late = Nanos((k * 7_919) % 40_000);
            later += i64::from(late.0 > alarm.late);
            alarm.learn(late);
        }
        assert!((34_000..42_000).contains(&alarm.late), "{}", alarm.late);
        assert!((6_000..16_000).contains(&later), "{later} of 200000");
    }

    #[test]
    fn no_more_than_its_share_of_the_time_is_spent_awake() {
        let mut alarm = Alarm::default();
        for _ in 0..1_000 {
            alarm.learn(Nanos(1_000_000));
        }
        assert_eq!(alarm.late, LONGEST);
        let last = alarm.last;
        assert_eq!(alarm.stretch(last + Nanos(40_000)), Nanos(10_000));
        assert_eq!(alarm.stretch(last + Nanos(1_000_000_000)), Nanos(LONGEST));
        assert_eq!(alarm.stretch(last - Nanos(5)), Nanos(0));
    }

    #[test]
    fn it_is_never_early() {
        let mut alarm = Alarm::default();
        for _ in 0..20 {
            let due = clock::now() + Nanos(200_000);
            while clock::now() < due {
                alarm.wait_until(due);
            }
            assert!(clock::now() >= due);
        }
    }
}
