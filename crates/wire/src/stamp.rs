//! The Simple Two-way Active Measurement Protocol, RFC 8762, unauthenticated and authenticated.
//!
//! The far end may be the reflector of a router or of another project. Such a packet carries no
//! session: a socket of its own stands for it. Unauthenticated packets are as trustworthy as the
//! network they cross.

use hmac::{Hmac, Mac};
use sha2::Sha256;

use crate::{Reject, UnixTime, LARGEST_PAYLOAD_BYTES};

/// Size of both kinds of unauthenticated packet (section 4.2.1, 4.3.1); padding may follow.
pub const PLAIN_BYTES: usize = 44;
/// Size of both kinds of authenticated packet (section 4.2.2, 4.3.2); padding may follow.
pub const AUTHENTICATED_BYTES: usize = 112;
/// Smallest unauthenticated test packet: one of TWAMP-Light (RFC 8762, section 4.6) with the padding
/// that makes room for TWAMP's reply. The reply to a shorter one would be longer than it.
pub const TWAMP_LIGHT_BYTES: usize = 41;

const HMAC_BYTES: usize = 16;
const COVERED_BYTES: usize = AUTHENTICATED_BYTES - HMAC_BYTES;
/// A packet whose own two times lie closer together is a reply.
pub const LONGEST_RESIDENCE_S: u64 = 10;
/// Seconds from 1900, where NTP counts from, to 1970.
const ERA: i64 = 2_208_988_800;
const NS_PER_S: i64 = 1_000_000_000;

/// How far a clock may be off, and whether something sets it (RFC 4656, section 4.1.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ErrorEstimate {
    /// The clock is set by an external source (bit S).
    pub synchronized: bool,
    /// Largest error in ns.
    pub error_ns: u64,
}

impl ErrorEstimate {
    /// A clock of which nothing is known: as far off as the field can say.
    pub const UNKNOWN: Self = Self {
        synchronized: false,
        error_ns: u64::MAX,
    };

    /// The field: S, Z 0 (NTP format), 6 bits of scale, 8 of multiplier, which is never 0; the error is
    /// multiplier times 2^(scale - 32) seconds. Rounded up: what is sent is never less than the error.
    #[must_use]
    pub fn to_wire(self) -> u16 {
        // In units of 2^-32 s, 96 bits at most.
        let mut rest =
            (u128::from(self.error_ns) << 32).div_ceil(u128::from(NS_PER_S.unsigned_abs()));
        let mut scale = 0_u16;
        while rest > u128::from(u8::MAX) {
            rest = rest.div_ceil(2);
            scale += 1;
        }
        let multiplier = u16::try_from(rest.max(1)).unwrap_or(u16::from(u8::MAX));
        (u16::from(self.synchronized) << 15) | (scale << 8) | multiplier
    }

    /// What a field says; None where its multiplier is 0, which no clock may send.
    #[must_use]
    pub fn from_wire(field: u16) -> Option<Self> {
        let multiplier = u128::from(field & 0xff);
        let scale = u32::from((field >> 8) & 0x3f);
        let ns = ((multiplier << scale) * u128::from(NS_PER_S.unsigned_abs())) >> 32;
        (multiplier != 0).then(|| Self {
            synchronized: field >> 15 == 1,
            error_ns: u64::try_from(ns).unwrap_or(u64::MAX),
        })
    }
}

/// Key of an authenticated session: any length, as HMAC takes it.
pub type StampKey<'a> = Option<&'a [u8]>;

/// What a test packet says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TestPacket {
    /// Sequence number of the sender.
    pub seq: u32,
    /// When it left.
    pub sent: Timestamp,
    /// How good the sender's clock is.
    pub error: u16,
    /// Session identifier of RFC 8972, which a reply repeats; 0 where there is none.
    pub ssid: u16,
}

/// What a reply says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reply {
    /// Sequence number of the reflector: its own count if it is stateful, else the sender's.
    pub seq: u32,
    /// When the reply left.
    pub sent: Timestamp,
    /// How good the reflector's clock is.
    pub error: u16,
    /// When the test packet arrived.
    pub received: Timestamp,
    /// The test packet.
    pub test_packet: TestPacket,
    /// Time to live, or hop limit, with which the test packet arrived.
    pub ttl: u8,
}

/// A time on the wire: 32 bits of seconds since 1900 and 32 bits of fraction (RFC 5905).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Timestamp(pub u64);

impl Timestamp {
    /// A time of `CLOCK_REALTIME`, rounded to a quarter of a nanosecond.
    #[must_use]
    pub fn from_realtime(at: UnixTime) -> Self {
        let seconds = at.0.div_euclid(NS_PER_S) + ERA;
        let fraction = (i128::from(at.0.rem_euclid(NS_PER_S)) << 32) / i128::from(NS_PER_S);
        // The count of seconds wraps in 2036 by design; the era is taken from the receiver's clock.
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
        Self((u64::from(seconds as u32) << 32) | u64::from(fraction as u32))
    }

    /// As a time of `CLOCK_REALTIME`, in the era that lies closest to `near`.
    #[must_use]
    pub fn to_realtime(self, near: UnixTime) -> UnixTime {
        let fraction = self.0 & 0xffff_ffff;
        // Rounded up: what was cut off on the way in is less than a nanosecond.
        let ns = (fraction * NS_PER_S.unsigned_abs()).div_ceil(1 << 32);
        let seconds = i64::from(u32::try_from(self.0 >> 32).unwrap_or(0)) - ERA;
        let era = 1_i64 << 32;
        let away = near.0.div_euclid(NS_PER_S) - seconds;
        let seconds = seconds + (away + era / 2).div_euclid(era) * era;
        UnixTime(seconds * NS_PER_S + i64::try_from(ns).unwrap_or(0))
    }
}

/// Smallest packet of a session.
#[must_use]
pub fn least_bytes(authenticated: bool) -> usize {
    if authenticated {
        AUTHENTICATED_BYTES
    } else {
        PLAIN_BYTES
    }
}

/// Writes a test packet at the start of `packet`; what follows is padding and left as it is.
///
/// # Panics
/// If `packet` is shorter than [`least_bytes`].
pub fn emit_test_packet(packet: &mut [u8], test_packet: &TestPacket, key: StampKey<'_>) {
    let head = &mut packet[..least_bytes(key.is_some())];
    head.fill(0);
    let at = Places::of(key);
    put(head, 0, &test_packet.seq.to_be_bytes());
    put(head, at.time, &test_packet.sent.0.to_be_bytes());
    put(head, at.time + 8, &test_packet.error.to_be_bytes());
    put(head, at.time + 10, &test_packet.ssid.to_be_bytes());
    seal(head, key);
}

/// Reads a test packet.
///
/// A reply is none ([`Reject::Direction`]): a reflector that took one for a test packet would reply to
/// the other reflector, which would reply in turn, for ever. The RFC has both of one length and a
/// receiver ignore what must be zero in a test packet, so they are distinguished by two times of a
/// reply, of one clock: its arrival is at most [`LONGEST_RESIDENCE_S`] before its departure. Of
/// padding at random one packet in 400 million looks so.
pub fn parse_test_packet(packet: &[u8], key: StampKey<'_>) -> Result<TestPacket, Reject> {
    let least = if key.is_some() {
        AUTHENTICATED_BYTES
    } else {
        TWAMP_LIGHT_BYTES
    };
    let head = verified(packet, key, least)?;
    let at = Places::of(key);
    let time = |place| u64::from_be_bytes(take(head, place));
    let (left, arrived) = (time(at.time), time(at.received));
    if arrived != 0 && left.wrapping_sub(arrived) <= LONGEST_RESIDENCE_S << 32 {
        return Err(Reject::Direction);
    }
    Ok(TestPacket {
        seq: u32::from_be_bytes(take(head, 0)),
        sent: Timestamp(u64::from_be_bytes(take(head, at.time))),
        error: u16::from_be_bytes(take(head, at.time + 8)),
        ssid: u16::from_be_bytes(take(head, at.time + 10)),
    })
}

/// Writes a reply over the test packet in `packet`; the size and the padding stay.
///
/// # Panics
/// If `packet` is shorter than what [`parse_test_packet`] takes.
pub fn emit_reply(packet: &mut [u8], reply: &Reply, key: StampKey<'_>) {
    // A test packet of TWAMP-Light has no room for the last three bytes, which are zero.
    let end = least_bytes(key.is_some()).min(packet.len());
    let head = &mut packet[..end];
    head.fill(0);
    let at = Places::of(key);
    put(head, 0, &reply.seq.to_be_bytes());
    put(head, at.time, &reply.sent.0.to_be_bytes());
    put(head, at.time + 8, &reply.error.to_be_bytes());
    put(head, at.time + 10, &reply.test_packet.ssid.to_be_bytes());
    put(head, at.received, &reply.received.0.to_be_bytes());
    put(head, at.sender_seq, &reply.test_packet.seq.to_be_bytes());
    put(
        head,
        at.sender_time,
        &reply.test_packet.sent.0.to_be_bytes(),
    );
    put(
        head,
        at.sender_time + 8,
        &reply.test_packet.error.to_be_bytes(),
    );
    head[at.ttl] = reply.ttl;
    seal(head, key);
}

/// Reads a reply.
pub fn parse_reply(packet: &[u8], key: StampKey<'_>) -> Result<Reply, Reject> {
    let head = verified(packet, key, least_bytes(key.is_some()))?;
    let at = Places::of(key);
    Ok(Reply {
        seq: u32::from_be_bytes(take(head, 0)),
        sent: Timestamp(u64::from_be_bytes(take(head, at.time))),
        error: u16::from_be_bytes(take(head, at.time + 8)),
        received: Timestamp(u64::from_be_bytes(take(head, at.received))),
        test_packet: TestPacket {
            seq: u32::from_be_bytes(take(head, at.sender_seq)),
            sent: Timestamp(u64::from_be_bytes(take(head, at.sender_time))),
            error: u16::from_be_bytes(take(head, at.sender_time + 8)),
            ssid: u16::from_be_bytes(take(head, at.time + 10)),
        },
        ttl: head[at.ttl],
    })
}

/// Offsets of the fields (figures 2 to 5 of the RFC). The sequence number is always at 0.
struct Places {
    /// Time stamp, error estimate and session identifier behind it.
    time: usize,
    received: usize,
    sender_seq: usize,
    /// Time stamp of the test packet, its error estimate behind it.
    sender_time: usize,
    ttl: usize,
}

impl Places {
    fn of(key: StampKey<'_>) -> Self {
        if key.is_some() {
            Self {
                time: 16,
                received: 32,
                sender_seq: 48,
                sender_time: 64,
                ttl: 80,
            }
        } else {
            Self {
                time: 4,
                received: 16,
                sender_seq: 24,
                sender_time: 28,
                ttl: 40,
            }
        }
    }
}

fn verified<'a>(packet: &'a [u8], key: StampKey<'_>, least: usize) -> Result<&'a [u8], Reject> {
    if !(least..=LARGEST_PAYLOAD_BYTES).contains(&packet.len()) {
        return Err(Reject::Size);
    }
    let head = &packet[..least];
    if let Some(key) = key {
        mac(head, key)
            .verify_truncated_left(&head[COVERED_BYTES..])
            .map_err(|_| Reject::Tag)?;
    }
    Ok(head)
}

/// Section 4.4: HMAC-SHA-256 over all that stands before it, its first 16 bytes.
fn seal(head: &mut [u8], key: StampKey<'_>) {
    if let Some(key) = key {
        let tag = mac(head, key).finalize().into_bytes();
        head[COVERED_BYTES..].copy_from_slice(&tag[..HMAC_BYTES]);
    }
}

fn mac(head: &[u8], key: &[u8]) -> Hmac<Sha256> {
    #[allow(clippy::expect_used)] // HMAC takes keys of every length
    let mut mac = Hmac::<Sha256>::new_from_slice(key).expect("a key of any length");
    mac.update(&head[..COVERED_BYTES]);
    mac
}

fn put(head: &mut [u8], at: usize, bytes: &[u8]) {
    head[at..at + bytes.len()].copy_from_slice(bytes);
}

fn take<const N: usize>(head: &[u8], at: usize) -> [u8; N] {
    let mut out = [0; N];
    out.copy_from_slice(&head[at..at + N]);
    out
}
