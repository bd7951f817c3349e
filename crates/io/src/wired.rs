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
        let (a, b) = (&self.a, &self.b);
        Ok([
            WiredDriver::open((a, b), self, &self.a_to_b, "a_to_b")?,
            WiredDriver::open((b, a), self, &self.b_to_a, "b_to_a")?,
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
        // There may be more in the ring, over whose arrival time must not pass: it finds the queue as it
        // was then.
        let until = (taken == DRAIN).then_some(self.last_arrival);
        let sent = self.hand_on(until.unwrap_or(Instant::MAX));
        self.stream.took(taken, clock::now());
        Ok(Turn { taken, sent })
    }

    fn next_due(&self) -> Option<Instant> {
        self.direction.look_by()
    }

    fn sleep(&self, up: Option<Instant>, wake: &Wake) {
        match self.stream.nap(clock::now()) {
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
        plan: &WiredPlan,
        (config, opportunities): &(DirectionConfig, Option<Arc<Opportunities>>),
        name: &str,
    ) -> Result<Self, IoError> {
        let mtu = mtu_bytes(from)?;
        let direction = Direction::new(config.clone(), opportunities.clone(), plan.seed, name);
        Ok(Self {
            transmitter: Transmitter::open(to)?,
            receiver: Receiver::open(from, mtu, plan.ring_frames)?,
            stream: Stream::new(direction.least_delay(), plan.ring_frames),
            direction,
            mtu,
            last_arrival: Instant::MIN,
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

    /// Hands on what is due, at most by `until`, a batch a system call and as many as may come in;
    /// returns how many.
    fn hand_on(&mut self, until: Instant) -> usize {
        let mut count = 0;
        while count < DRAIN {
            let sent = self.hand_on_batch(until);
            count += sent;
            if sent < BATCH {
                break;
            }
        }
        count
    }

    fn hand_on_batch(&mut self, until: Instant) -> usize {
        let now = clock::now();
        let ready = &mut self.ready;
        while ready.len() < BATCH {
            let Some(arrival) = self.direction.poll(now.min(until)) else {
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
struct Stream {
    /// Moving mean of the gap; None: no stream.
    gap: Option<Duration>,
    last: Instant,
    nap: Duration,
}

/// A nap where frames may have to leave at once.
const SHORT_NAP: Duration = Duration(20_000);
/// Whoever asks for a report, or for the end, waits for no longer.
const LONG_NAP: Duration = Duration(1_000_000);
/// Frames that fill the ring come no closer to each other.
const LEAST_GAP_NS: i64 = 250;

impl Stream {
    /// Of frames that arrive `least_delay` after they came in at the earliest.
    fn new(least_delay: Duration, ring_frames: usize) -> Self {
        let frames = i64::try_from(ring_frames).unwrap_or(i64::MAX);
        let fills = Duration(frames.saturating_mul(LEAST_GAP_NS));
        // Half of the delay is left for a nap that ends late.
        let nap = Duration(least_delay.0 / 2).min(fills).min(LONG_NAP);
        Self {
            gap: None,
            last: Instant(0),
            nap: nap.max(SHORT_NAP),
        }
    }

    fn took(&mut self, frames: usize, now: Instant) {
        let passed = now - self.last;
        if frames > 0 {
            let gap = passed.0 / i64::try_from(frames).unwrap_or(i64::MAX);
            let mean = self.gap.map_or(gap, |mean| (7 * mean.0 + gap) / 8);
            self.gap = Some(Duration(mean));
            self.last = now;
        } else if passed > self.nap.saturating_mul(4) {
            self.gap = None;
        }
    }

    /// Until when to nap at `now`; None: the next frame is waited for.
    fn nap(&self, now: Instant) -> Option<Instant> {
        // Frames that come closer than three quarters of a nap are a dense stream.
        let dense = self.gap.is_some_and(|gap| gap.0 < self.nap.0 / 4 * 3);
        dense.then(|| now + self.nap)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: i64 = 1_000_000;

    /// For how long it naps at the end of 100 frames that far apart.
    fn nap_ns(stream: &mut Stream, gap_ns: i64) -> Option<i64> {
        let mut now = Instant(0);
        for _ in 0..100 {
            now += Duration(gap_ns);
            stream.took(1, now);
        }
        stream.nap(now).map(|until| (until - now).0)
    }

    #[test]
    fn a_nap_leaves_half_of_the_delay_and_room_in_the_ring() {
        let nap = |delay_ns, ring_frames, gap_ns| {
            nap_ns(&mut Stream::new(Duration(delay_ns), ring_frames), gap_ns)
        };
        assert_eq!(nap(0, 8192, 10_000), Some(20_000));
        assert_eq!(nap(0, 8192, 100_000), None);
        assert_eq!(nap(20 * MS, 8192, 100_000), Some(MS));
        assert_eq!(nap(20 * MS, 8192, MS), None);
        assert_eq!(nap(MS / 2, 8192, 100_000), Some(MS / 4));
        assert_eq!(nap(20 * MS, 512, 50_000), Some(128_000));
    }

    #[test]
    fn when_a_stream_ends_the_next_frame_is_waited_for_again() {
        let mut stream = Stream::new(Duration(20 * MS), 8192);
        assert_eq!(nap_ns(&mut stream, 10_000), Some(MS));
        let end = Instant(100 * 10_000) + Duration(4 * MS);
        stream.took(0, end);
        assert!(stream.nap(end).is_some());
        stream.took(0, end + Duration(1));
        assert_eq!(stream.nap(end), None);
    }
}
