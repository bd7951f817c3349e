//! The configuration of one direction as it comes in from outside, checked once.

use serde::Deserialize;

/// One direction of a link. Times in ns, sizes in bytes, rates in bit/s.
#[derive(Clone, Debug, Deserialize, PartialEq)]
#[serde(deny_unknown_fields)]
pub struct DirectionConfig {
    /// Serialization rate; null: none.
    pub rate_bit_s: Option<u64>,
    /// Propagation delay.
    pub delay_ns: i64,
    /// Drop-tail queue in front of the serializer.
    pub queue: QueueConfig,
    /// Added to each frame's length (from destination address, without FCS) for its cost.
    pub frame_overhead_bytes: i32,
    /// Least cost of a frame.
    pub frame_min_bytes: u32,
    /// Loss, drawn when serialization ends.
    pub loss: LossConfig,
    /// Delay added to the propagation delay.
    pub delay_variation: VariationConfig,
    /// Whether the variation may let a frame overtake another.
    pub reorder: bool,
}

/// What a queue holds at most; counts the frames that wait, not the one being serialized.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(tag = "type", rename_all = "snake_case", deny_unknown_fields)]
pub enum QueueConfig {
    /// Bytes, as the frames cost on the link.
    Bytes {
        /// At most.
        limit: u64,
    },
    /// Frames.
    Packets {
        /// At most.
        limit: u64,
    },
}

/// A loss model.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq)]
#[serde(tag = "type", rename_all = "snake_case", deny_unknown_fields)]
pub enum LossConfig {
    /// Nothing is lost.
    None {},
    /// Each frame on its own.
    Independent {
        /// Of each frame.
        probability: f64,
    },
    /// Two states with a loss probability each (Gilbert 1960, Elliott 1963).
    GilbertElliott {
        /// Probability of leaving the good state, per frame.
        good_to_bad: f64,
        /// Probability of leaving the bad state, per frame.
        bad_to_good: f64,
        /// Loss in the good state.
        loss_good: f64,
        /// Loss in the bad state.
        loss_bad: f64,
    },
}

/// A distribution of added delay.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(tag = "type", rename_all = "snake_case", deny_unknown_fields)]
pub enum VariationConfig {
    /// None.
    None {},
    /// 0 to `spread_ns`.
    Uniform {
        /// Largest added delay.
        spread_ns: i64,
    },
    /// Normal around 0, cut off below 0.
    Normal {
        /// Standard deviation before the cut.
        sigma_ns: i64,
    },
    /// Exponential.
    Exponential {
        /// Mean.
        mean_ns: i64,
    },
}

/// Longest delay of any kind: a minute.
const LONGEST_NS: i64 = 60_000_000_000;
/// Fastest and slowest serialization.
const RATES_BIT_S: std::ops::RangeInclusive<u64> = 100..=1_000_000_000_000;
const LARGEST_QUEUE: u64 = 1 << 30;

impl DirectionConfig {
    /// Refuses impossible values; the message names place, value and limit.
    pub fn check(&self, place: &str) -> Result<(), String> {
        if let Some(rate) = self.rate_bit_s {
            let (least, most) = (RATES_BIT_S.start(), RATES_BIT_S.end());
            if !RATES_BIT_S.contains(&rate) {
                return Err(format!(
                    "{place}.rate_bit_s is {rate}, must be {least} to {most} or null"
                ));
            }
        }
        duration(place, "delay_ns", self.delay_ns)?;
        let (QueueConfig::Bytes { limit } | QueueConfig::Packets { limit }) = self.queue;
        if limit > LARGEST_QUEUE {
            return Err(format!(
                "{place}.queue.limit is {limit}, must be at most {LARGEST_QUEUE}"
            ));
        }
        if !(-14..=1024).contains(&self.frame_overhead_bytes) {
            return Err(format!(
                "{place}.frame_overhead_bytes is {}, must be -14 to 1024",
                self.frame_overhead_bytes
            ));
        }
        if self.frame_min_bytes > 1024 {
            return Err(format!(
                "{place}.frame_min_bytes is {}, must be 0 to 1024",
                self.frame_min_bytes
            ));
        }
        match self.loss {
            LossConfig::None {} => {}
            LossConfig::Independent { probability: p } => ratio(place, "loss.probability", p)?,
            LossConfig::GilbertElliott {
                good_to_bad,
                bad_to_good,
                loss_good,
                loss_bad,
            } => {
                ratio(place, "loss.good_to_bad", good_to_bad)?;
                ratio(place, "loss.bad_to_good", bad_to_good)?;
                ratio(place, "loss.loss_good", loss_good)?;
                ratio(place, "loss.loss_bad", loss_bad)?;
            }
        }
        match self.delay_variation {
            VariationConfig::None {} => Ok(()),
            VariationConfig::Uniform { spread_ns: ns } => {
                duration(place, "delay_variation.spread_ns", ns)
            }
            VariationConfig::Normal { sigma_ns: ns } => {
                duration(place, "delay_variation.sigma_ns", ns)
            }
            VariationConfig::Exponential { mean_ns: ns } => {
                duration(place, "delay_variation.mean_ns", ns)
            }
        }
    }
}

fn duration(place: &str, key: &str, ns: i64) -> Result<(), String> {
    if (0..=LONGEST_NS).contains(&ns) {
        return Ok(());
    }
    Err(format!("{place}.{key} is {ns}, must be 0 to {LONGEST_NS}"))
}

fn ratio(place: &str, key: &str, value: f64) -> Result<(), String> {
    if (0.0..=1.0).contains(&value) {
        return Ok(());
    }
    Err(format!("{place}.{key} is {value}, must be 0 to 1"))
}
