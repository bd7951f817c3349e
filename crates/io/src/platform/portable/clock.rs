//! The clocks of the standard library.

use std::sync::OnceLock;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use tm_wire::stamp::ErrorEstimate;

/// The time of day when the program first looked, and what has passed since, in ns: two programs of one
/// computer have the same clock, as far as nobody set that of the day in between.
#[allow(clippy::disallowed_methods, reason = "this is tm-io's clock")]
pub fn monotonic() -> i64 {
    static FIRST: OnceLock<(i64, Instant)> = OnceLock::new();
    let (day, first) = FIRST.get_or_init(|| (realtime(), Instant::now()));
    day + ns(first.elapsed())
}

/// The time of day in ns since 1970.
#[allow(clippy::disallowed_methods, reason = "this is tm-io's clock")]
pub fn realtime() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, ns)
}

/// Processor time of the calling thread: not known.
pub fn thread_time() -> i64 {
    0
}

/// How far the time of day may be off: not known.
pub fn error_estimate() -> ErrorEstimate {
    ErrorEstimate::UNKNOWN
}

/// Sleeps until `at` of the monotonic clock, in ns.
#[allow(clippy::disallowed_methods, reason = "this is tm-io's way to wait")]
pub fn sleep_until(at: i64) {
    let left = u64::try_from(at - monotonic()).unwrap_or(0);
    std::thread::sleep(Duration::from_nanos(left));
}

fn ns(time: Duration) -> i64 {
    i64::try_from(time.as_nanos()).unwrap_or(i64::MAX)
}
