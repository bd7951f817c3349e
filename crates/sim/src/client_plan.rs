//! What a program that asks over TCP is to do, and what became of it.

use tm_probe::Delays;
use tm_wire::{Duration, Instant};

use crate::tcp_congestion::Congestion;
use crate::tcp_line::LinePlan;
use crate::tcp_segment::Segment;

/// A request and the reply to it; each is written in these pieces.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Exchange {
    /// Bytes of the pieces of the request; at least one piece.
    pub request: Vec<u64>,
    /// Bytes of the pieces of the reply. Without any the client goes on at once.
    pub reply: Vec<u64>,
    /// The client goes on without the reply; of what a connection begins with only.
    pub goes_on: bool,
    /// So much of the reply has to be there before its begin can be read; 0: its first segment.
    pub readable_bytes: u64,
    /// Each piece waits until what was written before it is acknowledged (RFC 896).
    pub held: bool,
    /// It is begun when so many of those before it on its connection are under way at most.
    pub ahead: usize,
    /// It is begun no earlier than this after the first reply on its connection began to come.
    pub due: Duration,
    /// When each piece of the request leaves at the earliest, after it was written; none: at once.
    pub request_due: Vec<Duration>,
    /// Likewise of the reply.
    pub reply_due: Vec<Duration>,
}

/// What a client does before it goes on to the next stage.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StagePlan {
    /// How long it waits first.
    pub wait: Duration,
    /// Simultaneous connections, at most.
    pub connections: usize,
    /// Each exchange has a connection of its own.
    pub fresh: bool,
    /// The server closes the connection behind its reply, which is over with that.
    pub awaits_close: bool,
    /// Opening a connection is a part of its first exchange.
    pub opening_counts: bool,
    /// What each connection begins with.
    pub opening: Vec<Exchange>,
    /// What it is for, in this order.
    pub exchanges: Vec<Exchange>,
    /// They are begun again and again for so long; None: once.
    pub lasts: Option<Duration>,
    /// Replies that a server has at the same time take turns on their connection; None: each is written
    /// as a whole.
    pub turns: Option<Turns>,
}

/// How replies share a connection whose server seals what it writes in records: what is in a record
/// can be read when all of it is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Turns {
    /// So much of a reply goes before the next one has its turn.
    pub turn_bytes: u64,
    /// What a record carries at most. One that has less leaves when there is nothing more.
    pub record_bytes: u64,
    /// What a record adds.
    pub seal_bytes: u64,
}

/// A client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientPlan {
    /// Place of its path.
    pub path: usize,
    /// Payload of a full segment.
    pub segment_bytes: u32,
    /// What a receiver takes before a sender has to wait.
    pub window_bytes: u64,
    /// Of both ends.
    pub congestion: Congestion,
    /// One after the other.
    pub stages: Vec<StagePlan>,
    /// It gives up when it has heard nothing for so long.
    pub patience: Duration,
    /// It gives up after this time.
    pub limit: Duration,
}

impl ClientPlan {
    /// The payloads of the UDP datagrams that are as long as its packets: a path must know them.
    #[must_use]
    pub fn sizes(&self) -> Vec<u32> {
        let full = u64::from(self.segment_bytes.max(1));
        if self.stages.iter().any(|stage| stage.turns.is_some()) {
            // Where records end hangs on when requests come.
            return Segment::sizes(0..=self.segment_bytes);
        }
        let exchanges =
            |stage: &'_ StagePlan| [stage.opening.clone(), stage.exchanges.clone()].concat();
        let pieces = self.stages.iter().flat_map(exchanges);
        let pieces = pieces.flat_map(|one| [one.request, one.reply].concat());
        let rest = pieces.filter_map(|bytes| u32::try_from(bytes % full).ok());
        let mut lengths: Vec<u32> = rest.chain([self.segment_bytes]).collect();
        lengths.sort_unstable();
        lengths.dedup();
        Segment::sizes(lengths)
    }

    pub(crate) fn line(&self) -> LinePlan {
        LinePlan {
            segment_bytes: self.segment_bytes,
            window_bytes: self.window_bytes,
            congestion: self.congestion,
        }
    }
}

/// An exchange that came to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Exchanged {
    /// Place of its stage, and its own in that.
    pub place: (usize, usize),
    /// When it was begun.
    pub began: Instant,
    /// When its connection was there, and what that begins with was done; None: it was there before.
    pub opened: Option<(Instant, Instant)>,
    /// When the first segment of the reply came, and the last.
    pub replied: (Instant, Instant),
}

/// What became of a client.
#[derive(Clone, Default)]
pub struct ClientOutcome {
    /// Exchanges that were begun.
    pub begun: u64,
    /// From the first one's begin to the last one's end.
    pub span: Option<(Instant, Instant)>,
    /// How long each took.
    pub delays: Delays,
    /// Those of stages that have them once.
    pub exchanges: Vec<Exchanged>,
    /// It came to the end of its stages; if not it gave up, or was stopped.
    pub finished: bool,
    /// It was stopped before its end, as a load that nobody needs any more.
    pub stopped: bool,
    /// Segments sent again, by both ends of all connections.
    pub retransmits: u64,
    /// Times that a retransmission timer of these expired.
    pub timeouts: u64,
}
