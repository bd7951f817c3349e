//! The WLAN emulator in real time: one thread drives the medium that both directions share.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{sync_channel, SyncSender};
use std::time::Duration;

use tm_link::wlan::{Duplex, StationCounters, Way, MSDU_MAX_BYTES, SNAP_BYTES};
use tm_link::Kinds;
use tm_probe::Delays;
use tm_wire::Nanos;

use crate::alarm::Alarm;
use crate::medium::{MediumError, MediumEvent, MediumPlan};
use crate::packet::{mtu_bytes, Frame, Receiver, Transmitter, Wake, BATCH};
use crate::process::{self, Priority, Stop};
use crate::relay::Report;
use crate::{clock, IoError};

/// A WLAN between two interfaces.
pub struct WirelessPlan {
    /// Interface on the client's side, the station.
    pub a: String,
    /// Interface on the server's side, behind the access point.
    pub b: String,
    /// What is between them.
    pub medium: MediumPlan,
}

/// What the medium says of itself.
#[derive(Clone)]
pub struct WirelessReport {
    /// From the station to the access point.
    pub forward: Report,
    /// From the access point to the station.
    pub reverse: Report,
    /// What each station did on the medium, the access point first.
    pub stations: Vec<StationCounters>,
}

const SECOND: Nanos = Nanos(1_000_000_000);
const TICK: Nanos = Nanos(20_000_000);

/// Runs until `stop`; `wanted` says that a report is asked for now. Returns the last report.
pub fn run(
    plan: &WirelessPlan,
    stop: &Stop,
    mut wanted: impl FnMut() -> bool,
    mut tell: impl FnMut(MediumEvent<WirelessReport>),
) -> Result<WirelessReport, MediumError> {
    process::steady();
    let station = Station::open(plan)?;
    let (asked, wake) = (AtomicBool::new(false), Wake::new()?);
    let (outbox, inbox) = sync_channel(1);
    tell(MediumEvent::Ready);
    std::thread::scope(|scope| {
        let (asked, wake) = (&asked, &wake);
        let medium = scope.spawn(move || station.run(plan, stop, wake, asked, &outbox));
        let mut next = clock::now() + SECOND;
        while !stop.asked() && !medium.is_finished() {
            clock::sleep_until((clock::now() + TICK).min(next));
            let now_wanted = wanted();
            if now_wanted || clock::now() >= next {
                asked.store(true, Ordering::Release);
                wake.wake();
                if let Ok(report) = inbox.recv_timeout(Duration::from_secs(1)) {
                    tell(MediumEvent::Progress(Box::new(report)));
                }
                if !now_wanted {
                    next = next + SECOND;
                }
            }
        }
        stop.ask();
        wake.wake();
        let died = |_| IoError::new("wireless", std::io::Error::other("thread died"));
        Ok(medium.join().map_err(died)??)
    })
}

/// Frame buffers kept for use again.
const SPARE: usize = 4096;
/// Frames taken from a ring before due frames are looked at again.
const DRAIN: usize = 128;

struct Station {
    duplex: Duplex<Vec<u8>>,
    /// Client's side, then server's.
    ends: [End; 2],
    /// Frames that came, not yet offered: (arrival, way, frame).
    came: Vec<(Nanos, Way, Vec<u8>)>,
    spare: Vec<Vec<u8>>,
    latest: Nanos,
}

/// An interface, and what is counted of the frames that come in at it.
struct End {
    receiver: Receiver,
    transmitter: Transmitter,
    mtu: usize,
    /// Frames on their way out of this interface.
    ready: Vec<Vec<u8>>,
    send_errors: u64,
    oversized: u64,
    checksum_missing: u64,
    kinds: Kinds,
    lateness: Delays,
}

impl Station {
    fn open(plan: &WirelessPlan) -> Result<Self, MediumError> {
        let duplex = Duplex::new(
            &plan.medium.config,
            &plan.medium.path,
            plan.medium.seed,
            clock::now().0,
        )
        .map_err(MediumError::Config)?;
        Ok(Self {
            duplex,
            ends: [End::open(&plan.a)?, End::open(&plan.b)?],
            came: Vec::with_capacity(2 * DRAIN),
            spare: Vec::with_capacity(SPARE),
            latest: Nanos(i64::MIN),
        })
    }

    fn run(
        mut self,
        plan: &WirelessPlan,
        stop: &Stop,
        wake: &Wake,
        asked: &AtomicBool,
        outbox: &SyncSender<WirelessReport>,
    ) -> Result<WirelessReport, IoError> {
        process::pin(plan.medium.cpu)?;
        process::steady();
        let mut priority = Priority::take(plan.medium.realtime_priority);
        let mut alarm = Alarm::default();
        while !stop.asked() {
            let (taken, known_until) = self.take();
            let sent = self.hand_on(known_until);
            if asked.swap(false, Ordering::AcqRel) {
                // a reader that is late finds the newest report when it asks again
                let _ = outbox.try_send(self.report());
            }
            priority.check();
            if taken == 0 && sent == 0 {
                let [a, b] = &self.ends;
                let due = self.duplex.next_due_ns().map(Nanos);
                alarm.wait_or(due, |up| {
                    Receiver::wait_either([&a.receiver, &b.receiver], up, wake);
                });
            } else if sent > 0 {
                alarm.passed(clock::now());
            }
        }
        Ok(self.report())
    }

    /// Takes frames from both rings into the medium in the order of the kernel's times of arrival,
    /// so that a late wake-up of this thread neither delays a frame nor lets one side go first.
    ///
    /// Returns how many, and the time up to which all arrivals are known.
    fn take(&mut self) -> (usize, Nanos) {
        let offset = clock::realtime_offset();
        let mut known_until = clock::now();
        let Self {
            ends, came, spare, ..
        } = self;
        for (end, way) in ends.iter_mut().zip([Way::AToB, Way::BToA]) {
            let before = came.len();
            let taken = end.drain(|frame| {
                let mut buffer = spare.pop().unwrap_or_default();
                frame.copy_to(&mut buffer);
                came.push((frame.realtime - offset, way, buffer));
            });
            if let (DRAIN, [.., (last, ..)]) = (taken, &came[before..]) {
                // there may be more, so time must not pass over it
                known_until = known_until.min(*last);
            }
        }
        came.sort_by_key(|(at, ..)| *at);
        let (count, now) = (came.len(), clock::now());
        for (at, way, frame) in came.drain(..) {
            self.latest = at.min(now).max(self.latest);
            self.duplex.offer(self.latest.0, way, frame);
        }
        (count, known_until)
    }

    /// Hands on what is due; returns how many frames.
    fn hand_on(&mut self, until: Nanos) -> usize {
        let now = clock::now();
        while let Some((way, arrival)) = self.duplex.poll(until.0) {
            let (from, to) = match way {
                Way::AToB => (0, 1),
                Way::BToA => (1, 0),
            };
            self.ends[from].lateness.add(now - Nanos(arrival.due_ns));
            self.ends[to].ready.push(arrival.frame);
            if self.ends[to].ready.len() == BATCH {
                break;
            }
        }
        let [a, b] = &mut self.ends;
        let (to_a, to_b) = (a.ready.len(), b.ready.len());
        b.send_errors += a.flush(&mut self.spare);
        a.send_errors += b.flush(&mut self.spare);
        to_a + to_b
    }

    fn report(&mut self) -> WirelessReport {
        let medium = self.duplex.medium();
        let stations = (0..=medium.stations())
            .filter_map(|station| medium.counters(station).copied())
            .collect();
        let [a, b] = &mut self.ends;
        WirelessReport {
            forward: a.report(&self.duplex, Way::AToB),
            reverse: b.report(&self.duplex, Way::BToA),
            stations,
        }
    }
}

impl End {
    fn open(interface: &str) -> Result<Self, IoError> {
        let mtu = mtu_bytes(interface)?;
        let most = (MSDU_MAX_BYTES - SNAP_BYTES) as usize;
        if mtu > most {
            let error = std::io::Error::from(std::io::ErrorKind::InvalidInput);
            let what = format!("{interface} has an MTU of {mtu}, a WLAN carries at most {most}");
            return Err(IoError::new(what, error));
        }
        Ok(Self {
            receiver: Receiver::open(interface, mtu)?,
            transmitter: Transmitter::open(interface)?,
            mtu,
            ready: Vec::with_capacity(BATCH),
            send_errors: 0,
            oversized: 0,
            checksum_missing: 0,
            kinds: Kinds::default(),
            lateness: Delays::default(),
        })
    }

    /// Calls `take` with the frames that are in the ring and fit the MTU.
    fn drain(&mut self, mut take: impl FnMut(&Frame<'_>)) -> usize {
        let (oversized, missing) = (&mut self.oversized, &mut self.checksum_missing);
        let kinds = &mut self.kinds;
        let mtu = self.mtu;
        self.receiver.drain(DRAIN, |frame| {
            if !frame.fits(mtu) {
                *oversized += 1;
                return;
            }
            *missing += u64::from(frame.checksum_missing);
            kinds.note(frame.untagged());
            take(frame);
        })
    }

    /// Sends what is ready; returns how many frames the kernel refused.
    fn flush(&mut self, spare: &mut Vec<Vec<u8>>) -> u64 {
        if self.ready.is_empty() {
            return 0;
        }
        let refused = self.transmitter.send(&self.ready);
        let room = SPARE.saturating_sub(spare.len());
        spare.extend(self.ready.drain(..).take(room));
        refused
    }

    fn report(&mut self, duplex: &Duplex<Vec<u8>>, way: Way) -> Report {
        Report {
            counters: duplex.counters(way),
            capture_dropped: self.receiver.dropped(),
            send_errors: self.send_errors,
            oversized: self.oversized,
            checksum_missing: self.checksum_missing,
            kinds: Some(self.kinds.clone()),
            lateness: self.lateness.clone(),
        }
    }
}
