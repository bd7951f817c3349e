//! Frames as the medium knows them, and what becomes of them.

/// A station: 0 is the access point, 1 to n are the others.
pub type StationId = u16;
/// The access point.
pub const ACCESS_POINT: StationId = 0;

/// Who is to receive a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Receiver {
    /// One station, which acknowledges
    Station(StationId),
    /// All stations: broadcast or multicast, neither acknowledged nor repeated (10.3.6)
    Group,
}

/// What the medium needs to know of a frame; its bytes stay with the caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame {
    /// The caller's name for it, given back in the outcome
    pub token: u64,
    /// Length of the MSDU: LLC and SNAP header and payload
    pub msdu_bytes: u32,
    /// A station other than the access point sends to the access point only
    pub receiver: Receiver,
    /// Access category; ignored in a BSS without `QoS`
    pub category: super::mac::Category,
}

/// What became of an offer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// An outcome will follow
    Queued,
    /// The station's queue is full; no outcome will follow
    QueueFull,
    /// Longer than an MSDU may be, or no such receiver; counted as a queue drop
    Refused,
}

/// The end of a frame that was queued.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// When it came to that end
    pub time_ns: u64,
    /// The caller's name for the frame
    pub token: u64,
    /// Who sent it
    pub sender: StationId,
    /// To whom
    pub receiver: Receiver,
    /// Length of the MSDU
    pub msdu_bytes: u32,
    /// What end
    pub fate: Fate,
}

/// How a frame ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Fate {
    /// It left the receiver's MAC, in order
    Delivered,
    /// Given up at the retry limit; a group addressed frame has but one attempt
    RetryLimit,
}
