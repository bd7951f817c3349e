//! `CLOCK_MONOTONIC`: reading it, and waiting for a point on it.

use rustix::thread::clock_nanosleep_absolute;
use rustix::time::{clock_gettime, ClockId, Timespec};
use tm_probe::port::WallClock;
use tm_wire::stamp::ErrorEstimate;
use tm_wire::{Duration, Instant, UnixTime};

/// Now.
#[must_use]
pub fn now() -> Instant {
    Instant(read(ClockId::Monotonic))
}

/// Processor time that the calling thread has used.
#[must_use]
pub fn thread_time() -> Duration {
    Duration(read(ClockId::ThreadCPUTime))
}

fn realtime() -> UnixTime {
    UnixTime(read(ClockId::Realtime))
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

/// What the kernel says of its `CLOCK_REALTIME` (`adjtimex(2)`): a program that sets it keeps the
/// largest error up to date, without one it grows to 16 s.
fn error_estimate() -> ErrorEstimate {
    // SAFETY: an all-zero timex asks for a reading, which the kernel writes into it.
    let (result, state) = unsafe {
        let mut state: libc::timex = std::mem::zeroed();
        (libc::adjtimex(&raw mut state), state)
    };
    if result < 0 {
        return ErrorEstimate::UNKNOWN;
    }
    ErrorEstimate {
        synchronized: state.status & libc::STA_UNSYNC == 0,
        // In microseconds, and one more for the clock's own reading.
        error_ns: u64::try_from(state.maxerror).map_or(u64::MAX, |us| (us + 1) * 1_000),
    }
}

/// Sleeps until `at`, in slices of at most 100 ms so that the caller sees a request to stop.
pub fn sleep_until(at: Instant) {
    let slice = now() + Duration::from_millis(100);
    // A signal is as good an end as the time.
    let _ = clock_nanosleep_absolute(ClockId::Monotonic, &timespec(at.min(slice).0));
}

/// As the kernel takes a time or a duration in ns; a negative one is 0.
pub(crate) fn timespec(ns: i64) -> Timespec {
    let ns = ns.max(0);
    Timespec {
        tv_sec: ns / 1_000_000_000,
        tv_nsec: ns % 1_000_000_000,
    }
}

/// The clock in ns, with 64 bits for the seconds on 32-bit machines, too.
fn read(clock: ClockId) -> i64 {
    let time = clock_gettime(clock);
    time.tv_sec * 1_000_000_000 + time.tv_nsec
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

    #[test]
    fn the_error_of_the_clock_is_what_the_kernel_tells() {
        let estimate = error_estimate();
        assert!(estimate.error_ns > 0);
        // Without a program that sets it the kernel tells 16 s.
        assert!(
            estimate.synchronized || estimate.error_ns > 1_000_000,
            "{estimate:?}"
        );
    }
}
