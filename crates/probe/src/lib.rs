//! Session-Sender and Session-Reflector as state machines: the time is an argument, packets are values.
//!
//! `tm-io` drives them with clocks and sockets, the tests with virtual time.

mod content;
mod counts;
mod delays;
mod format;
pub mod port;
mod record;
mod reflect;
mod schedule;
mod send;
mod size;
mod stream;
mod trace;

pub use content::{Content, Filler, Pool};
pub use delays::{Delays, Summary};
pub use format::Format;
pub use record::{flags, ReflectRecord, SendRecord};
pub use reflect::{
    Endpoint, FlowTotal, Peer, ReflectCounters, Reflector, ReflectorFlow, ReplyOutcome,
    SessionPlan, StampPlan, MOST_SENDERS,
};
pub use schedule::{Missed, Pacer, Schedule, Slot, Stop};
pub use send::{
    Incoming, Note, Outgoing, OutgoingFlow, ReceivedReply, SendCounters, SenderFlow, Waiting,
};
pub use size::{Share, Size};
pub use stream::Stream;
pub use trace::{LineFault, Trace, TraceError, LARGEST_TRACE_BYTES};

/// Of so many packets of a flow each end knows whether one is a copy, in words of 64 bits: 4 million.
const REMEMBERED_WORDS: usize = 65_536;
