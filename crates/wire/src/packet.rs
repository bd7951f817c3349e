//! Tunnelmark's own test packet, whose tag is checked in well under a microsecond.

use core::hash::Hasher;

use siphasher::sip::SipHasher24;

use crate::{Nanos, Reject, LARGEST_PAYLOAD_BYTES};

/// Bytes in front of the filling.
pub const HEADER_BYTES: usize = 24;
/// Which way a packet goes; part of what the tag covers, so an answer is no valid question.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// From the sender to the reflector.
    Question,
    /// Back to the sender.
    Answer,
}

/// The 128-bit key of a session, never printed.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Key(pub [u8; 16]);

impl core::fmt::Debug for Key {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("Key(…)")
    }
}

/// What a packet says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Chosen per trial and flow.
    pub session: u32,
    /// From 0.
    pub seq: u32,
    /// Question: time of sending. Answer: see [`pack_answer_time`].
    pub time: Nanos,
}

/// Writes the header at the start of `packet`, whose length is the payload size.
///
/// # Panics
/// If `packet` is shorter than [`HEADER_BYTES`] or longer than [`LARGEST_PAYLOAD_BYTES`].
pub fn emit(packet: &mut [u8], header: &Header, direction: Direction, key: &Key) {
    assert!((HEADER_BYTES..=LARGEST_PAYLOAD_BYTES).contains(&packet.len()));
    packet[0..4].copy_from_slice(&header.session.to_be_bytes());
    packet[4..8].copy_from_slice(&header.seq.to_be_bytes());
    packet[8..16].copy_from_slice(&header.time.0.to_be_bytes());
    let tag = tag(&packet[..16], packet.len(), direction, key);
    packet[16..24].copy_from_slice(&tag.to_be_bytes());
}

/// Reads the header of `packet` if its tag verifies with the key that `key_of` knows for its session.
pub fn parse(
    packet: &[u8],
    direction: Direction,
    key_of: impl FnOnce(u32) -> Option<Key>,
) -> Result<Header, Reject> {
    if !(HEADER_BYTES..=LARGEST_PAYLOAD_BYTES).contains(&packet.len()) {
        return Err(Reject::Size);
    }
    let session = u32::from_be_bytes(array(&packet[0..4]));
    let key = key_of(session).ok_or(Reject::Session)?;
    let seen = u64::from_be_bytes(array(&packet[16..24]));
    if tag(&packet[..16], packet.len(), direction, &key) != seen {
        return Err(Reject::Tag);
    }
    Ok(Header {
        session,
        seq: u32::from_be_bytes(array(&packet[4..8])),
        time: Nanos(i64::from_be_bytes(array(&packet[8..16]))),
    })
}

/// What the time of an answer says: the arrival of the question, and how long the reflector had it.
///
/// Both fit into eight bytes: the upper 44 bits are the arrival in ns, which the sender completes
/// from its own clock, the lower 20 the turn-round in ns. A turn-round beyond a millisecond is
/// written as the largest value.
#[must_use]
pub fn pack_answer_time(arrival: Nanos, turnround: Nanos) -> Nanos {
    let turnround = turnround.0.clamp(0, LONGEST_TURNROUND.0);
    Nanos((arrival.0 << TURNROUND_BITS) | turnround)
}

/// Arrival and turn-round of an answer to a question that left at `sent`; the turn-round is None if
/// it was too long to be told.
#[must_use]
pub fn unpack_answer_time(time: Nanos, sent: Nanos) -> (Nanos, Option<Nanos>) {
    // Shifting left and back takes the arrival and `sent` modulo 2^44 and finds the nearest.
    let apart = ((time.0 >> TURNROUND_BITS).wrapping_sub(sent.0)) << TURNROUND_BITS;
    let arrival = Nanos(sent.0.wrapping_add(apart >> TURNROUND_BITS));
    let turnround = Nanos(time.0 & LONGEST_TURNROUND.0);
    (
        arrival,
        (turnround < LONGEST_TURNROUND).then_some(turnround),
    )
}

const TURNROUND_BITS: u32 = 20;
const LONGEST_TURNROUND: Nanos = Nanos((1 << TURNROUND_BITS) - 1);

fn tag(head: &[u8], payload_bytes: usize, direction: Direction, key: &Key) -> u64 {
    let mut hasher = SipHasher24::new_with_key(&key.0);
    let mut covered = [0_u8; 19];
    covered[0] = match direction {
        Direction::Question => b'Q',
        Direction::Answer => b'A',
    };
    covered[1..17].copy_from_slice(head);
    let size = u16::try_from(payload_bytes).unwrap_or(u16::MAX);
    covered[17..19].copy_from_slice(&size.to_be_bytes());
    hasher.write(&covered);
    hasher.finish()
}

fn array<const N: usize>(bytes: &[u8]) -> [u8; N] {
    let mut out = [0; N];
    out.copy_from_slice(bytes);
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const KEY: Key = Key(*b"0123456789abcdef");

    fn packet(size: usize, header: &Header, direction: Direction) -> Vec<u8> {
        let mut bytes = vec![0x5a; size];
        emit(&mut bytes, header, direction, &KEY);
        bytes
    }

    proptest! {
        #[test]
        fn what_is_emitted_is_parsed(
            session: u32, seq: u32, time: i64, size in HEADER_BYTES..3000_usize, question: bool,
        ) {
            let direction = if question { Direction::Question } else { Direction::Answer };
            let header = Header { session, seq, time: Nanos(time) };
            let bytes = packet(size, &header, direction);
            prop_assert_eq!(parse(&bytes, direction, |s| (s == session).then_some(KEY)), Ok(header));
        }

        #[test]
        fn any_flipped_bit_of_the_header_is_rejected(
            session: u32, seq: u32, time: i64, bit in 0..HEADER_BYTES * 8,
        ) {
            let header = Header { session, seq, time: Nanos(time) };
            let mut bytes = packet(64, &header, Direction::Question);
            bytes[bit / 8] ^= 1 << (bit % 8);
            prop_assert!(parse(&bytes, Direction::Question, |_| Some(KEY)).is_err());
        }

        #[test]
        fn an_answer_is_no_question(session: u32, seq: u32, time: i64) {
            let bytes = packet(64, &Header { session, seq, time: Nanos(time) }, Direction::Answer);
            prop_assert_eq!(parse(&bytes, Direction::Question, |_| Some(KEY)), Err(Reject::Tag));
        }

        #[test]
        fn the_time_of_an_answer_comes_back(
            sent in 0_i64..i64::MAX / 4, away in -4_000_000_000_000_i64..4_000_000_000_000,
            turnround in 0_i64..3_000_000,
        ) {
            let arrival = Nanos(sent + away);
            let packed = pack_answer_time(arrival, Nanos(turnround));
            let told = (turnround < LONGEST_TURNROUND.0).then_some(Nanos(turnround));
            prop_assert_eq!(unpack_answer_time(packed, Nanos(sent)), (arrival, told));
        }

        #[test]
        fn another_length_is_rejected(cut in 1_usize..40) {
            let bytes = packet(64, &Header { session: 1, seq: 2, time: Nanos(3) }, Direction::Question);
            prop_assert!(parse(&bytes[..64 - cut], Direction::Question, |_| Some(KEY)).is_err());
        }

        #[test]
        fn any_bytes_are_survived(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = parse(&bytes, Direction::Question, |_| Some(KEY));
        }
    }

    #[test]
    fn an_unknown_session_is_rejected_before_its_tag_is_looked_at() {
        let bytes = packet(
            64,
            &Header {
                session: 1,
                seq: 2,
                time: Nanos(3),
            },
            Direction::Question,
        );
        assert_eq!(
            parse(&bytes, Direction::Question, |_| None),
            Err(Reject::Session)
        );
    }
}
