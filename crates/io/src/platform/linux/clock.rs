//! The clocks of the kernel, and its sleep.

use rustix::thread::clock_nanosleep_absolute;
use rustix::time::{clock_gettime, ClockId, Timespec};
use tm_wire::stamp::ErrorEstimate;

/// `CLOCK_MONOTONIC` in ns.
pub fn monotonic() -> i64 {
    read(ClockId::Monotonic)
}

/// `CLOCK_REALTIME` in ns.
pub fn realtime() -> i64 {
    read(ClockId::Realtime)
}

/// Processor time that the calling thread has used, in ns.
pub fn thread_time() -> i64 {
    read(ClockId::ThreadCPUTime)
}

/// What the kernel says of its `CLOCK_REALTIME` (`adjtimex(2)`): a program that sets it keeps the
/// largest error up to date, without one it grows to 16 s.
pub fn error_estimate() -> ErrorEstimate {
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

/// Sleeps until `at` of the monotonic clock, in ns.
pub fn sleep_until(at: i64) {
    // A signal is as good an end as the time.
    let _ = clock_nanosleep_absolute(ClockId::Monotonic, &timespec(at));
}

/// As the kernel takes a time or a duration in ns; a negative one is 0.
pub fn timespec(ns: i64) -> Timespec {
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
