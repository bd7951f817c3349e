//! Session sender and reflector as state machines: the time is an argument, packets are values.
//!
//! `tm-io` drives them with clocks and sockets, the tests with virtual time.

mod content;
mod delays;
mod record;
mod reflector;
mod schedule;
mod sender;
mod size;
mod stream;
mod trace;

pub use content::{Content, Filler};
pub use delays::{Delays, Summary};
pub use record::{flags, ReflectRecord, SendRecord};
pub use reflector::{Answer, ReflectCounters, ReflectorFlow};
pub use schedule::{Missed, Pacer, Schedule, Slot, Stop};
pub use sender::{Answered, SendCounters, SenderFlow};
pub use size::{Share, Size};
pub use trace::{Trace, TraceError, LARGEST_TRACE_BYTES};
