//! The event loop: what happens next, on hosts, in tunnels and on the link.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use tm_link::wlan::StationCounters;
use tm_link::Counters;
use tm_probe::{Endpoint, Note, ReflectRecord, SendRecord};
use tm_wire::{header_bytes, Duration, Instant};

use crate::end::{Cores, End, EndCounters, Job};
use crate::forms::Inner;
use crate::link::{longest, Link};
use crate::loads::Loads;
use crate::mailbox::Mailbox;
use crate::pending::Pending;
use crate::plan::{Carrier, DirectionPlan, LinkPlan, PathPlan, Plan};
use crate::tcp_carrier::TcpCarrier;
use crate::under_way::{Piece, UnderWay, Whose};
use crate::way::{earlier, Way, WayOutcome, Ways};

/// When the schedules start.
pub const START: Instant = Instant(1_000_000_000);
/// How often records are given out.
const EXPIRE: Duration = Duration::from_millis(100);
const WAYS: [usize; 2] = [0, 1];

/// Where records go; both get the number of the way ([`Plan::way`]), even ones from the client.
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
    /// Likewise of each load, run by run as far as these were begun.
    pub loads: Vec<Vec<[WayOutcome; 2]>>,
    /// A load that had no further run before the others were over: then nothing is complete.
    pub lacking: Option<usize>,
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
    loop {
        let Some(next) = world.next(now) else {
            if world.loads.stop(&mut world.ways, now) {
                continue;
            }
            break;
        };
        now = now.max(next);
        world.turn(now, sink);
        if now >= expire {
            world.expire(now, sink);
            expire = now + EXPIRE;
        }
        if !world.loads.go_on(plan, &mut world.ways, now) {
            break;
        }
    }
    world.finish(now, sink)
}

struct World<'a> {
    plan: &'a Plan,
    link: Link,
    /// When something happens on the link next, once that is asked.
    link_due: Option<Instant>,
    /// It was offered something, or asked for what came, since.
    link_moved: bool,
    /// By path: client and server.
    ends: Vec<Option<[End; 2]>>,
    /// By path: the connection that carries its tunnel.
    carriers: Vec<Option<TcpCarrier>>,
    /// What segments of these are, by their lengths on the link.
    segments: BTreeMap<u32, Rc<[Inner]>>,
    ways: Ways,
    loads: Loads,
    under_way: UnderWay,
    pending: Pending,
    /// None while it is in use.
    mailbox: Option<Box<Mailbox>>,
    damaged: u64,
}

impl<'a> World<'a> {
    fn new(plan: &'a Plan) -> Self {
        let cores = plan
            .cores
            .map(|number| number.map(|number| Rc::new(RefCell::new(Cores::new(number)))));
        let ends = plan.paths.iter().enumerate().map(|(path, one)| {
            let Carrier::Tunnel { ends, over, .. } = &one.carrier else {
                return None;
            };
            let end = |host: usize, name: &str| {
                let mut own = ends[host].clone();
                if over.is_some() {
                    // What a program does not read waits in the connection.
                    own.unwrap.most_waiting = usize::MAX;
                }
                End::new(own, plan.seed, &format!("path {path}/{name}")).on(cores[host].clone())
            };
            Some([end(0, "client"), end(1, "server")])
        });
        let carriers = plan.paths.iter().map(|one| match one.carrier {
            Carrier::Tunnel { over, .. } => over.map(TcpCarrier::new),
            Carrier::Bare => None,
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
            link_due: None,
            link_moved: true,
            ends: ends.collect(),
            carriers: carriers.collect(),
            segments: BTreeMap::new(),
            ways: Ways::new(plan, START),
            loads: Loads::new(plan),
            under_way: UnderWay::new(copies && plan.paths.iter().any(bare), longest(&plan.link)),
            pending: Pending::default(),
            mailbox: None,
            damaged: 0,
            plan,
        }
    }

    /// When something happens next, from `now` on; None: nothing more is waited for.
    fn next(&mut self, now: Instant) -> Option<Instant> {
        let mut next: Option<Instant> = None;
        let mut open = false;
        for &way in self.loads.live() {
            let due = self.ways[way].next_due(now);
            open |= due.is_some() && self.loads.awaited(way);
            next = earlier(next, due);
        }
        if !open {
            return None;
        }
        if std::mem::take(&mut self.link_moved) {
            self.link_due = self.link.next_due();
        }
        for carrier in self.carriers.iter().flatten() {
            next = earlier(next, carrier.next_due());
        }
        next = earlier(next, self.link_due);
        earlier(next, self.pending.next_due())
    }

    fn turn(&mut self, now: Instant, sink: &mut impl Sink) {
        if self.link_due.is_some_and(|due| due <= now) {
            self.link_moved = true;
            for way in WAYS {
                while let Some((way, piece)) = self.link.poll(now, way) {
                    self.arrive(now, way, piece, sink);
                }
            }
        }
        while let Some(done) = self.pending.next(now) {
            if done.wrapped {
                self.onto_link(now, done.datagram, done.inner);
            } else {
                self.out_of_tunnel(now, done.datagram, done.inner, sink);
            }
        }
        for path in 0..self.carriers.len() {
            if let Some(carrier) = &mut self.carriers[path] {
                if carrier.next_due().is_some_and(|due| due <= now) {
                    carrier.turn(now);
                    self.segments_leave(now, path);
                }
            }
        }
        for place in 0..self.loads.live().len() {
            let way = self.loads.live()[place];
            self.send(now, way);
            if self.ways[way].has_programs() {
                self.ways[way].connections.turn(now);
                self.ways[way].clients.turn(now);
                self.ways[way].requesters.turn(now);
                self.programs_send(now, way);
            }
        }
    }

    /// Lets what a way's connections, clients and requesters send leave their hosts.
    fn programs_send(&mut self, now: Instant, way: usize) {
        loop {
            let of = &mut self.ways[way];
            let (before, next) = if let Some(next) = of.connections.pop() {
                (of.flows, next)
            } else if let Some(next) = of.clients.pop() {
                (of.before_clients, next)
            } else if let Some(next) = of.requesters.pop() {
                (of.before_requesters, next)
            } else {
                return;
            };
            let place = (way, next.answer, before + next.connection);
            self.leave(now, place, next.size, &next.bytes);
        }
    }

    /// Lets the senders of a way send what is due.
    fn send(&mut self, now: Instant, way: usize) {
        while let Some((due, flow)) = self.ways[way].outgoing.next_due() {
            if due > now || self.ways[way].sent_until.is_some() {
                return;
            }
            let Way {
                outgoing, incoming, ..
            } = &mut self.ways[way];
            let mut mailbox = self.mailbox.take().unwrap_or_default();
            mailbox.open(now);
            outgoing.send_due(&mut *mailbox, |note: Note| {
                incoming.note(note);
                true
            });
            for packet in mailbox.left() {
                self.leave(now, (way, false, flow), length(packet), head(packet));
            }
            self.mailbox = Some(mailbox);
        }
        self.ways[way].sending_done(now);
    }

    /// A datagram leaves its host: the sender's, or the reflector's for a reply. Its packets are those
    /// of a `payload` of so many bytes, of which `kept` are those that somebody reads.
    fn leave(&mut self, now: Instant, place: (usize, bool, usize), payload: u32, kept: &[u8]) {
        let path = self.ways[place.0].paths[place.2];
        let Some(form) = self.plan.paths[path].forms.of(payload) else {
            return;
        };
        let host = (place.0 % 2) ^ usize::from(place.1);
        let (way, reply, flow) = place;
        let whose = Whose::Flow { way, reply, flow };
        // What was begun before comes first, and what a full link refuses is never under way.
        let at_once = self.ends[path].is_none() && !self.pending.has_due(now);
        if let (true, Some(bytes)) = (at_once, single(&form)) {
            let piece = Piece {
                datagram: self.under_way.next_number(),
                inner: 0,
                outer: 0,
                damaged: false,
            };
            self.link_moved = true;
            if self.link.offer(now, host, bytes, piece) {
                self.under_way.enter(now, whose, form, payload, kept);
            } else {
                self.lost(Some(whose));
            }
            return;
        }
        let entered = Rc::clone(&form);
        let number = self.under_way.enter(now, whose, entered, payload, kept);
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
                let end = &mut ends[host];
                let full = job == Job::Wrap
                    && self.carriers[path]
                        .as_ref()
                        .is_some_and(|one| one.waiting(host) >= end.most_waiting(job));
                let done = if full {
                    end.refuse(job, bytes);
                    None
                } else {
                    end.take(now, job, bytes)
                };
                let Some(at) = done else {
                    let whose = self.under_way.drop_now(datagram);
                    self.lost(whose);
                    return;
                };
                at
            }
        };
        self.pending.begin(at, job == Job::Wrap, datagram, inner);
    }

    /// What carries a packet goes onto the link.
    fn onto_link(&mut self, now: Instant, number: u64, inner: u16) {
        let Some(datagram) = self.under_way.get(number) else {
            return;
        };
        let way = match datagram.whose {
            Whose::Flow { way, reply, flow } => {
                let (path, host) = (self.ways[way].paths[flow], (way % 2) ^ usize::from(reply));
                if let Some(carrier) = &mut self.carriers[path] {
                    let bytes = datagram.form[usize::from(inner)].outer[0];
                    carrier.write(now, host, bytes, (number, inner));
                    self.under_way.keep(number);
                    self.segments_leave(now, path);
                    return;
                }
                host
            }
            Whose::Carrier { from, .. } => from,
        };
        let form = Rc::clone(&datagram.form);
        self.link_moved = true;
        for (outer, bytes) in (0_u16..).zip(&form[usize::from(inner)].outer) {
            let piece = Piece {
                datagram: number,
                inner,
                outer,
                damaged: false,
            };
            if !self.link.offer(now, way, *bytes, piece) {
                self.no_room(number);
            }
        }
    }

    /// The link had no room for a packet of a datagram. One that is a single packet is forgotten; of
    /// others the rest goes all the same, as it does from a real host, and what is damaged of it counts.
    fn no_room(&mut self, number: u64) {
        let datagram = self.under_way.get(number);
        if datagram.is_some_and(|datagram| single(&datagram.form).is_some()) {
            let whose = self.under_way.drop_now(number);
            self.lost(whose);
        }
    }

    /// A datagram will not arrive; where copies are made another one of it may have.
    fn lost(&mut self, whose: Option<Whose>) {
        if let (Some(Whose::Flow { way, .. }), false) = (whose, self.under_way.copies()) {
            self.ways[way].lost += 1;
        }
    }

    /// A packet of the link came.
    fn arrive(&mut self, now: Instant, way: usize, piece: Piece, sink: &mut impl Sink) {
        let Some(datagram) = self.under_way.get(piece.datagram) else {
            return;
        };
        let (whose, bytes) = (
            datagram.whose,
            datagram.form[usize::from(piece.inner)].bytes,
        );
        if piece.damaged {
            // By the checksum of UDP or TCP where nothing else finds it.
            self.damaged += 1;
            return;
        }
        if !self.under_way.come(piece) {
            return;
        }
        let path = match whose {
            Whose::Flow { way, flow, .. } => self.ways[way].paths[flow],
            Whose::Carrier { path, from } => {
                self.segment_came(now, path, 1 - from, piece.datagram);
                return;
            }
        };
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

    /// A segment of a carrying connection came to a host: packets that are whole by it leave the tunnel.
    fn segment_came(&mut self, now: Instant, path: usize, host: usize, number: u64) {
        let Some(says) = self.under_way.left_tunnel(number, 0) else {
            return;
        };
        let Some(carrier) = &mut self.carriers[path] else {
            return;
        };
        let whole = carrier.take(now, host, &says);
        self.under_way.give_back(says);
        for (datagram, inner) in whole {
            if let Some(one) = self.under_way.get(datagram) {
                let bytes = one.form[usize::from(inner)].bytes;
                self.work(now, path, host, Job::Unwrap, (datagram, inner, bytes));
            }
        }
        self.segments_leave(now, path);
    }

    /// Segments of a carrying connection go onto the link.
    fn segments_leave(&mut self, now: Instant, path: usize) {
        while let Some(sent) = self.carriers[path].as_mut().and_then(TcpCarrier::pop) {
            let from = sent.from;
            let form = self.segments.entry(sent.bytes).or_insert_with(|| {
                Rc::from([Inner {
                    bytes: sent.bytes,
                    outer: vec![sent.bytes],
                }])
            });
            let whose = Whose::Carrier { path, from };
            let number = self
                .under_way
                .enter(now, whose, Rc::clone(form), sent.bytes, &sent.says);
            self.onto_link(now, number, 0);
        }
    }

    /// A packet is at its host.
    fn out_of_tunnel(&mut self, now: Instant, number: u64, inner: u16, sink: &mut impl Sink) {
        let Some(datagram) = self.under_way.get(number) else {
            return;
        };
        let Whose::Flow { way, reply, flow } = datagram.whose else {
            return;
        };
        let payload = datagram.payload as usize;
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
            if let Some(requester) = flow.checked_sub(of.before_requesters) {
                of.requesters.take(now, requester, reply, &bytes);
            } else if let Some(client) = flow.checked_sub(of.before_clients) {
                of.clients.take(now, client, reply, &bytes);
            } else {
                of.connections.take(now, connection, &bytes);
            }
            self.under_way.give_back(bytes);
            self.programs_send(now, way);
            return;
        }
        let mut mailbox = self.mailbox.take().unwrap_or_default();
        mailbox.receive(now, payload, &bytes);
        self.under_way.give_back(bytes);
        if reply {
            self.ways[way].incoming.take(flow, &mut *mailbox);
        } else {
            let reflector = &mut self.ways[way].reflector;
            reflector.take(Endpoint::Own, &mut *mailbox, |record| {
                sink.reflected(way, record);
            });
            for packet in mailbox.left() {
                self.leave(now, (way, true, flow), length(packet), head(packet));
            }
        }
        self.mailbox = Some(mailbox);
    }

    /// Looks after what has become old enough.
    fn expire(&mut self, now: Instant, sink: &mut impl Sink) {
        for &way in self.loads.live() {
            let incoming = &mut self.ways[way].incoming;
            incoming.expire(now, |record| sink.sent(way, record));
            self.ways[way].end_if_enough(now);
        }
    }

    fn finish(self, end: Instant, sink: &mut impl Sink) -> Outcome {
        let (ways, loads) = self.ways.finish(|way, record| sink.sent(way, record));
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
            loads: self.loads.begun(loads),
            lacking: self.loads.lacking(),
        }
    }
}

/// Bytes on the link of a datagram that is one packet there.
fn single(form: &[Inner]) -> Option<u32> {
    match form {
        [inner] if inner.outer.len() == 1 => inner.outer.first().copied(),
        _ => None,
    }
}

fn length(packet: &[u8]) -> u32 {
    u32::try_from(packet.len()).unwrap_or(u32::MAX)
}

/// What is read of a packet of our own format.
fn head(packet: &[u8]) -> &[u8] {
    &packet[..header_bytes(packet.len())]
}
