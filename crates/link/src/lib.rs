//! Links as state machines: no clock, no socket; the time is an argument.
//!
//! [`Direction`] is one direction of a wire with queue, rate, loss and delay; [`wlan`] is the shared
//! medium of IEEE 802.11, [`radio`] puts the frames of Linux' simulated radios on it.

mod chance;
mod config;
mod direction;
mod error;
mod flight;
mod kinds;
mod opportunities;
pub mod radio;
mod random;
mod serializer;
pub mod wlan;

pub use chance::{Chance, Loss, Variation};
pub use config::{
    Change, DirectionConfig, HoldBack, LossConfig, QueueConfig, TraceConfig, VariationConfig,
};
pub use direction::{Arrival, Counters, Direction, Frame, Verdict};
pub use error::{ConfigError, Fault, TraceError};
pub use kinds::{Kind, Kinds, MOST_KINDS};
pub use opportunities::{Opportunities, LARGEST_BYTES as LARGEST_TRACE_BYTES, MAHIMAHI_BYTES};
