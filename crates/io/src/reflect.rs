//! The reflector in real time: verify, answer, record.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::path::PathBuf;

use tm_probe::{Answer, ReflectRecord, ReflectorFlow};
use tm_wire::{emit, parse, Direction, Header, Key, Nanos, LARGEST_PAYLOAD_BYTES};

use crate::process::{self, Stop};
use crate::records::{Kind, Records};
use crate::udp::{wait_readable, Batch, Options, Socket, BATCH};
use crate::{clock, IoError};

/// One session that is answered.
pub struct SessionPlan {
    /// Number in events and records.
    pub flow: u16,
    /// Session on the wire.
    pub session: u32,
    /// Its key.
    pub key: Key,
}

/// The whole reflector.
pub struct ReflectPlan {
    /// Addresses to listen on.
    pub listen: Vec<SocketAddr>,
    /// Sessions that are known; all others are dropped without an answer.
    pub sessions: Vec<SessionPlan>,
    /// Whether questions are answered or only counted.
    pub answer: bool,
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
    /// It had `SCHED_FIFO`.
    pub realtime: bool,
    /// Every packet had a kernel timestamp.
    pub kernel_timestamps: bool,
    /// Packets that were none of ours.
    pub rejected: u64,
    /// Packets that the kernel dropped at full buffers.
    pub overrun: u64,
    /// The sessions in the order of the plan.
    pub flows: Vec<ReflectorFlow>,
}

/// What is told while it runs.
pub enum ReflectEvent<'a> {
    /// All sockets are open.
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
    let options = Options {
        buffer_bytes: plan.buffer_bytes,
        dont_fragment: false,
        interface: None,
    };
    let mut sockets = plan
        .listen
        .iter()
        .map(|address| Socket::open(*address, None, &options))
        .collect::<Result<Vec<_>, _>>()?;
    let locals = sockets
        .iter()
        .map(Socket::local)
        .collect::<Result<Vec<_>, _>>()?;
    let start = clock::now();
    let mut records = Records::create(
        plan.records.as_deref(),
        Kind::Reflect,
        ReflectRecord::BYTES,
        start,
    )?;
    process::steady();
    let mut reflector = Reflector {
        known: plan
            .sessions
            .iter()
            .enumerate()
            .map(|(index, session)| (session.session, (index, session.key)))
            .collect(),
        flows: plan
            .sessions
            .iter()
            .map(|session| ReflectorFlow::new(session.flow))
            .collect(),
        answer: plan.answer,
        rejected: 0,
        kernel_timestamps: true,
    };
    let realtime = process::realtime(plan.realtime_priority);
    let mut batch = Batch::new(LARGEST_PAYLOAD_BYTES);
    tell(ReflectEvent::Ready(&locals));
    let mut next_progress = start + PROGRESS;
    while !stop.asked() {
        wait_readable(&sockets, SLICE);
        for socket in &mut sockets {
            while reflector.take(socket, &mut batch, &mut records) == BATCH {}
        }
        let now = clock::now();
        if now >= next_progress {
            tell(ReflectEvent::Progress(now, &reflector.flows));
            next_progress = now + PROGRESS;
        }
    }
    // What lies in the buffers has arrived: it is answered and counted before the end.
    for socket in &mut sockets {
        while reflector.take(socket, &mut batch, &mut records) > 0 {}
    }
    records.finish()?;
    Ok(ReflectOutcome {
        realtime,
        kernel_timestamps: reflector.kernel_timestamps,
        rejected: reflector.rejected,
        overrun: sockets
            .iter()
            .map(|socket| u64::from(socket.overrun()))
            .sum(),
        flows: reflector.flows,
    })
}

struct Reflector {
    known: HashMap<u32, (usize, Key)>,
    flows: Vec<ReflectorFlow>,
    answer: bool,
    rejected: u64,
    kernel_timestamps: bool,
}

/// A question of the batch that was accepted.
#[derive(Clone, Copy)]
struct Accepted {
    place: usize,
    index: usize,
    seq: u32,
    received: Nanos,
    user_time: bool,
    size: u32,
}

impl Reflector {
    fn take(&mut self, socket: &mut Socket, batch: &mut Batch, records: &mut Records) -> usize {
        let count = batch.receive(socket);
        let mut accepted: [Option<Accepted>; BATCH] = [None; BATCH];
        for (place, slot) in accepted.iter_mut().enumerate().take(count) {
            *slot = self.accept(place, batch);
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

    fn accept(&mut self, place: usize, batch: &mut Batch) -> Option<Accepted> {
        let arrival = batch.arrival(place);
        let packet = batch.packet(place);
        let size = u32::try_from(packet.len()).ok()?;
        let mut session = None;
        let header = parse(packet, Direction::Question, |number| {
            session = self.known.get(&number).copied();
            session.map(|(_, key)| key)
        })
        .ok()?;
        let (index, key) = session?;
        let received = arrival.unwrap_or_else(clock::now);
        self.kernel_timestamps &= arrival.is_some();
        if self.answer {
            let answer = Header {
                session: header.session,
                seq: header.seq,
                time: received,
            };
            emit(packet, &answer, Direction::Answer, &key);
        }
        let user_time = arrival.is_none();
        Some(Accepted {
            place,
            index,
            seq: header.seq,
            received,
            user_time,
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
        let answered = clock::now();
        let mut refused = [false; BATCH];
        if self.answer {
            let first = run
                .first()
                .copied()
                .flatten()
                .map_or(0, |accepted| accepted.place);
            let last = first + run.len();
            let mut from = first;
            while from < last {
                let (sent, error) = batch.send(socket, from, last, true);
                from += sent;
                if error {
                    refused[from] = true;
                    from += 1;
                }
            }
        }
        for accepted in run.iter().flatten() {
            let at = match (self.answer, refused[accepted.place]) {
                (false, _) => Answer::NotAsked,
                (true, true) => Answer::Refused,
                (true, false) => Answer::Sent(answered),
            };
            let record = self.flows[accepted.index].on_packet(
                accepted.seq,
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
}
