//! Test packets: parse and emit, without allocation, clock or socket.
//!
//! Layouts and meaning are in `docs/engine.md`. A packet of our own format is accepted only if its
//! tag verifies, so a reflector replies to no stranger, and a reply has the size of its packet.

#![cfg_attr(not(test), no_std)]

mod packet;
pub mod stamp;
mod time;

pub use packet::{
    emit, header_bytes, pack_reply_time, parse, unpack_reply_time, Direction, Header, Key, Named,
    PacketTime, HEADER_BYTES, SHORT_HEADER_BYTES,
};
pub use time::{Duration, Instant, RemoteInstant, UnixTime};

/// Largest UDP payload over IPv4.
pub const LARGEST_PAYLOAD_BYTES: usize = 65_507;

/// Why a packet is not ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reject {
    /// Shorter than the header or longer than any datagram.
    Size,
    /// No key is known for its session.
    Session,
    /// The tag does not verify.
    Tag,
    /// A reply where a test packet is due.
    Direction,
}
