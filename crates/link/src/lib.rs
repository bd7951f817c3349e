//! Links as state machines: no clock, no socket; the time is an argument.
//!
//! [`Direction`] is one direction of a wire with queue, rate, loss and delay; [`wlan`] is the shared
//! medium of IEEE 802.11, [`radio`] puts the frames of Linux' simulated radios on it.

mod chance;
mod config;
mod direction;
pub mod radio;
pub mod wlan;

pub use chance::{Loss, Variation};
pub use config::{DirectionConfig, LossConfig, QueueConfig, VariationConfig};
pub use direction::{Arrival, Counters, Direction, Verdict};
