//! The configuration of one direction as it comes in from outside, checked once.

use std::fmt::Display;
use std::path::PathBuf;

use serde::Deserialize;

use crate::error::ConfigError;

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
    /// Loss, drawn when serialization begins, counted when it ends.
    pub loss: LossConfig,
    /// Delay added to the propagation delay.
    pub delay_variation: VariationConfig,
    /// Whether the variation may let a frame overtake another.
    pub reorder: bool,
    /// Opportunities to send, in place of a rate.
    #[serde(default)]
    pub trace: Option<TraceConfig>,
    /// Probability that a frame arrives twice.
    #[serde(default)]
    pub duplicate: f64,
    /// Probability that one bit of a frame is damaged.
    #[serde(default)]
    pub corrupt: f64,
    /// Frames that others overtake.
    #[serde(default)]
    pub hold_back: HoldBack,
    /// What changes when, in order of time.
    #[serde(default)]
    pub changes: Vec<Change>,
}

/// A trace in Mahimahi's format.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq)]
#[serde(deny_unknown_fields)]
pub struct TraceConfig {
    /// The file.
    pub path: PathBuf,
    /// What one opportunity carries.
    #[serde(default = "mahimahi")]
    pub opportunity_bytes: u64,
}

fn mahimahi() -> u64 {
    crate::opportunities::MAHIMAHI_BYTES
}

/// Some frames arrive later than they would, out of order.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq)]
#[serde(deny_unknown_fields)]
pub struct HoldBack {
    /// Of each frame.
    pub probability: f64,
    /// How much later.
    pub extra_ns: i64,
}

/// New values from a time on, for frames that begin to be sent then; null: as before.
#[derive(Clone, Debug, Default, Deserialize, PartialEq)]
#[serde(deny_unknown_fields, default)]
pub struct Change {
    /// Since the start of the schedule.
    pub at_ns: i64,
    /// Serialization rate.
    pub rate_bit_s: Option<u64>,
    /// Propagation delay.
    pub delay_ns: Option<i64>,
    /// Queue.
    pub queue: Option<QueueConfig>,
    /// Loss.
    pub loss: Option<LossConfig>,
    /// Added delay.
    pub delay_variation: Option<VariationConfig>,
    /// Probability of a copy.
    pub duplicate: Option<f64>,
    /// Probability of damage.
    pub corrupt: Option<f64>,
    /// Frames that others overtake.
    pub hold_back: Option<HoldBack>,
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

const MOST_CHANGES: usize = 100_000;
const LONGEST_SCHEDULE_NS: i64 = 24 * 3_600_000_000_000;

impl DirectionConfig {
    /// Refuses impossible values; `place` is where this direction stands.
    pub fn check(&self, place: &str) -> Result<(), ConfigError> {
        let at = |key: &str| format!("{place}.{key}");
        if let Some(trace) = &self.trace {
            if self.rate_bit_s.is_some() {
                let words = "has rate_bit_s and trace, must have one of them";
                return Err(ConfigError::conflict(place.to_owned(), words));
            }
            let key = at("trace.opportunity_bytes");
            within(key, trace.opportunity_bytes, 64, 65_536)?;
        }
        let key = at("frame_overhead_bytes");
        within(key, self.frame_overhead_bytes, -14, 1_024)?;
        within(at("frame_min_bytes"), self.frame_min_bytes, 0, 1_024)?;
        Change {
            at_ns: 0,
            rate_bit_s: self.rate_bit_s,
            delay_ns: Some(self.delay_ns),
            queue: Some(self.queue),
            loss: Some(self.loss),
            delay_variation: Some(self.delay_variation),
            duplicate: Some(self.duplicate),
            corrupt: Some(self.corrupt),
            hold_back: Some(self.hold_back),
        }
        .check(place)?;
        within(at("changes length"), self.changes.len(), 0, MOST_CHANGES)?;
        let mut before = 0;
        for (index, change) in self.changes.iter().enumerate() {
            let at = format!("{place}.changes[{index}]");
            if change.at_ns < before {
                let words = format!(
                    "is {}, must be at least {before}, the one before it",
                    change.at_ns
                );
                return Err(ConfigError::conflict(format!("{at}.at_ns"), words));
            }
            before = change.at_ns;
            if change.rate_bit_s.is_some() && self.rate_bit_s.is_none() {
                let words = if self.trace.is_some() {
                    "is set, but the trace says the rate"
                } else {
                    "is set, but the link has no rate to change"
                };
                return Err(ConfigError::conflict(format!("{at}.rate_bit_s"), words));
            }
            change.check(&at)?;
        }
        Ok(())
    }
}

impl Change {
    fn check(&self, place: &str) -> Result<(), ConfigError> {
        let at = |key: &str| format!("{place}.{key}");
        within(at("at_ns"), self.at_ns, 0, LONGEST_SCHEDULE_NS)?;
        if let Some(rate) = self.rate_bit_s {
            let (least, most) = (*RATES_BIT_S.start(), *RATES_BIT_S.end());
            within(at("rate_bit_s"), rate, least, most)?;
        }
        if let Some(ns) = self.delay_ns {
            within(at("delay_ns"), ns, 0, LONGEST_NS)?;
        }
        if let Some(QueueConfig::Bytes { limit } | QueueConfig::Packets { limit }) = self.queue {
            within(at("queue.limit"), limit, 0, LARGEST_QUEUE)?;
        }
        if let Some(loss) = self.loss {
            check_loss(place, loss)?;
        }
        let (key, ns) = match self.delay_variation {
            None | Some(VariationConfig::None {}) => ("", 0),
            Some(VariationConfig::Uniform { spread_ns: ns }) => ("spread_ns", ns),
            Some(VariationConfig::Normal { sigma_ns: ns }) => ("sigma_ns", ns),
            Some(VariationConfig::Exponential { mean_ns: ns }) => ("mean_ns", ns),
        };
        within(at(&format!("delay_variation.{key}")), ns, 0, LONGEST_NS)?;
        ratio(place, "duplicate", self.duplicate.unwrap_or(0.0))?;
        ratio(place, "corrupt", self.corrupt.unwrap_or(0.0))?;
        if let Some(hold_back) = self.hold_back {
            ratio(place, "hold_back.probability", hold_back.probability)?;
            within(at("hold_back.extra_ns"), hold_back.extra_ns, 0, LONGEST_NS)?;
        }
        Ok(())
    }
}

fn check_loss(place: &str, loss: LossConfig) -> Result<(), ConfigError> {
    match loss {
        LossConfig::None {} => Ok(()),
        LossConfig::Independent { probability: p } => ratio(place, "loss.probability", p),
        LossConfig::GilbertElliott {
            good_to_bad,
            bad_to_good,
            loss_good,
            loss_bad,
        } => {
            ratio(place, "loss.good_to_bad", good_to_bad)?;
            ratio(place, "loss.bad_to_good", bad_to_good)?;
            ratio(place, "loss.loss_good", loss_good)?;
            ratio(place, "loss.loss_bad", loss_bad)
        }
    }
}

fn ratio(place: &str, key: &str, value: f64) -> Result<(), ConfigError> {
    within(format!("{place}.{key}"), value, 0.0, 1.0)
}

fn within<T: PartialOrd + Display>(
    place: String,
    value: T,
    least: T,
    most: T,
) -> Result<(), ConfigError> {
    if least <= value && value <= most {
        return Ok(());
    }
    Err(ConfigError::range(place, value, least, most))
}
