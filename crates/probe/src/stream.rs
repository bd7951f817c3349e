//! Named random streams: each use draws from its own, so that one does not shift another.

use rand_core::{RngCore, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

/// The seed of the stream `name` of a run's `seed`.
#[must_use]
pub fn stream_seed(seed: u64, name: &str) -> u64 {
    // FNV-1a, 64 bit; the generator's own seeding (splitmix) spreads what lies close together.
    let bytes = seed.to_le_bytes();
    bytes
        .iter()
        .chain(name.as_bytes())
        .fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
            (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
        })
}

/// One stream.
#[derive(Clone, Debug)]
pub struct Stream(Xoshiro256PlusPlus);

impl Stream {
    /// The stream `name` of `seed`; the same two give the same numbers.
    #[must_use]
    pub fn named(seed: u64, name: &str) -> Self {
        Self(Xoshiro256PlusPlus::seed_from_u64(stream_seed(seed, name)))
    }

    /// A whole number from `least` to `most`, both included, each as likely.
    pub fn between(&mut self, least: u64, most: u64) -> u64 {
        let Some(values) = most.saturating_sub(least).checked_add(1) else {
            return self.0.next_u64();
        };
        // The upper half of the product; its bias is below values / 2^64.
        let product = u128::from(self.0.next_u64()) * u128::from(values);
        least + u64::try_from(product >> 64).unwrap_or(0)
    }

    /// Fills `bytes`, each as likely.
    pub fn fill(&mut self, bytes: &mut [u8]) {
        self.0.fill_bytes(bytes);
    }

    /// A number above 0 and at most 1.
    pub fn unit(&mut self) -> f64 {
        ((self.0.next_u64() >> 11) + 1) as f64 / (1_u64 << 53) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn streams_of_other_names_and_seeds_are_others() {
        let first = |seed, name| Stream::named(seed, name).between(0, u64::MAX);
        assert_eq!(first(1, "a"), first(1, "a"));
        assert_ne!(first(1, "a"), first(1, "b"));
        assert_ne!(first(1, "a"), first(2, "a"));
    }

    #[test]
    fn every_value_is_as_likely() {
        let mut stream = Stream::named(7, "dice");
        let mut seen = [0_u32; 6];
        for _ in 0..60_000 {
            seen[usize::try_from(stream.between(1, 6)).unwrap() - 1] += 1;
        }
        // Chi-squared with 5 degrees of freedom: above 20.5 in one of 1000 fair dice.
        let chi: f64 = seen
            .iter()
            .map(|count| (f64::from(*count) - 10_000.0).powi(2) / 10_000.0)
            .sum();
        assert!(chi < 20.5, "chi-squared is {chi}: {seen:?}");
    }

    proptest! {
        #[test]
        fn numbers_stay_between_their_limits(seed: u64, one: u64, other: u64) {
            let (least, most) = (one.min(other), one.max(other));
            let mut stream = Stream::named(seed, "limits");
            for _ in 0..20 {
                prop_assert!((least..=most).contains(&stream.between(least, most)));
                let unit = stream.unit();
                prop_assert!(unit > 0.0 && unit <= 1.0);
            }
        }
    }
}
