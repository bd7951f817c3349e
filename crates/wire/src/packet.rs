//! Tunnelmark's own test packet, whose tag is checked in well under a microsecond.

use siphasher::sip::SipHasher24;

use crate::{Duration, Instant, Reject, RemoteInstant, LARGEST_PAYLOAD_BYTES};

/// Bytes in front of the filling of a packet that has room for them.
pub const HEADER_BYTES: usize = 24;
/// Bytes of the short header, of packets with less room: a 64-byte Ethernet frame carries 18.
pub const SHORT_HEADER_BYTES: usize = 18;

/// Length of the header that a packet of `payload_bytes` has.
#[must_use]
pub const fn header_bytes(payload_bytes: usize) -> usize {
    if payload_bytes < HEADER_BYTES {
        SHORT_HEADER_BYTES
    } else {
        HEADER_BYTES
    }
}

/// Which way a packet goes; part of what the tag covers, so a reply is not a valid test packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// From the sender to the reflector.
    TestPacket,
    /// Back to the sender.
    Reply,
}

/// What tags the packets of a session; never printed.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Key {
    /// 128 bits that both ends know.
    Secret([u8; 16]),
    /// Nothing: in virtual time nobody else is there, and every tag is 0.
    Unneeded,
}

impl core::fmt::Debug for Key {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("Key(…)")
    }
}

/// How a packet names its session: whole, or by its lower half in the short header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Named {
    /// All 32 bits.
    Whole(u32),
    /// The lower 16 bits.
    Short(u16),
}

impl Named {
    /// Whether `session` may be meant.
    #[must_use]
    pub fn means(self, session: u32) -> bool {
        match self {
            Self::Whole(number) => number == session,
            Self::Short(number) => u32::from(number) == session & 0xffff,
        }
    }
}

/// The eight bytes of time in a packet.
///
/// In a test packet they are when it left, by its sender's clock, which the sender alone reads; in a
/// reply what [`pack_reply_time`] made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PacketTime(pub i64);

impl From<Instant> for PacketTime {
    fn from(sent: Instant) -> Self {
        Self(sent.0)
    }
}

/// What a packet says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Chosen per trial and flow.
    pub session: u32,
    /// From 0.
    pub seq: u32,
    /// When it left, or what a reply says of that.
    pub time: PacketTime,
}

/// Writes the header at the start of `packet`, whose length is the payload size.
///
/// # Panics
/// If `packet` is shorter than [`SHORT_HEADER_BYTES`] or longer than [`LARGEST_PAYLOAD_BYTES`].
pub fn emit(packet: &mut [u8], header: &Header, direction: Direction, key: &Key) {
    assert!((SHORT_HEADER_BYTES..=LARGEST_PAYLOAD_BYTES).contains(&packet.len()));
    let session = header.session.to_be_bytes();
    let covered = if packet.len() < HEADER_BYTES {
        packet[..2].copy_from_slice(&session[2..]);
        2
    } else {
        packet[..4].copy_from_slice(&session);
        4
    };
    packet[covered..covered + 4].copy_from_slice(&header.seq.to_be_bytes());
    packet[covered + 4..covered + 12].copy_from_slice(&header.time.0.to_be_bytes());
    let tag = tag(&packet[..covered + 12], packet.len(), direction, key);
    let end = header_bytes(packet.len());
    // The short header has room for the first half of the tag.
    packet[covered + 12..end].copy_from_slice(&tag.to_be_bytes()[..end - covered - 12]);
}

/// Reads the header of `packet` if its tag verifies with the key of the session that `key_of` knows
/// under its name.
pub fn parse(
    packet: &[u8],
    direction: Direction,
    key_of: impl FnOnce(Named) -> Option<(u32, Key)>,
) -> Result<Header, Reject> {
    if !(SHORT_HEADER_BYTES..=LARGEST_PAYLOAD_BYTES).contains(&packet.len()) {
        return Err(Reject::Size);
    }
    let (named, at) = if packet.len() < HEADER_BYTES {
        (Named::Short(u16::from_be_bytes(array(&packet[..2]))), 2)
    } else {
        (Named::Whole(u32::from_be_bytes(array(&packet[..4]))), 4)
    };
    let (session, key) = key_of(named).ok_or(Reject::Session)?;
    let seen = &packet[at + 12..header_bytes(packet.len())];
    let tag = tag(&packet[..at + 12], packet.len(), direction, &key).to_be_bytes();
    if key != Key::Unneeded && tag[..seen.len()] != *seen {
        return Err(Reject::Tag);
    }
    Ok(Header {
        session,
        seq: u32::from_be_bytes(array(&packet[at..at + 4])),
        time: PacketTime(i64::from_be_bytes(array(&packet[at + 4..at + 12]))),
    })
}

/// What the time of a reply says: the arrival of the test packet, and how long the reflector had it.
///
/// Both fit into eight bytes: the upper 44 bits are the arrival in ns, which the sender completes
/// from its own clock, the lower 20 the residence time as a mantissa of 16 bits and an exponent of
/// 4: exact to 65 µs, to a 65536th part up to [`LONGEST_RESIDENCE`]. What is longer, or negative
/// because a clock was set, is unknown: all ones.
#[must_use]
pub fn pack_reply_time(arrival: Instant, residence: Duration) -> PacketTime {
    PacketTime((arrival.0 << RESIDENCE_BITS) | pack_residence(residence))
}

fn pack_residence(residence: Duration) -> i64 {
    if !(0..=LONGEST_RESIDENCE.0).contains(&residence.0) {
        return UNKNOWN_RESIDENCE;
    }
    // The smallest exponent with which the rounded mantissa fits.
    (0..=LARGEST_EXPONENT)
        .map(|exponent| (exponent, (residence.0 + ((1 << exponent) >> 1)) >> exponent))
        .find(|(_, mantissa)| *mantissa < 1 << MANTISSA_BITS)
        .map_or(UNKNOWN_RESIDENCE, |(exponent, mantissa)| {
            (exponent << MANTISSA_BITS) | mantissa
        })
}

/// Arrival and residence time of a reply to a test packet that left at `sent`; the residence time is
/// None if the reflector could not tell it.
#[must_use]
pub fn unpack_reply_time(time: PacketTime, sent: Instant) -> (RemoteInstant, Option<Duration>) {
    // Shifting left and back takes the arrival and `sent` modulo 2^44 and finds the nearest.
    let apart = ((time.0 >> RESIDENCE_BITS).wrapping_sub(sent.0)) << RESIDENCE_BITS;
    let arrival = RemoteInstant(sent.0.wrapping_add(apart >> RESIDENCE_BITS));
    let reported = time.0 & UNKNOWN_RESIDENCE;
    let mantissa = reported & ((1 << MANTISSA_BITS) - 1);
    let residence = Duration(mantissa << (reported >> MANTISSA_BITS));
    (
        arrival,
        (reported != UNKNOWN_RESIDENCE).then_some(residence),
    )
}

const MANTISSA_BITS: u32 = 16;
const RESIDENCE_BITS: u32 = 20;
const LARGEST_EXPONENT: i64 = (1 << (RESIDENCE_BITS - MANTISSA_BITS)) - 1;
const UNKNOWN_RESIDENCE: i64 = (1 << RESIDENCE_BITS) - 1;
/// Longest residence time that a reply can tell, 2.1 s.
pub const LONGEST_RESIDENCE: Duration = Duration(((1 << MANTISSA_BITS) - 2) << LARGEST_EXPONENT);

fn tag(head: &[u8], payload_bytes: usize, direction: Direction, key: &Key) -> u64 {
    let Key::Secret(secret) = key else {
        return 0;
    };
    let hasher = SipHasher24::new_with_key(secret);
    let mut covered = [0_u8; 19];
    covered[0] = match direction {
        Direction::TestPacket => b'Q',
        Direction::Reply => b'A',
    };
    let end = 1 + head.len();
    covered[1..end].copy_from_slice(head);
    let size = u16::try_from(payload_bytes).unwrap_or(u16::MAX);
    covered[end..end + 2].copy_from_slice(&size.to_be_bytes());
    hasher.hash(&covered[..end + 2])
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

    const KEY: Key = Key::Secret(*b"0123456789abcdef");

    fn packet(size: usize, header: &Header, direction: Direction) -> Vec<u8> {
        let mut bytes = vec![0x5a; size];
        emit(&mut bytes, header, direction, &KEY);
        bytes
    }

    proptest! {
        #[test]
        fn what_is_emitted_is_parsed(
            session: u32, seq: u32, time: i64, test_packet: bool,
            size in prop_oneof![SHORT_HEADER_BYTES..HEADER_BYTES, HEADER_BYTES..3000_usize],
        ) {
            let direction = if test_packet { Direction::TestPacket } else { Direction::Reply };
            let header = Header { session, seq, time: PacketTime(time) };
            let bytes = packet(size, &header, direction);
            let key_of = |named: Named| named.means(session).then_some((session, KEY));
            prop_assert_eq!(parse(&bytes, direction, key_of), Ok(header));
        }

        #[test]
        fn any_flipped_bit_of_the_header_is_rejected(
            session: u32, seq: u32, time: i64, size in SHORT_HEADER_BYTES..64, bit: usize,
        ) {
            let header = Header { session, seq, time: PacketTime(time) };
            let mut bytes = packet(size, &header, Direction::TestPacket);
            let bit = bit % (header_bytes(size) * 8);
            bytes[bit / 8] ^= 1 << (bit % 8);
            prop_assert!(parse(&bytes, Direction::TestPacket, |_| Some((session, KEY))).is_err());
        }

        #[test]
        fn a_reply_is_no_test_packet(
            session: u32, seq: u32, time: i64, size in SHORT_HEADER_BYTES..64,
        ) {
            let bytes = packet(size, &Header { session, seq, time: PacketTime(time) }, Direction::Reply);
            let parsed = parse(&bytes, Direction::TestPacket, |_| Some((session, KEY)));
            prop_assert_eq!(parsed, Err(Reject::Tag));
        }

        #[test]
        fn the_time_of_a_reply_comes_back(
            sent in 0_i64..i64::MAX / 4, away in -4_000_000_000_000_i64..4_000_000_000_000,
            residence in prop_oneof![
                0_i64..65_536, 65_536_i64..20_000_000, 0..LONGEST_RESIDENCE.0,
            ],
        ) {
            let arrival = Instant(sent + away);
            let packed = pack_reply_time(arrival, Duration(residence));
            let (back, reported) = unpack_reply_time(packed, Instant(sent));
            prop_assert_eq!(back, RemoteInstant(sent + away));
            let error = (reported.unwrap().0 - residence).abs();
            prop_assert!(error <= residence >> 16, "{} comes back as {:?}", residence, reported);
        }

        #[test]
        fn a_residence_time_that_cannot_be_reported_is_unknown(
            sent in 0_i64..i64::MAX / 4,
            residence in prop_oneof![i64::MIN / 4..0_i64, LONGEST_RESIDENCE.0 + 1..i64::MAX / 4],
        ) {
            let packed = pack_reply_time(Instant(sent), Duration(residence));
            let unpacked = unpack_reply_time(packed, Instant(sent));
            prop_assert_eq!(unpacked, (RemoteInstant(sent), None));
        }

        #[test]
        fn another_length_is_rejected(cut in 1_usize..64) {
            let bytes = packet(64, &Header { session: 1, seq: 2, time: PacketTime(3) }, Direction::TestPacket);
            let parsed = parse(&bytes[..64 - cut], Direction::TestPacket, |_| Some((1, KEY)));
            prop_assert!(parsed.is_err());
        }

        #[test]
        fn any_bytes_are_survived(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = parse(&bytes, Direction::TestPacket, |_| Some((1, KEY)));
        }
    }

    #[test]
    fn an_unknown_session_is_rejected_before_its_tag_is_looked_at() {
        let bytes = packet(
            64,
            &Header {
                session: 1,
                seq: 2,
                time: PacketTime(3),
            },
            Direction::TestPacket,
        );
        assert_eq!(
            parse(&bytes, Direction::TestPacket, |_| None),
            Err(Reject::Session)
        );
    }
}
