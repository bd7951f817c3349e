//! The clock of all times here, monotonic: reading it, and waiting for a point on it.

use tm_probe::port::WallClock;
use tm_wire::{Duration, Instant, UnixTime};

use crate::platform;
use crate::platform::clock::error_estimate;

/// Now.
#[must_use]
pub fn now() -> Instant {
    Instant(platform::clock::monotonic())
}

/// Processor time that the calling thread has used.
#[must_use]
pub fn thread_time() -> Duration {
    Duration(platform::clock::thread_time())
}

fn realtime() -> UnixTime {
    UnixTime(platform::clock::realtime())
}

/// How `CLOCK_REALTIME` stands to `CLOCK_MONOTONIC`: what converts kernel timestamps and times of STAMP.
///
/// The two differ by the same amount until somebody steps the one, so the difference is measured with
/// care now and then, and each look only finds out whether it was stepped.
pub struct Wall {
    clock: WallClock,
    measured: Instant,
    error_read: Instant,
    /// The difference before the wall clock was last stepped, and when that was seen.
    stepped: Option<(Duration, Instant)>,
}

/// A difference is used so long, and a reading of the clock's error.
const MEASURE_EVERY: Duration = Duration::from_millis(10);
const ERROR_EVERY: Duration = Duration::from_secs(1);
/// Two readings one behind the other differ by less, unless the thread was interrupted in between.
const STEP: Duration = Duration(2_000);
/// So long after a step packets may come to hand that the kernel stamped before it.
const STEP_REMEMBERED: Duration = Duration::from_secs(1);

impl Wall {
    /// Measures it.
    #[must_use]
    pub fn new() -> Self {
        let now = now();
        Self {
            clock: WallClock {
                offset: realtime_offset(),
                error: error_estimate(),
            },
            measured: now,
            error_read: now,
            stepped: None,
        }
    }

    /// Looks whether the wall clock was stepped, and returns now.
    pub fn look(&mut self) -> Instant {
        let now = now();
        let moved = (realtime().ahead_of(now) - self.clock.offset).abs() > STEP;
        if moved || now - self.measured > MEASURE_EVERY {
            let before = std::mem::replace(&mut self.clock.offset, realtime_offset());
            self.measured = now;
            if (self.clock.offset - before).abs() > STEP {
                self.stepped = Some((before, now));
            }
        }
        if now - self.error_read > ERROR_EVERY {
            self.clock.error = error_estimate();
            self.error_read = now;
        }
        now
    }

    /// When the kernel stamped a packet that was taken at the last look, `taken`.
    ///
    /// Where the wall clock was stepped while the packet waited, its stamp is by the old one. By the
    /// wrong one of the two it would have come later than it was taken, or earlier by the whole step.
    #[must_use]
    pub fn stamped(&self, stamp: UnixTime, taken: Instant) -> Instant {
        let at = self.clock.instant(stamp);
        match self.stepped {
            Some((before, seen)) if taken - seen < STEP_REMEMBERED => {
                let possible = [at, stamp.instant(before)].into_iter();
                let possible = possible.filter(|at| *at <= taken + STEP);
                possible.max().unwrap_or(at)
            }
            _ => at,
        }
    }

    /// How it stood at the last look.
    #[must_use]
    pub fn clock(&self) -> WallClock {
        self.clock
    }
}

impl Default for Wall {
    fn default() -> Self {
        Self::new()
    }
}

/// `CLOCK_REALTIME` minus `CLOCK_MONOTONIC`.
///
/// The monotonic clock is read on both sides of the other; the closest of three tries counts, so a
/// thread that is interrupted in between does not shift a batch of timestamps.
#[must_use]
pub fn realtime_offset() -> Duration {
    let mut best = (Duration::MAX, Duration::ZERO);
    for _ in 0..3 {
        let before = now();
        let real = realtime();
        let width = now() - before;
        if width < best.0 {
            let middle = before + width / 2;
            best = (width, real.ahead_of(middle));
        }
    }
    best.1
}

/// Sleeps until `at`, in slices of at most 100 ms so that the caller sees a request to stop.
pub fn sleep_until(at: Instant) {
    let slice = now() + Duration::from_millis(100);
    platform::clock::sleep_until(at.min(slice).0);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_look_finds_the_difference_of_the_clocks() {
        let mut wall = Wall::new();
        // As if the clock had been set back by an hour since.
        wall.clock.offset += Duration::from_secs(3_600);
        let before = now();
        let looked = wall.look();
        assert!((before..=now()).contains(&looked));
        let apart = wall.clock().offset - realtime_offset();
        assert!(apart.0.abs() < 1_000_000, "{apart:?}");
    }

    #[test]
    fn a_packet_keeps_its_time_when_the_wall_clock_is_stepped() {
        for step in [3_000, -3_000, 3_600_000] {
            let mut wall = Wall::new();
            let stamped = now();
            let after = UnixTime::of(stamped, wall.clock.offset);
            wall.clock.offset += Duration::from_millis(-step);
            let before = UnixTime::of(stamped, wall.clock.offset);
            let taken = wall.look();
            for stamp in [before, after] {
                let error = wall.stamped(stamp, taken) - stamped;
                assert!(error.abs().0 < 1_000_000, "{step} ms: {error:?}");
            }
        }
    }
}
