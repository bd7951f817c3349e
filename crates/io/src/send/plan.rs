//! What a sender is asked for.

use std::net::SocketAddr;
use std::path::PathBuf;

use tm_probe::{Missed, OutgoingFlow, Waiting};
use tm_wire::Duration;

use crate::udp::ReceiveTime;

/// One flow.
#[derive(Clone)]
pub struct FlowPlan {
    /// Its number in events and records.
    pub flow: u16,
    /// What leaves, and when.
    pub outgoing: OutgoingFlow,
    /// The reflector.
    pub target: SocketAddr,
    /// Own address; port 0 lets the kernel choose.
    pub source: SocketAddr,
    /// Interface that the packets use.
    pub interface: Option<String>,
    /// Network namespace that it sends from; none: that of the program.
    pub netns: Option<PathBuf>,
    /// DSCP and ECN of its packets, as one byte.
    pub traffic_class: u8,
}

/// The whole run.
#[derive(Clone)]
pub struct SendPlan {
    /// At least one, at most as many as a u16 counts.
    pub flows: Vec<FlowPlan>,
    /// How long replies are waited for.
    pub waiting: Waiting,
    /// What happens to packets that were due while the sender was held up.
    pub missed: Missed,
    /// How long after a packet was due it leaves with those due since, in one system call; 0: each
    /// in its time.
    pub coalesce: Duration,
    /// Whether the sender may watch the clock for the last stretch before a packet is due.
    pub spin: bool,
    /// Packets of one length that leave together leave as one, which the kernel cuts.
    pub segment: bool,
    /// Refuse to fragment.
    pub dont_fragment: bool,
    /// When a reply has come back.
    pub receive_time: ReceiveTime,
    /// Record file.
    pub records: Option<PathBuf>,
    /// `SCHED_FIFO` priority.
    pub realtime_priority: Option<u8>,
    /// Processor of the sending thread.
    pub send_cpu: Option<usize>,
    /// Processor of the receiving thread.
    pub receive_cpu: Option<usize>,
    /// Socket buffers.
    pub buffer_bytes: usize,
    /// Pairs of a sending and a receiving thread, which share the flows; a flow's packets are the same
    /// however many there are. Beyond 1 there are no processors to keep to.
    pub shards: usize,
}

impl SendPlan {
    /// The part of one of `count` shards: each so-manieth flow, from the one at `shard` on.
    pub(super) fn shard(&self, shard: usize, count: usize) -> Self {
        let flows = self.flows.iter().skip(shard).step_by(count);
        Self {
            flows: flows.cloned().collect(),
            ..self.clone()
        }
    }

    /// Largest payload of all flows.
    pub(super) fn largest_bytes(&self) -> usize {
        let sizes = self.flows.iter().map(|flow| flow.outgoing.size_limits().1);
        sizes.max().unwrap_or(0) as usize
    }
}
