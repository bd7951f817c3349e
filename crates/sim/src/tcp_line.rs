//! A TCP connection over which both ends send what they write, when they write it.
//!
//! Neither end waits with a short segment (`TCP_NODELAY`, as all programs of ours set it) unless it is
//! asked to, and an acknowledgement that is delayed goes with the data that leaves before it is due.

use std::collections::VecDeque;

use tm_wire::Instant;

use crate::tcp::Leaving;
use crate::tcp_congestion::Congestion;
use crate::tcp_receiver::{Acknowledgement, Receiver};
use crate::tcp_segment::{Handshake, Segment};
use crate::tcp_sender::{Sender, SenderCounters};

/// What a send buffer of Linux holds, in congestion windows: it is as long as two windows whose segments
/// take 2304 bytes of memory (`tcp_sndbuf_expand`), 46 kB at first, and what it holds takes little more
/// than its bytes.
const BUFFER_WINDOWS: u64 = 3;

/// Places of the two ends.
pub const CLIENT: usize = 0;
pub const SERVER: usize = 1;

/// Where the segments of a connection go.
pub struct Out<'a> {
    /// Place of the client.
    pub client: usize,
    /// Number of its connection.
    pub line: u32,
    pub leaving: &'a mut VecDeque<Leaving>,
}

impl Out<'_> {
    /// Lets a segment leave an end; `data_bytes` is the length of its data.
    pub fn push(&mut self, from: usize, segment: &Segment, data_bytes: u32) {
        let mut bytes = segment.to_bytes();
        bytes.extend_from_slice(&self.line.to_le_bytes());
        self.leaving.push_back(Leaving {
            connection: self.client,
            answer: from == SERVER,
            size: segment.size(data_bytes),
            bytes,
        });
    }
}

/// The number of the connection and the segment that [`Out::push`] let leave.
pub fn parse(bytes: &[u8]) -> Option<(u32, Segment)> {
    let (segment, line) = bytes.split_last_chunk::<4>()?;
    Some((u32::from_le_bytes(*line), Segment::parse(segment)?))
}

/// What an end has written, cut into segments: the last one of each piece is shorter.
#[derive(Default)]
struct Written {
    segments: u64,
    /// The number behind the last segment of each piece, and that one's length.
    pieces: Vec<(u64, u32)>,
    /// Segments that wait until all before them are acknowledged.
    held: Vec<u64>,
    /// Segments that, with all behind them, wait for a time.
    due: VecDeque<(u64, Instant)>,
}

#[derive(Default)]
struct End {
    handshake: Handshake,
    sender: Option<Sender>,
    written: Written,
    receiver: Receiver,
}

/// How both ends of a connection send.
#[derive(Clone, Copy)]
pub struct LinePlan {
    pub segment_bytes: u32,
    pub window_bytes: u64,
    pub congestion: Congestion,
}

/// The connection.
pub struct Line {
    plan: LinePlan,
    ends: [End; 2],
}

impl Line {
    /// One that the client opens at `now`.
    pub fn new(plan: LinePlan, now: Instant) -> Self {
        let client = End {
            handshake: Handshake::at(now),
            ..End::default()
        };
        Self {
            plan,
            ends: [client, End::default()],
        }
    }

    /// When one of its timers expires.
    pub fn next_due(&self) -> Option<Instant> {
        let timers = self.ends.iter().flat_map(|end| {
            let sender = end.sender.as_ref().and_then(Sender::timer);
            let due = end.written.due.front().map(|(_, due)| *due);
            [end.handshake.timer, sender, end.receiver.timer(), due]
        });
        timers.flatten().min()
    }

    /// Whether the client may send.
    pub fn open(&self) -> bool {
        self.ends[CLIENT].sender.is_some()
    }

    /// Segments that an end has written.
    pub fn written(&self, end: usize) -> u64 {
        self.ends[end].written.segments
    }

    /// Segments in order that an end's application has.
    pub fn has(&self, end: usize) -> u64 {
        self.ends[end].receiver.delivered()
    }

    /// What both ends counted.
    pub fn counters(&self) -> impl Iterator<Item = SenderCounters> + '_ {
        let senders = self.ends.iter().filter_map(|end| end.sender.as_ref());
        senders.map(Sender::counters)
    }

    /// An end writes so many bytes; 0 is the end of its stream.
    pub fn write(&mut self, end: usize, bytes: u64) {
        self.ends[end].written.push(bytes, self.plan.segment_bytes);
    }

    /// An end writes a piece that waits until all before it is acknowledged.
    pub fn write_held(&mut self, end: usize, bytes: u64) {
        let written = &mut self.ends[end].written;
        written.held.push(written.segments);
        self.write(end, bytes);
    }

    /// An end writes a piece that, with all behind it, leaves no earlier than `due`.
    pub fn write_due(&mut self, end: usize, bytes: u64, due: Instant) {
        let written = &mut self.ends[end].written;
        written.due.push_back((written.segments, due));
        self.write(end, bytes);
    }

    /// An end writes bytes that fill up its last segment if that has not left; the number of the first
    /// segment with some of them.
    pub fn join(&mut self, end: usize, bytes: u64) -> u64 {
        let one = &mut self.ends[end];
        let unsent = one.sender.as_ref().map_or(0, Sender::unsent);
        one.written.join(bytes, self.plan.segment_bytes, unsent)
    }

    /// Whether the kernel of an end takes more: it keeps what is not acknowledged, whatever was sent of it.
    pub fn wants(&self, end: usize) -> bool {
        let one = &self.ends[end];
        let sender = one.sender.as_ref();
        let kept = |sender: &Sender| one.written.segments - sender.first();
        sender.is_some_and(|sender| kept(sender) < BUFFER_WINDOWS * sender.window_segments())
    }

    /// How many segments of a piece are before the one with the last of its first bytes.
    pub fn before(&self, bytes: u64) -> u64 {
        bytes.saturating_sub(1) / u64::from(self.plan.segment_bytes.max(1))
    }

    /// Does what is due at `now`.
    pub fn turn(&mut self, now: Instant, out: &mut Out) {
        for (place, opens) in [(CLIENT, Segment::Open), (SERVER, Segment::Opening)] {
            let end = &mut self.ends[place];
            while end.written.due.front().is_some_and(|one| one.1 <= now) {
                end.written.due.pop_front();
            }
            if end.handshake.due(now) {
                out.push(place, &opens, 0);
            }
            if end.receiver.timer().is_some_and(|timer| timer <= now) {
                end.say(place, out);
            }
            if let Some(sender) = &mut end.sender {
                sender.expire(now);
            }
            self.send(now, place, out);
        }
    }

    /// Takes a segment that came to an end at `now`.
    pub fn take(&mut self, now: Instant, place: usize, segment: &Segment, out: &mut Out) {
        let plan = self.plan;
        let end = &mut self.ends[place];
        match segment {
            Segment::Open if end.sender.is_some() => out.push(place, &Segment::Opening, 0),
            Segment::Open => {
                end.handshake.timer = Some(now);
                if end.handshake.due(now) {
                    out.push(place, &Segment::Opening, 0);
                }
            }
            Segment::Opening => {
                out.push(place, &Segment::Opened, 0);
                end.begin(now, plan);
            }
            Segment::Opened => end.begin(now, plan),
            Segment::Data(number, sent, said) => {
                // Of the client it is the answer to the SYN of the server as well.
                end.begin(now, plan);
                if let (Some(said), Some(sender)) = (said, &mut end.sender) {
                    sender.acknowledged(now, &Acknowledgement::with_data(*said));
                }
                if end.receiver.take(now, *number, *sent) {
                    end.say(place, out);
                }
            }
            Segment::Said(said) => {
                if let Some(sender) = &mut end.sender {
                    sender.acknowledged(now, said);
                }
            }
            Segment::Close | Segment::Closed => {}
        }
    }

    /// Lets leave what may.
    pub fn send(&mut self, now: Instant, place: usize, out: &mut Out) {
        let End {
            sender: Some(sender),
            written,
            receiver,
            ..
        } = &mut self.ends[place]
        else {
            return;
        };
        sender.wrote(written.free(sender.first()));
        while let Some(number) = sender.next(now) {
            let said = receiver.go_with_data();
            let bytes = written.length(number, self.plan.segment_bytes);
            out.push(place, &Segment::Data(number, now, said), bytes);
        }
    }
}

impl End {
    /// The other end is there: from now on this one may send.
    fn begin(&mut self, now: Instant, plan: LinePlan) {
        if self.sender.is_none() {
            let most = plan.window_bytes / u64::from(plan.segment_bytes.max(1));
            let from = self.handshake.established(now);
            self.sender = Some(Sender::new(plan.congestion, most, from));
        }
        self.handshake.timer = None;
    }

    fn say(&mut self, place: usize, out: &mut Out) {
        let said = self.receiver.acknowledgement();
        out.push(place, &Segment::Said(said), 0);
    }
}

impl Written {
    fn push(&mut self, bytes: u64, segment_bytes: u32) {
        let full = u64::from(segment_bytes.max(1));
        let count = bytes.div_ceil(full).max(1);
        let last = u32::try_from(bytes - (count - 1) * full).unwrap_or(segment_bytes);
        self.segments += count;
        self.pieces.push((self.segments, last));
    }

    /// As `push`, but the last segment is filled up if it is not before `unsent`.
    fn join(&mut self, bytes: u64, segment_bytes: u32, unsent: u64) -> u64 {
        let mut begun = 0;
        if self.segments > unsent {
            if let Some((behind, last)) = self.pieces.pop_if(|one| one.1 < segment_bytes) {
                // What is full of that piece belongs to the new one.
                (self.segments, begun) = (behind - 1, u64::from(last));
            }
        }
        let from = self.segments;
        self.push(begun + bytes, segment_bytes);
        from
    }

    /// The number behind the last segment that may leave when all before `first` are acknowledged.
    fn free(&self, first: u64) -> u64 {
        let place = self.held.partition_point(|held| *held <= first);
        let held = self.held.get(place).copied().unwrap_or(self.segments);
        self.due.front().map_or(held, |(due, _)| held.min(*due))
    }

    fn length(&self, number: u64, segment_bytes: u32) -> u32 {
        let place = self.pieces.partition_point(|piece| piece.0 <= number);
        match self.pieces.get(place) {
            Some((behind, last)) if number + 1 == *behind => *last,
            _ => segment_bytes,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_cut_into_full_segments_and_the_rest() {
        let mut written = Written::default();
        for bytes in [100, 2_896, 3_000, 0] {
            written.push(bytes, 1_448);
        }
        let lengths: Vec<u32> = (0..written.segments)
            .map(|number| written.length(number, 1_448))
            .collect();
        assert_eq!(lengths, [100, 1_448, 1_448, 1_448, 1_448, 104, 0]);
    }

    #[test]
    fn what_joins_fills_up_a_segment_that_has_not_left() {
        let lengths = |written: &Written| -> Vec<u32> {
            let all = 0..written.segments;
            all.map(|number| written.length(number, 1_448)).collect()
        };
        let mut written = Written::default();
        assert_eq!(written.join(3_000, 1_448, 0), 0);
        assert_eq!(written.join(1_348, 1_448, 2), 2);
        assert_eq!(lengths(&written), [1_448, 1_448, 1_448, 4]);
        assert_eq!(written.join(10, 1_448, 4), 4);
        assert_eq!(lengths(&written), [1_448, 1_448, 1_448, 4, 10]);
        assert_eq!(written.join(1_448, 1_448, 4), 4);
        assert_eq!(lengths(&written), [1_448, 1_448, 1_448, 4, 1_448, 10]);
    }

    #[test]
    fn a_piece_that_is_due_later_holds_back_what_is_behind_it() {
        let mut written = Written::default();
        written.push(3_000, 1_448);
        written.due = VecDeque::from([(3, Instant(5))]);
        written.push(100, 1_448);
        assert_eq!(written.free(0), 3);
        written.due.clear();
        assert_eq!(written.free(0), 4);
    }

    #[test]
    fn a_piece_that_is_held_waits_for_all_before_it() {
        let mut written = Written::default();
        written.push(3_000, 1_448);
        written.held = vec![0, 3];
        written.push(100, 1_448);
        let free = [0, 2, 3].map(|first| written.free(first));
        assert_eq!(free, [3, 3, 4]);
    }

    #[test]
    fn an_acknowledgement_that_waits_goes_with_the_data() {
        let plan = LinePlan {
            segment_bytes: 1_448,
            window_bytes: 1 << 20,
            congestion: Congestion::Reno,
        };
        let mut line = Line::new(plan, Instant(0));
        let mut leaving = VecDeque::new();
        let mut out = Out {
            client: 0,
            line: 7,
            leaving: &mut leaving,
        };
        line.turn(Instant(0), &mut out);
        line.take(Instant(1), SERVER, &Segment::Open, &mut out);
        line.take(Instant(2), CLIENT, &Segment::Opening, &mut out);
        line.take(Instant(3), SERVER, &Segment::Opened, &mut out);
        line.take(
            Instant(4),
            SERVER,
            &Segment::Data(0, Instant(2), None),
            &mut out,
        );
        line.write(SERVER, 10);
        line.send(Instant(4), SERVER, &mut out);
        let said: Vec<_> = leaving.iter().map(|one| parse(&one.bytes)).collect();
        let data = Segment::Data(0, Instant(4), Some((1, Instant(2))));
        let all = [Segment::Open, Segment::Opening, Segment::Opened, data];
        assert_eq!(said, all.map(|segment| Some((7, segment))));
        assert_eq!(
            line.next_due(),
            line.ends[SERVER].sender.as_ref().unwrap().timer()
        );
    }
}
