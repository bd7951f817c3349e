//! What is between the hosts: two directions of their own, or a medium that both share.

use tm_link::wlan::{Duplex, StationCounters, Way};
use tm_link::{Counters, Direction, Verdict};
use tm_wire::Instant;

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
    Wire(Box<[Direction<Piece>; 2]>),
    Wlan(Box<Duplex<OnAir>>),
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
                Self::Wire(Box::new([
                    direction(forward, "a_to_b"),
                    direction(back, "b_to_a"),
                ]))
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
            Self::Wire(ways) => ways[way].offer(now, u64::from(bytes), piece) == Verdict::Accepted,
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
            Self::Wire(ways) => {
                let due = ways.iter().filter_map(Direction::next_due);
                due.min()
            }
            Self::Wlan(duplex) => duplex.next_due(),
        }
    }

    /// The next packet that has arrived by `now`, with its way. A wire is asked for one way at a
    /// time.
    pub fn poll(&mut self, now: Instant, way: usize) -> Option<(usize, Piece)> {
        match self {
            Self::Wire(ways) => Some((way, ways[way].poll(now)?.frame)),
            Self::Wlan(duplex) => {
                let (way, arrival) = duplex.poll(now)?;
                Some((way as usize, arrival.frame.piece))
            }
        }
    }

    /// From the client to the server, and back.
    pub fn counters(&self) -> [Counters; 2] {
        match self {
            Self::Wire(ways) => ways.each_ref().map(Direction::counters),
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
