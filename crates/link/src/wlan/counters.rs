//! What a station did.

/// Counters of one station as a sender of frames.
///
/// Always `offered = delivered + retry_dropped + queue_dropped + in_flight`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StationCounters {
    /// Frames offered
    pub offered: u64,
    /// Bytes of MSDUs offered
    pub offered_bytes: u64,
    /// Frames whose delivery has been polled
    pub delivered: u64,
    /// Bytes of MSDUs delivered
    pub delivered_bytes: u64,
    /// Frames given up at the retry limit
    pub retry_dropped: u64,
    /// Frames that met a full queue or were refused
    pub queue_dropped: u64,
    /// Frames in the queue, on air, or whose outcome has not been polled
    pub in_flight: u64,
    /// Attempts to send, with beacons and block ack requests; an aggregate is one
    pub attempts: u64,
    /// Attempts that met another station's
    pub collisions: u64,
    /// Attempts that lost against a more urgent category of the same station (10.23.2.4)
    pub internal_collisions: u64,
    /// MPDUs with data sent, repeats and fragments included
    pub mpdus: u64,
    /// Time this station was on air, ns, answers included
    pub airtime_ns: u64,
}
