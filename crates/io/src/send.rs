//! The sender in real time: one thread sends on schedule, another receives and owns the sessions.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::Arc;

use rtrb::{Consumer, Producer, RingBuffer};
use tm_probe::{Content, Filler, Missed, Pacer, SendRecord, SenderFlow, Slot, Stop as End};
use tm_wire::{emit, parse, Direction, Header, Key, Nanos, HEADER_BYTES};

use crate::process::{self, Stop};
use crate::records::{Kind, Records};
use crate::udp::{wait_readable, Batch, Options, Socket, BATCH};
use crate::{clock, IoError};

/// One flow.
pub struct FlowPlan {
    /// Its number in events and records.
    pub flow: u16,
    /// Session on the wire.
    pub session: u32,
    /// Key of the session.
    pub key: Key,
    /// The reflector.
    pub target: SocketAddr,
    /// Own address; port 0 lets the kernel choose.
    pub source: SocketAddr,
    /// Interface that the packets use.
    pub interface: Option<String>,
    /// First packet after the start of the run.
    pub start_offset: Nanos,
    /// From packet to packet.
    pub gap: Nanos,
    /// When it ends.
    pub end: End,
    /// Payload size.
    pub payload_bytes: usize,
    /// Filling.
    pub content: Content,
    /// Seed of the filling.
    pub seed: u64,
}

/// The whole run.
pub struct SendPlan {
    /// At least one.
    pub flows: Vec<FlowPlan>,
    /// How long to wait for answers after the last packet.
    pub drain: Nanos,
    /// Answers after this are late.
    pub late: Nanos,
    /// What happens to packets that were due while the sender was held up.
    pub missed: Missed,
    /// Refuse to fragment.
    pub dont_fragment: bool,
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
}

/// What a run came to.
pub struct SendOutcome {
    /// Start of the schedule.
    pub start: Nanos,
    /// When the last answer was waited for.
    pub end: Nanos,
    /// Both threads had `SCHED_FIFO`.
    pub realtime: bool,
    /// Every answer had a kernel timestamp.
    pub kernel_timestamps: bool,
    /// The flows in the order of the plan, with their overruns.
    pub flows: Vec<(SenderFlow, u32)>,
}

/// What is told while it runs.
pub enum SendEvent<'a> {
    /// All sockets are open; own address of each flow.
    Ready(&'a [SocketAddr]),
    /// Every 500 ms.
    Progress(Nanos, &'a [SenderFlow]),
}

/// A packet that was due, from the sending to the receiving thread.
#[derive(Clone, Copy)]
enum Note {
    Due {
        flow: u16,
        scheduled: Nanos,
        sent: Option<Nanos>,
        size: u32,
    },
    Refused {
        flow: u16,
        seq: u32,
    },
}

const RING: usize = 1 << 16;
/// Notes of a batch are pushed before its packets leave, so an answer always finds its question.
const PROGRESS: Nanos = Nanos(500_000_000);
/// The first packet leaves this long after both threads are ready.
const LEAD: Nanos = Nanos(20_000_000);

/// Runs a plan to its end, or until `stop`.
pub fn run(
    plan: &SendPlan,
    stop: &Stop,
    mut tell: impl FnMut(SendEvent<'_>),
) -> Result<SendOutcome, IoError> {
    let mut sockets = Vec::new();
    for flow in &plan.flows {
        let options = Options {
            buffer_bytes: plan.buffer_bytes,
            dont_fragment: plan.dont_fragment,
            interface: flow.interface.clone(),
        };
        sockets.push(Socket::open(flow.source, Some(flow.target), &options)?);
    }
    let locals = sockets
        .iter()
        .map(Socket::local)
        .collect::<Result<Vec<_>, _>>()?;
    let receiving = sockets
        .iter()
        .map(Socket::share)
        .collect::<Result<Vec<_>, _>>()?;
    tell(SendEvent::Ready(&locals));
    process::steady();
    let start = clock::now() + LEAD;
    let mut records = Records::create(
        plan.records.as_deref(),
        Kind::Send,
        SendRecord::BYTES,
        start,
    )?;
    let (notes, taken) = RingBuffer::new(RING);
    let shared = Arc::new(Shared {
        sending_done: AtomicBool::new(false),
        sent_until: AtomicI64::new(0),
        realtime: AtomicBool::new(false),
    });
    let outcome = std::thread::scope(|scope| {
        let sender = {
            let (shared, stop) = (Arc::clone(&shared), stop.clone());
            scope.spawn(move || {
                let result = sending(plan, &sockets, notes, start, &shared, &stop);
                shared.sent_until.store(clock::now().0, Ordering::Relaxed);
                shared.sending_done.store(true, Ordering::Release);
                result
            })
        };
        let received = receiving_loop(
            plan,
            receiving,
            taken,
            start,
            &shared,
            &mut records,
            &mut tell,
        );
        let sent = sender.join();
        match (received, sent) {
            (Err(error), _) | (_, Ok(Err(error))) => Err(error),
            (_, Err(_)) => Err(IoError::new(
                "sending",
                std::io::Error::other("thread died"),
            )),
            (Ok(outcome), Ok(Ok(()))) => Ok(outcome),
        }
    })?;
    records.finish()?;
    Ok(outcome)
}

struct Shared {
    sending_done: AtomicBool,
    sent_until: AtomicI64,
    realtime: AtomicBool,
}

struct Outgoing<'a> {
    plan: &'a FlowPlan,
    socket: &'a Socket,
    pacer: Pacer,
    filler: Filler,
    batch: Batch,
    slots: [Option<Slot>; BATCH],
}

fn sending(
    plan: &SendPlan,
    sockets: &[Socket],
    mut notes: Producer<Note>,
    start: Nanos,
    shared: &Shared,
    stop: &Stop,
) -> Result<(), IoError> {
    process::pin(plan.send_cpu)?;
    process::steady();
    shared
        .realtime
        .store(process::realtime(plan.realtime_priority), Ordering::Relaxed);
    let mut flows: Vec<Outgoing<'_>> = plan
        .flows
        .iter()
        .zip(sockets)
        .map(|(flow, socket)| Outgoing {
            plan: flow,
            socket,
            pacer: Pacer::new(start + flow.start_offset, flow.gap, flow.end, plan.missed),
            filler: Filler::new(flow.content.clone(), flow.seed),
            batch: Batch::new(flow.payload_bytes),
            slots: [None; BATCH],
        })
        .collect();
    while !stop.asked() {
        let Some((index, due)) = flows
            .iter()
            .enumerate()
            .filter_map(|(index, flow)| flow.pacer.next_due().map(|due| (index, due)))
            .min_by_key(|(_, due)| *due)
        else {
            break;
        };
        if due > clock::now() {
            clock::sleep_until(due);
            continue;
        }
        flows[index].send_due(&mut notes);
    }
    Ok(())
}

impl Outgoing<'_> {
    /// Sends what is due of this flow, at most a batch, in one system call.
    fn send_due(&mut self, notes: &mut Producer<Note>) {
        let now = clock::now();
        let mut count = 0;
        while count < BATCH {
            let Some(slot) = self.pacer.poll(now) else {
                break;
            };
            self.slots[count] = Some(slot);
            if slot.send {
                self.batch.set_length(count, self.plan.payload_bytes);
                let packet = self.batch.packet(count);
                self.filler.fill(slot.seq, &mut packet[HEADER_BYTES..]);
                let time = clock::now();
                let header = Header {
                    session: self.plan.session,
                    seq: slot.seq,
                    time,
                };
                emit(packet, &header, Direction::Question, &self.plan.key);
                self.note(notes, slot.scheduled, Some(time));
                count += 1;
            } else {
                self.note(notes, slot.scheduled, None);
            }
        }
        let mut from = 0;
        while from < count {
            let (sent, refused) = self.batch.send(self.socket, from, count, false);
            from += sent;
            if refused {
                if let Some(slot) = self.slots[from] {
                    push(
                        notes,
                        Note::Refused {
                            flow: self.plan.flow,
                            seq: slot.seq,
                        },
                    );
                }
                from += 1;
            }
        }
    }

    fn note(&self, notes: &mut Producer<Note>, scheduled: Nanos, sent: Option<Nanos>) {
        let size = u32::try_from(self.plan.payload_bytes).unwrap_or(u32::MAX);
        push(
            notes,
            Note::Due {
                flow: self.plan.flow,
                scheduled,
                sent,
                size,
            },
        );
    }
}

fn push(notes: &mut Producer<Note>, mut note: Note) {
    while let Err(rtrb::PushError::Full(back)) = notes.push(note) {
        note = back;
        clock::sleep_until(clock::now() + Nanos(100_000));
    }
}

struct Incoming {
    flows: Vec<SenderFlow>,
    /// Flow number to index.
    index: Vec<u16>,
    notes: Consumer<Note>,
    kernel_timestamps: bool,
}

fn receiving_loop(
    plan: &SendPlan,
    mut sockets: Vec<Socket>,
    notes: Consumer<Note>,
    start: Nanos,
    shared: &Shared,
    records: &mut Records,
    tell: &mut impl FnMut(SendEvent<'_>),
) -> Result<SendOutcome, IoError> {
    process::pin(plan.receive_cpu)?;
    let realtime = process::realtime(plan.realtime_priority);
    let mut incoming = Incoming {
        flows: plan
            .flows
            .iter()
            .map(|flow| SenderFlow::new(flow.flow, plan.late))
            .collect(),
        index: plan.flows.iter().map(|flow| flow.flow).collect(),
        notes,
        kernel_timestamps: true,
    };
    let largest = plan
        .flows
        .iter()
        .map(|flow| flow.payload_bytes)
        .max()
        .unwrap_or(HEADER_BYTES);
    let mut batch = Batch::new(largest);
    let mut next_progress = start + PROGRESS;
    let end = loop {
        let done = shared.sending_done.load(Ordering::Acquire);
        incoming.take_notes();
        for (index, socket) in sockets.iter_mut().enumerate() {
            while incoming.take_answers(index, &plan.flows[index], socket, &mut batch) == BATCH {}
        }
        let now = clock::now();
        // Two limits: an answer just past the limit is still told apart from a loss.
        let keep = Nanos(plan.late.0.saturating_mul(2).max(plan.drain.0));
        for flow in &mut incoming.flows {
            flow.expire(now, keep, |record| records.push(&record.to_bytes()));
        }
        if now >= next_progress {
            tell(SendEvent::Progress(now, &incoming.flows));
            next_progress = now + PROGRESS;
        }
        if done {
            let sent_until = Nanos(shared.sent_until.load(Ordering::Relaxed));
            let complete = incoming
                .flows
                .iter()
                .all(|flow| flow.counters.returned + flow.counters.late == flow.counters.sent);
            if complete || now >= sent_until + plan.drain {
                break now;
            }
        }
        wait_readable(&sockets, Nanos(5_000_000));
    };
    incoming.take_notes();
    for flow in &mut incoming.flows {
        flow.finish(|record| records.push(&record.to_bytes()));
    }
    Ok(SendOutcome {
        start,
        end,
        realtime: realtime && shared.realtime.load(Ordering::Relaxed),
        kernel_timestamps: incoming.kernel_timestamps,
        flows: incoming
            .flows
            .into_iter()
            .zip(sockets.iter().map(Socket::overrun))
            .collect(),
    })
}

impl Incoming {
    fn take_notes(&mut self) {
        while let Ok(note) = self.notes.pop() {
            match note {
                Note::Due {
                    flow,
                    scheduled,
                    sent,
                    size,
                } => {
                    if let Some(flow) = self.flow(flow) {
                        flow.on_due(scheduled, sent, size);
                    }
                }
                Note::Refused { flow, seq } => {
                    if let Some(flow) = self.flow(flow) {
                        flow.on_send_error(seq);
                    }
                }
            }
        }
    }

    fn flow(&mut self, number: u16) -> Option<&mut SenderFlow> {
        let index = self.index.iter().position(|flow| *flow == number)?;
        self.flows.get_mut(index)
    }

    fn take_answers(
        &mut self,
        index: usize,
        plan: &FlowPlan,
        socket: &mut Socket,
        batch: &mut Batch,
    ) -> usize {
        let count = batch.receive(socket);
        if count == 0 {
            return 0;
        }
        // A question's note is pushed before it leaves: taking notes now, after its answer has been
        // read, finds it.
        self.take_notes();
        for place in 0..count {
            let arrival = batch.arrival(place);
            let key_of = |session| (session == plan.session).then_some(plan.key);
            match parse(batch.packet(place), Direction::Answer, key_of) {
                Ok(header) => {
                    self.kernel_timestamps &= arrival.is_some();
                    let returned = arrival.unwrap_or_else(clock::now);
                    let user = arrival.is_none();
                    self.flows[index].on_answer(header.seq, header.time, returned, user);
                }
                Err(_) => self.flows[index].counters.rejected += 1,
            }
        }
        count
    }
}
