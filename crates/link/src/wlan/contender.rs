//! One channel access function: what it counts down, and when it would transmit.

use std::collections::VecDeque;

use super::mac::Edca;
use super::medium::{StationId, NEVER};

/// One station's channel access function of one category (10.3.4, 10.23.2).
#[derive(Debug)]
pub(super) struct Contender {
    pub station: StationId,
    pub edca: bool,
    pub aifs_ns: u64,
    pub parameters: Edca,
    pub cw: u32,
    /// Station short retry count, QSRC with EDCA
    pub retries: u16,
    /// Backoff slots left at `resume_ns`
    pub slots: u32,
    /// When the countdown goes on, if the medium stays idle
    pub resume_ns: u64,
    /// When the first frame came into an empty queue, 0 once it has contended
    pub ready_ns: u64,
    /// Flows with frames, next receiver first
    pub ring: VecDeque<u32>,
    pub first_flow: u32,
    pub queued_frames: u32,
    pub queued_bytes: u64,
    /// The access point's beacons have an access function of their own
    pub beacon: bool,
    pub beacon_waits: bool,
}

impl Contender {
    pub(super) fn new(
        station: StationId,
        parameters: Edca,
        edca: bool,
        aifs_ns: u64,
        first_flow: u32,
    ) -> Self {
        Self {
            station,
            edca,
            aifs_ns,
            cw: parameters.cw_min,
            parameters,
            retries: 0,
            slots: 0,
            resume_ns: aifs_ns,
            ready_ns: 0,
            ring: VecDeque::new(),
            first_flow,
            queued_frames: 0,
            queued_bytes: 0,
            beacon: false,
            beacon_waits: false,
        }
    }

    pub(super) fn has_work(&self) -> bool {
        self.beacon_waits || !self.ring.is_empty()
    }

    /// When it transmits if the medium stays idle.
    pub(super) fn access_ns(&self, slot_ns: u64) -> u64 {
        if !self.has_work() {
            return NEVER;
        }
        let counted_ns = self.resume_ns + u64::from(self.slots) * slot_ns;
        match self.ready_ns.checked_sub(counted_ns) {
            None | Some(0) => counted_ns,
            // EDCA acts on slot boundaries only (10.23.2.4)
            Some(late_ns) if self.edca => counted_ns + late_ns.next_multiple_of(slot_ns),
            Some(_) => self.ready_ns,
        }
    }
}
