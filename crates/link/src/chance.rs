//! Loss and delay variation. Every frame draws the same number of values from each stream, so the
//! fate of frame k depends on the seed and on k, not on what happened to others.

use crate::config::{LossConfig, VariationConfig};
use crate::random::Random;

/// Decides which frames are lost.
#[derive(Clone, Debug)]
pub struct Loss {
    random: Random,
    /// State of the Gilbert-Elliott chain; None before its first frame.
    bad: Option<bool>,
}

impl Loss {
    /// Draws from the stream `name` of `seed`.
    #[must_use]
    pub fn new(seed: u64, name: &str) -> Self {
        Self {
            random: Random::stream(seed, name),
            bad: None,
        }
    }

    /// Whether the next frame is lost under a model.
    pub fn next_lost(&mut self, config: LossConfig) -> bool {
        let (change, loss) = (self.random.unit(), self.random.unit());
        match config {
            LossConfig::None {} => false,
            LossConfig::Independent { probability } => loss < probability,
            LossConfig::GilbertElliott {
                good_to_bad,
                bad_to_good,
                loss_good,
                loss_bad,
            } => {
                let bad = match self.bad {
                    // From its stationary distribution, so the first frames fare like all others.
                    None => change * (good_to_bad + bad_to_good) < good_to_bad,
                    Some(true) => change >= bad_to_good,
                    Some(false) => change < good_to_bad,
                };
                self.bad = Some(bad);
                loss < if bad { loss_bad } else { loss_good }
            }
        }
    }
}

/// Decides how much later frames arrive.
#[derive(Clone, Debug)]
pub struct Variation {
    random: Random,
}

impl Variation {
    /// Draws from the stream `name` of `seed`.
    #[must_use]
    pub fn new(seed: u64, name: &str) -> Self {
        Self {
            random: Random::stream(seed, name),
        }
    }

    /// Delay added to the next frame, ns, never negative.
    pub fn next_ns(&mut self, config: VariationConfig) -> i64 {
        let (one, other) = (self.random.unit(), self.random.unit());
        let added = match config {
            VariationConfig::None {} => 0.0,
            VariationConfig::Uniform { spread_ns } => one * spread_ns as f64,
            // Box and Muller 1958; 1 - one is in (0, 1], so the logarithm is finite.
            VariationConfig::Normal { sigma_ns } => {
                let radius = libm::sqrt(-2.0 * libm::log(1.0 - one));
                radius * libm::cos(std::f64::consts::TAU * other) * sigma_ns as f64
            }
            VariationConfig::Exponential { mean_ns } => -libm::log(1.0 - one) * mean_ns as f64,
        };
        #[allow(clippy::cast_possible_truncation)]
        let added = libm::round(added) as i64;
        added.max(0)
    }
}

/// Decides whether something happens to a frame.
#[derive(Clone, Debug)]
pub struct Chance {
    random: Random,
}

impl Chance {
    /// Draws from the stream `name` of `seed`.
    #[must_use]
    pub fn new(seed: u64, name: &str) -> Self {
        Self {
            random: Random::stream(seed, name),
        }
    }

    /// Whether it happens to the next frame, and if so a number that says how.
    pub fn next_happens(&mut self, probability: f64) -> Option<u64> {
        let (chosen, how) = (self.random.unit(), self.random.bits());
        (chosen < probability).then_some(how)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_frame_of_a_chain_fares_like_the_others() {
        let config = LossConfig::GilbertElliott {
            good_to_bad: 0.01,
            bad_to_good: 0.03,
            loss_good: 0.0,
            loss_bad: 1.0,
        };
        let lost = (0..4000)
            .filter(|seed| Loss::new(*seed, "test/loss").next_lost(config))
            .count();
        // A quarter, give or take four standard deviations of 27.
        assert!(lost.abs_diff(1000) < 110, "{lost}");
    }

    fn share_lost(config: LossConfig, frames: u32) -> f64 {
        let mut loss = Loss::new(7, "test/loss");
        f64::from(
            (0..frames)
                .map(|_| u32::from(loss.next_lost(config)))
                .sum::<u32>(),
        ) / f64::from(frames)
    }

    #[test]
    fn independent_loss_has_its_probability() {
        let share = share_lost(LossConfig::Independent { probability: 0.02 }, 400_000);
        // four standard errors: sqrt(0.02 × 0.98 / 400000) = 0.00022
        assert!((share - 0.02).abs() < 0.0009, "{share}");
    }

    #[test]
    fn gilbert_elliott_loses_what_its_stationary_state_says() {
        let config = LossConfig::GilbertElliott {
            good_to_bad: 0.01,
            bad_to_good: 0.25,
            loss_good: 0.001,
            loss_bad: 0.5,
        };
        let bad = 0.01 / (0.01 + 0.25);
        let expected = bad * 0.5 + (1.0 - bad) * 0.001;
        let share = share_lost(config, 2_000_000);
        assert!(
            (share / expected - 1.0).abs() < 0.03,
            "{share} against {expected}"
        );
    }

    #[test]
    fn the_fate_of_frame_k_is_the_seed_s() {
        let run = |seed, name| -> Vec<bool> {
            let mut loss = Loss::new(seed, name);
            let even = LossConfig::Independent { probability: 0.5 };
            (0..200).map(|_| loss.next_lost(even)).collect()
        };
        assert_eq!(run(1, "a_to_b/loss"), run(1, "a_to_b/loss"));
        assert_ne!(run(1, "a_to_b/loss"), run(2, "a_to_b/loss"));
        assert_ne!(run(1, "a_to_b/loss"), run(1, "b_to_a/loss"));
    }

    fn mean_ns(config: VariationConfig) -> f64 {
        let mut variation = Variation::new(7, "test/variation");
        (0..200_000)
            .map(|_| variation.next_ns(config) as f64)
            .sum::<f64>()
            / 200_000.0
    }

    #[test]
    fn variation_has_the_mean_of_its_distribution() {
        let uniform = mean_ns(VariationConfig::Uniform {
            spread_ns: 1_000_000,
        });
        assert!((uniform / 500_000.0 - 1.0).abs() < 0.01, "{uniform}");
        let exponential = mean_ns(VariationConfig::Exponential { mean_ns: 1_000_000 });
        assert!((exponential / 1e6 - 1.0).abs() < 0.01, "{exponential}");
        // A normal cut off below 0 has the mean sigma / sqrt(2 pi).
        let normal = mean_ns(VariationConfig::Normal {
            sigma_ns: 1_000_000,
        });
        assert!((normal / 398_942.3 - 1.0).abs() < 0.015, "{normal}");
    }

    #[test]
    fn a_chance_comes_as_often_as_it_says() {
        let mut chance = Chance::new(7, "test/duplicate");
        let count = (0..400_000)
            .filter(|_| chance.next_happens(0.02).is_some())
            .count();
        // four standard errors: 89
        assert!((7_650..8_350).contains(&count), "{count}");
    }
}
