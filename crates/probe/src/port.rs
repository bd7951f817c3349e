//! What the state machines ask of the world: a clock, and datagrams in batches.
//!
//! `tm-io` answers with sockets and the clocks of the host, tests with values in virtual time.

use std::net::SocketAddr;

use tm_wire::stamp::ErrorEstimate;
use tm_wire::{Duration, Instant, RemoteInstant, UnixTime};

/// Packets handed over, or taken, at one time.
pub const BATCH: usize = 64;

/// How `CLOCK_REALTIME`, which STAMP speaks, stands to the clock of all times here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WallClock {
    /// `CLOCK_REALTIME` minus `CLOCK_MONOTONIC`.
    pub offset: Duration,
    /// How far it may be off.
    pub error: ErrorEstimate,
}

impl WallClock {
    /// A point of the clock of all times here, by the wall clock.
    #[must_use]
    pub fn unix(&self, at: Instant) -> UnixTime {
        UnixTime::of(at, self.offset)
    }

    /// A point of this host's wall clock, by the clock of all times here.
    #[must_use]
    pub fn instant(&self, at: UnixTime) -> Instant {
        at.instant(self.offset)
    }

    /// A point of another host's wall clock, on the scale of the clock of all times here.
    #[must_use]
    pub fn remote(&self, at: UnixTime) -> RemoteInstant {
        at.remote(self.offset)
    }
}

/// How an attempt to send several packets ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sending {
    /// All were taken.
    Done,
    /// The next one was refused.
    Refused,
    /// There is no room for the next one now.
    Full,
}

/// What is known of a packet beside its bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arrival {
    /// When it came.
    pub at: Instant,
    /// The time is that at which the program had it: the kernel gave none.
    pub user_time: bool,
    /// Where it came from.
    pub source: Option<SocketAddr>,
    /// Time to live, or hop limit, with which it came, if requested.
    pub time_to_live: Option<u8>,
}

/// A batch of packets, by their places in it, and the clock.
pub trait Packets {
    /// Now, on the clock of all times here.
    fn now(&mut self) -> Instant;

    /// How the wall clock stands to it.
    fn wall_clock(&mut self) -> WallClock;

    /// The packet at `place`, at most [`BATCH`] - 1.
    fn packet(&mut self, place: usize) -> &mut [u8];
}

/// A batch that arrived.
pub trait Inbox: Packets {
    /// Packets that arrived, at most [`BATCH`].
    fn count(&self) -> usize;

    /// What is known of the packet at `place`.
    fn arrival(&self, place: usize) -> Arrival;
}

/// A batch that leaves: to a flow's target, or each packet of an [`Inbox`] to where it came from.
pub trait Outbox: Packets {
    /// Sets the length of the packet at `place`, where it is not a reply to one that arrived.
    fn set_length(&mut self, place: usize, bytes: usize);

    /// Sends the packets `from..to`. Returns how many left, and what became of the next.
    fn send(&mut self, from: usize, to: usize) -> (usize, Sending);

    /// Waits until there may be room. False: the run is to end, so what is left does not leave.
    fn wait_for_room(&mut self) -> bool;
}
