//! How late a process wakes up when it asks for a fixed gap: the clock's fitness for a sender.

use rustix::thread::clock_nanosleep_absolute;
use rustix::time::{clock_gettime, ClockId, Timespec};
use serde_json::{json, Value};
use tm_wire::{Duration, Instant};

const SECOND_NS: i64 = 1_000_000_000;

/// Sleep to `count` points of an absolute schedule with `gap` between them and return how late
/// each awakening was: median, 99th percentile and worst, in ns.
pub fn measure(gap: Duration, count: usize) -> Value {
    let mut due = now();
    let mut late = Vec::with_capacity(count);
    for _ in 0..count {
        due += gap;
        let target = Timespec {
            tv_sec: due.0 / SECOND_NS,
            tv_nsec: due.0 % SECOND_NS,
        };
        while clock_nanosleep_absolute(ClockId::Monotonic, &target) == Err(rustix::io::Errno::INTR)
        {
        }
        late.push(now() - due);
    }
    late.sort_unstable();
    json!({
        "gap_ns": gap.0,
        "count": count,
        "lateness_ns": {
            "p50": quantile(&late, 50),
            "p99": quantile(&late, 99),
            "max": quantile(&late, 100),
        },
    })
}

/// The smallest, in ns, that at least `percent` of the sorted ones do not exceed; None of nothing.
fn quantile(sorted: &[Duration], percent: usize) -> Option<i64> {
    let rank = (sorted.len() * percent).div_ceil(100);
    sorted.get(rank.saturating_sub(1)).map(|late| late.0)
}

fn now() -> Instant {
    let now = clock_gettime(ClockId::Monotonic);
    Instant(now.tv_sec * SECOND_NS + now.tv_nsec)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_ranks_of_the_sorted_values() {
        let sorted: Vec<Duration> = (1..=200).map(Duration).collect();
        assert_eq!(quantile(&sorted, 50), Some(100));
        assert_eq!(quantile(&sorted, 99), Some(198));
        assert_eq!(quantile(&sorted, 100), Some(200));
        assert_eq!(quantile(&[Duration(7)], 50), Some(7));
        assert_eq!(quantile(&[], 50), None);
    }

    #[test]
    fn nobody_wakes_up_early() {
        let result = measure(Duration(100_000), 20);
        assert!(
            result["lateness_ns"]["p50"].as_i64().unwrap() >= 0,
            "{result}"
        );
        assert!(
            result["lateness_ns"]["max"].as_i64() >= result["lateness_ns"]["p99"].as_i64(),
            "{result}"
        );
    }
}
