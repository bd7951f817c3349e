//! A WLAN in the place of a wire: the client is a station, the server stands behind the access
//! point, and both directions share the medium.

use tm_wire::{Duration, Instant};

use super::config::Config;
use super::frame::{Fate, Frame, Receiver, StationId, Verdict, ACCESS_POINT};
use super::mac::{Category, SNAP_BYTES};
use super::medium::Medium;
use crate::error::ConfigError;
use crate::{Arrival, Counters};

/// The station that is the client.
const CLIENT: StationId = 1;
/// Ethernet header: addresses and type.
const ETHERNET_BYTES: u32 = 14;
/// Frames each background station has waiting, in aggregates: more than one takes, so that it stays
/// saturated although it is refilled only when the medium is polled.
const BACKLOG_AGGREGATES: u32 = 3;
/// The same where nothing is aggregated.
const BACKLOG: u32 = 192;
/// Tokens of background frames; others are places in the store.
const BACKGROUND: u64 = u64::MAX;

/// Which way a frame goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Way {
    /// From the client's side to the server's
    AToB,
    /// From the server's side to the client's
    BToA,
}

/// Both directions of a link over a WLAN; `F` is an Ethernet frame without FCS.
///
/// Times are those of one clock that does not run backwards.
pub struct Duplex<F> {
    medium: Medium,
    qos: bool,
    /// Zero of the medium's own time.
    start: Instant,
    store: Vec<Option<F>>,
    free: Vec<u64>,
    counters: [Counters; 2],
    background_msdu_bytes: Option<u32>,
}

impl<F: AsRef<[u8]>> Duplex<F> {
    /// A silent medium; its first beacon comes one interval after `start`. `path` is where the
    /// configuration stands, for errors.
    pub fn new(
        config: &Config,
        path: &str,
        seed: u64,
        start: Instant,
    ) -> Result<Self, ConfigError> {
        let setup = config.setup(path)?;
        let mut duplex = Self {
            medium: Medium::new(setup, seed),
            qos: config.qos.is_some(),
            start,
            store: Vec::new(),
            free: Vec::new(),
            counters: [Counters::default(); 2],
            background_msdu_bytes: config.background.map(|background| background.msdu_bytes),
        };
        let aggregate = config.aggregation.map_or(0, |one| one.ampdu_max_frames);
        let backlog = BACKLOG.max(BACKLOG_AGGREGATES * u32::from(aggregate));
        for station in CLIENT + 1..=config.stations {
            for _ in 0..backlog {
                duplex.offer_background(0, station);
            }
        }
        Ok(duplex)
    }

    /// Take an Ethernet frame that came at `now`; false if it is dropped at once.
    pub fn offer(&mut self, now: Instant, way: Way, frame: F) -> bool {
        let medium_ns = self.medium_ns(now);
        let bytes = frame.as_ref();
        let counters = &mut self.counters[way as usize];
        counters.offered += 1;
        counters.offered_bytes += bytes.len() as u64;
        let description = describe(bytes, way, self.qos);
        let token = self.free.pop().unwrap_or_else(|| {
            self.store.push(None);
            self.store.len() as u64 - 1
        });
        let sender = match way {
            Way::AToB => CLIENT,
            Way::BToA => ACCESS_POINT,
        };
        match self.medium.offer(
            medium_ns,
            sender,
            Frame {
                token,
                ..description
            },
        ) {
            Verdict::Queued => {
                counters.in_flight += 1;
                self.store[place(token)] = Some(frame);
                true
            }
            Verdict::QueueFull | Verdict::Refused => {
                counters.queue_dropped += 1;
                self.free.push(token);
                false
            }
        }
    }

    /// When something happens next; `None` while nothing is under way.
    #[must_use]
    pub fn next_due(&self) -> Option<Instant> {
        let due_ns = self.medium.next_due();
        due_ns.map(|medium_ns| self.instant(medium_ns))
    }

    /// The next frame that has arrived at its far end by `now`.
    pub fn poll(&mut self, now: Instant) -> Option<(Way, Arrival<F>)> {
        let medium_ns = self.medium_ns(now);
        while let Some(outcome) = self.medium.poll(medium_ns) {
            if outcome.token == BACKGROUND {
                self.offer_background(medium_ns, outcome.sender);
                continue;
            }
            let frame = self.store[place(outcome.token)].take();
            self.free.push(outcome.token);
            let Some(frame) = frame else { continue };
            let way = if outcome.sender == CLIENT {
                Way::AToB
            } else {
                Way::BToA
            };
            let counters = &mut self.counters[way as usize];
            counters.in_flight -= 1;
            if outcome.fate == Fate::RetryLimit {
                counters.lost += 1;
                continue;
            }
            counters.delivered += 1;
            counters.delivered_bytes += frame.as_ref().len() as u64;
            let due = self.instant(outcome.time_ns);
            return Some((way, Arrival { due, frame }));
        }
        None
    }

    /// The counters of a direction now: `lost` frames were given up at the retry limit, and a frame
    /// that is longer than an MSDU can be counts as a queue drop.
    #[must_use]
    pub fn counters(&self, way: Way) -> Counters {
        self.counters[way as usize]
    }

    /// The medium, for what it counts of each station.
    #[must_use]
    pub fn medium(&self) -> &Medium {
        &self.medium
    }

    fn medium_ns(&self, at: Instant) -> u64 {
        u64::try_from(at.saturating_since(self.start).0).unwrap_or(0)
    }

    fn instant(&self, medium_ns: u64) -> Instant {
        let since = Duration(i64::try_from(medium_ns).unwrap_or(i64::MAX));
        self.start.saturating_add(since)
    }

    fn offer_background(&mut self, medium_ns: u64, station: StationId) {
        let Some(msdu_bytes) = self.background_msdu_bytes else {
            return;
        };
        let frame = Frame {
            token: BACKGROUND,
            msdu_bytes,
            receiver: Receiver::Station(ACCESS_POINT),
            category: Category::BestEffort,
        };
        self.medium.offer(medium_ns, station, frame);
    }
}

fn place(token: u64) -> usize {
    usize::try_from(token).expect("a place in the store")
}

/// Length, receiver and category of an Ethernet frame on its way.
fn describe(bytes: &[u8], way: Way, qos: bool) -> Frame {
    let length = u32::try_from(bytes.len()).unwrap_or(u32::MAX - SNAP_BYTES);
    let group = bytes.first().is_some_and(|first| first & 1 == 1);
    Frame {
        token: 0,
        // RFC 1042: the addresses go into the MAC header, the type behind a SNAP header
        msdu_bytes: length.saturating_sub(ETHERNET_BYTES) + SNAP_BYTES,
        receiver: match way {
            // a station sends broadcasts to the access point like everything else (9.2.4.1.4)
            Way::AToB => Receiver::Station(ACCESS_POINT),
            Way::BToA if group => Receiver::Group,
            Way::BToA => Receiver::Station(CLIENT),
        },
        category: if qos {
            category(bytes)
        } else {
            Category::BestEffort
        },
    }
}

/// Access category by VLAN priority or DSCP; best effort if there is neither.
fn category(bytes: &[u8]) -> Category {
    let word = |at: usize| Some(u16::from_be_bytes([*bytes.get(at)?, *bytes.get(at + 1)?]));
    match word(12) {
        Some(0x8100) => {
            let priority = word(14).map_or(0, |tag| tag >> 13);
            Category::from_user_priority(u8::try_from(priority).unwrap_or(0))
        }
        // second byte of the header: DSCP and ECN
        Some(0x0800) => bytes
            .get(15)
            .map_or(Category::BestEffort, |b| Category::from_dscp(b >> 2)),
        // version 4 bit, traffic class 8 bit, flow label 20 bit
        Some(0x86dd) => word(14).map_or(Category::BestEffort, |word| {
            Category::from_dscp(u8::try_from(word >> 6 & 0x3f).unwrap_or(0))
        }),
        _ => Category::BestEffort,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const AF41: u8 = 0b10_0010;

    fn ethernet(group: bool, kind: u16, header: &[u8], bytes: usize) -> Vec<u8> {
        let mut frame = vec![if group { 0xff } else { 0x02 }; 6];
        frame.extend([0x02; 6]);
        frame.extend(kind.to_be_bytes());
        frame.extend(header);
        frame.resize(bytes, 0);
        frame
    }

    #[test]
    fn ethernet_frames_become_msdus() {
        let frame = describe(
            &ethernet(false, 0x0800, &[0x45, 46 << 2], 1_514),
            Way::AToB,
            true,
        );
        assert_eq!(frame.msdu_bytes, 1_508);
        assert_eq!(frame.receiver, Receiver::Station(ACCESS_POINT));
        assert_eq!(frame.category, Category::Voice);
        let six = ethernet(false, 0x86dd, &[0x60 | (AF41 >> 2), (AF41 & 3) << 6], 100);
        assert_eq!(describe(&six, Way::BToA, true).category, Category::Video);
        assert_eq!(
            describe(&six, Way::BToA, false).category,
            Category::BestEffort
        );
        let vlan = ethernet(false, 0x8100, &[1 << 5, 7], 100);
        assert_eq!(
            describe(&vlan, Way::BToA, true).category,
            Category::Background
        );
        let arp = ethernet(true, 0x0806, &[], 42);
        assert_eq!(
            describe(&arp, Way::AToB, true).receiver,
            Receiver::Station(ACCESS_POINT)
        );
        assert_eq!(describe(&arp, Way::BToA, true).receiver, Receiver::Group);
        // what is no Ethernet frame must not panic
        for bytes in 0..20 {
            describe(&ethernet(true, 0x0800, &[], 40)[..bytes], Way::BToA, true);
        }
    }
}
