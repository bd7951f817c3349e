//! What an emulator says of a link, whichever way it runs.

use tm_link::{Counters, Kinds};
use tm_probe::Delays;

/// What one direction of a link says of itself.
#[derive(Clone)]
pub struct DirectionReport {
    /// Counters of the state machine.
    pub counters: Counters,
    /// Frames that the kernel dropped before the emulator saw them.
    pub capture_dropped: u64,
    /// Frames that the kernel refused at the far end, counted as delivered.
    pub send_errors: u64,
    /// Frames longer than the MTU allows, refused: an offload is on and falsifies the link.
    pub oversized: u64,
    /// Frames without a checksum: an offload is on.
    pub checksum_missing: u64,
    /// Frames by what their headers say; None: not looked at.
    pub kinds: Option<Kinds>,
    /// Forwarded minus due.
    pub lateness: Delays,
}
