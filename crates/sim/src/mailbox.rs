//! Datagrams as values: what sender and reflector read and write in place of sockets.

use tm_probe::port::{Arrival, Inbox, Outbox, Packets, Sending, WallClock, BATCH};
use tm_wire::stamp::ErrorEstimate;
use tm_wire::{Duration, Instant};

/// A batch at one moment of virtual time; everything that is sent leaves.
#[derive(Default)]
pub struct Mailbox {
    now: Instant,
    packets: Vec<Vec<u8>>,
    arrived: usize,
    left: Vec<usize>,
}

impl Mailbox {
    /// Empties it; the time is `now`.
    pub fn open(&mut self, now: Instant) {
        self.now = now;
        self.arrived = 0;
        self.left.clear();
    }

    /// Empties it and puts one packet of `bytes` in, which arrived at `now` and begins with `head`;
    /// what stands behind that is nobody's.
    pub fn receive(&mut self, now: Instant, bytes: usize, head: &[u8]) {
        self.open(now);
        self.set_length(0, bytes);
        self.packets[0][..head.len()].copy_from_slice(head);
        self.arrived = 1;
    }

    /// The packets that left, in order.
    pub fn left(&self) -> impl Iterator<Item = &[u8]> {
        self.left
            .iter()
            .map(|place| self.packets[*place].as_slice())
    }

    fn reach(&mut self, place: usize) {
        if self.packets.len() <= place {
            self.packets.resize(place + 1, Vec::new());
        }
    }
}

impl Packets for Mailbox {
    fn now(&mut self) -> Instant {
        self.now
    }

    /// Virtual time is wall time, to the nanosecond.
    fn wall_clock(&mut self) -> WallClock {
        WallClock {
            offset: Duration::ZERO,
            error: ErrorEstimate {
                synchronized: true,
                error_ns: 1,
            },
        }
    }

    fn packet(&mut self, place: usize) -> &mut [u8] {
        &mut self.packets[place]
    }
}

impl Inbox for Mailbox {
    fn count(&self) -> usize {
        self.arrived
    }

    fn arrival(&self, _place: usize) -> Arrival {
        Arrival {
            at: self.now,
            user_time: false,
            source: None,
            time_to_live: None,
        }
    }
}

impl Outbox for Mailbox {
    fn set_length(&mut self, place: usize, bytes: usize) {
        self.reach(place.min(BATCH - 1));
        self.packets[place].resize(bytes, 0);
    }

    fn send(&mut self, from: usize, to: usize) -> (usize, Sending) {
        self.left.extend(from..to);
        (to - from, Sending::Done)
    }

    fn wait_for_room(&mut self) -> bool {
        true
    }
}
