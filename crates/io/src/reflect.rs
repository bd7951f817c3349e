//! The reflector in real time: verify, answer, record.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

use tm_probe::{Answer, Delays, ReflectRecord, ReflectorFlow};
use tm_wire::stamp::{self, Question, Timestamp};
use tm_wire::{
    emit, pack_answer_time, parse, Direction, Header, Key, Named, Nanos, LARGEST_PAYLOAD_BYTES,
};

use crate::overruns::Overruns;
use crate::process::{self, Priority, Realtime, Stop};
use crate::records::{Kind, Records};
use crate::udp::{wait_readable, Batch, Options, ReceiveTime, Sending, Socket, BATCH};
use crate::{clock, IoError};

/// One session of our own format that is answered.
pub struct SessionPlan {
    /// Number in events and records.
    pub flow: u16,
    /// Session on the wire.
    pub session: u32,
    /// Its key.
    pub key: Key,
}

/// A STAMP reflector (RFC 8762) on a socket of its own, which is one session.
pub struct StampPlan {
    /// Number in events and records.
    pub flow: u16,
    /// Address to listen on.
    pub listen: SocketAddr,
    /// Authenticated where there is one.
    pub key: Option<Vec<u8>>,
    /// Answers are numbered by the reflector's own count, not by the sender's (section 4.3).
    pub stateful: bool,
    /// The only host that is answered; None: anyone.
    pub peer: Option<IpAddr>,
}

/// The whole reflector.
pub struct ReflectPlan {
    /// Addresses to listen on.
    pub listen: Vec<SocketAddr>,
    /// Sessions that are known; all others are dropped without an answer.
    pub sessions: Vec<SessionPlan>,
    /// STAMP sessions.
    pub stamp: Vec<StampPlan>,
    /// Whether questions are answered or only counted.
    pub answer: bool,
    /// How long to look for the next packet before the thread sleeps.
    pub spin: Nanos,
    /// How long to sleep after packets, so that more are taken at once; 0: not at all.
    pub coalesce: Nanos,
    /// When a question has arrived.
    pub receive_time: ReceiveTime,
    /// Record file.
    pub records: Option<PathBuf>,
    /// `SCHED_FIFO` priority.
    pub realtime_priority: Option<u8>,
    /// Processor.
    pub cpu: Option<usize>,
    /// Socket buffers.
    pub buffer_bytes: usize,
}

/// What it came to.
pub struct ReflectOutcome {
    /// Whether it had `SCHED_FIFO` to the end.
    pub realtime: Realtime,
    /// Every packet had a kernel timestamp.
    pub kernel_timestamps: bool,
    /// Packets that were none of ours.
    pub rejected: u64,
    /// Packets that the kernel dropped at full buffers.
    pub overrun: u64,
    /// From a packet's arrival to its answer.
    pub residence: Delays,
    /// The sessions in the order of the plan, those of STAMP behind the others.
    pub flows: Vec<ReflectorFlow>,
}

/// What is told while it runs.
pub enum ReflectEvent<'a> {
    /// All sockets are open; those of STAMP behind the others.
    Ready(&'a [SocketAddr]),
    /// Every 500 ms.
    Progress(Nanos, &'a [ReflectorFlow]),
}

const PROGRESS: Nanos = Nanos(500_000_000);
/// Longest wait for a packet before a request to stop is looked at.
const SLICE: Nanos = Nanos(100_000_000);

/// Answers until `stop`.
pub fn run(
    plan: &ReflectPlan,
    stop: &Stop,
    mut tell: impl FnMut(ReflectEvent<'_>),
) -> Result<ReflectOutcome, IoError> {
    process::pin(plan.cpu)?;
    let mut sockets = Vec::new();
    for (address, time_to_live) in plan
        .listen
        .iter()
        .map(|address| (*address, false))
        .chain(plan.stamp.iter().map(|stamp| (stamp.listen, true)))
    {
        let options = Options {
            buffer_bytes: plan.buffer_bytes,
            dont_fragment: false,
            interface: None,
            time_to_live,
            receive_time: plan.receive_time,
        };
        sockets.push(Socket::open(address, None, &options)?);
    }
    let locals = sockets
        .iter()
        .map(Socket::local)
        .collect::<Result<Vec<_>, _>>()?;
    let overruns = Overruns::begin();
    let start = clock::now();
    let mut records = Records::create(
        plan.records.as_deref(),
        Kind::Reflect,
        ReflectRecord::BYTES,
        start,
    )?;
    process::steady();
    let mut reflector = Reflector::new(plan);
    let mut priority = Priority::take(plan.realtime_priority);
    let mut batch = Batch::new(LARGEST_PAYLOAD_BYTES);
    tell(ReflectEvent::Ready(&locals));
    let mut next_progress = start + PROGRESS;
    let mut awake_until = start;
    while !stop.asked() {
        if clock::now() >= awake_until {
            wait_readable(&sockets, SLICE);
        }
        let mut seen = 0;
        for (place, socket) in sockets.iter_mut().enumerate() {
            loop {
                let taken = reflector.take(place, socket, &mut batch, &mut records);
                seen += taken;
                if taken < BATCH {
                    break;
                }
            }
        }
        priority.check();
        let now = clock::now();
        if seen > 0 {
            awake_until = now + plan.spin;
            if plan.coalesce > Nanos(0) {
                clock::sleep_until(now + plan.coalesce);
                awake_until = now + plan.coalesce + plan.spin;
            }
        }
        if now >= next_progress {
            tell(ReflectEvent::Progress(now, &reflector.flows));
            next_progress = now + PROGRESS;
        }
    }
    // What lies in the buffers has arrived: it is answered and counted before the end.
    for (place, socket) in sockets.iter_mut().enumerate() {
        while reflector.take(place, socket, &mut batch, &mut records) > 0 {}
    }
    records.finish()?;
    let most = overruns.so_far();
    Ok(ReflectOutcome {
        realtime: priority.fate(),
        kernel_timestamps: reflector.kernel_timestamps,
        rejected: reflector.rejected,
        overrun: sockets
            .iter()
            .map(|socket| u64::from(socket.overrun().min(most)))
            .sum(),
        residence: reflector.residence,
        flows: reflector.flows,
    })
}

struct Reflector<'a> {
    plan: &'a ReflectPlan,
    known: Known,
    flows: Vec<ReflectorFlow>,
    rejected: u64,
    kernel_timestamps: bool,
    residence: Delays,
}

/// Places of the sessions in the plan.
struct Known {
    whole: HashMap<u32, usize>,
    /// By the lower half, as the short header names them.
    short: HashMap<u16, usize>,
}

impl Known {
    fn new(sessions: &[SessionPlan]) -> Self {
        let numbers = || sessions.iter().map(|session| session.session).enumerate();
        Self {
            whole: numbers().map(|(index, number)| (number, index)).collect(),
            short: numbers()
                .map(|(index, number)| (lower_half(number), index))
                .collect(),
        }
    }

    fn get(&self, named: Named) -> Option<usize> {
        match named {
            Named::Whole(number) => self.whole.get(&number),
            Named::Short(number) => self.short.get(&number),
        }
        .copied()
    }
}

fn lower_half(session: u32) -> u16 {
    let [.., high, low] = session.to_be_bytes();
    u16::from_be_bytes([high, low])
}

/// A question of the batch that was accepted.
#[derive(Clone, Copy)]
struct Accepted {
    place: usize,
    /// Index of its flow.
    index: usize,
    asked: Asked,
    received: Nanos,
    user_time: bool,
    size: u32,
}

#[derive(Clone, Copy)]
enum Asked {
    Own {
        session: u32,
        seq: u32,
        key: Key,
    },
    Stamp {
        question: Question,
        /// Index in the plan.
        stamp: usize,
        ttl: u8,
    },
}

impl Asked {
    fn seq(&self) -> u32 {
        match self {
            Self::Own { seq, .. } => *seq,
            Self::Stamp { question, .. } => question.seq,
        }
    }
}

impl<'a> Reflector<'a> {
    fn new(plan: &'a ReflectPlan) -> Self {
        let own = plan.sessions.iter().map(|session| session.flow);
        let stamp = plan.stamp.iter().map(|stamp| stamp.flow);
        Self {
            plan,
            known: Known::new(&plan.sessions),
            flows: own.chain(stamp).map(ReflectorFlow::new).collect(),
            rejected: 0,
            kernel_timestamps: true,
            residence: Delays::default(),
        }
    }

    /// Takes a batch from the socket at `place` of the plan.
    fn take(
        &mut self,
        place: usize,
        socket: &mut Socket,
        batch: &mut Batch,
        records: &mut Records,
    ) -> usize {
        let stamp = place.checked_sub(self.plan.listen.len());
        let count = batch.receive(socket);
        let mut accepted: [Option<Accepted>; BATCH] = [None; BATCH];
        for (place, slot) in accepted.iter_mut().enumerate().take(count) {
            *slot = self.accept(place, stamp, batch);
            if slot.is_none() {
                self.rejected += 1;
            }
        }
        // Runs of accepted packets go out in one call; a rejected one ends a run.
        let mut place = 0;
        while place < count {
            if accepted[place].is_none() {
                place += 1;
                continue;
            }
            let mut end = place;
            while end < count && accepted[end].is_some() {
                end += 1;
            }
            self.answer_run(&accepted[place..end], socket, batch, records);
            place = end;
        }
        count
    }

    fn accept(
        &mut self,
        place: usize,
        stamp: Option<usize>,
        batch: &mut Batch,
    ) -> Option<Accepted> {
        let arrival = batch.arrival(place);
        let (source, ttl) = (batch.source(place), batch.time_to_live(place));
        let packet = batch.packet(place);
        let size = u32::try_from(packet.len()).ok()?;
        let (index, asked) = if let Some(stamp) = stamp {
            let plan = &self.plan.stamp[stamp];
            if plan.peer.is_some() && plan.peer != source.map(|source| source.ip()) {
                return None;
            }
            let question = stamp::parse_question(packet, plan.key.as_deref()).ok()?;
            let ttl = ttl.unwrap_or(0);
            let asked = Asked::Stamp {
                question,
                stamp,
                ttl,
            };
            (self.plan.sessions.len() + stamp, asked)
        } else {
            let mut found = None;
            let header = parse(packet, Direction::Question, |named| {
                found = self.known.get(named);
                let session = &self.plan.sessions[found?];
                Some((session.session, session.key))
            })
            .ok()?;
            let index = found?;
            let key = self.plan.sessions[index].key;
            let asked = Asked::Own {
                session: header.session,
                seq: header.seq,
                key,
            };
            (index, asked)
        };
        self.kernel_timestamps &= arrival.is_some();
        Some(Accepted {
            place,
            index,
            asked,
            received: arrival.unwrap_or(batch.taken()),
            user_time: arrival.is_none(),
            size,
        })
    }

    fn answer_run(
        &mut self,
        run: &[Option<Accepted>],
        socket: &Socket,
        batch: &mut Batch,
        records: &mut Records,
    ) {
        let mut fates = [Answer::NotAsked; BATCH];
        let mut done = 0;
        while self.plan.answer && done < run.len() {
            // What had to wait for room is stamped anew: the wait is ours, not the path's.
            let answered = clock::now();
            for (ahead, accepted) in (0_u64..).zip(run[done..].iter().flatten()) {
                self.write_answer(accepted, ahead, answered, batch);
            }
            let Some(first) = run[done].map(|accepted| accepted.place) else {
                break;
            };
            let (sent, end) = batch.send(socket, first, first + run.len() - done, true);
            fates[done..done + sent].fill(Answer::Sent(answered));
            done += sent;
            match end {
                Sending::Done => {}
                Sending::Full => socket.wait_writable(),
                Sending::Refused => {
                    fates[done] = Answer::Refused;
                    done += 1;
                }
            }
        }
        for (accepted, at) in run.iter().flatten().zip(fates) {
            if let Answer::Sent(answered) = at {
                self.residence.add(answered - accepted.received);
            }
            let record = self.flows[accepted.index].on_packet(
                accepted.asked.seq(),
                accepted.received,
                at,
                accepted.size,
                accepted.user_time,
            );
            if let Some(record) = record {
                records.push(&record.to_bytes());
            }
        }
    }

    /// Writes the answer over the question; `ahead` packets of its run leave before it.
    fn write_answer(&self, accepted: &Accepted, ahead: u64, answered: Nanos, batch: &mut Batch) {
        let offset = batch.realtime_offset();
        let packet = batch.packet(accepted.place);
        match accepted.asked {
            Asked::Own { session, seq, key } => {
                let time = pack_answer_time(accepted.received, answered - accepted.received);
                let header = Header { session, seq, time };
                emit(packet, &header, Direction::Answer, &key);
            }
            Asked::Stamp {
                question,
                stamp,
                ttl,
            } => {
                let plan = &self.plan.stamp[stamp];
                let count = self.flows[accepted.index].counters.answered + ahead;
                let answer = stamp::Answer {
                    // The count wraps as the field does.
                    seq: if plan.stateful {
                        u32::try_from(count & u64::from(u32::MAX)).unwrap_or(0)
                    } else {
                        question.seq
                    },
                    answered: Timestamp::from_realtime(answered + offset),
                    error: stamp::ERROR_ESTIMATE,
                    received: Timestamp::from_realtime(accepted.received + offset),
                    question,
                    ttl,
                };
                stamp::emit_answer(packet, &answer, plan.key.as_deref());
            }
        }
    }
}
