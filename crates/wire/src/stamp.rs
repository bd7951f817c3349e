//! The Simple Two-way Active Measurement Protocol, RFC 8762, unauthenticated and authenticated.
//!
//! The far end may be the reflector of a router or of another project. Such a packet carries no
//! session: a socket of its own stands for it. Unauthenticated packets are as trustworthy as the
//! network they cross.

use hmac::{Hmac, Mac};
use sha2::Sha256;

use crate::{Nanos, Reject, LARGEST_PAYLOAD_BYTES};

/// Size of both kinds of unauthenticated packet (section 4.2.1, 4.3.1); padding may follow.
pub const PLAIN_BYTES: usize = 44;
/// Size of both kinds of authenticated packet (section 4.2.2, 4.3.2); padding may follow.
pub const AUTHENTICATED_BYTES: usize = 112;
/// Error estimate (RFC 4656, section 4.1.2) of a clock that no one has set: S 0, Z 0 (NTP format),
/// scale 0, multiplier 1.
pub const ERROR_ESTIMATE: u16 = 1;

const HMAC_BYTES: usize = 16;
const COVERED_BYTES: usize = AUTHENTICATED_BYTES - HMAC_BYTES;
/// Seconds from 1900, where NTP counts from, to 1970.
const ERA: i64 = 2_208_988_800;
const NS_PER_S: i64 = 1_000_000_000;

/// Key of an authenticated session: any length, as HMAC takes it.
pub type StampKey<'a> = Option<&'a [u8]>;

/// What a question says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Question {
    /// Sequence number of the sender.
    pub seq: u32,
    /// When it left.
    pub sent: Timestamp,
    /// How good the sender's clock is.
    pub error: u16,
    /// Session identifier of RFC 8972, which an answer repeats; 0 where there is none.
    pub ssid: u16,
}

/// What an answer says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Answer {
    /// Sequence number of the reflector: its own count if it is stateful, else the sender's.
    pub seq: u32,
    /// When the answer left.
    pub answered: Timestamp,
    /// How good the reflector's clock is.
    pub error: u16,
    /// When the question arrived.
    pub received: Timestamp,
    /// The question.
    pub question: Question,
    /// Time to live, or hop limit, with which the question arrived.
    pub ttl: u8,
}

/// A time on the wire: 32 bits of seconds since 1900 and 32 bits of fraction (RFC 5905).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Timestamp(pub u64);

impl Timestamp {
    /// A time of `CLOCK_REALTIME`, rounded to a quarter of a nanosecond.
    #[must_use]
    pub fn from_realtime(at: Nanos) -> Self {
        let seconds = at.0.div_euclid(NS_PER_S) + ERA;
        let fraction = (i128::from(at.0.rem_euclid(NS_PER_S)) << 32) / i128::from(NS_PER_S);
        // The count of seconds wraps in 2036 by design; the era is taken from the receiver's clock.
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
        Self((u64::from(seconds as u32) << 32) | u64::from(fraction as u32))
    }

    /// As a time of `CLOCK_REALTIME`, in the era that lies closest to `near`.
    #[must_use]
    pub fn to_realtime(self, near: Nanos) -> Nanos {
        let fraction = self.0 & 0xffff_ffff;
        // Rounded up: what was cut off on the way in is less than a nanosecond.
        let ns = (fraction * NS_PER_S.unsigned_abs()).div_ceil(1 << 32);
        let seconds = i64::from(u32::try_from(self.0 >> 32).unwrap_or(0)) - ERA;
        let era = 1_i64 << 32;
        let away = near.0.div_euclid(NS_PER_S) - seconds;
        let seconds = seconds + (away + era / 2).div_euclid(era) * era;
        Nanos(seconds * NS_PER_S + i64::try_from(ns).unwrap_or(0))
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

/// Writes a question at the start of `packet`; what follows is padding and left as it is.
///
/// # Panics
/// If `packet` is shorter than [`least_bytes`].
pub fn emit_question(packet: &mut [u8], question: &Question, key: StampKey<'_>) {
    let head = &mut packet[..least_bytes(key.is_some())];
    head.fill(0);
    let at = Places::of(key);
    put(head, 0, &question.seq.to_be_bytes());
    put(head, at.time, &question.sent.0.to_be_bytes());
    put(head, at.time + 8, &question.error.to_be_bytes());
    put(head, at.time + 10, &question.ssid.to_be_bytes());
    seal(head, key);
}

/// Reads a question.
pub fn parse_question(packet: &[u8], key: StampKey<'_>) -> Result<Question, Reject> {
    let head = verified(packet, key)?;
    let at = Places::of(key);
    Ok(Question {
        seq: u32::from_be_bytes(take(head, 0)),
        sent: Timestamp(u64::from_be_bytes(take(head, at.time))),
        error: u16::from_be_bytes(take(head, at.time + 8)),
        ssid: u16::from_be_bytes(take(head, at.time + 10)),
    })
}

/// Writes an answer over the question in `packet`; the size and the padding stay.
///
/// # Panics
/// If `packet` is shorter than [`least_bytes`].
pub fn emit_answer(packet: &mut [u8], answer: &Answer, key: StampKey<'_>) {
    let head = &mut packet[..least_bytes(key.is_some())];
    head.fill(0);
    let at = Places::of(key);
    put(head, 0, &answer.seq.to_be_bytes());
    put(head, at.time, &answer.answered.0.to_be_bytes());
    put(head, at.time + 8, &answer.error.to_be_bytes());
    put(head, at.time + 10, &answer.question.ssid.to_be_bytes());
    put(head, at.received, &answer.received.0.to_be_bytes());
    put(head, at.sender_seq, &answer.question.seq.to_be_bytes());
    put(head, at.sender_time, &answer.question.sent.0.to_be_bytes());
    put(
        head,
        at.sender_time + 8,
        &answer.question.error.to_be_bytes(),
    );
    head[at.ttl] = answer.ttl;
    seal(head, key);
}

/// Reads an answer.
pub fn parse_answer(packet: &[u8], key: StampKey<'_>) -> Result<Answer, Reject> {
    let head = verified(packet, key)?;
    let at = Places::of(key);
    Ok(Answer {
        seq: u32::from_be_bytes(take(head, 0)),
        answered: Timestamp(u64::from_be_bytes(take(head, at.time))),
        error: u16::from_be_bytes(take(head, at.time + 8)),
        received: Timestamp(u64::from_be_bytes(take(head, at.received))),
        question: Question {
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
    /// Time stamp of the question, its error estimate behind it.
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

fn verified<'a>(packet: &'a [u8], key: StampKey<'_>) -> Result<&'a [u8], Reject> {
    let least = least_bytes(key.is_some());
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
