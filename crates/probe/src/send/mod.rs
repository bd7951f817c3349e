//! The Session-Sender: what leaves and when, what comes back, and when nothing more is waited for.

mod flow;
mod incoming;
mod open;
mod outgoing;

pub use flow::{ReceivedReply, SendCounters, SenderFlow};
pub use incoming::{Incoming, Waiting};
pub use outgoing::{Note, Outgoing, OutgoingFlow};
