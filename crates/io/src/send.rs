//! The sender in real time: one thread sends on schedule, another receives and owns the sessions.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::mpsc::{channel, Receiver, Sender};
use std::sync::Arc;

use rtrb::{Consumer, RingBuffer};
use tm_probe::{Content, Missed, Schedule, SendRecord, SenderFlow, Size, Stop as End};
use tm_wire::Nanos;

use crate::format::Format;
use crate::outgoing::{sending, Note};
use crate::overruns::Overruns;
use crate::process::{self, Priority, Realtime, Stop};
use crate::records::{Kind, Records};
use crate::udp::{wait_readable, Batch, Options, ReceiveTime, Socket, BATCH};
use crate::{clock, IoError};

/// One flow.
pub struct FlowPlan {
    /// Its number in events and records.
    pub flow: u16,
    /// What its packets look like.
    pub format: Format,
    /// The reflector.
    pub target: SocketAddr,
    /// Own address; port 0 lets the kernel choose.
    pub source: SocketAddr,
    /// Interface that the packets use.
    pub interface: Option<String>,
    /// First packet after the start of the run.
    pub start_offset: Nanos,
    /// When the others follow.
    pub schedule: Schedule,
    /// When it ends.
    pub end: End,
    /// Payload sizes, none below the least of the format.
    pub size: Size,
    /// Filling.
    pub content: Content,
    /// Seed of gaps, sizes and filling.
    pub seed: u64,
}

impl FlowPlan {
    /// Smallest and largest payload of the flow.
    #[must_use]
    pub fn size_limits(&self) -> (u32, u32) {
        match (self.size.limits(), &self.schedule) {
            (Some(limits), _) => limits,
            (None, Schedule::Trace { trace, .. }) => trace.sizes(),
            (None, _) => (0, 0),
        }
    }

    pub(crate) fn largest_bytes(&self) -> usize {
        self.size_limits().1 as usize
    }
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
    /// How long after a packet was due it leaves with those due since, in one system call; 0: each
    /// in its time.
    pub coalesce: Nanos,
    /// Packets of one length that leave together leave as one, which the kernel cuts.
    pub segment: bool,
    /// Refuse to fragment.
    pub dont_fragment: bool,
    /// When an answer has come back.
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
}

/// What a run came to.
pub struct SendOutcome {
    /// Start of the schedule.
    pub start: Nanos,
    /// When the last answer was waited for.
    pub end: Nanos,
    /// Whether both threads had `SCHED_FIFO` to the end.
    pub realtime: Realtime,
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

const RING: usize = 1 << 16;
const PROGRESS: Nanos = Nanos(500_000_000);
/// The first packet leaves this long after both threads are ready.
const LEAD: Nanos = Nanos(20_000_000);
/// Longest time between two looks at the notes of the sending thread.
const LOOK: Nanos = Nanos(5_000_000);

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
            time_to_live: false,
            receive_time: plan.receive_time,
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
    let overruns = Overruns::begin();
    let (notes, taken) = RingBuffer::new(RING);
    let shared = Arc::new(Shared {
        sending_done: AtomicBool::new(false),
        sent_until: AtomicI64::new(0),
    });
    let (ready, prepared) = channel();
    let (go, starting) = channel();
    let outcome = std::thread::scope(|scope| {
        let sender = {
            let (shared, stop) = (Arc::clone(&shared), stop.clone());
            scope.spawn(move || {
                let start = || {
                    // Either fails only where the receiving thread gave up.
                    ready.send(()).ok()?;
                    starting.recv().ok()
                };
                let result = sending(plan, &mut sockets, notes, start, &stop);
                shared.sent_until.store(clock::now().0, Ordering::Relaxed);
                shared.sending_done.store(true, Ordering::Release);
                result
            })
        };
        let gate = Gate { prepared, go };
        let received = receiving_loop(plan, receiving, taken, &shared, &mut tell, gate);
        let sent = sender.join();
        match (received, sent) {
            (Err(error), _) | (_, Ok(Err(error))) => Err(error),
            (_, Err(_)) => Err(IoError::new(
                "sending",
                std::io::Error::other("thread died"),
            )),
            (Ok(mut outcome), Ok(Ok(realtime))) => {
                outcome.realtime = outcome.realtime.max(realtime);
                Ok(outcome)
            }
        }
    });
    let mut outcome = outcome?;
    let most = overruns.so_far();
    for (_, dropped) in &mut outcome.flows {
        *dropped = (*dropped).min(most);
    }
    Ok(outcome)
}

struct Shared {
    sending_done: AtomicBool,
    sent_until: AtomicI64,
}

/// Where the receiving thread holds the sending one until both are ready. It goes with the receiving
/// loop: where that fails before the start, the sending thread ends without a packet.
struct Gate {
    prepared: Receiver<()>,
    go: Sender<Nanos>,
}

struct Incoming {
    flows: Vec<SenderFlow>,
    notes: Consumer<Note>,
    kernel_timestamps: bool,
}

fn receiving_loop(
    plan: &SendPlan,
    mut sockets: Vec<Socket>,
    notes: Consumer<Note>,
    shared: &Shared,
    tell: &mut impl FnMut(SendEvent<'_>),
    gate: Gate,
) -> Result<SendOutcome, IoError> {
    let Gate { prepared, go } = gate;
    process::pin(plan.receive_cpu)?;
    let mut priority = Priority::take(plan.realtime_priority);
    let mut incoming = Incoming {
        flows: plan
            .flows
            .iter()
            .map(|flow| SenderFlow::new(flow.flow, plan.late))
            .collect(),
        notes,
        kernel_timestamps: true,
    };
    let largest = plan.flows.iter().map(FlowPlan::largest_bytes).max();
    let mut batch = Batch::new(largest.unwrap_or(0));
    // Ends with an error where the sending thread could not prepare itself; it tells which.
    let _ = prepared.recv();
    let start = clock::now() + LEAD;
    let mut records = Records::create(
        plan.records.as_deref(),
        Kind::Send,
        SendRecord::BYTES,
        start,
    )?;
    let _ = go.send(start);
    let mut next_progress = start + PROGRESS;
    // Two limits: an answer just past the limit is still told apart from a loss.
    let keep = Nanos(plan.late.0.saturating_mul(2).max(plan.drain.0));
    let end = loop {
        let done = shared.sending_done.load(Ordering::Acquire);
        incoming.take_notes();
        for (index, socket) in sockets.iter_mut().enumerate() {
            while incoming.take_answers(index, &plan.flows[index], socket, &mut batch) == BATCH {}
        }
        let now = clock::now();
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
                .all(|flow| flow.counters.seen() == flow.counters.sent);
            if complete || now >= sent_until + plan.drain {
                break now;
            }
        }
        wait_readable(&sockets, LOOK);
        priority.check();
    };
    incoming.take_notes();
    for flow in &mut incoming.flows {
        flow.finish(|record| records.push(&record.to_bytes()));
    }
    records.finish()?;
    Ok(SendOutcome {
        start,
        end,
        realtime: priority.fate(),
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
                } => self.flows[usize::from(flow)].on_due(scheduled, sent, size),
                Note::Refused { flow, seq } => self.flows[usize::from(flow)].on_send_error(seq),
                Note::HeldUp { flow, seq, sent } => {
                    self.flows[usize::from(flow)].on_held_up(seq, sent);
                }
            }
        }
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
        let offset = batch.realtime_offset();
        let flow = &mut self.flows[index];
        for place in 0..count {
            let arrival = batch.arrival(place);
            let returned = arrival.unwrap_or(batch.taken());
            let packet = batch.packet(place);
            let answer = plan
                .format
                .read_answer(packet, returned, offset, |seq| flow.sent_at(seq));
            if let Some(answer) = answer {
                self.kernel_timestamps &= arrival.is_some();
                flow.on_answer(&answer, returned, arrival.is_none());
            } else {
                flow.counters.rejected += 1;
            }
        }
        count
    }
}
