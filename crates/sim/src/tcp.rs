//! TCP connections in virtual time: what their ends send, and when they look again.
//!
//! Each carries as much as goes through one way, for a time. The client opens it, whoever sends.

use std::collections::VecDeque;

use tm_probe::Stream;
use tm_wire::{Duration, Instant};

pub use crate::tcp_congestion::Congestion;
use crate::tcp_receiver::{Acknowledgement, Receiver, MOST_BLOCKS};
use crate::tcp_sender::{Sender, SenderCounters};

/// Connections are opened within so long, at random: flows that begin as one move in step, which no
/// real ones do (Floyd and Jacobson 1991, On Traffic Phase Effects in Packet-Switched Gateways).
const OPENING_NS: u64 = 10_000_000;
/// RFC 6298 section 2.1, doubled each time.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(1);
/// A connection that is not open after this never will be, as for iperf3 in a lab.
const OPEN_LIMIT: Duration = Duration::from_secs(10);
const SECOND: Duration = Duration::from_secs(1);
/// RFC 9293 section 3.1, and timestamps (RFC 7323 appendix A) in every segment.
const HEADER_BYTES: u32 = 20 + 12;
/// Beside the header of 20 bytes: maximum segment size, selective acknowledgements permitted,
/// timestamps, window scale and padding.
const OPEN_BYTES: u32 = 20 + 20;
/// RFC 2018 section 3, behind two bytes of padding.
const BLOCKS_BYTES: u32 = 4;
const BLOCK_BYTES: u32 = 8;
/// RFC 768.
const UDP_HEADER_BYTES: u32 = 8;

/// A connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConnectionPlan {
    /// Place of its path.
    pub path: usize,
    /// Payload of a full segment, which all are.
    pub segment_bytes: u32,
    /// What the receiver takes before the sender has to wait.
    pub window_bytes: u64,
    /// Of the sender.
    pub congestion: Congestion,
    /// How long data is sent, in whole seconds.
    pub seconds: u32,
}

impl ConnectionPlan {
    /// The payloads of the UDP datagrams that are as long as its packets: a path must know them.
    #[must_use]
    pub fn sizes(&self) -> Vec<u32> {
        let blocks = [(0, 0); MOST_BLOCKS];
        let said = (0..=MOST_BLOCKS).map(|count| {
            Segment::Said(Acknowledgement {
                next: 0,
                blocks: blocks[..count].to_vec(),
                echo: Instant(0),
            })
        });
        [Segment::Open, Segment::Data(0, Instant(0))]
            .into_iter()
            .chain(said)
            .map(|segment| segment.size(self.segment_bytes))
            .collect()
    }
}

/// What became of a connection in one second.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ConnectionSecond {
    /// Payload sent for the first time.
    pub sent_bytes: u64,
    /// Payload that the receiver's application got.
    pub delivered_bytes: u64,
    /// Segments sent again.
    pub retransmits: u64,
    /// Smoothed RTT at the end of the second; None before the first sample.
    pub rtt: Option<Duration>,
    /// Congestion window at the end of the second.
    pub window_bytes: u64,
}

/// What became of a connection.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ConnectionOutcome {
    /// It was opened; if not there is nothing else.
    pub opened: bool,
    /// Second by second, from when the sender could send.
    pub seconds: Vec<ConnectionSecond>,
    /// Times that the retransmission timer expired.
    pub timeouts: u64,
}

/// The connections whose data goes one way.
pub struct Connections {
    all: Vec<Connection>,
    leaving: VecDeque<Leaving>,
}

/// A segment that leaves its host.
pub struct Leaving {
    /// Place of its connection.
    pub connection: usize,
    /// It goes from the receiver to the sender.
    pub answer: bool,
    /// As in [`ConnectionPlan::sizes`].
    pub size: u32,
    /// What it says.
    pub bytes: Vec<u8>,
}

impl Connections {
    /// Those that `plans` name, which begin after `start`; their data goes `way`, 0 from the client.
    pub fn new(plans: &[ConnectionPlan], seed: u64, way: usize, start: Instant) -> Self {
        let connection = |(place, plan): (usize, &ConnectionPlan)| {
            let mut random = Stream::named(seed, &format!("tcp/{way}/{place}/start"));
            let wait_ns = i64::try_from(random.between(0, OPENING_NS)).unwrap_or(0);
            Connection::new(plan.clone(), way == 1, start + Duration(wait_ns))
        };
        Self {
            all: plans.iter().enumerate().map(connection).collect(),
            leaving: VecDeque::new(),
        }
    }

    /// When something is due; None: all are over.
    pub fn next_due(&self) -> Option<Instant> {
        self.all.iter().filter_map(Connection::next_due).min()
    }

    /// Does what is due at `now`.
    pub fn turn(&mut self, now: Instant) {
        for (place, one) in self.all.iter_mut().enumerate() {
            if one.next_due().is_some_and(|due| due <= now) {
                one.turn(now, &mut Out(place, &mut self.leaving));
            }
        }
    }

    /// Takes a segment of a connection that came at `now`.
    pub fn take(&mut self, now: Instant, place: usize, bytes: &[u8]) {
        if let Some(segment) = Segment::parse(bytes) {
            let out = &mut Out(place, &mut self.leaving);
            self.all[place].take(now, &segment, out);
        }
    }

    /// The next segment that leaves.
    pub fn pop(&mut self) -> Option<Leaving> {
        self.leaving.pop_front()
    }

    /// What it came to, in the order of the plans.
    pub fn finish(self) -> Vec<ConnectionOutcome> {
        self.all.into_iter().map(Connection::finish).collect()
    }
}

/// One connection with both its ends.
struct Connection {
    plan: ConnectionPlan,
    /// The server sends the data.
    reverse: bool,
    phase: Phase,
    /// From when on it is opened, and until when.
    opens: Instant,
    client: Handshake,
    server: Handshake,
    receiver: Receiver,
    sender: Option<Sender>,
    seconds: Vec<ConnectionSecond>,
    second: Instant,
    counted: SenderCounters,
    delivered: u64,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Phase {
    Opening,
    Open,
    Over,
}

/// The part of an end in the opening.
#[derive(Default)]
struct Handshake {
    sent: Instant,
    tries: u32,
    timer: Option<Instant>,
}

/// Where a connection's segments go.
struct Out<'a>(usize, &'a mut VecDeque<Leaving>);

impl Connection {
    fn new(plan: ConnectionPlan, reverse: bool, opens: Instant) -> Self {
        Self {
            plan,
            reverse,
            phase: Phase::Opening,
            opens,
            client: Handshake {
                timer: Some(opens),
                ..Handshake::default()
            },
            server: Handshake::default(),
            receiver: Receiver::default(),
            sender: None,
            seconds: Vec::new(),
            second: Instant(0),
            counted: SenderCounters::default(),
            delivered: 0,
        }
    }

    fn next_due(&self) -> Option<Instant> {
        let timers = match (&self.phase, &self.sender) {
            (Phase::Over, _) => return None,
            (Phase::Open, Some(sender)) => {
                [Some(self.second), sender.timer(), self.receiver.timer()]
            }
            _ => [
                Some(self.opens + OPEN_LIMIT),
                self.client.timer,
                self.server.timer,
            ],
        };
        timers.into_iter().flatten().min()
    }

    fn turn(&mut self, now: Instant, out: &mut Out) {
        match self.phase {
            Phase::Over => {}
            Phase::Opening if now >= self.opens + OPEN_LIMIT => self.phase = Phase::Over,
            Phase::Opening => {
                if self.client.due(now) {
                    self.send(&Segment::Open, self.reverse, out);
                }
                if self.server.due(now) {
                    self.send(&Segment::Opening, !self.reverse, out);
                }
            }
            Phase::Open => {
                if self.receiver.timer().is_some_and(|timer| timer <= now) {
                    self.say(out);
                }
                if let Some(sender) = &mut self.sender {
                    sender.expire(now);
                }
                if self.second <= now {
                    self.count();
                }
                self.send_data(now, out);
            }
        }
    }

    fn take(&mut self, now: Instant, segment: &Segment, out: &mut Out) {
        match segment {
            _ if self.phase == Phase::Over => {}
            Segment::Open if self.reverse && self.phase == Phase::Opening => {
                // The server waits for the client's answer. Where the client sends, its data is one.
                self.server.timer = Some(now);
                self.turn(now, out);
            }
            Segment::Open => self.send(&Segment::Opening, !self.reverse, out),
            Segment::Opening => {
                self.send(&Segment::Opened, self.reverse, out);
                self.client.timer = None;
                if !self.reverse && self.phase == Phase::Opening {
                    let rtt = self.client.rtt(now);
                    self.begin(now, rtt, out);
                }
            }
            Segment::Opened => {
                if self.reverse && self.phase == Phase::Opening {
                    let rtt = self.server.rtt(now);
                    self.begin(now, rtt, out);
                }
            }
            Segment::Data(number, sent) => {
                if self.receiver.take(now, *number, *sent) {
                    self.say(out);
                }
            }
            Segment::Said(said) => {
                if let Some(sender) = &mut self.sender {
                    sender.acknowledged(now, said);
                }
                self.send_data(now, out);
            }
        }
    }

    /// The sender may send from now on; `rtt` is None where its part of the opening was lost.
    fn begin(&mut self, now: Instant, rtt: Option<Duration>, out: &mut Out) {
        let most = self.plan.window_bytes / u64::from(self.plan.segment_bytes.max(1));
        self.sender = Some(Sender::new(self.plan.congestion, most, rtt));
        self.phase = Phase::Open;
        self.second = now + SECOND;
        self.send_data(now, out);
    }

    fn send_data(&mut self, now: Instant, out: &mut Out) {
        if self.phase != Phase::Open {
            return;
        }
        while let Some(number) = self.sender.as_mut().and_then(|one| one.next(now)) {
            self.send(&Segment::Data(number, now), false, out);
        }
    }

    fn say(&mut self, out: &mut Out) {
        let said = self.receiver.acknowledgement();
        self.send(&Segment::Said(said), true, out);
    }

    fn send(&self, segment: &Segment, answer: bool, out: &mut Out) {
        out.1.push_back(Leaving {
            connection: out.0,
            answer,
            size: segment.size(self.plan.segment_bytes),
            bytes: segment.to_bytes(),
        });
    }

    /// A second is over.
    fn count(&mut self) {
        let Some(sender) = &self.sender else {
            return;
        };
        let (now, delivered) = (sender.counters(), self.receiver.delivered());
        let bytes = u64::from(self.plan.segment_bytes);
        self.seconds.push(ConnectionSecond {
            sent_bytes: (now.sent - self.counted.sent) * bytes,
            delivered_bytes: (delivered - self.delivered) * bytes,
            retransmits: now.retransmits - self.counted.retransmits,
            rtt: sender.smoothed_rtt(),
            window_bytes: sender.window_segments() * bytes,
        });
        (self.counted, self.delivered) = (now, delivered);
        self.second += SECOND;
        if self.seconds.len() >= self.plan.seconds as usize {
            self.phase = Phase::Over;
        }
    }

    fn finish(self) -> ConnectionOutcome {
        ConnectionOutcome {
            opened: self.sender.is_some(),
            timeouts: self.sender.map_or(0, |sender| sender.counters().timeouts),
            seconds: self.seconds,
        }
    }
}

impl Handshake {
    /// Whether its segment is to be sent now, for the first time or again.
    fn due(&mut self, now: Instant) -> bool {
        if self.timer.is_none_or(|timer| timer > now) {
            return false;
        }
        self.timer = Some(now + HANDSHAKE_TIMEOUT.saturating_mul(1 << self.tries.min(16)));
        self.sent = now;
        self.tries += 1;
        true
    }

    /// The RTT of an answer at `now`; None where nobody knows to which of several it is one.
    fn rtt(&self, now: Instant) -> Option<Duration> {
        (self.tries == 1).then_some(now - self.sent)
    }
}

/// What the ends say to each other. Numbers count full segments.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Segment {
    /// SYN.
    Open,
    /// SYN and ACK.
    Opening,
    /// The ACK of it.
    Opened,
    /// Its number, and when it was sent.
    Data(u64, Instant),
    Said(Acknowledgement),
}

impl Segment {
    /// The payload of the UDP datagram that is as long.
    fn size(&self, segment_bytes: u32) -> u32 {
        let tcp_bytes = match self {
            Self::Open | Self::Opening => OPEN_BYTES,
            Self::Opened => HEADER_BYTES,
            Self::Data(..) => HEADER_BYTES + segment_bytes,
            Self::Said(said) => {
                let blocks = u32::try_from(said.blocks.len()).unwrap_or(0);
                HEADER_BYTES + BLOCKS_BYTES * blocks.min(1) + BLOCK_BYTES * blocks
            }
        };
        tcp_bytes - UDP_HEADER_BYTES
    }

    fn to_bytes(&self) -> Vec<u8> {
        let (kind, numbers) = match self {
            Self::Open => (0, Vec::new()),
            Self::Opening => (1, Vec::new()),
            Self::Opened => (2, Vec::new()),
            Self::Data(number, sent) => (3, vec![*number, sent.0.cast_unsigned()]),
            Self::Said(said) => {
                let blocks = said.blocks.iter().flat_map(|(from, to)| [*from, *to]);
                let fixed = [said.next, said.echo.0.cast_unsigned()];
                (4, fixed.into_iter().chain(blocks).collect())
            }
        };
        let numbers = numbers.iter().flat_map(|number| number.to_le_bytes());
        std::iter::once(kind).chain(numbers).collect()
    }

    fn parse(bytes: &[u8]) -> Option<Self> {
        let (kind, rest) = bytes.split_first()?;
        let number = |eight: &[u8]| Some(u64::from_le_bytes(eight.try_into().ok()?));
        let numbers: Vec<u64> = rest.chunks(8).map(number).collect::<Option<_>>()?;
        match (kind, numbers.as_slice()) {
            (0, []) => Some(Self::Open),
            (1, []) => Some(Self::Opening),
            (2, []) => Some(Self::Opened),
            (3, [number, sent]) => Some(Self::Data(*number, Instant(sent.cast_signed()))),
            (4, [next, echo, blocks @ ..]) if blocks.len() % 2 == 0 => {
                let blocks = blocks.chunks_exact(2).map(|pair| (pair[0], pair[1]));
                Some(Self::Said(Acknowledgement {
                    next: *next,
                    blocks: blocks.collect(),
                    echo: Instant(echo.cast_signed()),
                }))
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_segment_is_read_as_it_was_written() {
        let said = Acknowledgement {
            next: 7,
            blocks: vec![(9, 12), (14, u64::MAX)],
            echo: Instant(-5),
        };
        for segment in [
            Segment::Open,
            Segment::Opening,
            Segment::Opened,
            Segment::Data(3, Instant(1 << 40)),
            Segment::Said(said),
        ] {
            assert_eq!(Segment::parse(&segment.to_bytes()), Some(segment));
        }
        for wrong in [
            &[][..],
            &[9],
            &[3],
            &[3, 1, 2],
            &[0, 1, 2, 3, 4, 5, 6, 7, 8],
        ] {
            assert_eq!(Segment::parse(wrong), None);
        }
    }

    #[test]
    fn packets_have_the_lengths_that_linux_gives_them() {
        // With an IP header of 20 bytes: 60 for a SYN, 1500 for a segment, 52 for an acknowledgement
        // and 64, 72 and 80 with selective ones.
        let plan = ConnectionPlan {
            path: 0,
            segment_bytes: 1448,
            window_bytes: 1 << 20,
            congestion: Congestion::Cubic,
            seconds: 1,
        };
        let packets: Vec<u32> = plan.sizes().iter().map(|size| size + 28).collect();
        assert_eq!(packets, [60, 1500, 52, 64, 72, 80]);
    }
}
