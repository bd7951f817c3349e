//! What is to be measured: a link, ways over it, and who sends.

use std::sync::Arc;

use tm_link::{wlan, DirectionConfig, Opportunities};
use tm_probe::{Missed, OutgoingFlow, SessionPlan, Waiting};
use tm_wire::Duration;

use crate::client_plan::ClientPlan;
use crate::end::EndPlan;
use crate::forms::Forms;
use crate::requester::RequesterPlan;
use crate::tcp::ConnectionPlan;
use crate::tcp_carrier::TcpCarrierPlan;

/// What is between the hosts.
pub enum LinkPlan {
    /// From the client to the server, and back.
    Wire(Box<[DirectionPlan; 2]>),
    /// The client is a station, the server stands behind the access point.
    Wlan(Box<wlan::Config>),
}

/// One direction of a wire.
pub struct DirectionPlan {
    /// As the emulator has it.
    pub config: DirectionConfig,
    /// Of its trace, if it has one.
    pub opportunities: Option<Arc<Opportunities>>,
}

/// What carries the packets of a path.
#[derive(Clone, Debug)]
pub enum Carrier {
    /// Nothing: they go as they are.
    Bare,
    /// A tunnel with its ends at the client and at the server.
    Tunnel {
        /// At the client, then at the server.
        ends: [EndPlan; 2],
        /// A copy that the link makes is dropped at the far end.
        drops_copies: bool,
        /// The connection that carries it; then each packet that enters is one on the link of as
        /// many bytes as it takes in the stream. None: packets on the link carry it.
        over: Option<TcpCarrierPlan>,
    },
}

/// A way for packets between the two hosts; all share the link.
pub struct PathPlan {
    /// What its datagrams become.
    pub forms: Forms,
    /// What carries them.
    pub carrier: Carrier,
}

/// A flow of one sender.
pub struct FlowPlan {
    /// Place of its path.
    pub path: usize,
    /// How its reflector knows it; our own format.
    pub session: SessionPlan,
    /// As it is sent.
    pub outgoing: OutgoingFlow,
}

/// The senders of one host, with the reflector at the other.
pub struct WayPlan {
    /// In the order of their sockets.
    pub flows: Vec<FlowPlan>,
    /// TCP connections over which this host sends data.
    pub connections: Vec<ConnectionPlan>,
    /// Programs of this host that ask the other one over TCP.
    pub clients: Vec<ClientPlan>,
    /// Likewise over UDP.
    pub requesters: Vec<RequesterPlan>,
    /// How long replies are waited for.
    pub waiting: Waiting,
    /// What happens to packets that were due while the sender was held up, which it never is here.
    pub missed: Missed,
    /// Whether the reflector replies.
    pub reply: bool,
    /// When the flows have shown what they are for; None: they go on to their end.
    pub enough: Option<Enough>,
}

/// What ends a load before its time: then nothing more of it is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Enough {
    /// So many packets are known not to arrive.
    pub lost: u64,
    /// So long the load has gone on, at least.
    pub after: Duration,
}

impl Default for WayPlan {
    /// A host that sends nothing.
    fn default() -> Self {
        Self {
            flows: Vec::new(),
            connections: Vec::new(),
            clients: Vec::new(),
            requesters: Vec::new(),
            waiting: Waiting {
                late: Duration::ZERO,
                drain: Duration::ZERO,
            },
            missed: Missed::Send,
            reply: true,
            enough: None,
        }
    }
}

/// All of it.
pub struct Plan {
    /// Of the link and the tunnels.
    pub seed: u64,
    /// A WLAN has been checked ([`wlan::Config::setup`]).
    pub link: LinkPlan,
    /// At least one.
    pub paths: Vec<PathPlan>,
    /// Cores of the client and the server that the ends of all tunnels share; None: each end has its own.
    pub cores: [Option<usize>; 2],
    /// Senders at the client, and at the server.
    pub ways: [WayPlan; 2],
    /// Loads beside these, which end with them: what each sends, run behind run.
    pub loads: Vec<Vec<[WayPlan; 2]>>,
    /// So much earlier the loads begin.
    pub lead: Duration,
}

impl Plan {
    /// A way by its number: 0 and 1 are measured, behind them are those of the loads, run by run.
    ///
    /// # Panics
    /// If there are not so many.
    #[must_use]
    pub fn way(&self, number: usize) -> &WayPlan {
        let ways = self.loads.iter().flatten().flatten();
        self.ways
            .iter()
            .chain(ways)
            .nth(number)
            .expect("number of a way")
    }
}
