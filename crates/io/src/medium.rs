//! What both media that frames of a WLAN cross have in common: what they are told, and what they tell.

use tm_link::wlan::{Config, ConfigError};

use crate::IoError;

/// The medium of a plan.
pub struct MediumPlan {
    /// What the study says of it.
    pub config: Config,
    /// Where that stands, for errors.
    pub path: String,
    /// Of all random streams.
    pub seed: u64,
    /// `SCHED_FIFO` priority of the thread.
    pub realtime_priority: Option<u8>,
    /// Processor of the thread.
    pub cpu: Option<usize>,
}

/// What is told while it runs; `R` is what the medium says of itself.
pub enum MediumEvent<R> {
    /// Both ends are there.
    Ready,
    /// Every second and when asked for.
    Progress(Box<R>),
}

/// Why it ended early.
pub enum MediumError {
    /// The configuration is refused.
    Config(ConfigError),
    /// Anything else.
    Io(IoError),
}

impl From<IoError> for MediumError {
    fn from(error: IoError) -> Self {
        Self::Io(error)
    }
}
