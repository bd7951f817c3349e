//! The sender in real time: one thread sends on schedule, another receives and owns the sessions.

mod plan;
mod receiving;
mod sending;

use std::net::SocketAddr;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::mpsc::{channel, Receiver, Sender};
use std::sync::{Mutex, PoisonError};
use std::thread;

use rtrb::{Consumer, RingBuffer};
use tm_probe::{Note, SendRecord, SenderFlow};
use tm_wire::{Duration, Instant};

pub use plan::{FlowPlan, SendPlan};

use crate::overruns::{MostOverruns, Overruns};
use crate::process::{self, Realtime, Stop};
use crate::records::{Kind, Records};
use crate::udp::{Options, Socket};
use crate::{clock, IoError};
use receiving::{Received, Receiving};
use sending::sending;

/// What a run came to.
pub struct SendOutcome {
    /// Start of the schedule.
    pub start: Instant,
    /// When the last reply was waited for.
    pub end: Instant,
    /// Whether both threads had `SCHED_FIFO` to the end.
    pub realtime: Realtime,
    /// Processor time that the sending thread spent awake, waiting for the next packet's time.
    pub awake: Duration,
    /// Every reply had a kernel timestamp.
    pub kernel_timestamps: bool,
    /// The flows in the order of the plan, with their overruns; None: nobody counts them.
    pub flows: Vec<(SenderFlow, Option<u32>)>,
}

/// What is reported while it runs.
pub enum SendEvent<'a> {
    /// All sockets are open; own address of each flow.
    Ready(&'a [SocketAddr]),
    /// Every 500 ms; the flows in the order of the plan.
    Progress(Instant, &'a [FlowProgress]),
}

/// How far a flow is.
#[derive(Clone, Copy, Debug, Default)]
pub struct FlowProgress {
    /// Packets handed to the kernel.
    pub sent: u64,
    /// Packets answered in time.
    pub returned: u64,
    /// The last round trip.
    pub last_rtt: Option<Duration>,
}

const RING: usize = 1 << 16;
/// The first packet leaves this long after both threads are ready.
const LEAD: Duration = Duration::from_millis(20);

/// Runs a plan to its end, or until `stop`.
pub fn run(
    plan: &SendPlan,
    stop: &Stop,
    mut tell: impl FnMut(SendEvent<'_>) + Send,
) -> Result<SendOutcome, IoError> {
    let sockets = open(plan)?;
    let locals = sockets
        .iter()
        .map(Socket::local)
        .collect::<Result<Vec<_>, _>>()?;
    tell(SendEvent::Ready(&locals));
    process::steady();
    let overruns = Overruns::begin(plan.flows.iter().map(|flow| &flow.netns));
    // No shard is without a flow.
    let count = plan.shards.clamp(1, plan.flows.len().max(1));
    let board = Mutex::new(Board {
        tell,
        flows: vec![FlowProgress::default(); plan.flows.len()],
        next: clock::now(),
    });
    let reported = |shard: usize, now: Instant, flows: &[SenderFlow]| {
        let mut board = board.lock().unwrap_or_else(PoisonError::into_inner);
        board.note(shard, count, flows);
        board.tell(now);
    };
    let mut parts: Vec<Vec<Socket>> = (0..count).map(|_| Vec::new()).collect();
    for (place, socket) in sockets.into_iter().enumerate() {
        parts[place % count].push(socket);
    }
    let shards = if count == 1 {
        let sockets = parts.pop().unwrap_or_default();
        vec![shard(
            plan,
            sockets,
            Begin::WhenReady,
            stop,
            |now, flows| {
                reported(0, now, flows);
            },
        )?]
    } else {
        let start = clock::now() + SHARDS_LEAD;
        let path = plan.records.as_deref();
        let records = Records::create(path, Kind::Send, SendRecord::BYTES, start)?;
        let plans: Vec<_> = (0..count).map(|one| plan.shard(one, count)).collect();
        let shards = thread::scope(|scope| {
            let mut threads = Vec::new();
            for (number, (plan, sockets)) in plans.iter().zip(parts).enumerate() {
                let begin = Begin::At(start, records.share());
                let reported = &reported;
                let work = move || {
                    let progress = |now, flows: &[SenderFlow]| reported(number, now, flows);
                    let outcome = shard(plan, sockets, begin, stop, progress);
                    if outcome.is_err() {
                        stop.request();
                    }
                    outcome
                };
                match process::spawn_scoped(scope, "shard", work) {
                    Ok(thread) => threads.push(thread),
                    Err(error) => {
                        stop.request();
                        return Err(error);
                    }
                }
            }
            let ended = threads.into_iter().map(|thread| {
                let died = || IoError::new("sending", std::io::Error::other("thread died"));
                thread.join().unwrap_or_else(|_| Err(died()))
            });
            // All are waited for before the first error is reported.
            let ended: Vec<_> = ended.collect();
            ended.into_iter().collect::<Result<Vec<_>, _>>()
        })?;
        records.finish()?;
        shards
    };
    Ok(joined(shards, overruns.so_far()))
}

/// What the shards reported last, for whoever wants all of it.
struct Board<T> {
    tell: T,
    flows: Vec<FlowProgress>,
    next: Instant,
}

impl<T: FnMut(SendEvent<'_>)> Board<T> {
    fn note(&mut self, shard: usize, count: usize, flows: &[SenderFlow]) {
        let places = self.flows.iter_mut().skip(shard).step_by(count);
        for (place, flow) in places.zip(flows) {
            *place = FlowProgress {
                sent: flow.counters.sent,
                returned: flow.counters.returned,
                last_rtt: flow.last_rtt(),
            };
        }
    }

    /// Each shard comes every 500 ms; the first that comes tells for all.
    fn tell(&mut self, now: Instant) {
        if now >= self.next {
            self.next = now + TELL_EVERY;
            (self.tell)(SendEvent::Progress(now, &self.flows));
        }
    }
}

/// A little less than the time between two reports of a shard.
const TELL_EVERY: Duration = Duration::from_millis(450);
/// Shards begin together, so long after their sockets are open.
const SHARDS_LEAD: Duration = Duration::from_millis(100);

/// When a schedule begins, with the file of its records.
enum Begin {
    /// As soon as both threads are ready.
    WhenReady,
    /// At a time that several agreed on.
    At(Instant, Records),
}

/// What a pair of threads comes to.
struct Shard {
    start: Instant,
    awake: Duration,
    received: Received,
    sockets: Vec<Socket>,
}

/// The flows of the plan in its order: of so many shards each has each so-manieth.
fn joined(shards: Vec<Shard>, most_overruns: MostOverruns) -> SendOutcome {
    let start = shards.iter().map(|shard| shard.start).min();
    let end = shards.iter().map(|shard| shard.received.end).max();
    let realtime = shards.iter().map(|shard| shard.received.realtime).max();
    let awake = shards.iter().map(|shard| shard.awake).sum();
    let kernel_timestamps = shards.iter().all(|one| one.received.kernel_timestamps);
    let mut parts: Vec<_> = shards
        .into_iter()
        .map(|shard| {
            let overruns = shard.sockets.into_iter();
            let overruns = overruns.map(move |socket| most_overruns.of(socket.overrun()));
            shard.received.flows.into_iter().zip(overruns)
        })
        .collect();
    let mut flows = Vec::new();
    let mut next = 0;
    while let Some(flow) = parts.get_mut(next).and_then(Iterator::next) {
        flows.push(flow);
        next = (next + 1) % parts.len();
    }
    SendOutcome {
        start: start.unwrap_or_default(),
        end: end.unwrap_or_default(),
        realtime: realtime.unwrap_or(Realtime::Never),
        awake,
        kernel_timestamps,
        flows,
    }
}

/// Sends and receives the flows of a plan by two threads, of which the calling one receives.
fn shard(
    plan: &SendPlan,
    mut sockets: Vec<Socket>,
    begin: Begin,
    stop: &Stop,
    tell: impl FnMut(Instant, &[SenderFlow]),
) -> Result<Shard, IoError> {
    let mut receiving = sockets
        .iter()
        .map(Socket::share)
        .collect::<Result<Vec<_>, _>>()?;
    let (notes, taken) = RingBuffer::new(RING);
    let sent_until = AtomicI64::new(SENDING);
    let (ready, prepared) = channel();
    let (go, starting) = channel();
    let (own_sockets, until) = (&mut sockets, &sent_until);
    let (start, awake, received) = thread::scope(|scope| {
        let sender = process::spawn_scoped(scope, "sending", move || {
            let start = || {
                // Either fails only where the receiving thread gave up.
                ready.send(()).ok()?;
                starting.recv().ok()
            };
            let _done = Done(until);
            sending(plan, own_sockets, notes, start, stop)
        })?;
        let gate = Gate {
            prepared,
            go,
            begin,
        };
        let done = || {
            let at = sent_until.load(Ordering::Acquire);
            (at != SENDING).then_some(Instant(at))
        };
        let received = receive(plan, &mut receiving, taken, gate, done, tell);
        match (received, sender.join()) {
            (Err(error), _) | (_, Ok(Err(error))) => Err(error),
            (_, Err(_)) => Err(IoError::new(
                "sending",
                std::io::Error::other("thread died"),
            )),
            (Ok((start, mut received)), Ok(Ok((realtime, awake)))) => {
                received.realtime = received.realtime.max(realtime);
                Ok((start, awake, received))
            }
        }
    })?;
    Ok(Shard {
        start,
        awake,
        received,
        sockets: receiving,
    })
}

/// In place of when the last packet left: not yet.
const SENDING: i64 = i64::MIN;

/// Says that the last packet has left, also where the thread panics: the other one waits for it.
struct Done<'a>(&'a AtomicI64);

impl Drop for Done<'_> {
    fn drop(&mut self) {
        self.0.store(clock::now().0, Ordering::Release);
    }
}

fn open(plan: &SendPlan) -> Result<Vec<Socket>, IoError> {
    let socket = |flow: &FlowPlan| {
        let options = Options {
            buffer_bytes: plan.buffer_bytes,
            dont_fragment: plan.dont_fragment,
            interface: flow.interface.clone(),
            netns: flow.netns.clone(),
            traffic_class: flow.traffic_class,
            time_to_live: false,
            receive_time: plan.receive_time,
            shared: false,
        };
        Socket::open(flow.source, Some(flow.target), &options)
    };
    plan.flows.iter().map(socket).collect()
}

/// Where the receiving thread holds the sending one until both are ready. It goes with the receiving
/// one: where that fails before the start, the sending thread ends without a packet.
struct Gate {
    prepared: Receiver<()>,
    go: Sender<Instant>,
    begin: Begin,
}

/// Receives on this thread; returns the start of the schedule with what came of it.
fn receive(
    plan: &SendPlan,
    sockets: &mut [Socket],
    notes: Consumer<Note>,
    gate: Gate,
    sending_done: impl Fn() -> Option<Instant>,
    tell: impl FnMut(Instant, &[SenderFlow]),
) -> Result<(Instant, Received), IoError> {
    let Gate {
        prepared,
        go,
        begin,
    } = gate;
    process::pin(plan.receive_cpu)?;
    let receiving = Receiving::new(plan, sockets, notes)?;
    // Ends with an error where the sending thread could not prepare itself; it tells which.
    let _ = prepared.recv();
    let (start, records) = match begin {
        Begin::At(start, records) => (start, records),
        Begin::WhenReady => {
            let start = clock::now() + LEAD;
            let path = plan.records.as_deref();
            let records = Records::create(path, Kind::Send, SendRecord::BYTES, start)?;
            (start, records)
        }
    };
    let _ = go.send(start);
    Ok((start, receiving.run(records, sending_done, tell)?))
}
