//! One STAMP reflector: its sessions, one for each pair of addresses and ports (RFC 8762, section 3).

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};

use tm_wire::stamp::{self, TestPacket, Timestamp};
use tm_wire::{Duration, Instant};

use super::flow::{ReflectCounters, ReflectorFlow};
use crate::port::{Arrival, WallClock};

/// Senders of one reflector; those beyond are not answered, since each costs up to half a megabyte.
pub const MOST_SENDERS: usize = 256;

/// A STAMP reflector on a socket of its own.
#[derive(Clone, Debug)]
pub struct StampPlan {
    /// Number in events and records.
    pub flow: u16,
    /// Authenticated where there is one.
    pub key: Option<Vec<u8>>,
    /// Replies are numbered by the session's own count, not by the sender's (section 4.3).
    pub stateful: bool,
    /// Who is answered.
    pub peer: Peer,
    /// Replies to a session in a second, a tenth of it at once.
    pub most_per_s: u32,
}

/// Who is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Peer {
    /// Anyone, as the RFC has it.
    Anyone,
    /// This host, from any port.
    Host(IpAddr),
    /// This port of this host.
    Port(SocketAddr),
}

impl Peer {
    fn is(self, source: SocketAddr) -> bool {
        match self {
            Self::Anyone => true,
            Self::Host(address) => address == source.ip(),
            Self::Port(address) => address == source,
        }
    }
}

/// The state of one reflector. Its own address is the socket's, so the sender's tells its sessions
/// apart.
pub(super) struct StampReflector {
    plan: StampPlan,
    places: HashMap<SocketAddr, usize>,
    pub sessions: Vec<Session>,
}

/// One session.
pub(super) struct Session {
    sender: SocketAddr,
    pub flow: ReflectorFlow,
    rate: Rate,
    /// Numbers given to replies that have not left yet.
    given: u64,
}

/// A test packet that is answered or counted.
#[derive(Clone, Copy)]
pub(super) struct StampTest {
    pub test_packet: TestPacket,
    /// Place of its session.
    pub session: usize,
    ttl: u8,
}

impl StampReflector {
    pub fn new(plan: StampPlan) -> Self {
        Self {
            plan,
            places: HashMap::new(),
            sessions: Vec::new(),
        }
    }

    /// Reads a packet; None: it is not a test packet, or none of a sender that is answered.
    pub fn read(&mut self, packet: &[u8], arrival: &Arrival) -> Option<StampTest> {
        let source = arrival.source.filter(|source| self.plan.peer.is(*source))?;
        let test_packet = stamp::parse_test_packet(packet, self.plan.key.as_deref()).ok()?;
        let session = match self.places.get(&source) {
            Some(place) => *place,
            None => self.begin(source)?,
        };
        Some(StampTest {
            test_packet,
            session,
            ttl: arrival.time_to_live.unwrap_or(0),
        })
    }

    fn begin(&mut self, sender: SocketAddr) -> Option<usize> {
        let place = self.sessions.len();
        let number = u32::try_from(place).ok().filter(|_| place < MOST_SENDERS)?;
        self.places.insert(sender, place);
        self.sessions.push(Session {
            sender,
            flow: ReflectorFlow::new(self.plan.flow, number),
            rate: Rate::default(),
            given: 0,
        });
        Some(place)
    }

    /// Whether a test packet that came `at` is within the rate of its session, which it uses.
    pub fn allows(&mut self, test: &StampTest, at: Instant) -> bool {
        let most_per_s = self.plan.most_per_s;
        self.sessions[test.session].rate.allows(at, most_per_s)
    }

    /// Replies that were written and have not left are written again: they get their numbers again.
    pub fn renumber(&mut self, test: &StampTest) {
        self.sessions[test.session].given = 0;
    }

    /// Writes the reply that leaves at `answered` over its test packet.
    pub fn write(
        &mut self,
        packet: &mut [u8],
        test: &StampTest,
        (received, answered): (Instant, Instant),
        wall: WallClock,
    ) {
        let session = &mut self.sessions[test.session];
        let number = session.flow.counters.answered + session.given;
        session.given += 1;
        let reply = stamp::Reply {
            seq: if self.plan.stateful {
                // The count wraps as the field does.
                u32::try_from(number & u64::from(u32::MAX)).unwrap_or(0)
            } else {
                test.test_packet.seq
            },
            sent: Timestamp::from_realtime(wall.unix(answered)),
            error: wall.error.to_wire(),
            received: Timestamp::from_realtime(wall.unix(received)),
            test_packet: test.test_packet,
            ttl: test.ttl,
        };
        stamp::emit_reply(packet, &reply, self.plan.key.as_deref());
    }

    pub fn flow(&self) -> u16 {
        self.plan.flow
    }

    /// The sessions in order of their first packets.
    pub fn senders(&self) -> impl Iterator<Item = (SocketAddr, ReflectCounters)> + '_ {
        let sessions = self.sessions.iter();
        sessions.map(|session| (session.sender, session.flow.counters))
    }
}

/// A rate that is kept to over any time but a tenth of a second.
#[derive(Clone, Copy, Debug, Default)]
struct Rate {
    /// When all that was allowed so far would have been, one after the other.
    until: Instant,
}

impl Rate {
    fn allows(&mut self, at: Instant, most_per_s: u32) -> bool {
        let from = self.until.max(at);
        let allowed = from - at <= BURST;
        if allowed {
            self.until = from + Duration(1_000_000_000 / i64::from(most_per_s.max(1)));
        }
        allowed
    }
}

const BURST: Duration = Duration(100_000_000);

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn over_any_time_no_more_is_allowed_than_the_rate_and_a_burst(
            gaps in proptest::collection::vec(0_i64..3_000_000, 1..2_000), most_per_s in 100_u32..100_000,
        ) {
            let mut rate = Rate::default();
            let mut at = Instant(7);
            let allowed: Vec<Instant> = gaps.iter().filter_map(|gap| {
                at += Duration(*gap);
                rate.allows(at, most_per_s).then_some(at)
            }).collect();
            for (first, from) in allowed.iter().enumerate().step_by(97) {
                for (last, to) in allowed.iter().enumerate().skip(first) {
                    let span_ns = (*to - *from + BURST).0;
                    let most = span_ns / (1_000_000_000 / i64::from(most_per_s)) + 1;
                    prop_assert!(i64::try_from(last - first + 1).unwrap() <= most);
                }
            }
        }

        #[test]
        fn a_sender_within_the_rate_is_never_limited(
            count in 1_i64..2_000, most_per_s in 1_u32..100_000,
        ) {
            let mut rate = Rate::default();
            let gap = 1_000_000_000 / i64::from(most_per_s) + 1;
            prop_assert!((0..count).all(|k| rate.allows(Instant(k * gap), most_per_s)));
        }
    }
}
