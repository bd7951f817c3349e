//! What was on air, PPDU by PPDU: evidence for tests and for shares of airtime.

use super::frame::StationId;

/// One PPDU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Airtime {
    /// Start of its preamble
    pub start_ns: u64,
    /// End of its signal, with signal extension
    pub end_ns: u64,
    /// Who sent it
    pub station: StationId,
    /// What it carried
    pub kind: Ppdu,
    /// It overlapped with another station's
    pub collided: bool,
}

/// What a PPDU carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Ppdu {
    /// RTS frame
    Rts,
    /// CTS frame
    Cts,
    /// One MPDU with data or a fragment of it
    Data,
    /// Several MPDUs with data
    Ampdu,
    /// Ack frame
    Ack,
    /// `BlockAckReq` frame
    BlockAckRequest,
    /// `BlockAck` frame
    BlockAck,
    /// Beacon frame
    Beacon,
}

/// A bounded log; keeps nothing unless asked to.
#[derive(Debug, Default)]
pub(super) struct Log {
    entries: Vec<Airtime>,
    limit: usize,
}

impl Log {
    pub(super) fn keep(&mut self, limit: usize) {
        self.limit = limit;
    }

    pub(super) fn add(&mut self, airtime: Airtime) {
        if self.entries.len() < self.limit {
            self.entries.push(airtime);
        }
    }

    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    /// Everything from `first` on was sent in vain.
    pub(super) fn mark_collided(&mut self, first: usize) {
        for airtime in &mut self.entries[first..] {
            airtime.collided = true;
        }
    }

    pub(super) fn take(&mut self) -> Vec<Airtime> {
        std::mem::take(&mut self.entries)
    }
}
