//! UDP sockets in batches.

mod batch;

use std::path::PathBuf;

pub(crate) use batch::{Arrived, Slots};
pub use batch::{Batch, Departure, Reply};

pub use crate::platform::{Ready, Socket};

/// How a socket is made.
#[derive(Clone, Debug)]
pub struct Options {
    /// Send and receive buffer asked for; beyond the system's limit where privileges allow.
    pub buffer_bytes: usize,
    /// Refuse to fragment; otherwise long packets are fragmented on the way out.
    pub dont_fragment: bool,
    /// Interface that all packets use.
    pub interface: Option<String>,
    /// Network namespace that the socket is in; none: that of the program.
    pub netns: Option<PathBuf>,
    /// DSCP and ECN of all packets: the second byte of IPv4's header, the traffic class of IPv6's.
    pub traffic_class: u8,
    /// Tell the time to live (or hop limit) with which packets arrive.
    pub time_to_live: bool,
    /// What an arrival is.
    pub receive_time: ReceiveTime,
    /// Others of this program may bind to the same address; each pair of addresses and ports comes to
    /// one of them (`SO_REUSEPORT`).
    pub shared: bool,
}

/// When a packet has arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReceiveTime {
    /// When the kernel took it in (`SO_TIMESTAMPNS`). Behind a tunnel of the kernel that is when the
    /// outer packet came, before it was decapsulated.
    Kernel,
    /// When the program had it: what the kernel did with it before is in the delay.
    User,
}
