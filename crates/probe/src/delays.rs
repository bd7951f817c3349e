//! Distributions of delays: HDR histograms from 1 ns to an hour, three significant digits.

use hdrhistogram::Histogram;
use tm_wire::Duration;

use crate::counts::Counts;

/// Among fewer values one outlier is more than a twentieth of all.
const TAIL_LEAST: u64 = 20;
const LARGEST_NS: u64 = 3_600_000_000_000;

/// A histogram of durations. Negative ones (clocks of two hosts) are kept as 0 and counted.
#[derive(Clone, Debug, Default)]
pub struct Delays {
    counts: Counts,
    below_zero: u64,
}

/// What a histogram comes to, in ns.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Summary {
    /// Number of values.
    pub count: u64,
    /// Smallest.
    pub min: u64,
    /// Median.
    pub p50: u64,
    /// 90th percentile.
    pub p90: u64,
    /// 99th percentile.
    pub p99: u64,
    /// What 1 % of the values reach, and two of them at least where there are enough: of fewer than
    /// a hundred values the 99th percentile is the largest one, and one is not one in a hundred.
    pub tail: u64,
    /// 99.9th percentile.
    pub p999: u64,
    /// Largest.
    pub max: u64,
    /// Mean.
    pub mean: f64,
    /// Values that were negative and count as 0.
    pub below_zero: u64,
}

impl Delays {
    /// Adds one duration; longer than an hour counts as an hour.
    pub fn add(&mut self, duration: Duration) {
        let value = u64::try_from(duration.0.max(0)).unwrap_or(0);
        self.counts.add(value.min(LARGEST_NS), 1);
        self.below_zero += u64::from(duration.0 < 0);
    }

    /// Adds all of another histogram: what several came to together.
    pub fn merge(&mut self, other: &Self) {
        for (value, count) in other.counts.iter() {
            self.counts.add(value, count);
        }
        self.below_zero += other.below_zero;
    }

    /// What was added since an earlier reading of the same histogram.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        let mut counts = Counts::default();
        let mut taken = earlier.counts.iter().peekable();
        for (value, count) in self.counts.iter() {
            let before = taken.next_if(|(one, _)| *one == value);
            let Some(more) = count.checked_sub(before.map_or(0, |(_, count)| count)) else {
                return self.clone();
            };
            counts.add(value, more);
        }
        // A reading of another histogram would go below zero: then all of this one counts.
        if taken.next().is_some() {
            return self.clone();
        }
        Self {
            counts,
            below_zero: self.below_zero.saturating_sub(earlier.below_zero),
        }
    }

    /// What it comes to; None without a value: missing is not zero.
    #[must_use]
    pub fn summary(&self) -> Option<Summary> {
        // Whole only while it is asked: it takes a quarter of a megabyte.
        let mut histogram = empty();
        for (value, count) in self.counts.iter() {
            histogram.saturating_record_n(value, count);
        }
        (!histogram.is_empty()).then(|| Summary {
            count: histogram.len(),
            min: histogram.min(),
            p50: histogram.value_at_quantile(0.5),
            p90: histogram.value_at_quantile(0.9),
            p99: histogram.value_at_quantile(0.99),
            tail: tail(&histogram),
            p999: histogram.value_at_quantile(0.999),
            max: histogram.max(),
            mean: histogram.mean(),
            below_zero: self.below_zero,
        })
    }
}

fn empty() -> Histogram<u64> {
    let histogram = Histogram::new_with_bounds(1, LARGEST_NS, 3);
    histogram.expect("1 to an hour with 3 digits are bounds it accepts")
}

fn tail(histogram: &Histogram<u64>) -> u64 {
    let count = histogram.len();
    let but_one = if (TAIL_LEAST..100).contains(&count) {
        // Half a value off, so that no rounding moves it to the next.
        (count as f64 - 1.5) / count as f64
    } else {
        0.99
    };
    histogram.value_at_quantile(but_one)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn what_is_kept_of_it_comes_to_what_a_whole_histogram_does(
            values in proptest::collection::vec(
                prop_oneof![0..3_000_u64, 0..10_000_000_u64, 0..=2 * LARGEST_NS],
                1..300,
            ),
        ) {
            let mut whole = empty();
            let mut delays = Delays::default();
            for value in &values {
                whole.saturating_record(*value.min(&LARGEST_NS));
                delays.add(Duration(i64::try_from(*value).unwrap()));
            }
            let summary = delays.summary().unwrap();
            let quantiles = [summary.p50, summary.p90, summary.p99, summary.p999];
            let wanted = [0.5, 0.9, 0.99, 0.999].map(|at| whole.value_at_quantile(at));
            prop_assert_eq!(quantiles, wanted);
            prop_assert_eq!((summary.min, summary.max), (whole.min(), whole.max()));
            prop_assert_eq!(summary.count, whole.len());
            prop_assert_eq!(summary.tail, tail(&whole));
            prop_assert_eq!(summary.mean.to_bits(), whole.mean().to_bits());
        }

        #[test]
        fn what_came_since_a_reading_is_what_was_added(
            before in proptest::collection::vec(0_i64..100_000, 0..100),
            after in proptest::collection::vec(0_i64..100_000, 0..100),
        ) {
            let of = |values: &[i64]| {
                let mut delays = Delays::default();
                for value in values {
                    delays.add(Duration(*value));
                }
                delays
            };
            let (earlier, later) = (of(&before), of(&after));
            let mut both = earlier.clone();
            both.merge(&later);
            prop_assert_eq!(both.since(&earlier).summary(), later.summary());
        }
    }

    #[test]
    fn an_empty_histogram_has_no_summary() {
        assert_eq!(Delays::default().summary(), None);
    }

    #[test]
    fn what_came_before_a_reading_does_not_count() {
        let mut delays = Delays::default();
        delays.add(Duration(20_000_000));
        let earlier = delays.clone();
        assert_eq!(delays.since(&earlier).summary(), None);
        delays.add(Duration(1000));
        let summary = delays.since(&earlier).summary().unwrap();
        assert_eq!((summary.count, summary.max), (1, 1000));
        assert_eq!(earlier.since(&delays).summary(), earlier.summary());
    }

    #[test]
    fn a_merged_median_is_that_of_all_and_no_mean_of_medians() {
        let (mut fast, mut slow) = (Delays::default(), Delays::default());
        for _ in 0..99 {
            fast.add(Duration(100));
        }
        for ns in 1..=3 {
            slow.add(Duration(ns * 1000));
        }
        fast.merge(&slow);
        let summary = fast.summary().unwrap();
        assert_eq!((summary.count, summary.p50), (102, 100));
        assert!(summary.max.abs_diff(3000) < 3);
    }

    #[test]
    fn what_is_below_zero_is_counted() {
        let mut delays = Delays::default();
        delays.add(Duration(-5));
        delays.add(Duration(0));
        let summary = delays.summary().unwrap();
        assert_eq!((summary.count, summary.min, summary.below_zero), (2, 0, 1));
    }

    #[test]
    fn one_of_a_few_is_no_tail_and_two_are() {
        let tail = |few: &[i64], usual: u64| {
            let mut delays = Delays::default();
            for &value in few {
                delays.add(Duration(value));
            }
            for _ in 0..usual {
                delays.add(Duration(1));
            }
            delays.summary().unwrap().tail
        };
        assert_eq!(tail(&[1000], 69), 1);
        assert_eq!(tail(&[1000, 1000], 68), 1000);
        assert_eq!(tail(&[1000], 18), 1000);
        assert_eq!(tail(&[1000], 19), 1);
        assert_eq!(tail(&[1000], 99), 1);
        assert_eq!(tail(&[1000, 1000], 98), 1000);
        assert_eq!(tail(&[1000; 10], 990), 1);
        assert_eq!(tail(&[1000; 11], 989), 1000);
    }

    #[test]
    fn three_digits_are_kept() {
        let mut delays = Delays::default();
        for ms in 1..=100 {
            delays.add(Duration(ms * 1_000_000));
        }
        let summary = delays.summary().unwrap();
        assert!(summary.p50.abs_diff(50_000_000) < 50_000);
        assert!(summary.p99.abs_diff(99_000_000) < 100_000);
        assert_eq!(summary.count, 100);
    }
}
