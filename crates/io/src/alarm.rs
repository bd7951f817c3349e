//! Waiting for a point in time to a few microseconds: asleep, and awake for the last stretch.

use tm_wire::{Duration, Instant};

use crate::clock;

/// Longest stretch that is spent awake.
const LONGEST: Duration = Duration(100_000);
const SHORTEST: Duration = Duration(1_000);
/// At most this share of the time between two points is spent awake, so that a sender at a short
/// gap does not take the processor from what it measures, and the kernel's limit for real-time
/// threads is never met.
const SHARE: i64 = 4;
/// Two looks at the clock that are further apart than this were interrupted in between: by the
/// kernel, which worked for somebody, or by another program.
const LOOK: Duration = Duration(2_000);

/// Learns how late the kernel wakes the calling thread and gets up so much earlier.
pub struct Alarm {
    /// Estimate of the 95th percentile of how late a sleeper wakes.
    late: Duration,
    /// The last point that was waited for.
    last: Instant,
    awake: Duration,
    /// The last look at the clock of a stretch that is spent awake.
    looked: Option<Instant>,
    /// At most this share of the time between two points is spent awake: one in so many; None: it
    /// never gets up early.
    share: Option<i64>,
}

impl Alarm {
    /// An alarm; one that does not `spin` takes no processor while it waits, and so is as late as the
    /// kernel wakes.
    #[must_use]
    pub fn new(spin: bool) -> Self {
        Self {
            late: Duration(50_000),
            last: clock::now(),
            awake: Duration::ZERO,
            looked: None,
            share: spin.then_some(SHARE),
        }
    }

    /// Waits until `due`, or returns early after at most 100 ms so that the caller sees a request to
    /// stop; returns at once if it has passed.
    pub fn wait_until(&mut self, due: Instant) {
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
        let mut now = clock::now();
        self.looked = Some(now);
        while now < due {
            std::hint::spin_loop();
            now = clock::now();
            self.look(now);
        }
        self.last = due;
    }

    /// Waits for `due` or for something else, whichever comes first; `sleep` waits until the point
    /// that it is given, or for the other thing. Near to `due` it returns without sleeping, so that a
    /// caller that looks at both in turn is awake when it comes.
    pub fn wait_or(&mut self, due: Option<Instant>, sleep: impl FnOnce(Option<Instant>)) {
        let Some(due) = due else {
            self.looked = None;
            return sleep(None);
        };
        let up = due - self.stretch(due);
        let now = clock::now();
        self.look(now);
        if now >= up {
            std::hint::spin_loop();
            return;
        }
        self.looked = None;
        sleep(Some(up));
        let woke = clock::now();
        // Woken before: the other thing came, which says nothing of how late a sleeper wakes.
        if woke >= up {
            self.learn(woke - up);
        }
    }

    /// Processor time that was spent awake with nothing to do but wait: the instrument's, and of no
    /// use to what it measures. What interrupted the waiting is not in it.
    #[must_use]
    pub fn awake(&self) -> Duration {
        self.awake
    }

    fn look(&mut self, now: Instant) {
        if let Some(waited) = self.looked.map(|looked| now - looked) {
            if waited <= LOOK {
                self.awake += waited;
            }
        }
        self.looked = Some(now);
    }

    /// How long before `due` to get up.
    #[must_use]
    pub fn stretch(&self, due: Instant) -> Duration {
        let gap = (due - self.last).max(Duration::ZERO);
        let most = self.share.map(|share| gap / share);
        most.map_or(Duration::ZERO, |most| self.late.min(most))
    }

    /// A sleeper woke this much later than asked.
    pub fn learn(&mut self, late: Duration) {
        // Up by an eighth, down by a 160th: at rest one wake in twenty is later than the estimate.
        let estimate = self.late.0;
        let next = if late > self.late {
            estimate + estimate / 8 + 100
        } else {
            estimate - estimate / 160
        };
        self.late = Duration(next).clamp(SHORTEST, LONGEST);
    }

    /// The point that was waited for has been dealt with.
    pub fn passed(&mut self, due: Instant) {
        self.last = due;
        self.looked = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_estimate_settles_where_one_in_twenty_is_later() {
        let mut alarm = Alarm::new(true);
        let mut later = 0;
        for k in 0..200_000_i64 {
            // 0 to 40 µs, evenly spread: the 95th percentile is 38 µs.
            let late = Duration((k * 7_919) % 40_000);
            later += i64::from(late > alarm.late);
            alarm.learn(late);
        }
        assert!((34_000..42_000).contains(&alarm.late.0), "{:?}", alarm.late);
        assert!((6_000..16_000).contains(&later), "{later} of 200000");
    }

    #[test]
    fn no_more_than_its_share_of_the_time_is_spent_awake() {
        let mut alarm = Alarm::new(true);
        for _ in 0..1_000 {
            alarm.learn(Duration(1_000_000));
        }
        assert_eq!(alarm.late, LONGEST);
        let last = alarm.last;
        assert_eq!(alarm.stretch(last + Duration(40_000)), Duration(10_000));
        assert_eq!(alarm.stretch(last + Duration(1_000_000_000)), LONGEST);
        assert_eq!(alarm.stretch(last - Duration(5)), Duration(0));
        alarm.share = Alarm::new(false).share;
        assert_eq!(alarm.stretch(last + Duration(1_000_000_000)), Duration(0));
    }

    #[test]
    fn what_is_spent_awake_is_what_was_waited_and_no_more() {
        let mut alarm = Alarm::new(true);
        let begun = clock::now();
        for _ in 0..50 {
            let due = clock::now() + Duration(400_000);
            while clock::now() < due {
                alarm.wait_until(due);
            }
        }
        let (awake, took) = (alarm.awake(), clock::now() - begun);
        assert!(awake > Duration(0));
        // A quarter of each gap is the most that is spent awake; what is woken late is not.
        assert!(
            awake.0 <= took.0 / SHARE + 50 * LOOK.0,
            "{awake:?} of {took:?}"
        );
    }

    #[test]
    fn a_caller_that_works_between_two_looks_did_not_wait() {
        let mut alarm = Alarm::new(true);
        let due = clock::now() + Duration(60_000_000_000);
        alarm.last = due - Duration(1_000);
        let mut asleep = 0;
        alarm.wait_or(Some(due), |_| asleep += 1);
        assert_eq!((alarm.awake(), asleep), (Duration(0), 1));
        let due = clock::now() + Duration(40_000);
        alarm.last = due - Duration(400_000);
        alarm.wait_or(Some(due), |_| asleep += 1);
        alarm.looked = Some(clock::now() - LOOK - Duration(1));
        alarm.wait_or(Some(due), |_| asleep += 1);
        assert_eq!((alarm.awake(), asleep), (Duration(0), 1));
        alarm.passed(due);
        assert_eq!(alarm.looked, None);
    }

    #[test]
    fn it_is_never_early() {
        for mut alarm in [Alarm::new(true), Alarm::new(false)] {
            for _ in 0..20 {
                let due = clock::now() + Duration(200_000);
                while clock::now() < due {
                    alarm.wait_until(due);
                }
                assert!(clock::now() >= due);
            }
        }
    }
}
