//! What a test packet looks like on the wire: our own format, or STAMP.

use tm_wire::stamp::{self, TestPacket, Timestamp};
use tm_wire::{
    emit, header_bytes, parse, unpack_reply_time, Direction, Header, Instant, Key, Named,
    SHORT_HEADER_BYTES,
};

use crate::port::WallClock;
use crate::send::ReceivedReply;

/// The format of a flow with what it needs.
#[derive(Clone)]
pub enum Format {
    /// Tunnelmark's own.
    Own {
        /// Session on the wire.
        session: u32,
        /// Its key.
        key: Key,
    },
    /// RFC 8762; authenticated where there is a key.
    Stamp {
        /// For HMAC.
        key: Option<Vec<u8>>,
    },
}

impl Format {
    /// Smallest payload.
    #[must_use]
    pub fn least_bytes(&self) -> usize {
        match self {
            Self::Own { .. } => SHORT_HEADER_BYTES,
            Self::Stamp { key } => stamp::least_bytes(key.is_some()),
        }
    }

    /// Bytes in front of the filling of a payload.
    #[must_use]
    pub fn header_bytes(&self, payload_bytes: usize) -> usize {
        match self {
            Self::Own { .. } => header_bytes(payload_bytes),
            Self::Stamp { .. } => self.least_bytes(),
        }
    }

    /// Writes the test packet `seq` that leaves at `time` over the head of `packet`.
    pub fn write_test_packet(&self, packet: &mut [u8], seq: u32, time: Instant, wall: WallClock) {
        match self {
            Self::Own { session, key } => {
                let header = Header {
                    session: *session,
                    seq,
                    time: time.into(),
                };
                emit(packet, &header, Direction::TestPacket, key);
            }
            Self::Stamp { key } => {
                let test_packet = TestPacket {
                    seq,
                    sent: Timestamp::from_realtime(wall.unix(time)),
                    error: wall.error.to_wire(),
                    ssid: 0,
                };
                stamp::emit_test_packet(packet, &test_packet, key.as_deref());
            }
        }
    }

    /// Reads a reply that came at `arrival`; `sent_at` says when a packet left. None: not ours.
    pub fn read_reply(
        &self,
        packet: &[u8],
        arrival: Instant,
        wall: WallClock,
        sent_at: impl Fn(u32) -> Option<Instant>,
    ) -> Option<ReceivedReply> {
        match self {
            Self::Own { session, key } => {
                let key_of = |named: Named| named.means(*session).then_some((*session, *key));
                let header = parse(packet, Direction::Reply, key_of).ok()?;
                let near = sent_at(header.seq).unwrap_or(arrival);
                let (remote_rx, residence) = unpack_reply_time(header.time, near);
                Some(ReceivedReply {
                    seq: header.seq,
                    remote_rx,
                    residence,
                    remote_seq: None,
                })
            }
            Self::Stamp { key } => {
                let reply = stamp::parse_reply(packet, key.as_deref()).ok()?;
                let near = wall.unix(arrival);
                let [received, sent] =
                    [reply.received, reply.sent].map(|time| time.to_realtime(near));
                Some(ReceivedReply {
                    seq: reply.test_packet.seq,
                    remote_rx: wall.remote(received),
                    // A reflector whose clock goes back within a packet says nothing of use.
                    residence: (sent >= received).then(|| sent - received),
                    remote_seq: Some(reply.seq),
                })
            }
        }
    }
}
