//! The Session-Reflector: which session a packet is of, its reply, and what is kept of it.

mod flow;
mod stamp;

use std::net::SocketAddr;

use tm_wire::{emit, pack_reply_time, parse, Direction, Header, Instant, Key, Named};

pub use flow::{ReflectCounters, ReflectorFlow, ReplyOutcome};
pub use stamp::{Peer, StampPlan, MOST_SENDERS};

use crate::delays::Delays;
use crate::port::{Inbox, Outbox, Sending, WallClock, BATCH};
use crate::record::ReflectRecord;
use stamp::StampReflector;

/// One session of our own format that is answered.
#[derive(Clone, Copy, Debug)]
pub struct SessionPlan {
    /// Number in events and records.
    pub flow: u16,
    /// Session on the wire.
    pub session: u32,
    /// Its key.
    pub key: Key,
}

/// Which socket of a reflector a batch came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Endpoint {
    /// One of our own format, which knows all its sessions.
    Own,
    /// The STAMP reflector at this place of the plan.
    Stamp(usize),
}

/// What a flow came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FlowTotal {
    /// Number in events and records.
    pub flow: u16,
    /// All of its sessions.
    pub counters: ReflectCounters,
    /// Each session of a STAMP reflector, in order of their first packets; None for our own format.
    pub senders: Option<Vec<(SocketAddr, ReflectCounters)>>,
}

/// All sessions of a reflector.
pub struct Reflector {
    reply: bool,
    known: Known,
    own: Vec<(SessionPlan, ReflectorFlow)>,
    stamp: Vec<StampReflector>,
    /// Room for the packets of a batch that are answered together.
    run: Vec<Accepted>,
    /// Packets that were none of ours.
    pub rejected: u64,
    /// Every packet had a kernel timestamp.
    pub kernel_timestamps: bool,
    /// From a packet's arrival to its reply.
    pub residence: Delays,
}

impl Reflector {
    /// A reflector that has seen nothing; with `reply` false it only counts.
    #[must_use]
    pub fn new(sessions: &[SessionPlan], stamp: &[StampPlan], reply: bool) -> Self {
        let flow = |session: &SessionPlan| (*session, ReflectorFlow::new(session.flow, 0));
        Self {
            reply,
            known: Known::new(sessions),
            own: sessions.iter().map(flow).collect(),
            stamp: stamp.iter().cloned().map(StampReflector::new).collect(),
            run: Vec::with_capacity(BATCH),
            rejected: 0,
            kernel_timestamps: true,
            residence: Delays::default(),
        }
    }

    /// Takes a batch that came to `endpoint`: replies and gives out the record of each first arrival.
    pub fn take<B: Inbox + Outbox>(
        &mut self,
        endpoint: Endpoint,
        batch: &mut B,
        mut sink: impl FnMut(&ReflectRecord),
    ) {
        // Runs of packets that are answered go out in one call; any other ends a run.
        let mut run = std::mem::take(&mut self.run);
        for place in 0..batch.count().min(BATCH) {
            let (accepted, fate) = match self.accept(endpoint, place, batch) {
                None => {
                    self.rejected += 1;
                    (None, None)
                }
                Some(accepted) => (Some(accepted), self.withheld(&accepted)),
            };
            if let (Some(accepted), None) = (accepted, fate) {
                run.push(accepted);
                continue;
            }
            self.reply_to_run(&run, batch, &mut sink);
            run.clear();
            if let (Some(accepted), Some(fate)) = (accepted, fate) {
                self.conclude(&accepted, fate, &mut sink);
            }
        }
        self.reply_to_run(&run, batch, &mut sink);
        run.clear();
        self.run = run;
    }

    /// What the flows have come to, in the order of the plan, those of STAMP behind the others.
    #[must_use]
    pub fn totals(&self) -> Vec<FlowTotal> {
        let own = self.own.iter().map(|(plan, flow)| FlowTotal {
            flow: plan.flow,
            counters: flow.counters,
            senders: None,
        });
        let stamp = self.stamp.iter().map(|reflector| {
            let senders: Vec<_> = reflector.senders().collect();
            let counters = senders.iter().map(|(_, counters)| *counters);
            FlowTotal {
                flow: reflector.flow(),
                counters: counters.fold(ReflectCounters::default(), ReflectCounters::plus),
                senders: Some(senders),
            }
        });
        own.chain(stamp).collect()
    }

    fn accept(
        &mut self,
        endpoint: Endpoint,
        place: usize,
        batch: &mut impl Inbox,
    ) -> Option<Accepted> {
        let arrival = batch.arrival(place);
        let packet = batch.packet(place);
        let size = u32::try_from(packet.len()).ok()?;
        let test = match endpoint {
            Endpoint::Stamp(reflector) => TestPacket::Stamp {
                reflector,
                test: self.stamp[reflector].read(packet, &arrival)?,
            },
            Endpoint::Own => {
                let mut found = None;
                let header = parse(packet, Direction::TestPacket, |named| {
                    found = self.known.get(named);
                    let (session, _) = &self.own[found?];
                    Some((session.session, session.key))
                });
                TestPacket::Own {
                    index: found?,
                    seq: header.ok()?.seq,
                }
            }
        };
        self.kernel_timestamps &= !arrival.user_time;
        Some(Accepted {
            place,
            test,
            received: arrival.at,
            user_time: arrival.user_time,
            size,
        })
    }

    /// Why an accepted packet gets no reply; None: it gets one.
    fn withheld(&mut self, accepted: &Accepted) -> Option<ReplyOutcome> {
        if !self.reply {
            return Some(ReplyOutcome::NotAsked);
        }
        let TestPacket::Stamp { reflector, test } = &accepted.test else {
            return None;
        };
        let allowed = self.stamp[*reflector].allows(test, accepted.received);
        (!allowed).then_some(ReplyOutcome::Limited)
    }

    /// Replies to packets that stand one behind the other in the batch.
    fn reply_to_run<B: Outbox>(
        &mut self,
        run: &[Accepted],
        batch: &mut B,
        sink: &mut impl FnMut(&ReflectRecord),
    ) {
        let mut rest = run;
        while let Some(first) = rest.first() {
            // What had to wait for room is stamped again: the wait is ours, not the path's.
            let (answered, wall) = (batch.now(), batch.wall_clock());
            self.write_replies(rest, answered, wall, batch);
            let (sent, end) = batch.send(first.place, first.place + rest.len());
            let (gone, left) = rest.split_at(sent);
            for accepted in gone {
                self.conclude(accepted, ReplyOutcome::Sent(answered), sink);
            }
            rest = left;
            let refused = match end {
                Sending::Done => false,
                Sending::Refused => true,
                Sending::Full => !batch.wait_for_room(),
            };
            if let (true, Some((refused, left))) = (refused, rest.split_first()) {
                self.conclude(refused, ReplyOutcome::Refused, sink);
                rest = left;
            }
        }
    }

    fn write_replies(
        &mut self,
        run: &[Accepted],
        answered: Instant,
        wall: WallClock,
        batch: &mut impl Outbox,
    ) {
        for accepted in run {
            if let TestPacket::Stamp { reflector, test } = &accepted.test {
                self.stamp[*reflector].renumber(test);
            }
        }
        for accepted in run {
            let packet = batch.packet(accepted.place);
            let times = (accepted.received, answered);
            match &accepted.test {
                TestPacket::Own { index, seq } => {
                    let (plan, _) = &self.own[*index];
                    let header = Header {
                        session: plan.session,
                        seq: *seq,
                        time: pack_reply_time(accepted.received, answered - accepted.received),
                    };
                    emit(packet, &header, Direction::Reply, &plan.key);
                }
                TestPacket::Stamp { reflector, test } => {
                    self.stamp[*reflector].write(packet, test, times, wall);
                }
            }
        }
    }

    fn conclude(
        &mut self,
        accepted: &Accepted,
        fate: ReplyOutcome,
        sink: &mut impl FnMut(&ReflectRecord),
    ) {
        if let ReplyOutcome::Sent(answered) = fate {
            self.residence.add(answered - accepted.received);
        }
        let (flow, seq) = match &accepted.test {
            TestPacket::Own { index, seq } => (&mut self.own[*index].1, *seq),
            TestPacket::Stamp { reflector, test } => {
                let sessions = &mut self.stamp[*reflector].sessions;
                (&mut sessions[test.session].flow, test.test_packet.seq)
            }
        };
        let (received, size) = (accepted.received, accepted.size);
        if let Some(record) = flow.on_packet(seq, received, fate, size, accepted.user_time) {
            sink(&record);
        }
    }
}

/// A test packet of the batch that was accepted.
#[derive(Clone, Copy)]
struct Accepted {
    place: usize,
    test: TestPacket,
    received: Instant,
    user_time: bool,
    size: u32,
}

#[derive(Clone, Copy)]
enum TestPacket {
    Own {
        index: usize,
        seq: u32,
    },
    Stamp {
        reflector: usize,
        test: stamp::StampTest,
    },
}

/// Places of the sessions in the plan, in order of what names them.
struct Known {
    whole: Vec<(u32, usize)>,
    /// By the lower half, as the short header names them.
    short: Vec<(u16, usize)>,
}

impl Known {
    fn new(sessions: &[SessionPlan]) -> Self {
        let numbers = || sessions.iter().map(|session| session.session).zip(0..);
        Self {
            whole: sorted(numbers()),
            short: sorted(numbers().map(|(number, index)| (lower_half(number), index))),
        }
    }

    fn get(&self, named: Named) -> Option<usize> {
        match named {
            Named::Whole(number) => found(&self.whole, number),
            Named::Short(number) => found(&self.short, number),
        }
    }
}

fn sorted<N: Ord>(named: impl Iterator<Item = (N, usize)>) -> Vec<(N, usize)> {
    let mut all: Vec<(N, usize)> = named.collect();
    all.sort_unstable();
    all
}

fn found<N: Ord + Copy>(named: &[(N, usize)], name: N) -> Option<usize> {
    let place = named.binary_search_by_key(&name, |(name, _)| *name);
    place.ok().map(|place| named[place].1)
}

fn lower_half(session: u32) -> u16 {
    let [.., high, low] = session.to_be_bytes();
    u16::from_be_bytes([high, low])
}
