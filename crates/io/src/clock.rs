//! `CLOCK_MONOTONIC`: reading it, and waiting for a point on it.

use tm_wire::Nanos;

/// Now.
#[must_use]
pub fn now() -> Nanos {
    read(libc::CLOCK_MONOTONIC)
}

/// Processor time that the calling thread has used.
#[must_use]
pub fn thread_time() -> Nanos {
    read(libc::CLOCK_THREAD_CPUTIME_ID)
}

/// `CLOCK_REALTIME` minus `CLOCK_MONOTONIC`, to convert kernel timestamps.
///
/// The monotonic clock is read on both sides of the other; the closest of three tries counts, so a
/// thread that is interrupted in between does not shift a batch of timestamps.
#[must_use]
pub fn realtime_offset() -> Nanos {
    let mut best = (i64::MAX, Nanos(0));
    for _ in 0..3 {
        let before = now();
        let real = read(libc::CLOCK_REALTIME);
        let after = now();
        let width = (after - before).0;
        if width < best.0 {
            best = (width, Nanos(real.0 - before.0 - width / 2));
        }
    }
    best.1
}

/// Sleeps until `at`, in slices of at most 100 ms so that the caller sees a request to stop.
pub fn sleep_until(at: Nanos) {
    let slice = now() + Nanos(100_000_000);
    let until = at.min(slice).0.max(0);
    let time = libc::timespec {
        tv_sec: until / 1_000_000_000,
        tv_nsec: until % 1_000_000_000,
    };
    // SAFETY: `time` lives across the call; no remainder is asked for with an absolute time.
    unsafe {
        libc::clock_nanosleep(
            libc::CLOCK_MONOTONIC,
            libc::TIMER_ABSTIME,
            &raw const time,
            std::ptr::null_mut(),
        );
    }
}

fn read(clock: libc::clockid_t) -> Nanos {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: `time` is a valid place to write to; both clocks exist on every Linux.
    unsafe { libc::clock_gettime(clock, &raw mut time) };
    Nanos(time.tv_sec * 1_000_000_000 + time.tv_nsec)
}
