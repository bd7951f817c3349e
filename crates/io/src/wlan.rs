//! A WLAN in real time: one driver has the medium that both directions share.

use std::vec::Drain;

use tm_link::wlan::{Duplex, StationCounters, Way, MSDU_MAX_BYTES, SNAP_BYTES};
use tm_link::Kinds;
use tm_probe::Delays;
use tm_wire::Instant;

use crate::emulator::{LinkDriver, Turn};
use crate::packet::{mtu_bytes, Frame, Receiver, Transmitter, Wake, BATCH, RING_FRAMES};
use crate::report::DirectionReport;
use crate::{clock, IoError};

/// A WLAN between two interfaces.
pub struct WlanPlan {
    /// Interface on the client's side, the station.
    pub a: String,
    /// Interface on the server's side, behind the access point.
    pub b: String,
    /// What is between them; its time is [`clock::now`].
    pub duplex: Duplex<Vec<u8>>,
}

/// What the WLAN says of itself.
#[derive(Clone)]
pub struct WlanReport {
    /// From the station to the access point.
    pub forward: DirectionReport,
    /// From the access point to the station.
    pub reverse: DirectionReport,
    /// What each station did on the medium, the access point first.
    pub stations: Vec<StationCounters>,
}

/// Frame buffers kept for use again.
const SPARE: usize = 4096;
/// Frames taken from a ring before due frames are looked at again.
const DRAIN: usize = 128;

/// Both interfaces and the medium between them.
pub struct WlanDriver {
    duplex: Duplex<Vec<u8>>,
    /// Client's side, then server's.
    ends: [End; 2],
    arrivals: Arrivals,
    spare: Vec<Vec<u8>>,
    latest: Instant,
}

/// Frames that came, not yet offered.
struct Arrivals(Vec<(Instant, Way, Vec<u8>)>);

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

impl WlanPlan {
    /// Opens both interfaces.
    pub fn open(self) -> Result<WlanDriver, IoError> {
        Ok(WlanDriver {
            ends: [End::open(&self.a)?, End::open(&self.b)?],
            duplex: self.duplex,
            arrivals: Arrivals(Vec::with_capacity(2 * DRAIN)),
            spare: Vec::with_capacity(SPARE),
            latest: Instant::MIN,
        })
    }
}

impl LinkDriver for WlanDriver {
    type Report = WlanReport;

    fn turn(&mut self) -> Result<Turn, IoError> {
        let (taken, known_until) = self.take();
        let sent = self.hand_on(known_until);
        Ok(Turn { taken, sent })
    }

    fn next_due(&self) -> Option<Instant> {
        self.duplex.next_due()
    }

    fn sleep(&self, up: Option<Instant>, wake: &Wake) {
        let [a, b] = &self.ends;
        Receiver::wait_either([&a.receiver, &b.receiver], up, wake);
    }

    fn report(&mut self) -> WlanReport {
        let medium = self.duplex.medium();
        let stations = (0..=medium.stations())
            .filter_map(|station| medium.counters(station).copied())
            .collect();
        let [a, b] = &mut self.ends;
        WlanReport {
            forward: a.report(&self.duplex, Way::AToB),
            reverse: b.report(&self.duplex, Way::BToA),
            stations,
        }
    }
}

impl WlanDriver {
    /// Takes frames from both rings into the medium in the order of the kernel's times of arrival,
    /// so that a late wake-up of this thread neither delays a frame nor lets one side go first.
    ///
    /// Returns how many were taken, and the time up to which all arrivals are known: where a ring
    /// has more, frames of the other side that came after what was taken wait for the next turn.
    fn take(&mut self) -> (usize, Instant) {
        let offset = clock::realtime_offset();
        let mut known_until = clock::now();
        let Self {
            ends,
            arrivals: Arrivals(came),
            spare,
            ..
        } = self;
        let (mut count, mut all) = (0, true);
        for (end, way) in ends.iter_mut().zip([Way::AToB, Way::BToA]) {
            let before = came.len();
            let taken = end.drain(|frame| {
                let mut buffer = spare.pop().unwrap_or_default();
                frame.copy_to(&mut buffer);
                came.push((frame.realtime.instant(offset), way, buffer));
            });
            if let (DRAIN, [.., (last, ..)]) = (taken, &came[before..]) {
                // there may be more, so time must not pass over it
                known_until = known_until.min(*last);
                all = false;
            }
            count += taken;
        }
        let now = clock::now();
        let until = if all { Instant::MAX } else { known_until };
        for (at, way, frame) in self.arrivals.by(until) {
            self.latest = at.min(now).max(self.latest);
            self.duplex.offer(self.latest, way, frame);
        }
        (count, known_until)
    }

    /// Hands on what is due; returns how many frames.
    fn hand_on(&mut self, until: Instant) -> usize {
        let now = clock::now();
        while let Some((way, arrival)) = self.duplex.poll(until) {
            let (from, to) = match way {
                Way::AToB => (0, 1),
                Way::BToA => (1, 0),
            };
            self.ends[from].lateness.add(now - arrival.due);
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
}

impl Arrivals {
    /// Removes and returns what came until a time, in the order of arrival.
    fn by(&mut self, until: Instant) -> Drain<'_, (Instant, Way, Vec<u8>)> {
        self.0.sort_by_key(|(at, ..)| *at);
        let count = self.0.partition_point(|(at, ..)| *at <= until);
        self.0.drain(..count)
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
            receiver: Receiver::open(interface, mtu, RING_FRAMES)?,
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

    fn report(&mut self, duplex: &Duplex<Vec<u8>>, way: Way) -> DirectionReport {
        DirectionReport {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_came_later_than_the_end_of_a_full_ring_waits_for_the_rest_of_that_ring() {
        let one = |came, way| (Instant(came), way, Vec::new());
        let mut arrivals = Arrivals(vec![
            one(10, Way::AToB),
            one(20, Way::AToB),
            one(5, Way::BToA),
            one(20, Way::BToA),
            one(30, Way::BToA),
        ]);
        let first: Vec<_> = arrivals
            .by(Instant(20))
            .map(|(came, way, _)| (came, way))
            .collect();
        let expected = [
            (5, Way::BToA),
            (10, Way::AToB),
            (20, Way::AToB),
            (20, Way::BToA),
        ];
        assert_eq!(first, expected.map(|(came, way)| (Instant(came), way)));
        // the rest of the ring, taken in the next turn
        arrivals.0.push(one(25, Way::AToB));
        let rest: Vec<_> = arrivals.by(Instant::MAX).map(|(came, ..)| came).collect();
        assert_eq!(rest, [Instant(25), Instant(30)]);
    }
}
