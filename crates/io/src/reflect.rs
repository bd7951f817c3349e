//! The reflector in real time: what arrives is answered and recorded.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;

use tm_probe::{Delays, Endpoint, FlowTotal, ReflectRecord, Reflector, SessionPlan, StampPlan};
use tm_wire::{Duration, Instant, LARGEST_PAYLOAD_BYTES};

use crate::overruns::{MostOverruns, Overruns};
use crate::process::{self, Priority, Realtime, Stop};
use crate::records::{Kind, Records};
use crate::udp::{Batch, Options, Ready, ReceiveTime, Reply, Socket};
use crate::{clock, IoError};

/// The whole reflector.
pub struct ReflectPlan {
    /// Addresses to listen on for sessions of our own format, each with the network namespace that it
    /// is in; none: that of the program.
    pub listen: Vec<(SocketAddr, Option<PathBuf>)>,
    /// Sessions that are known; all others are dropped without a reply.
    pub sessions: Vec<SessionPlan>,
    /// STAMP reflectors, each with its address, which is none of all addresses: a session is known by
    /// the address that was asked, too.
    pub stamp: Vec<(SocketAddr, StampPlan)>,
    /// Whether test packets are answered or only counted.
    pub answer: bool,
    /// How long to look for the next packet before the thread sleeps.
    pub spin: Duration,
    /// How long to sleep after packets, so that more are taken at once; 0: not at all.
    pub coalesce: Duration,
    /// When a test packet has arrived.
    pub receive_time: ReceiveTime,
    /// Record file.
    pub records: Option<PathBuf>,
    /// `SCHED_FIFO` priority.
    pub realtime_priority: Option<u8>,
    /// Processor.
    pub cpu: Option<usize>,
    /// Socket buffers.
    pub buffer_bytes: usize,
    /// Threads, each with sockets of its own at the same addresses; the kernel has all packets of one
    /// sender's socket come to the same. Beyond 1 there is neither STAMP nor a processor to keep to.
    pub shards: usize,
}

/// What it came to.
pub struct ReflectOutcome {
    /// Whether it had `SCHED_FIFO` to the end.
    pub realtime: Realtime,
    /// Every packet had a kernel timestamp.
    pub kernel_timestamps: bool,
    /// Packets that were none of ours.
    pub rejected: u64,
    /// Packets that the kernel dropped at full buffers; None: nobody counts them.
    pub overrun: Option<u64>,
    /// From a packet's arrival to its reply.
    pub residence: Delays,
    /// The flows in the order of the plan, those of STAMP behind the others.
    pub flows: Vec<FlowTotal>,
}

/// What is reported while it runs.
pub enum ReflectEvent<'a> {
    /// All sockets are open; those of STAMP behind the others.
    Ready(&'a [SocketAddr]),
    /// Every 500 ms.
    Progress(Instant, &'a [FlowTotal]),
}

const PROGRESS: Duration = Duration::from_millis(500);
/// Longest wait for a packet before a request to stop is looked at.
const SLICE: Duration = Duration::from_millis(100);

/// Replies until `stop`.
pub fn run(
    plan: &ReflectPlan,
    stop: &Stop,
    mut tell: impl FnMut(ReflectEvent<'_>),
) -> Result<ReflectOutcome, IoError> {
    process::pin(plan.cpu)?;
    let (sockets, locals) = open(plan)?;
    let namespaces = plan.listen.iter().map(|(_, netns)| netns);
    let overruns = Overruns::begin(namespaces.chain(&[None]));
    let start = clock::now();
    let path = plan.records.as_deref();
    let records = Records::create(path, Kind::Reflect, ReflectRecord::BYTES, start)?;
    process::steady();
    let totals = Mutex::new(vec![Vec::new(); sockets.len()]);
    let mut shards = Vec::with_capacity(sockets.len());
    for sockets in sockets {
        shards.push(Shard::new(plan, sockets, records.share(), stop)?);
    }
    tell(ReflectEvent::Ready(&locals));
    let outcome = thread::scope(|scope| {
        let mut others = Vec::new();
        for (number, shard) in shards.drain(1..).enumerate() {
            let totals = &totals;
            let reported = move |_, flows| lock(totals)[number + 1] = flows;
            let work = move || {
                process::steady();
                let outcome = shard.serve(plan.realtime_priority, start, reported);
                // The end of one is the end of all.
                stop.request();
                outcome
            };
            match process::spawn_scoped(scope, "reflecting", work) {
                Ok(thread) => others.push(thread),
                Err(error) => {
                    stop.request();
                    return Err(error);
                }
            }
        }
        let mut outcomes = Vec::new();
        for shard in shards {
            outcomes.push(shard.serve(plan.realtime_priority, start, |now, flows| {
                let mut totals = lock(&totals);
                totals[0] = flows;
                let reported = totals.iter().filter(|flows| !flows.is_empty());
                tell(ReflectEvent::Progress(now, &together(reported)));
            }));
        }
        stop.request();
        for thread in others {
            let died = || IoError::new("reflecting", std::io::Error::other("thread died"));
            outcomes.push(thread.join().unwrap_or_else(|_| Err(died())));
        }
        let outcomes: Vec<_> = outcomes.into_iter().collect::<Result<_, _>>()?;
        Ok(joined(&outcomes, overruns.so_far()))
    })?;
    records.finish()?;
    Ok(outcome)
}

fn lock<T>(shared: &Mutex<T>) -> MutexGuard<'_, T> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What the shards' flows have come to, which stand in each in the same order.
fn together<'a>(shards: impl IntoIterator<Item = &'a Vec<FlowTotal>>) -> Vec<FlowTotal> {
    let mut shards = shards.into_iter();
    let mut sums = shards.next().cloned().unwrap_or_default();
    for (sum, flow) in shards.flat_map(|flows| flows.iter().enumerate()) {
        sums[sum].counters = sums[sum].counters.plus(flow.counters);
    }
    sums
}

fn joined(shards: &[ShardOutcome], most_overruns: MostOverruns) -> ReflectOutcome {
    let mut residence = Delays::default();
    for shard in shards {
        residence.merge(&shard.reflector.residence);
    }
    let totals: Vec<_> = shards.iter().map(|one| one.reflector.totals()).collect();
    let sockets = shards.iter().flat_map(|shard| &shard.sockets);
    let realtime = shards.iter().map(|shard| shard.realtime).max();
    ReflectOutcome {
        realtime: realtime.unwrap_or(Realtime::Never),
        kernel_timestamps: shards.iter().all(|one| one.reflector.kernel_timestamps),
        rejected: shards.iter().map(|shard| shard.reflector.rejected).sum(),
        overrun: sockets
            .map(|socket| most_overruns.of(socket.overrun()).map(u64::from))
            .sum(),
        flows: together(&totals),
        residence,
    }
}

/// One thread of the reflector, with its sockets.
struct Shard<'a> {
    reflector: Reflector,
    records: Records,
    stamp_from: usize,
    stop: &'a Stop,
    sockets: Vec<Socket>,
    ready: Ready,
    spin: Duration,
    coalesce: Duration,
}

struct ShardOutcome {
    reflector: Reflector,
    sockets: Vec<Socket>,
    realtime: Realtime,
}

impl<'a> Shard<'a> {
    fn new(
        plan: &ReflectPlan,
        sockets: Vec<Socket>,
        records: Records,
        stop: &'a Stop,
    ) -> Result<Self, IoError> {
        let stamp: Vec<_> = plan.stamp.iter().map(|(_, plan)| plan.clone()).collect();
        Ok(Self {
            reflector: Reflector::new(&plan.sessions, &stamp, plan.answer),
            records,
            stamp_from: plan.listen.len(),
            stop,
            ready: Ready::watch(&sockets)?,
            sockets,
            spin: plan.spin,
            coalesce: plan.coalesce,
        })
    }

    /// Replies until the end is asked for; `reported` hears of the flows every 500 ms.
    fn serve(
        self,
        priority: Option<u8>,
        start: Instant,
        mut reported: impl FnMut(Instant, Vec<FlowTotal>),
    ) -> Result<ShardOutcome, IoError> {
        let Self {
            mut sockets,
            mut ready,
            spin,
            coalesce,
            stop,
            ..
        } = self;
        let mut listener = Listener {
            reflector: self.reflector,
            batch: Batch::new(LARGEST_PAYLOAD_BYTES),
            records: self.records,
            stamp_from: self.stamp_from,
            stop,
        };
        let mut priority = Priority::take(priority);
        let mut next_progress = start + PROGRESS;
        let mut awake_until = start;
        while !stop.requested() {
            let asleep = clock::now() >= awake_until;
            ready.wait(if asleep { SLICE } else { Duration::ZERO });
            // A batch of each socket that has one: who floods one has the others wait for no more.
            let mut seen = 0;
            for place in ready.places() {
                seen += listener.take(place, &mut sockets[place]);
            }
            priority.check();
            let now = clock::now();
            if seen > 0 {
                awake_until = now + spin;
                if coalesce > Duration::ZERO {
                    clock::sleep_until(now + coalesce);
                    awake_until = now + coalesce + spin;
                }
            }
            if now >= next_progress {
                if listener.records.failed() {
                    break;
                }
                reported(now, listener.reflector.totals());
                next_progress = now + PROGRESS;
            }
        }
        // What lies in the buffers has arrived: it is answered and counted before the end. What comes
        // meanwhile is not waited for.
        let end = clock::now() + LAST_LOOK;
        for (place, socket) in sockets.iter_mut().enumerate() {
            while listener.take(place, socket) > 0 && clock::now() < end {}
        }
        listener.records.finish()?;
        Ok(ShardOutcome {
            reflector: listener.reflector,
            sockets,
            realtime: priority.fate(),
        })
    }
}

struct Listener<'a> {
    reflector: Reflector,
    batch: Batch,
    records: Records,
    /// Place of the first socket of STAMP.
    stamp_from: usize,
    stop: &'a Stop,
}

impl Listener<'_> {
    /// Takes a batch of the socket at `place`; returns how many packets.
    fn take(&mut self, place: usize, socket: &mut Socket) -> usize {
        let count = self.batch.receive(socket);
        let mut reply = Reply {
            batch: &mut self.batch,
            socket,
            stop: self.stop,
        };
        let stamp = place.checked_sub(self.stamp_from);
        let records = &mut self.records;
        self.reflector.take(
            stamp.map_or(Endpoint::Own, Endpoint::Stamp),
            &mut reply,
            |record| {
                records.push(&record.to_bytes());
            },
        );
        count
    }
}

/// So long the buffers are emptied at the end, whoever fills them.
const LAST_LOOK: Duration = Duration::from_millis(500);

/// The sockets of each shard, and where those of the first are bound, as all others.
fn open(plan: &ReflectPlan) -> Result<(Vec<Vec<Socket>>, Vec<SocketAddr>), IoError> {
    let own = plan.listen.iter().map(|(at, netns)| (*at, netns, false));
    let stamp = plan.stamp.iter().map(|(at, _)| (*at, &None, true));
    let wanted: Vec<_> = own.chain(stamp).collect();
    let socket = |(address, netns, time_to_live): (SocketAddr, &Option<PathBuf>, bool)| {
        let options = Options {
            buffer_bytes: plan.buffer_bytes,
            dont_fragment: false,
            interface: None,
            netns: netns.clone(),
            traffic_class: 0,
            time_to_live,
            receive_time: plan.receive_time,
            shared: plan.shards > 1,
        };
        Socket::open(address, None, &options)
    };
    let first = wanted.iter().map(|one| socket(*one));
    let first = first.collect::<Result<Vec<_>, _>>()?;
    let locals = first.iter().map(Socket::local);
    let locals = locals.collect::<Result<Vec<_>, _>>()?;
    let mut shards = vec![first];
    for _ in 1..plan.shards {
        let same = locals.iter().zip(&wanted);
        let others =
            same.map(|(local, (_, netns, time_to_live))| socket((*local, *netns, *time_to_live)));
        shards.push(others.collect::<Result<_, _>>()?);
    }
    Ok((shards, locals))
}
