//! A wire in real time: the driver of each direction takes frames from one interface and hands them
//! on at the other.

use std::sync::Arc;

use tm_link::{Direction, DirectionConfig, Kinds, Opportunities};
use tm_probe::Delays;
use tm_wire::{Duration, Instant};

use crate::emulator::{LinkDriver, Turn};
use crate::packet::{mtu_bytes, Receiver, Transmitter, Wake, BATCH};
use crate::report::DirectionReport;
use crate::{clock, IoError};

/// A link between two interfaces.
pub struct WiredPlan {
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
    /// Frames that can wait at each interface to be received.
    pub ring_frames: usize,
}

impl WiredPlan {
    /// Opens both interfaces: a driver for the way forward and one for the reverse.
    pub fn open(&self) -> Result<[WiredDriver; 2], IoError> {
        let (a, b, seed) = (&self.a, &self.b, self.seed);
        let receive = |from: &str| Receiver::open(from, mtu_bytes(from)?, self.ring_frames);
        Ok([
            WiredDriver::open((a, b), receive(a)?, &self.a_to_b, seed, "a_to_b")?,
            WiredDriver::open((b, a), receive(b)?, &self.b_to_a, seed, "b_to_a")?,
        ])
    }
}

/// One direction.
pub struct WiredDriver {
    receiver: Receiver,
    transmitter: Transmitter,
    direction: Direction<Vec<u8>>,
    mtu: usize,
    last_arrival: Instant,
    stream: Stream,
    ready: Vec<Vec<u8>>,
    spare: Vec<Vec<u8>>,
    send_errors: u64,
    oversized: u64,
    checksum_missing: u64,
    kinds: Kinds,
    lateness: Delays,
}

/// Frame buffers kept for use again.
const SPARE: usize = 4096;
/// Frames taken from the ring before due frames are looked at again, and forwarded at most.
const DRAIN: usize = 2 * BATCH;

impl LinkDriver for WiredDriver {
    type Report = DirectionReport;

    fn turn(&mut self) -> Result<Turn, IoError> {
        let taken = self.take();
        let sent = self.hand_on();
        self.stream.took(taken, clock::now());
        Ok(Turn { taken, sent })
    }

    fn next_due(&self) -> Option<Instant> {
        self.direction.next_due()
    }

    fn sleep(&self, up: Option<Instant>, wake: &Wake) {
        match self.stream.nap() {
            Some(until) => clock::sleep_until(up.map_or(until, |up| up.min(until))),
            None => self.receiver.wait(up, wake),
        }
    }

    /// Traces and changes begin again.
    fn restart(&mut self) {
        let now = clock::now().max(self.last_arrival);
        self.direction.restart(now);
    }

    fn report(&mut self) -> DirectionReport {
        DirectionReport {
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

impl WiredDriver {
    fn open(
        (from, to): (&str, &str),
        receiver: Receiver,
        (config, opportunities): &(DirectionConfig, Option<Arc<Opportunities>>),
        seed: u64,
        name: &str,
    ) -> Result<Self, IoError> {
        let mtu = mtu_bytes(from)?;
        Ok(Self {
            transmitter: Transmitter::open(to)?,
            receiver,
            direction: Direction::new(config.clone(), opportunities.clone(), seed, name),
            mtu,
            last_arrival: Instant::MIN,
            stream: Stream::default(),
            ready: Vec::with_capacity(BATCH),
            spare: Vec::with_capacity(SPARE),
            send_errors: 0,
            oversized: 0,
            checksum_missing: 0,
            kinds: Kinds::default(),
            lateness: Delays::default(),
        })
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
            let at = frame.realtime.instant(offset).min(now).max(*last_arrival);
            *last_arrival = at;
            kinds.note(frame.untagged());
            let mut buffer = spare.pop().unwrap_or_default();
            frame.copy_to(&mut buffer);
            direction.offer(at, frame.length() as u64, buffer);
        })
    }

    /// Hands on what is due, a batch a system call and as many as may come in; returns how many.
    fn hand_on(&mut self) -> usize {
        let mut count = 0;
        while count < DRAIN {
            let sent = self.hand_on_batch();
            count += sent;
            if sent < BATCH {
                break;
            }
        }
        count
    }

    fn hand_on_batch(&mut self) -> usize {
        let now = clock::now();
        let ready = &mut self.ready;
        while ready.len() < BATCH {
            let Some(arrival) = self.direction.poll(now) else {
                break;
            };
            self.lateness.add(now - arrival.due);
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
}

/// How close to each other frames come in.
///
/// A thread that waits for the next frame is woken by each of them, which costs whoever sends more
/// than the frame itself. In a dense stream it naps instead and finds several at once; they carry
/// the kernel's time of arrival, so no delay is added where the link has one.
#[derive(Default)]
struct Stream {
    /// Moving mean of the gap; None: no stream.
    gap: Option<Duration>,
    last: Instant,
}

/// Frames that come closer than this are a dense stream.
const DENSE: Duration = Duration(15_000);
const NAP: Duration = Duration(20_000);

impl Stream {
    fn took(&mut self, frames: usize, now: Instant) {
        let passed = now - self.last;
        if frames > 0 {
            let gap = passed.0 / i64::try_from(frames).unwrap_or(i64::MAX);
            let mean = self.gap.map_or(gap, |mean| (7 * mean.0 + gap) / 8);
            self.gap = Some(Duration(mean));
            self.last = now;
        } else if passed > NAP.saturating_mul(4) {
            self.gap = None;
        }
    }

    fn nap(&self) -> Option<Instant> {
        self.gap
            .is_some_and(|gap| gap < DENSE)
            .then(|| clock::now() + NAP)
    }
}
