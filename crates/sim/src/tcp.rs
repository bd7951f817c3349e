//! TCP connections in virtual time: what their ends send, and when they look again.
//!
//! Each carries as much as goes through one way, for a time. The client opens it, whoever sends.

use std::collections::VecDeque;

use tm_probe::Stream;
use tm_wire::{Duration, Instant};

pub use crate::tcp_congestion::Congestion;
use crate::tcp_receiver::Receiver;
use crate::tcp_segment::{Established, Handshake, Segment};
use crate::tcp_sender::{Sender, SenderCounters};

/// Connections are opened within so long, at random: flows that begin as one move in step, which no
/// real ones do (Floyd and Jacobson 1991, On Traffic Phase Effects in Packet-Switched Gateways).
pub const OPENING_NS: u64 = 10_000_000;
/// A connection that is not open after this never will be, as for iperf3 in a lab.
const OPEN_LIMIT: Duration = Duration::from_secs(10);
const SECOND: Duration = Duration::from_secs(1);
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
        Segment::sizes([self.segment_bytes])
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
    /// How long the last of these is, of a connection that was stopped; None: all are whole.
    pub rest: Option<Duration>,
    /// Times that the retransmission timer expired.
    pub timeouts: u64,
}

/// The connections whose data goes one way.
pub struct Connections {
    all: Vec<Connection>,
    leaving: VecDeque<Leaving>,
}

/// A segment, or another packet of a program, that leaves its host.
pub struct Leaving {
    /// Place of its connection.
    pub connection: usize,
    /// It goes from the receiver to the sender.
    pub answer: bool,
    /// As in [`ConnectionPlan::sizes`] and [`crate::ClientPlan::sizes`].
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
            // An even way goes to the server, of loads too.
            Connection::new(plan.clone(), way % 2 == 1, start + Duration(wait_ns))
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

    /// Ends those that are not over.
    pub fn stop(&mut self, now: Instant) {
        for one in &mut self.all {
            one.stop(now);
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
    rest: Option<Duration>,
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

/// Where a connection's segments go.
struct Out<'a>(usize, &'a mut VecDeque<Leaving>);

impl Connection {
    fn new(plan: ConnectionPlan, reverse: bool, opens: Instant) -> Self {
        Self {
            plan,
            reverse,
            phase: Phase::Opening,
            opens,
            client: Handshake::at(opens),
            server: Handshake::default(),
            receiver: Receiver::default(),
            sender: None,
            seconds: Vec::new(),
            rest: None,
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
                    let from = self.client.established(now);
                    self.begin(now, from, out);
                }
            }
            Segment::Opened => {
                if self.reverse && self.phase == Phase::Opening {
                    let from = self.server.established(now);
                    self.begin(now, from, out);
                }
            }
            Segment::Data(number, sent, _) => {
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
            // Its end is not waited for.
            Segment::Close | Segment::Closed => {}
        }
    }

    /// The sender may send from now on.
    fn begin(&mut self, now: Instant, from: Established, out: &mut Out) {
        let most = self.plan.window_bytes / u64::from(self.plan.segment_bytes.max(1));
        self.sender = Some(Sender::new(self.plan.congestion, most, from));
        self.phase = Phase::Open;
        self.second = now + SECOND;
        self.send_data(now, out);
    }

    fn send_data(&mut self, now: Instant, out: &mut Out) {
        if self.phase != Phase::Open {
            return;
        }
        while let Some(number) = self.sender.as_mut().and_then(|one| one.next(now)) {
            self.send(&Segment::Data(number, now, None), false, out);
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

    /// What it is at comes to no end; the second that has begun counts as far as it came.
    fn stop(&mut self, now: Instant) {
        if self.phase == Phase::Open {
            let rest = now - (self.second - SECOND);
            self.count();
            self.rest = Some(rest);
        }
        self.phase = Phase::Over;
    }

    fn finish(self) -> ConnectionOutcome {
        ConnectionOutcome {
            opened: self.sender.is_some(),
            timeouts: self.sender.map_or(0, |sender| sender.counters().timeouts),
            seconds: self.seconds,
            rest: self.rest,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan() -> ConnectionPlan {
        ConnectionPlan {
            path: 0,
            segment_bytes: 1448,
            window_bytes: 1 << 20,
            congestion: Congestion::Cubic,
            seconds: 1,
        }
    }

    #[test]
    fn the_client_opens_whichever_way_the_data_of_a_trial_or_a_load_goes() {
        for way in 0..6 {
            let mut connections = Connections::new(&[plan()], 7, way, Instant(0));
            let due = connections.next_due().unwrap();
            connections.turn(due);
            let syn = connections.pop().unwrap();
            assert_eq!(Segment::parse(&syn.bytes), Some(Segment::Open));
            // Where the server is the sender, the client is the receiver.
            assert_eq!(syn.answer, way % 2 == 1, "way {way}");
        }
    }

    #[test]
    fn packets_have_the_lengths_that_linux_gives_them() {
        // With an IP header of 20 bytes: 60 for a SYN, 1500 for a segment, 52 for an acknowledgement
        // and 64, 72 and 80 with selective ones.
        let plan = plan();
        let packets: Vec<u32> = plan.sizes().iter().map(|size| size + 28).collect();
        assert_eq!(packets, [60, 1500, 52, 64, 72, 80]);
    }
}
