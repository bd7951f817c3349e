//! What is kept of each packet, and its form in the record files of `docs/engine.md`.

use tm_wire::{Instant, RemoteInstant};

/// Bits of the flags of a record.
pub mod flags {
    /// Skipped by the sender because it was too late.
    pub const NOT_SENT: u16 = 1;
    /// The kernel refused it.
    pub const SEND_ERROR: u16 = 2;
    /// The reply came after the limit.
    pub const LATE: u16 = 4;
    /// Arrived behind a packet with a higher sequence number.
    pub const REORDERED: u16 = 8;
    /// Its time of arrival is a user-space time.
    pub const USER_TIME: u16 = 16;
}

const MISSING: i64 = i64::MIN;
const UNKNOWN: u32 = u32::MAX;

/// One packet as the sender saw it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SendRecord {
    /// Sequence number.
    pub seq: u64,
    /// When it was due.
    pub scheduled: Instant,
    /// When it left; None if it did not.
    pub sent: Option<Instant>,
    /// When it reached the reflector, by the reflector's clock.
    pub remote_rx: Option<RemoteInstant>,
    /// When its reply came back.
    pub returned: Option<Instant>,
    /// Payload size in bytes.
    pub size: u32,
    /// Flow number.
    pub flow: u16,
    /// Bits of [`flags`].
    pub flags: u16,
    /// Replies beyond the first.
    pub duplicates: u32,
    /// Residence time at the reflector, ns; None if it did not say.
    pub residence_ns: Option<u32>,
}

impl SendRecord {
    /// Bytes in the file.
    pub const BYTES: usize = 64;

    /// The record as it stands in the file.
    #[must_use]
    pub fn to_bytes(&self) -> [u8; Self::BYTES] {
        let mut out = [0; Self::BYTES];
        out[0..8].copy_from_slice(&self.seq.to_le_bytes());
        let times = [
            Some(self.scheduled.0),
            self.sent.map(|at| at.0),
            self.remote_rx.map(|at| at.0),
            self.returned.map(|at| at.0),
        ];
        for (place, time) in out[8..40].chunks_exact_mut(8).zip(times) {
            place.copy_from_slice(&time.unwrap_or(MISSING).to_le_bytes());
        }
        out[40..44].copy_from_slice(&self.size.to_le_bytes());
        out[44..46].copy_from_slice(&self.flow.to_le_bytes());
        out[46..48].copy_from_slice(&self.flags.to_le_bytes());
        out[48..52].copy_from_slice(&self.duplicates.to_le_bytes());
        let residence = self.residence_ns.unwrap_or(UNKNOWN);
        out[52..56].copy_from_slice(&residence.to_le_bytes());
        out
    }
}

/// One packet as the reflector saw it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReflectRecord {
    /// Sequence number.
    pub seq: u64,
    /// When it arrived.
    pub received: Instant,
    /// When its reply left; None if the kernel refused it.
    pub answered: Option<Instant>,
    /// Payload size in bytes.
    pub size: u32,
    /// Flow number.
    pub flow: u16,
    /// Bits of [`flags`].
    pub flags: u16,
    /// Arrivals beyond the first, as far as they came before the record was written.
    pub duplicates: u32,
    /// Which sender of the flow it came from: the place of its session in order of arrival.
    pub session: u32,
}

impl ReflectRecord {
    /// Bytes in the file.
    pub const BYTES: usize = 40;

    /// The record as it stands in the file.
    #[must_use]
    pub fn to_bytes(&self) -> [u8; Self::BYTES] {
        let mut out = [0; Self::BYTES];
        out[0..8].copy_from_slice(&self.seq.to_le_bytes());
        out[8..16].copy_from_slice(&self.received.0.to_le_bytes());
        let answered = self.answered.map_or(MISSING, |t| t.0);
        out[16..24].copy_from_slice(&answered.to_le_bytes());
        out[24..28].copy_from_slice(&self.size.to_le_bytes());
        out[28..30].copy_from_slice(&self.flow.to_le_bytes());
        out[30..32].copy_from_slice(&self.flags.to_le_bytes());
        out[32..36].copy_from_slice(&self.duplicates.to_le_bytes());
        out[36..40].copy_from_slice(&self.session.to_le_bytes());
        out
    }
}
