//! The link emulator in real time: a thread a direction drives the state machine.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{sync_channel, Receiver as Inbox, SyncSender};
use std::sync::Arc;
use std::time::Duration;

use tm_link::{Counters, Direction, DirectionConfig, Kinds, Opportunities};
use tm_probe::Delays;
use tm_wire::Nanos;

use crate::alarm::Alarm;
use crate::medium::MediumEvent;
use crate::packet::{mtu_bytes, Receiver, Transmitter, Wake, BATCH};
use crate::process::{self, Priority, Stop};
use crate::{clock, IoError};

/// A link between two interfaces.
pub struct RelayPlan {
    /// Interface on the client's side.
    pub a: String,
    /// Interface on the server's side.
    pub b: String,
    /// Forward, with the opportunities of its trace.
    pub a_to_b: (DirectionConfig, Option<Arc<Opportunities>>),
    /// Reverse.
    pub b_to_a: (DirectionConfig, Option<Arc<Opportunities>>),
    /// Of all random streams.
    pub seed: u64,
    /// `SCHED_FIFO` priority of both threads.
    pub realtime_priority: Option<u8>,
    /// Processor of both threads.
    pub cpu: Option<usize>,
}

/// What a direction says of itself.
#[derive(Clone)]
pub struct Report {
    /// Counters of the state machine.
    pub counters: Counters,
    /// Frames that the kernel dropped before the emulator saw them.
    pub capture_dropped: u64,
    /// Frames that the kernel refused at the far end, counted as delivered.
    pub send_errors: u64,
    /// Frames longer than the MTU allows, refused: an offload is on and falsifies the link.
    pub oversized: u64,
    /// Frames without a checksum: an offload is on.
    pub checksum_missing: u64,
    /// Frames by what their headers say; None: not looked at.
    pub kinds: Option<Kinds>,
    /// Handed on minus due.
    pub lateness: Delays,
}

/// Runs until `stop`; `wanted` says that a report is asked for now, `anew` that traces and changes
/// begin again. Returns the last reports.
pub fn run(
    plan: &RelayPlan,
    stop: &Stop,
    mut wanted: impl FnMut() -> bool,
    mut anew: impl FnMut() -> bool,
    mut tell: impl FnMut(MediumEvent<(Report, Report)>),
) -> Result<(Report, Report), IoError> {
    process::steady();
    let forward = Lane::open(&plan.a, &plan.b, &plan.a_to_b, plan.seed, "a_to_b")?;
    let reverse = Lane::open(&plan.b, &plan.a, &plan.b_to_a, plan.seed, "b_to_a")?;
    let controls = [Lane::control()?, Lane::control()?];
    tell(MediumEvent::Ready);
    std::thread::scope(|scope| {
        let [forward, reverse] =
            [(forward, &controls[0].lane), (reverse, &controls[1].lane)].map(|(lane, side)| {
                let side = side.clone();
                scope.spawn(move || lane.run(plan, stop, &side))
            });
        let mut next = clock::now() + SECOND;
        while !stop.asked() && !forward.is_finished() && !reverse.is_finished() {
            clock::sleep_until((clock::now() + TICK).min(next));
            if anew() {
                for control in &controls {
                    control.lane.shared.anew.store(true, Ordering::Release);
                    control.lane.shared.wake.wake();
                }
            }
            let asked = wanted();
            if asked || clock::now() >= next {
                if let [Some(forward), Some(reverse)] = [controls[0].ask(), controls[1].ask()] {
                    tell(MediumEvent::Progress(Box::new((forward, reverse))));
                }
                if !asked {
                    next = next + SECOND;
                }
            }
        }
        stop.ask();
        for control in &controls {
            control.lane.shared.wake.wake();
        }
        let dead = || IoError::new("relay", std::io::Error::other("thread died"));
        let forward = forward.join().map_err(|_| dead())??;
        let reverse = reverse.join().map_err(|_| dead())??;
        Ok((forward, reverse))
    })
}

const SECOND: Nanos = Nanos(1_000_000_000);
const TICK: Nanos = Nanos(20_000_000);

/// How the main thread asks a lane for a report without ever holding it up.
struct Control {
    lane: LaneSide,
    inbox: Inbox<Report>,
}

/// The lane's end of it.
#[derive(Clone)]
struct LaneSide {
    shared: Arc<Shared>,
    outbox: SyncSender<Report>,
}

struct Shared {
    wake: Wake,
    asked: AtomicBool,
    anew: AtomicBool,
}

impl Control {
    fn ask(&self) -> Option<Report> {
        self.lane.shared.asked.store(true, Ordering::Release);
        self.lane.shared.wake.wake();
        self.inbox.recv_timeout(Duration::from_secs(1)).ok()
    }
}

struct Lane {
    receiver: Receiver,
    transmitter: Transmitter,
    direction: Direction<Vec<u8>>,
    mtu: usize,
    last_arrival: Nanos,
    spare: Vec<Vec<u8>>,
    send_errors: u64,
    oversized: u64,
    checksum_missing: u64,
    kinds: Kinds,
    lateness: Delays,
}

/// How close to each other frames come in.
///
/// A thread that waits for the next frame is woken by each of them, which costs whoever sends more
/// than the frame itself. In a dense stream it naps instead and finds several at once; they carry
/// the kernel's time of arrival, so no delay is added where the link has one.
#[derive(Default)]
struct Stream {
    /// Moving mean of the gap, ns; None: no stream.
    gap: Option<i64>,
    last: Nanos,
}

/// Frames that come closer than this are a dense stream.
const DENSE: i64 = 15_000;
const NAP: Nanos = Nanos(20_000);

impl Stream {
    fn took(&mut self, frames: usize, now: Nanos) {
        let passed = (now - self.last).0;
        if frames > 0 {
            let gap = passed / i64::try_from(frames).unwrap_or(i64::MAX);
            self.gap = Some(self.gap.map_or(gap, |mean| (7 * mean + gap) / 8));
            self.last = now;
        } else if passed > 4 * NAP.0 {
            self.gap = None;
        }
    }

    fn nap(&self) -> Option<Nanos> {
        self.gap
            .is_some_and(|gap| gap < DENSE)
            .then(|| clock::now() + NAP)
    }
}

/// Frame buffers kept for use again.
const SPARE: usize = 4096;
/// Frames taken from the ring before due frames are looked at again.
const DRAIN: usize = 128;

impl Lane {
    fn open(
        from: &str,
        to: &str,
        (config, opportunities): &(DirectionConfig, Option<Arc<Opportunities>>),
        seed: u64,
        name: &str,
    ) -> Result<Self, IoError> {
        let mtu = mtu_bytes(from)?;
        Ok(Self {
            transmitter: Transmitter::open(to)?,
            receiver: Receiver::open(from, mtu)?,
            direction: Direction::new(config.clone(), opportunities.clone(), seed, name),
            mtu,
            last_arrival: Nanos(i64::MIN),
            spare: Vec::with_capacity(SPARE),
            send_errors: 0,
            oversized: 0,
            checksum_missing: 0,
            kinds: Kinds::default(),
            lateness: Delays::default(),
        })
    }

    fn control() -> Result<Control, IoError> {
        let (outbox, inbox) = sync_channel(1);
        let wake = Wake::new()?;
        let shared = Shared {
            wake,
            asked: AtomicBool::new(false),
            anew: AtomicBool::new(false),
        };
        let lane = LaneSide {
            shared: Arc::new(shared),
            outbox,
        };
        Ok(Control { lane, inbox })
    }

    fn run(mut self, plan: &RelayPlan, stop: &Stop, side: &LaneSide) -> Result<Report, IoError> {
        process::pin(plan.cpu)?;
        process::steady();
        let mut priority = Priority::take(plan.realtime_priority);
        let mut alarm = Alarm::default();
        let mut stream = Stream::default();
        let mut ready: Vec<Vec<u8>> = Vec::with_capacity(BATCH);
        self.direction.restart(clock::now().0);
        while !stop.asked() {
            if side.shared.anew.swap(false, Ordering::AcqRel) {
                self.direction
                    .restart(clock::now().0.max(self.last_arrival.0));
            }
            let taken = self.take();
            let sent = self.hand_on(&mut ready);
            if side.shared.asked.swap(false, Ordering::AcqRel) {
                // A reader that is late finds the newest report when it asks again.
                let _ = side.outbox.try_send(self.report());
            }
            priority.check();
            stream.took(taken, clock::now());
            if taken == 0 && sent == 0 {
                let due = self.direction.next_due_ns().map(Nanos);
                let nap = stream.nap();
                alarm.wait_or(due, |up| match nap {
                    Some(until) => clock::sleep_until(up.map_or(until, |up| up.min(until))),
                    None => self.receiver.wait(up, &side.shared.wake),
                });
            } else if sent > 0 {
                alarm.passed(clock::now());
            }
        }
        Ok(self.report())
    }

    /// Takes frames from the ring into the state machine, at the kernel's time of arrival, so that
    /// a late wake-up of this thread does not add to the delay.
    fn take(&mut self) -> usize {
        let offset = clock::realtime_offset();
        let now = clock::now();
        let Self {
            receiver,
            direction,
            mtu,
            last_arrival,
            spare,
            kinds,
            ..
        } = self;
        let (oversized, missing) = (&mut self.oversized, &mut self.checksum_missing);
        receiver.drain(DRAIN, |frame| {
            if !frame.fits(*mtu) {
                *oversized += 1;
                return;
            }
            *missing += u64::from(frame.checksum_missing);
            let at = (frame.realtime - offset).min(now).max(*last_arrival);
            *last_arrival = at;
            kinds.note(frame.untagged());
            let mut buffer = spare.pop().unwrap_or_default();
            frame.copy_to(&mut buffer);
            direction.offer(at.0, frame.length() as u64, buffer);
        })
    }

    /// Hands on what is due, a batch a system call; returns how many frames.
    fn hand_on(&mut self, ready: &mut Vec<Vec<u8>>) -> usize {
        let now = clock::now();
        while ready.len() < BATCH {
            let Some(arrival) = self.direction.poll(now.0) else {
                break;
            };
            self.lateness.add(now - Nanos(arrival.due_ns));
            ready.push(arrival.frame);
        }
        let count = ready.len();
        if count > 0 {
            self.send_errors += self.transmitter.send(ready);
            for buffer in ready.drain(..) {
                if self.spare.len() < SPARE {
                    self.spare.push(buffer);
                }
            }
        }
        count
    }

    fn report(&mut self) -> Report {
        Report {
            counters: self.direction.counters(),
            capture_dropped: self.receiver.dropped(),
            send_errors: self.send_errors,
            oversized: self.oversized,
            checksum_missing: self.checksum_missing,
            kinds: Some(self.kinds.clone()),
            lateness: self.lateness.clone(),
        }
    }
}
