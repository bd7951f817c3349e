//! What is between the hosts: two directions of their own, or a medium that both share.

use tm_link::wlan::{Duplex, StationCounters, Way};
use tm_link::{Change, Counters, Direction, QueueConfig, VariationConfig, Verdict};
use tm_wire::{Duration, Instant};

use crate::plan::{DirectionPlan, LinkPlan};
use crate::under_way::Piece;

/// Destination, source and type, which a link counts beside the IP packet.
const ETHERNET_BYTES: u32 = 14;
const LONGEST_BYTES: usize = 65_535 + ETHERNET_BYTES as usize;
/// What a frame looks like to a medium, which reads no more of it than length, receiver and category.
static UNICAST: [u8; LONGEST_BYTES] = [0; LONGEST_BYTES];

/// A link with the packets that are on it.
pub enum Link {
    /// From the client to the server, and back
    Wire(Box<Wire>),
    Wlan(Box<Duplex<OnAir>>),
}

/// Both directions, whose traces and changes begin with the first packet of either.
pub struct Wire {
    ways: [Direction<Piece>; 2],
    begun: bool,
}

/// A packet as a frame of a WLAN.
pub struct OnAir {
    piece: Piece,
    bytes: usize,
}

impl AsRef<[u8]> for OnAir {
    fn as_ref(&self) -> &[u8] {
        &UNICAST[..self.bytes]
    }
}

impl Link {
    /// A link on which nothing is yet.
    pub fn new(plan: &LinkPlan, seed: u64, start: Instant) -> Self {
        match plan {
            LinkPlan::Wire(ways) => {
                let direction = |plan: &DirectionPlan, name: &str| {
                    let opportunities = plan.opportunities.clone();
                    Direction::new(plan.config.clone(), opportunities, seed, name)
                };
                let [forward, back] = ways.as_ref();
                Self::Wire(Box::new(Wire {
                    ways: [direction(forward, "a_to_b"), direction(back, "b_to_a")],
                    begun: false,
                }))
            }
            LinkPlan::Wlan(config) => Self::Wlan(Box::new(
                Duplex::new(config, "medium", seed, start).expect("a WLAN that was checked"),
            )),
        }
    }

    /// Takes an IP packet of `bytes` at `now` that goes a way, 0 from the client; false: there is no
    /// room for it.
    pub fn offer(&mut self, now: Instant, way: usize, bytes: u32, piece: Piece) -> bool {
        let bytes = bytes.saturating_add(ETHERNET_BYTES);
        match self {
            Self::Wire(wire) => {
                if !wire.begun {
                    wire.begun = true;
                    for direction in &mut wire.ways {
                        direction.restart(now);
                    }
                }
                wire.ways[way].offer(now, u64::from(bytes), piece) == Verdict::Accepted
            }
            Self::Wlan(duplex) => {
                let bytes = usize::try_from(bytes).unwrap_or(LONGEST_BYTES);
                let bytes = bytes.min(LONGEST_BYTES);
                duplex.offer(now, WAYS[way], OnAir { piece, bytes })
            }
        }
    }

    /// When something happens next; None while nothing is under way.
    pub fn next_due(&self) -> Option<Instant> {
        match self {
            Self::Wire(wire) => {
                let due = wire.ways.iter().filter_map(Direction::next_due);
                due.min()
            }
            Self::Wlan(duplex) => duplex.next_due(),
        }
    }

    /// The next packet that has arrived by `now`, with its way. A wire is asked for one way at a
    /// time.
    pub fn poll(&mut self, now: Instant, way: usize) -> Option<(usize, Piece)> {
        match self {
            Self::Wire(wire) => Some((way, wire.ways[way].poll(now)?.frame)),
            Self::Wlan(duplex) => {
                let (way, arrival) = duplex.poll(now)?;
                Some((way as usize, arrival.frame.piece))
            }
        }
    }

    /// From the client to the server, and back.
    pub fn counters(&self) -> [Counters; 2] {
        match self {
            Self::Wire(wire) => wire.ways.each_ref().map(Direction::counters),
            Self::Wlan(duplex) => WAYS.map(|way| duplex.counters(way)),
        }
    }

    /// Of each station of a WLAN, the access point first.
    pub fn stations(&self) -> Option<Vec<StationCounters>> {
        let Self::Wlan(duplex) = self else {
            return None;
        };
        let medium = duplex.medium();
        let counters = (0..=medium.stations()).filter_map(|station| medium.counters(station));
        Some(counters.copied().collect())
    }
}

const WAYS: [Way; 2] = [Way::AToB, Way::BToA];

/// No packet is on such a link for longer.
pub fn longest(plan: &LinkPlan) -> Duration {
    match plan {
        LinkPlan::Wire(ways) => {
            let longest = ways.iter().map(on_direction).max();
            longest.unwrap_or(Duration::ZERO)
        }
        // What a station's queue holds leaves in seconds at the lowest rate there is.
        LinkPlan::Wlan(_) => Duration::ZERO,
    }
}

fn on_direction(plan: &DirectionPlan) -> Duration {
    let config = &plan.config;
    let first = Change {
        rate_bit_s: config.rate_bit_s,
        delay_ns: Some(config.delay_ns),
        queue: Some(config.queue),
        delay_variation: Some(config.delay_variation),
        hold_back: Some(config.hold_back),
        ..Change::default()
    };
    let most = |of: &dyn Fn(&Change) -> Option<i64>| {
        let all = std::iter::once(&first).chain(&config.changes);
        all.filter_map(of).max().unwrap_or(0)
    };
    let queued = most(&|one| match one.queue? {
        QueueConfig::Bytes { limit } => i64::try_from(limit).ok(),
        QueueConfig::Packets { limit } => i64::try_from(limit * LONGEST_BYTES as u64).ok(),
    });
    // And the packet that is being sent.
    let bytes = queued.unsigned_abs() + LONGEST_BYTES as u64;
    let byte_ns = most(&|one| Some(8 * NS_PER_S / i64::try_from(one.rate_bit_s?).ok()? + 1));
    let sent = i64::try_from(bytes).map_or(i64::MAX, |bytes| bytes.saturating_mul(byte_ns));
    let trace = plan.opportunities.as_ref();
    let delay = most(&|one| one.delay_ns);
    let varied = most(&|one| match one.delay_variation? {
        VariationConfig::None {} => None,
        VariationConfig::Uniform { spread_ns } => Some(spread_ns),
        VariationConfig::Normal { sigma_ns: scale }
        | VariationConfig::Exponential { mean_ns: scale } => Some(scale * MOST_SCALES),
    });
    let held = most(&|one| Some(one.hold_back?.extra_ns));
    let waited = trace.map_or(0, |trace| trace.longest(bytes).0);
    Duration(sent.saturating_add(waited)).saturating_add(Duration(delay + varied + held))
}

const NS_PER_S: i64 = 1_000_000_000;
/// No draw of 53 bits is further out than this, in means or standard deviations.
const MOST_SCALES: i64 = 37;

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use tm_link::{DirectionConfig, LossConfig, Opportunities, MAHIMAHI_BYTES};

    use super::*;

    const MS: i64 = 1_000_000;

    fn plan(rate_bit_s: Option<u64>, trace: Option<&[u8]>) -> LinkPlan {
        let way = || DirectionPlan {
            config: DirectionConfig {
                rate_bit_s,
                delay_ns: 5 * MS,
                queue: QueueConfig::Bytes { limit: 65_536 },
                frame_overhead_bytes: 0,
                frame_min_bytes: 0,
                loss: LossConfig::None {},
                delay_variation: VariationConfig::Exponential { mean_ns: MS },
                reorder: false,
                trace: None,
                duplicate: 0.0,
                corrupt: 0.0,
                hold_back: tm_link::HoldBack::default(),
                changes: Vec::new(),
            },
            opportunities: trace
                .map(|text| Arc::new(Opportunities::parse(text, MAHIMAHI_BYTES).unwrap())),
        };
        LinkPlan::Wire(Box::new([way(), way()]))
    }

    fn offer(link: &mut Link, ms: i64, way: usize) -> bool {
        let piece = Piece {
            datagram: 0,
            inner: 0,
            outer: 0,
            damaged: false,
        };
        link.offer(Instant(ms * MS), way, 1_486, piece)
    }

    /// When the last packet of a way arrives.
    fn last(link: &mut Link, way: usize) -> Instant {
        let mut last = Instant::MIN;
        while let Some(due) = link.next_due() {
            for one in 0..2 {
                while link.poll(due, one).is_some() {
                    if one == way {
                        last = due;
                    }
                }
            }
        }
        last
    }

    #[test]
    fn the_traces_of_both_ways_begin_with_the_first_packet_of_either() {
        // Nothing goes either way from 1 ms to 3 s, counted from 500 ms.
        let mut link = Link::new(&plan(None, Some(b"1\n3000\n")), 7, Instant(0));
        assert!(offer(&mut link, 500, 0));
        assert!(offer(&mut link, 2_500, 1));
        let reply = last(&mut link, 1);
        let expected = Instant((500 + 3_000 + 5) * MS);
        assert!(
            (reply - expected).0 < 40 * MS && reply >= expected,
            "{reply:?}"
        );
    }

    #[test]
    fn no_packet_is_on_the_link_for_longer() {
        for (rate, trace) in [
            (Some(9_600), None),
            (None, Some(b"1\n3000\n".as_slice())),
            (None, Some(b"1\n2\n3\n9000\n".as_slice())),
        ] {
            let plan = plan(rate, trace);
            let mut link = Link::new(&plan, 7, Instant(0));
            assert!(offer(&mut link, 0, 0));
            while offer(&mut link, 2, 0) {}
            let took = last(&mut link, 0) - Instant(0);
            let bound = longest(&plan);
            assert!(took <= bound, "{took:?} of {bound:?}");
            // The default of a study: 43 packets of 1500 bytes.
            assert!(bound.0 <= 4 * took.0, "{took:?} of {bound:?}");
        }
    }
}
