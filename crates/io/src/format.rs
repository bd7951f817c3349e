//! What a test packet looks like on the wire: our own format, or STAMP.

use tm_probe::Answered;
use tm_wire::stamp::{self, Question, Timestamp};
use tm_wire::{
    emit, header_bytes, parse, unpack_answer_time, Direction, Header, Key, Named, Nanos,
    SHORT_HEADER_BYTES,
};

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

    /// Writes the question `seq` that leaves at `time` over the head of `packet`; `offset` is
    /// `CLOCK_REALTIME` minus `CLOCK_MONOTONIC`.
    pub fn ask(&self, packet: &mut [u8], seq: u32, time: Nanos, offset: Nanos) {
        match self {
            Self::Own { session, key } => {
                let header = Header {
                    session: *session,
                    seq,
                    time,
                };
                emit(packet, &header, Direction::Question, key);
            }
            Self::Stamp { key } => {
                let question = Question {
                    seq,
                    sent: Timestamp::from_realtime(time + offset),
                    error: stamp::ERROR_ESTIMATE,
                    ssid: 0,
                };
                stamp::emit_question(packet, &question, key.as_deref());
            }
        }
    }

    /// Reads an answer that came at `arrival`; `sent_at` tells when a question left. None: not ours.
    pub fn read_answer(
        &self,
        packet: &[u8],
        arrival: Nanos,
        offset: Nanos,
        sent_at: impl Fn(u32) -> Option<Nanos>,
    ) -> Option<Answered> {
        match self {
            Self::Own { session, key } => {
                let key_of = |named: Named| named.means(*session).then_some((*session, *key));
                let header = parse(packet, Direction::Answer, key_of).ok()?;
                let near = sent_at(header.seq).unwrap_or(arrival);
                let (remote_rx, residence) = unpack_answer_time(header.time, near);
                Some(Answered {
                    seq: header.seq,
                    remote_rx,
                    residence,
                    remote_count: None,
                })
            }
            Self::Stamp { key } => {
                let answer = stamp::parse_answer(packet, key.as_deref()).ok()?;
                let [received, answered] = [answer.received, answer.answered]
                    .map(|time| time.to_realtime(arrival + offset) - offset);
                let stateful = answer.seq != answer.question.seq;
                Some(Answered {
                    seq: answer.question.seq,
                    remote_rx: received,
                    // A reflector whose clock goes back within a packet says nothing of use.
                    residence: (answered >= received).then(|| answered - received),
                    remote_count: stateful.then(|| u64::from(answer.seq) + 1),
                })
            }
        }
    }
}
