//! Datagrams as values: what the state machines are handed in the tests, in virtual time.

use std::collections::VecDeque;
use std::net::SocketAddr;

use tm_probe::port::{Arrival, Inbox, Outbox, Packets, Sending, WallClock};
use tm_wire::stamp::ErrorEstimate;
use tm_wire::{Duration, Instant};

/// One batch, and what becomes of it.
#[derive(Default)]
pub struct Fake {
    /// Advances by a microsecond whenever it is read.
    pub now: i64,
    pub packets: Vec<Vec<u8>>,
    pub sources: Vec<SocketAddr>,
    /// How many of a call leave, and what becomes of the next; beyond the list all leave.
    pub script: VecDeque<(usize, Sending)>,
    /// There never is room again.
    pub ends: bool,
    /// What left: place and bytes.
    pub left: Vec<(usize, Vec<u8>)>,
}

pub const WALL: WallClock = WallClock {
    offset: Duration(1_700_000_000_000_000_000),
    error: ErrorEstimate {
        synchronized: true,
        error_ns: 1_000_000,
    },
};

impl Fake {
    /// A batch that arrived at `now`, with where each packet came from.
    pub fn arrived(now: i64, packets: impl IntoIterator<Item = (SocketAddr, Vec<u8>)>) -> Self {
        let (sources, packets) = packets.into_iter().unzip();
        Self {
            now,
            packets,
            sources,
            ..Self::default()
        }
    }
}

impl Packets for Fake {
    fn now(&mut self) -> Instant {
        self.now += 1_000;
        Instant(self.now)
    }

    fn wall_clock(&mut self) -> WallClock {
        WALL
    }

    fn packet(&mut self, place: usize) -> &mut [u8] {
        &mut self.packets[place]
    }
}

impl Inbox for Fake {
    fn count(&self) -> usize {
        self.packets.len()
    }

    fn arrival(&self, place: usize) -> Arrival {
        Arrival {
            at: Instant(self.now),
            user_time: false,
            source: Some(self.sources[place]),
            time_to_live: Some(64),
        }
    }
}

impl Outbox for Fake {
    fn set_length(&mut self, place: usize, bytes: usize) {
        let count = self.packets.len().max(place + 1);
        self.packets.resize(count, Vec::new());
        self.packets[place].resize(bytes, 0);
    }

    fn send(&mut self, from: usize, to: usize) -> (usize, Sending) {
        let (most, end) = self
            .script
            .pop_front()
            .unwrap_or((usize::MAX, Sending::Done));
        let sent = most.min(to - from);
        let left = (from..from + sent).map(|place| (place, self.packets[place].clone()));
        self.left.extend(left);
        let all = sent == to - from;
        (sent, if all { Sending::Done } else { end })
    }

    fn wait_for_room(&mut self) -> bool {
        self.now += 1_000_000;
        !self.ends
    }
}
