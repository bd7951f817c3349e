//! The TCP connection that carries a tunnel: packets as messages in a stream of bytes each way.
//!
//! It stands when the simulation begins, as it does in a lab, where the tunnel came up before. Neither
//! end waits with a short segment (`TCP_NODELAY`); what waits for room in the window shares segments.

use std::collections::VecDeque;

use tm_wire::Instant;

use crate::tcp_congestion::Congestion;
use crate::tcp_receiver::{Acknowledgement, Receiver};
use crate::tcp_segment::Segment;
use crate::tcp_sender::Sender;

/// What Linux takes a segment under way to need beside its data when it chooses a size of the send buffer:
/// `MAX_TCP_HEADER` and the shared info, and behind the rounding to a power of two the `sk_buff`. The
/// first is 256 bytes without drivers for WLAN, as on the machine beside which this was held (docs/simulation.md).
const BESIDE_DATA_BYTES: u64 = 256 + 320;
const BUFFER_HEAD_BYTES: u64 = 256;
/// What it counts in the buffer beside the data of each segment, as `ss -m` has it there (690 to 710).
const COUNTED_BESIDE_BYTES: u64 = 700;
/// `tcp_sndbuf_expand` of Linux: the send buffer has room for so many windows, up to a limit
/// (`tcp_wmem`).
const WINDOWS: u64 = 2;
const MOST_BUFFER_BYTES: u64 = 4 << 20;

/// How a tunnel's connection sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TcpCarrierPlan {
    /// Of the packets on the link, without options.
    pub ip_header_bytes: u32,
    /// Payload of a full segment.
    pub segment_bytes: u32,
    /// What a receiver takes before the sender has to wait.
    pub window_bytes: u64,
    /// Of both ends.
    pub congestion: Congestion,
}

impl TcpCarrierPlan {
    /// What the send buffer is for the window that a sender has.
    fn buffer_bytes(self, sender: &Sender) -> u64 {
        let counted = (u64::from(self.segment_bytes) + BESIDE_DATA_BYTES).next_power_of_two();
        let bytes = WINDOWS * sender.window_segments() * (counted + BUFFER_HEAD_BYTES);
        bytes.min(MOST_BUFFER_BYTES)
    }
}

/// A packet that enters the tunnel, by the number of its datagram and its place in that.
pub type Packet = (u64, u16);

/// A segment that leaves an end.
pub struct Sent {
    /// Place of the end, 0 the client.
    pub from: usize,
    /// Length on the link with its IP header.
    pub bytes: u32,
    /// What it says.
    pub says: Vec<u8>,
}

/// The connection.
pub struct TcpCarrier {
    plan: TcpCarrierPlan,
    ends: [End; 2],
    leaving: VecDeque<Sent>,
}

/// What one end has written, and what came to it.
struct End {
    sender: Sender,
    receiver: Receiver,
    /// Of the kernel, for what it has taken and what it counts beside that.
    buffer_bytes: u64,
    /// Bytes that it has taken from the program so far.
    written: u64,
    /// How many bytes are in all segments up to each, from that numbered `first` on.
    behind: VecDeque<u64>,
    first: u64,
    /// How many are in all before that.
    before: u64,
    /// Messages that have not all come yet, by the byte behind each.
    messages: VecDeque<(u64, Packet)>,
    /// Messages that wait until the kernel takes them, with their lengths.
    waiting: VecDeque<(u32, Packet)>,
}

impl TcpCarrier {
    /// One on which nothing was sent yet.
    pub fn new(plan: TcpCarrierPlan) -> Self {
        let most = plan.window_bytes / u64::from(plan.segment_bytes.max(1));
        let end = || {
            let sender = Sender::standing(plan.congestion, most);
            End {
                buffer_bytes: plan.buffer_bytes(&sender),
                sender,
                receiver: Receiver::default(),
                written: 0,
                behind: VecDeque::new(),
                first: 0,
                before: 0,
                messages: VecDeque::new(),
                waiting: VecDeque::new(),
            }
        };
        Self {
            ends: [end(), end()],
            plan,
            leaving: VecDeque::new(),
        }
    }

    /// When one of its timers expires.
    pub fn next_due(&self) -> Option<Instant> {
        let timers = self
            .ends
            .iter()
            .flat_map(|end| [end.sender.timer(), end.receiver.timer()]);
        timers.flatten().min()
    }

    /// Packets that wait at an end until the kernel takes them.
    pub fn waiting(&self, end: usize) -> usize {
        self.ends[end].waiting.len()
    }

    /// An end writes a packet, which takes so many bytes of the stream.
    pub fn write(&mut self, now: Instant, end: usize, bytes: u32, packet: Packet) {
        self.ends[end].waiting.push_back((bytes, packet));
        self.send(now, end);
    }

    /// Does what is due at `now`.
    pub fn turn(&mut self, now: Instant) {
        for place in [0, 1] {
            let end = &mut self.ends[place];
            end.sender.expire(now);
            if end.receiver.timer().is_some_and(|timer| timer <= now) {
                self.say(place);
            }
            self.send(now, place);
        }
    }

    /// Takes what a segment said that came to an end at `now`; the packets that are whole by it.
    pub fn take(&mut self, now: Instant, place: usize, says: &[u8]) -> Vec<Packet> {
        let mut whole = Vec::new();
        match Segment::parse(says) {
            Some(Segment::Data(number, sent, said)) => {
                let end = &mut self.ends[place];
                if let Some(said) = said {
                    end.sender
                        .acknowledged(now, &Acknowledgement::with_data(said));
                }
                let at_once = end.receiver.take(now, number, sent);
                let came = end.receiver.delivered();
                self.ends[1 - place].came(came, &mut whole);
                if at_once {
                    self.say(place);
                }
            }
            Some(Segment::Said(said)) => self.ends[place].sender.acknowledged(now, &said),
            _ => return whole,
        }
        self.send(now, place);
        whole
    }

    /// The next segment that leaves.
    pub fn pop(&mut self) -> Option<Sent> {
        self.leaving.pop_front()
    }

    /// Lets leave what may, and takes from the program what then has room.
    fn send(&mut self, now: Instant, place: usize) {
        let full = u64::from(self.plan.segment_bytes.max(1));
        loop {
            let end = &mut self.ends[place];
            end.read(full);
            end.sender
                .wrote(end.segments() + (end.written - end.cut()).div_ceil(full));
            let Some(number) = end.sender.next(now) else {
                if end.grow(self.plan) {
                    continue;
                }
                return;
            };
            let said = end.receiver.go_with_data();
            if number == end.segments() {
                let cut = end.cut();
                end.behind.push_back(cut + full.min(end.written - cut));
            }
            let bytes = end.length(number);
            self.push(place, &Segment::Data(number, now, said), bytes);
        }
    }

    fn say(&mut self, place: usize) {
        let said = self.ends[place].receiver.acknowledgement();
        self.push(place, &Segment::Said(said), 0);
    }

    fn push(&mut self, from: usize, segment: &Segment, data_bytes: u32) {
        self.leaving.push_back(Sent {
            from,
            bytes: self.plan.ip_header_bytes + segment.bytes(data_bytes),
            says: segment.to_bytes(),
        });
    }
}

impl End {
    /// Segments that were cut from the stream so far.
    fn segments(&self) -> u64 {
        self.first + self.behind.len() as u64
    }

    /// Bytes that are in them.
    fn cut(&self) -> u64 {
        self.behind.back().copied().unwrap_or(self.before)
    }

    fn length(&self, number: u64) -> u32 {
        let place = usize::try_from(number - self.first).unwrap_or(0);
        let from = match place.checked_sub(1) {
            None => self.before,
            Some(place) => self.behind[place],
        };
        u32::try_from(self.behind[place] - from).unwrap_or(0)
    }

    /// The kernel takes what waits while it has room: a program writes when the socket is writable,
    /// which Linux says while at most two thirds of the buffer are taken (`sk_stream_is_writeable`).
    fn read(&mut self, full: u64) {
        while self.counted_bytes(full) <= self.buffer_bytes / 3 * 2 {
            let Some((bytes, packet)) = self.waiting.pop_front() else {
                return;
            };
            self.written += u64::from(bytes);
            self.messages.push_back((self.written, packet));
        }
    }

    /// What is in the buffer, as the kernel counts it.
    fn counted_bytes(&self, full: u64) -> u64 {
        let cut = self.segments() - self.sender.first();
        let segments = cut + (self.written - self.cut()).div_ceil(full);
        self.written - self.acknowledged() + COUNTED_BESIDE_BYTES * segments
    }

    /// The buffer grows where it is what holds segments back, and not a window that is full
    /// (`tcp_should_expand_sndbuf`); whether it did.
    fn grow(&mut self, plan: TcpCarrierPlan) -> bool {
        let lacks = !self.waiting.is_empty() && self.cut() == self.written;
        let larger = plan.buffer_bytes(&self.sender);
        if !lacks || !self.sender.has_room() || larger <= self.buffer_bytes {
            return false;
        }
        self.buffer_bytes = larger;
        true
    }

    /// Bytes in segments that are acknowledged.
    fn acknowledged(&self) -> u64 {
        let number = usize::try_from(self.sender.first() - self.first).unwrap_or(0);
        match number.checked_sub(1) {
            None => self.before,
            Some(place) => self.behind[place],
        }
    }

    /// All segments before `next` came to the other end: which packets are whole by that.
    fn came(&mut self, next: u64, whole: &mut Vec<Packet>) {
        let Some(place) = next.checked_sub(self.first + 1) else {
            return;
        };
        let Some(&until) = usize::try_from(place)
            .ok()
            .and_then(|at| self.behind.get(at))
        else {
            return;
        };
        while self.messages.front().is_some_and(|one| one.0 <= until) {
            whole.extend(self.messages.pop_front().map(|one| one.1));
        }
        // Lengths of what is acknowledged are never asked for again.
        while self.first < self.sender.first() {
            self.before = self.behind.pop_front().unwrap_or(self.before);
            self.first += 1;
        }
    }
}

#[cfg(test)]
#[path = "tcp_carrier_tests.rs"]
mod tests;
