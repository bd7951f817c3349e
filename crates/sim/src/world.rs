//! The event loop: what happens next, on hosts, in tunnels and on the link.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::rc::Rc;

use tm_link::wlan::StationCounters;
use tm_link::Counters;
use tm_probe::{
    Delays, Endpoint, FlowTotal, Incoming, Note, Outgoing, ReflectRecord, Reflector, SendRecord,
    SenderFlow, SessionPlan,
};
use tm_wire::{Duration, Instant};

use crate::end::{End, EndCounters, Job};
use crate::link::Link;
use crate::mailbox::Mailbox;
use crate::plan::{Carrier, DirectionPlan, LinkPlan, PathPlan, Plan, WayPlan};
use crate::tcp::{ConnectionOutcome, Connections};
use crate::tcp_client::{ClientOutcome, Clients};
use crate::under_way::{Piece, UnderWay};

/// When the schedules start.
pub const START: Instant = Instant(1_000_000_000);
/// How often records are given out.
const EXPIRE: Duration = Duration::from_millis(100);
const WAYS: [usize; 2] = [0, 1];

/// Where records go; both get the way, 0 from the client.
pub trait Sink {
    /// What became of a packet, as its sender knows it.
    fn sent(&mut self, way: usize, record: &SendRecord);
    /// A packet that reached the reflector.
    fn reflected(&mut self, way: usize, record: &ReflectRecord);
}

impl Sink for () {
    fn sent(&mut self, _way: usize, _record: &SendRecord) {}
    fn reflected(&mut self, _way: usize, _record: &ReflectRecord) {}
}

/// What the senders of one host and their reflector saw.
pub struct WayOutcome {
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
}

/// What it came to.
pub struct Outcome {
    /// When nothing more was waited for.
    pub end: Instant,
    /// From the client to the server, and back.
    pub link: [Counters; 2],
    /// Of each station of a WLAN, the access point first.
    pub stations: Option<Vec<StationCounters>>,
    /// By path, then client and server, then wrap and unwrap; of a tunnel.
    pub ends: Vec<Option<[[EndCounters; 2]; 2]>>,
    /// Packets that a tunnel's end refused since they were damaged.
    pub damaged: u64,
    /// Senders at the client, and at the server.
    pub ways: [WayOutcome; 2],
}

/// Runs a plan to its end. Payloads of flows must be among the forms of their path: a datagram that
/// is not never leaves.
///
/// # Panics
/// For a WLAN that was not checked.
pub fn run(plan: &Plan, sink: &mut impl Sink) -> Outcome {
    let mut world = World::new(plan);
    let mut now = START;
    let mut expire = now + EXPIRE;
    while let Some(next) = world.next(now) {
        now = now.max(next);
        world.turn(now, sink);
        if now >= expire {
            world.expire(now, sink);
            expire = now + EXPIRE;
        }
    }
    world.finish(now, sink)
}

/// Something that an end of a tunnel has done.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Done {
    at: Instant,
    /// In the order in which it was begun.
    number: u64,
    datagram: u64,
    inner: u16,
    wrapped: bool,
}

struct Way {
    outgoing: Outgoing,
    incoming: Incoming,
    reflector: Reflector,
    connections: Connections,
    clients: Clients,
    /// Number of flows: a connection's place in a datagram is behind those.
    flows: usize,
    /// Number of flows and connections: a client's place is behind those.
    before_clients: usize,
    /// Paths of the flows, then of the connections, then of the clients.
    paths: Vec<usize>,
    sent_until: Option<Instant>,
}

struct World<'a> {
    plan: &'a Plan,
    link: Link,
    /// By path: client and server.
    ends: Vec<Option<[End; 2]>>,
    ways: [Way; 2],
    under_way: UnderWay,
    done: BinaryHeap<Reverse<Done>>,
    number: u64,
    mailbox: Mailbox,
    damaged: u64,
}

impl<'a> World<'a> {
    fn new(plan: &'a Plan) -> Self {
        let ends = plan.paths.iter().enumerate().map(|(path, one)| {
            let Carrier::Tunnel { ends, .. } = &one.carrier else {
                return None;
            };
            let end = |host: usize, name: &str| {
                End::new(
                    ends[host].clone(),
                    plan.seed,
                    &format!("path {path}/{name}"),
                )
            };
            Some([end(0, "client"), end(1, "server")])
        });
        let bare = |one: &PathPlan| {
            matches!(
                one.carrier,
                Carrier::Bare
                    | Carrier::Tunnel {
                        drops_copies: false,
                        ..
                    }
            )
        };
        let duplicates = |one: &DirectionPlan| {
            one.config.duplicate > 0.0
                || one
                    .config
                    .changes
                    .iter()
                    .any(|change| change.duplicate.is_some())
        };
        let copies = match &plan.link {
            LinkPlan::Wire(ways) => ways.iter().any(duplicates),
            LinkPlan::Wlan(_) => false,
        };
        Self {
            link: Link::new(&plan.link, plan.seed, START),
            ends: ends.collect(),
            ways: [Way::new(plan, 0), Way::new(plan, 1)],
            under_way: UnderWay::new(copies && plan.paths.iter().any(bare)),
            done: BinaryHeap::new(),
            number: 0,
            mailbox: Mailbox::default(),
            damaged: 0,
            plan,
        }
    }

    /// When something happens next, from `now` on; None: nothing more is waited for.
    fn next(&self, now: Instant) -> Option<Instant> {
        let mut next: Option<Instant> = None;
        let mut open = false;
        for (way, plan) in self.ways.iter().zip(&self.plan.ways) {
            let drain = plan.waiting.drain;
            let due = way.outgoing.next_due().map(|(due, _)| due);
            let wait = match way.sent_until {
                None => due,
                Some(_) if way.incoming.over(now) => None,
                Some(sent) => Some(sent + drain),
            };
            let wait = earlier(wait, way.connections.next_due());
            let wait = earlier(wait, way.clients.next_due());
            open |= wait.is_some();
            next = earlier(next, wait);
        }
        if !open {
            return None;
        }
        next = earlier(next, self.link.next_due());
        earlier(next, self.done.peek().map(|Reverse(done)| done.at))
    }

    fn turn(&mut self, now: Instant, sink: &mut impl Sink) {
        for way in WAYS {
            while let Some((way, piece)) = self.link.poll(now, way) {
                self.arrive(now, way, piece, sink);
            }
        }
        while self.done.peek().is_some_and(|Reverse(done)| done.at <= now) {
            let Some(Reverse(done)) = self.done.pop() else {
                break;
            };
            if done.wrapped {
                self.onto_link(now, done.datagram, done.inner);
            } else {
                self.out_of_tunnel(now, done.datagram, done.inner, sink);
            }
        }
        for way in WAYS {
            self.send(now, way);
            self.ways[way].connections.turn(now);
            self.ways[way].clients.turn(now);
            self.segments_leave(now, way);
        }
    }

    /// Lets segments of a way's connections and clients leave their hosts.
    fn segments_leave(&mut self, now: Instant, way: usize) {
        while let Some(segment) = self.ways[way].connections.pop() {
            let flow = self.ways[way].flows + segment.connection;
            let place = (way, segment.answer, flow);
            self.leave(now, place, segment.size, &segment.bytes);
        }
        while let Some(segment) = self.ways[way].clients.pop() {
            let place = self.ways[way].before_clients + segment.connection;
            let place = (way, segment.answer, place);
            self.leave(now, place, segment.size, &segment.bytes);
        }
    }

    /// Lets the senders of a way send what is due.
    fn send(&mut self, now: Instant, way: usize) {
        while let Some((due, flow)) = self.ways[way].outgoing.next_due() {
            if due > now {
                return;
            }
            let Way {
                outgoing, incoming, ..
            } = &mut self.ways[way];
            let mut mailbox = std::mem::take(&mut self.mailbox);
            mailbox.open(now);
            outgoing.send_due(&mut mailbox, |note: Note| {
                incoming.note(note);
                true
            });
            for packet in mailbox.left() {
                self.leave(now, (way, false, flow), length(packet), packet);
            }
            self.mailbox = mailbox;
        }
        if self.ways[way].sent_until.is_none() {
            self.ways[way].sent_until = Some(now);
            self.ways[way].incoming.sending_done(now);
        }
    }

    /// A datagram leaves its host: the sender's, or the reflector's for a reply. Its packets are those
    /// of a `payload` of so many bytes.
    fn leave(&mut self, now: Instant, place: (usize, bool, usize), payload: u32, packet: &[u8]) {
        let path = self.ways[place.0].paths[place.2];
        let Some(form) = self.plan.paths[path].forms.of(payload) else {
            return;
        };
        let host = place.0 ^ usize::from(place.1);
        let entered = Rc::clone(&form);
        let number = self.under_way.enter(now, place, entered, packet);
        for (inner, one) in (0_u16..).zip(form.iter()) {
            self.work(now, path, host, Job::Wrap, (number, inner, one.bytes));
        }
    }

    /// Hands a packet to an end of its tunnel, or past it where there is none.
    fn work(&mut self, now: Instant, path: usize, host: usize, job: Job, what: (u64, u16, u32)) {
        let (datagram, inner, bytes) = what;
        let at = match &mut self.ends[path] {
            None => now,
            Some(ends) => {
                let Some(at) = ends[host].take(now, job, bytes) else {
                    self.under_way.drop_now(datagram);
                    return;
                };
                at
            }
        };
        self.number += 1;
        self.done.push(Reverse(Done {
            at,
            number: self.number,
            datagram,
            inner,
            wrapped: job == Job::Wrap,
        }));
    }

    /// What carries a packet goes onto the link.
    fn onto_link(&mut self, now: Instant, number: u64, inner: u16) {
        let Some(datagram) = self.under_way.get(number) else {
            return;
        };
        let way = datagram.way ^ usize::from(datagram.reply);
        let form = Rc::clone(&datagram.form);
        for (outer, bytes) in (0_u16..).zip(&form[usize::from(inner)].outer) {
            let piece = Piece {
                datagram: number,
                inner,
                outer,
                damaged: false,
            };
            self.link.offer(now, way, *bytes, piece);
        }
    }

    /// A packet of the link came.
    fn arrive(&mut self, now: Instant, way: usize, piece: Piece, sink: &mut impl Sink) {
        let Some(datagram) = self.under_way.get(piece.datagram) else {
            return;
        };
        let path = self.ways[datagram.way].paths[datagram.flow];
        let bytes = datagram.form[usize::from(piece.inner)].bytes;
        if piece.damaged {
            // By the UDP checksum where nothing else finds it.
            self.damaged += 1;
            return;
        }
        if !self.under_way.come(piece) {
            return;
        }
        if self.ends[path].is_none() {
            self.out_of_tunnel(now, piece.datagram, piece.inner, sink);
            return;
        }
        self.work(
            now,
            path,
            1 - way,
            Job::Unwrap,
            (piece.datagram, piece.inner, bytes),
        );
    }

    /// A packet is at its host.
    fn out_of_tunnel(&mut self, now: Instant, number: u64, inner: u16, sink: &mut impl Sink) {
        let Some(datagram) = self.under_way.get(number) else {
            return;
        };
        let (way, reply, flow) = (datagram.way, datagram.reply, datagram.flow);
        let path = self.ways[way].paths[flow];
        let Some(bytes) = self.under_way.left_tunnel(number, inner) else {
            return;
        };
        let drops_copies = matches!(
            self.plan.paths[path].carrier,
            Carrier::Tunnel {
                drops_copies: true,
                ..
            }
        );
        if drops_copies && self.under_way.copies() {
            self.under_way.drop_now(number);
        }
        if let Some(connection) = flow.checked_sub(self.ways[way].flows) {
            let of = &mut self.ways[way];
            match flow.checked_sub(of.before_clients) {
                Some(client) => of.clients.take(now, client, reply, &bytes),
                None => of.connections.take(now, connection, &bytes),
            }
            self.under_way.give_back(bytes);
            self.segments_leave(now, way);
            return;
        }
        let mut mailbox = std::mem::take(&mut self.mailbox);
        mailbox.receive(now, &bytes);
        self.under_way.give_back(bytes);
        if reply {
            self.ways[way].incoming.take(flow, &mut mailbox);
        } else {
            let reflector = &mut self.ways[way].reflector;
            reflector.take(Endpoint::Own, &mut mailbox, |record| {
                sink.reflected(way, record);
            });
            for packet in mailbox.left() {
                self.leave(now, (way, true, flow), length(packet), packet);
            }
        }
        self.mailbox = mailbox;
    }

    fn expire(&mut self, now: Instant, sink: &mut impl Sink) {
        for way in WAYS {
            let incoming = &mut self.ways[way].incoming;
            incoming.expire(now, |record| sink.sent(way, record));
        }
    }

    fn finish(self, end: Instant, sink: &mut impl Sink) -> Outcome {
        let mut number = 0..;
        let ways = self.ways.map(|way| {
            let at = number.next().unwrap_or(0);
            WayOutcome {
                reflected: way.reflector.totals(),
                rejected: way.reflector.rejected,
                residence: way.reflector.residence,
                connections: way.connections.finish(),
                clients: way.clients.finish(),
                flows: way.incoming.finish(|record| sink.sent(at, record)),
            }
        });
        let counted = |end: &End| [Job::Wrap, Job::Unwrap].map(|job| end.counters(job));
        Outcome {
            end,
            link: self.link.counters(),
            stations: self.link.stations(),
            ends: self
                .ends
                .iter()
                .map(|ends| {
                    ends.as_ref()
                        .map(|[one, other]| [counted(one), counted(other)])
                })
                .collect(),
            damaged: self.damaged,
            ways,
        }
    }
}

impl Way {
    fn new(plan: &Plan, way: usize) -> Self {
        let WayPlan {
            flows,
            connections,
            clients,
            waiting,
            missed,
            reply,
        } = &plan.ways[way];
        let mut outgoing = Outgoing::new(flows.iter().map(|flow| &flow.outgoing), *missed);
        outgoing.begin(START);
        let formats = flows
            .iter()
            .map(|flow| (flow.session.flow, flow.outgoing.format.clone()));
        let sessions: Vec<SessionPlan> = flows.iter().map(|flow| flow.session).collect();
        let mut incoming = Incoming::new(formats, *waiting);
        let sent_until = flows.is_empty().then_some(START);
        if sent_until.is_some() {
            incoming.sending_done(START);
        }
        let of_flows = flows.iter().map(|flow| flow.path);
        let of_connections = connections.iter().map(|connection| connection.path);
        let of_clients = clients.iter().map(|client| client.path);
        Self {
            outgoing,
            incoming,
            reflector: Reflector::new(&sessions, &[], *reply),
            connections: Connections::new(connections, plan.seed, way, START),
            clients: Clients::new(clients, plan.seed, way, START),
            flows: flows.len(),
            before_clients: flows.len() + connections.len(),
            paths: of_flows.chain(of_connections).chain(of_clients).collect(),
            sent_until,
        }
    }
}

fn length(packet: &[u8]) -> u32 {
    u32::try_from(packet.len()).unwrap_or(u32::MAX)
}

fn earlier(one: Option<Instant>, other: Option<Instant>) -> Option<Instant> {
    match (one, other) {
        (Some(one), Some(other)) => Some(one.min(other)),
        (one, other) => one.or(other),
    }
}
