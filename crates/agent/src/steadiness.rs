//! How late a process wakes up when it asks for a fixed gap: the clock's fitness for a sender.

use rustix::thread::clock_nanosleep_absolute;
use rustix::time::{clock_gettime, ClockId, Timespec};
use serde_json::{json, Value};

const SECOND_NS: i64 = 1_000_000_000;

/// Sleep to `count` points of an absolute schedule with `gap_ns` between them and return how late
/// each awakening was: median, 99th percentile and worst, in ns.
pub fn measure(gap_ns: i64, count: usize) -> Result<Value, String> {
    let start = now_ns() + gap_ns;
    let mut late = Vec::with_capacity(count);
    for k in 0..count {
        let due = start + gap_ns * i64::try_from(k).map_err(|e| e.to_string())?;
        let target = Timespec {
            tv_sec: due / SECOND_NS,
            tv_nsec: due % SECOND_NS,
        };
        while clock_nanosleep_absolute(ClockId::Monotonic, &target) == Err(rustix::io::Errno::INTR)
        {
        }
        late.push(now_ns() - due);
    }
    late.sort_unstable();
    Ok(json!({
        "gap_ns": gap_ns,
        "count": count,
        "lateness_ns": {
            "p50": quantile(&late, 50),
            "p99": quantile(&late, 99),
            "max": quantile(&late, 100),
        },
    }))
}

/// The smallest value that at least `percent` of the sorted values do not exceed; None of nothing.
fn quantile(sorted: &[i64], percent: usize) -> Option<i64> {
    let rank = (sorted.len() * percent).div_ceil(100);
    sorted.get(rank.saturating_sub(1)).copied()
}

fn now_ns() -> i64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec * SECOND_NS + now.tv_nsec
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_ranks_of_the_sorted_values() {
        let sorted: Vec<i64> = (1..=200).collect();
        assert_eq!(quantile(&sorted, 50), Some(100));
        assert_eq!(quantile(&sorted, 99), Some(198));
        assert_eq!(quantile(&sorted, 100), Some(200));
        assert_eq!(quantile(&[7], 50), Some(7));
        assert_eq!(quantile(&[], 50), None);
    }

    #[test]
    fn nobody_wakes_up_early() {
        let result = measure(100_000, 20).unwrap();
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
