//! The senders of one host with the reflector at the other: what they do next, and what came of it.

use std::ops::{Index, IndexMut};

use tm_probe::{
    Content, Delays, FlowTotal, Format, Incoming, Outgoing, OutgoingFlow, Reflector, SendRecord,
    SenderFlow, SessionPlan,
};
use tm_wire::{Duration, Instant, Key};

use crate::client_plan::ClientOutcome;
use crate::plan::{Enough, FlowPlan, Plan, WayPlan};
use crate::requester::{RequesterOutcome, Requesters};
use crate::tcp::{ConnectionOutcome, Connections};
use crate::tcp_client::Clients;

/// What the senders of one host and their reflector saw.
pub struct WayOutcome {
    /// When the schedules began.
    pub began: Instant,
    /// In the order of the plan.
    pub flows: Vec<SenderFlow>,
    /// In the order of the plan.
    pub reflected: Vec<FlowTotal>,
    /// Packets at the reflector that were none of its own.
    pub rejected: u64,
    /// From a packet's arrival at the reflector to its reply.
    pub residence: Delays,
    /// In the order of the plan.
    pub connections: Vec<ConnectionOutcome>,
    /// In the order of the plan.
    pub clients: Vec<ClientOutcome>,
    /// In the order of the plan.
    pub requesters: Vec<RequesterOutcome>,
}

pub struct Way {
    pub outgoing: Outgoing,
    pub incoming: Incoming,
    pub reflector: Reflector,
    pub connections: Connections,
    pub clients: Clients,
    pub requesters: Requesters,
    /// Number of flows: a connection's place in a datagram is behind those.
    pub flows: usize,
    /// Number of flows and connections: a client's place is behind those.
    pub before_clients: usize,
    /// With the clients: a requester's place is behind those.
    pub before_requesters: usize,
    /// Paths of the flows, then of the connections, the clients, the requesters.
    pub paths: Vec<usize>,
    pub sent_until: Option<Instant>,
    /// Packets of the flows that are known not to arrive; others may be lost, too.
    pub lost: u64,
    enough: Option<Enough>,
    began: Instant,
    drain: Duration,
}

/// All ways by their numbers: the even ones from the client. Those that are measured are the first two.
pub struct Ways {
    measured: [Way; 2],
    loads: Vec<[Way; 2]>,
}

impl Way {
    /// The way of a number in a plan, whose schedules begin at `start`.
    pub fn new(plan: &Plan, number: usize, start: Instant) -> Self {
        let WayPlan {
            flows,
            connections,
            clients,
            requesters,
            waiting,
            missed,
            reply,
            enough,
        } = plan.way(number);
        // The model of a tunnel knows how long a payload is, and no program reads what fills it.
        let unread = |flow: &FlowPlan| OutgoingFlow {
            content: Content::Unread,
            format: untagged(&flow.outgoing.format),
            ..flow.outgoing.clone()
        };
        let unread: Vec<OutgoingFlow> = flows.iter().map(unread).collect();
        let mut outgoing = Outgoing::new(&unread, *missed);
        outgoing.begin(start);
        let formats = flows
            .iter()
            .map(|flow| (flow.session.flow, untagged(&flow.outgoing.format)));
        let session = |flow: &FlowPlan| SessionPlan {
            key: Key::Unneeded,
            ..flow.session
        };
        let sessions: Vec<SessionPlan> = flows.iter().map(session).collect();
        let mut incoming = Incoming::new(formats, *waiting);
        let sent_until = flows.is_empty().then_some(start);
        if sent_until.is_some() {
            incoming.sending_done(start);
        }
        let of_flows = flows.iter().map(|flow| flow.path);
        let of_connections = connections.iter().map(|connection| connection.path);
        let of_clients = clients.iter().map(|client| client.path);
        let of_requesters = requesters.iter().map(|requester| requester.path);
        let before_clients = flows.len() + connections.len();
        Self {
            outgoing,
            incoming,
            reflector: Reflector::new(&sessions, &[], *reply),
            connections: Connections::new(connections, plan.seed, number, start),
            clients: Clients::new(clients, plan.seed, number, start),
            requesters: Requesters::new(requesters, plan.seed, number, start),
            flows: flows.len(),
            before_clients,
            before_requesters: before_clients + clients.len(),
            paths: of_flows
                .chain(of_connections)
                .chain(of_clients)
                .chain(of_requesters)
                .collect(),
            sent_until,
            began: start,
            drain: waiting.drain,
            enough: *enough,
            lost: 0,
        }
    }

    /// When something is due, from `now` on; None: nothing more is waited for.
    pub fn next_due(&self, now: Instant) -> Option<Instant> {
        let wait = match self.sent_until {
            None => self.outgoing.next_due().map(|(due, _)| due),
            Some(_) if self.incoming.over(now) => None,
            Some(sent) => Some(sent + self.drain),
        };
        if !self.has_programs() {
            return wait;
        }
        let wait = earlier(wait, self.connections.next_due());
        let wait = earlier(wait, self.clients.next_due());
        earlier(wait, self.requesters.next_due())
    }

    /// Whether it has connections, clients or requesters.
    pub fn has_programs(&self) -> bool {
        self.paths.len() > self.flows
    }

    /// Nothing is sent any more; what is under way is waited for as ever.
    pub fn stop(&mut self, now: Instant) {
        self.sending_done(now);
        self.connections.stop(now);
        self.clients.stop();
        self.requesters.stop(now);
    }

    /// Ends the flows if they have shown what they are for.
    pub fn end_if_enough(&mut self, now: Instant) {
        let is_enough = |one: Enough| self.lost >= one.lost && now >= self.began + one.after;
        if self.enough.is_some_and(is_enough) {
            self.sending_done(now);
        }
    }

    /// All has been sent, if it had not been before.
    pub fn sending_done(&mut self, now: Instant) {
        if self.sent_until.is_none() {
            self.sent_until = Some(now);
            self.incoming.sending_done(now);
        }
    }

    pub fn finish(self, sink: impl FnMut(&SendRecord)) -> WayOutcome {
        WayOutcome {
            began: self.began,
            reflected: self.reflector.totals(),
            rejected: self.reflector.rejected,
            residence: self.reflector.residence,
            connections: self.connections.finish(),
            clients: self.clients.finish(),
            requesters: self.requesters.finish(),
            flows: self.incoming.finish(sink),
        }
    }
}

impl Ways {
    /// All ways of a plan; those of loads have to be made again when they begin.
    pub fn new(plan: &Plan, start: Instant) -> Self {
        let both =
            |first: usize, at: Instant| [first, first + 1].map(|way| Way::new(plan, way, at));
        let runs = plan.loads.iter().map(Vec::len).sum::<usize>();
        Self {
            measured: both(0, start + plan.lead),
            loads: (1..=runs).map(|run| both(2 * run, start)).collect(),
        }
    }

    /// What came of them: those that are measured, then all others.
    pub fn finish(
        self,
        mut sink: impl FnMut(usize, &SendRecord),
    ) -> ([WayOutcome; 2], Vec<[WayOutcome; 2]>) {
        let mut number = 0..;
        let mut both = |ways: [Way; 2]| {
            ways.map(|way| {
                let at = number.next().unwrap_or(0);
                way.finish(|record| sink(at, record))
            })
        };
        let measured = both(self.measured);
        (measured, self.loads.into_iter().map(both).collect())
    }
}

impl Index<usize> for Ways {
    type Output = Way;

    fn index(&self, number: usize) -> &Way {
        match number.checked_sub(2) {
            None => &self.measured[number],
            Some(behind) => &self.loads[behind / 2][behind % 2],
        }
    }
}

impl IndexMut<usize> for Ways {
    fn index_mut(&mut self, number: usize) -> &mut Way {
        match number.checked_sub(2) {
            None => &mut self.measured[number],
            Some(behind) => &mut self.loads[behind / 2][behind % 2],
        }
    }
}

/// The same format without a key.
fn untagged(format: &Format) -> Format {
    match format {
        Format::Own { session, .. } => Format::Own {
            session: *session,
            key: Key::Unneeded,
        },
        Format::Stamp { .. } => Format::Stamp { key: None },
    }
}

pub fn earlier(one: Option<Instant>, other: Option<Instant>) -> Option<Instant> {
    match (one, other) {
        (Some(one), Some(other)) => Some(one.min(other)),
        (one, other) => one.or(other),
    }
}
