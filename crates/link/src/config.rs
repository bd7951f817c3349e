//! The configuration of one direction as it comes in from outside, checked once.

use std::path::PathBuf;

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
    /// Refuses impossible values; the message names place, value and limit.
    pub fn check(&self, place: &str) -> Result<(), String> {
        if let Some(trace) = &self.trace {
            if self.rate_bit_s.is_some() {
                return Err(format!(
                    "{place} has rate_bit_s and trace, must have one of them"
                ));
            }
            if !(64..=65_536).contains(&trace.opportunity_bytes) {
                return Err(format!(
                    "{place}.trace.opportunity_bytes is {}, must be 64 to 65536",
                    trace.opportunity_bytes
                ));
            }
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
        if self.changes.len() > MOST_CHANGES {
            return Err(format!(
                "{place}.changes has {} entries, must be at most {MOST_CHANGES}",
                self.changes.len()
            ));
        }
        let mut before = 0;
        for (index, change) in self.changes.iter().enumerate() {
            let at = format!("{place}.changes[{index}]");
            if change.at_ns < before {
                return Err(format!(
                    "{at}.at_ns is {}, must be at least {before}, the one before it",
                    change.at_ns
                ));
            }
            before = change.at_ns;
            if self.trace.is_some() && change.rate_bit_s.is_some() {
                return Err(format!(
                    "{at}.rate_bit_s is set, but the trace says the rate"
                ));
            }
            if self.rate_bit_s.is_none() && change.rate_bit_s.is_some() {
                return Err(format!(
                    "{at}.rate_bit_s is set, but the link has no rate to change"
                ));
            }
            change.check(&at)?;
        }
        Ok(())
    }
}

impl Change {
    fn check(&self, place: &str) -> Result<(), String> {
        if !(0..=LONGEST_SCHEDULE_NS).contains(&self.at_ns) {
            return Err(format!(
                "{place}.at_ns is {}, must be 0 to {LONGEST_SCHEDULE_NS}",
                self.at_ns
            ));
        }
        if let Some(rate) = self.rate_bit_s {
            let (least, most) = (RATES_BIT_S.start(), RATES_BIT_S.end());
            if !RATES_BIT_S.contains(&rate) {
                return Err(format!(
                    "{place}.rate_bit_s is {rate}, must be {least} to {most} or null"
                ));
            }
        }
        if let Some(ns) = self.delay_ns {
            duration(place, "delay_ns", ns)?;
        }
        if let Some(QueueConfig::Bytes { limit } | QueueConfig::Packets { limit }) = self.queue {
            if limit > LARGEST_QUEUE {
                return Err(format!(
                    "{place}.queue.limit is {limit}, must be at most {LARGEST_QUEUE}"
                ));
            }
        }
        if let Some(loss) = self.loss {
            check_loss(place, loss)?;
        }
        match self.delay_variation {
            None | Some(VariationConfig::None {}) => {}
            Some(VariationConfig::Uniform { spread_ns: ns }) => {
                duration(place, "delay_variation.spread_ns", ns)?;
            }
            Some(VariationConfig::Normal { sigma_ns: ns }) => {
                duration(place, "delay_variation.sigma_ns", ns)?;
            }
            Some(VariationConfig::Exponential { mean_ns: ns }) => {
                duration(place, "delay_variation.mean_ns", ns)?;
            }
        }
        ratio(place, "duplicate", self.duplicate.unwrap_or(0.0))?;
        ratio(place, "corrupt", self.corrupt.unwrap_or(0.0))?;
        if let Some(hold_back) = self.hold_back {
            ratio(place, "hold_back.probability", hold_back.probability)?;
            duration(place, "hold_back.extra_ns", hold_back.extra_ns)?;
        }
        Ok(())
    }
}

fn check_loss(place: &str, loss: LossConfig) -> Result<(), String> {
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
