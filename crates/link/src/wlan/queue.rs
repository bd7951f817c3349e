//! Frames that wait in a station: a slab of frames and one list for each sender and receiver.

use super::chosen::Chain;
use super::medium::{Frame, StationId};

/// "No frame" in a list.
pub(super) const NONE: u32 = u32::MAX;

/// Where a frame stands between its sender and its receiver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// Not yet received, or received in part
    Waiting,
    /// At the receiver, but the sender does not know
    Received,
    /// At the receiver, and the sender knows
    Acknowledged,
    /// Given up by the sender
    Dropped,
}

/// A frame (MSDU) in the slab.
#[derive(Clone, Copy, Debug)]
#[allow(clippy::struct_excessive_bools)] // each is a fact of its own
pub(super) struct Entry {
    pub token: u64,
    pub msdu_bytes: u32,
    /// Frame body of the MPDU that it is, or whose A-MSDU it leads.
    pub body_bytes: u32,
    pub next: u32,
    pub state: State,
    /// Its outcome has been told.
    pub told: bool,
    /// Part of the same A-MSDU as the frame before it.
    pub joined: bool,
    /// It has been on air, so its A-MSDU and its fragments are fixed.
    pub tried: bool,
    /// Short retry count of the MPDU (10.3.4.4).
    pub short_retries: u16,
    /// Long retry count of the MPDU.
    pub long_retries: u16,
    /// Fragments acknowledged.
    pub fragments: u8,
    /// Failed attempts of either kind.
    pub attempts: u16,
    /// The sender's own choice of rates.
    pub chain: Option<Chain>,
    /// It may stand in an A-MPDU.
    pub aggregates: bool,
}

/// All frames of the medium.
#[derive(Debug, Default)]
pub(super) struct Slab {
    entries: Vec<Entry>,
    free: u32,
}

impl Slab {
    pub(super) fn new() -> Self {
        Self {
            entries: Vec::new(),
            free: NONE,
        }
    }

    fn insert(&mut self, token: u64, msdu_bytes: u32, body_bytes: u32) -> u32 {
        let entry = Entry {
            token,
            msdu_bytes,
            body_bytes,
            next: NONE,
            state: State::Waiting,
            told: false,
            joined: false,
            tried: false,
            short_retries: 0,
            long_retries: 0,
            fragments: 0,
            attempts: 0,
            chain: None,
            aggregates: true,
        };
        if self.free == NONE {
            self.entries.push(entry);
            return u32::try_from(self.entries.len() - 1).expect("queues are bounded");
        }
        let index = self.free;
        self.free = self[index].next;
        self[index] = entry;
        index
    }

    fn remove(&mut self, index: u32) {
        self[index].next = self.free;
        self.free = index;
    }
}

impl std::ops::Index<u32> for Slab {
    type Output = Entry;

    fn index(&self, index: u32) -> &Entry {
        &self.entries[index as usize]
    }
}

impl std::ops::IndexMut<u32> for Slab {
    fn index_mut(&mut self, index: u32) -> &mut Entry {
        &mut self.entries[index as usize]
    }
}

/// Who is to receive a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Receiver {
    /// One station, which acknowledges
    Station(StationId),
    /// All stations: broadcast or multicast, neither acknowledged nor repeated (10.3.6)
    Group,
}

/// Frames from one sender to one receiver in one access category, in order.
#[derive(Debug)]
pub(super) struct Flow {
    pub sender: StationId,
    pub receiver: Receiver,
    pub head: u32,
    pub tail: u32,
    /// The receiver has to be told that frames were given up (10.25.6.7).
    pub request: bool,
    /// Failed attempts of that request.
    pub request_retries: u16,
    /// Rate of the last frame: that of the request if no frame is left.
    pub mode_index: usize,
}

impl Flow {
    pub(super) fn new(sender: StationId, receiver: Receiver) -> Self {
        Self {
            sender,
            receiver,
            head: NONE,
            tail: NONE,
            request: false,
            request_retries: 0,
            mode_index: 0,
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.head == NONE
    }

    /// Append a frame; returns its place in the slab.
    pub(super) fn push(&mut self, slab: &mut Slab, frame: &Frame, body_bytes: u32) -> u32 {
        let index = slab.insert(frame.token, frame.msdu_bytes, body_bytes);
        if self.head == NONE {
            self.head = index;
        } else {
            slab[self.tail].next = index;
        }
        self.tail = index;
        index
    }

    /// Take the first frame out of the list; it must have been told.
    pub(super) fn pop(&mut self, slab: &mut Slab) {
        let index = self.head;
        debug_assert!(slab[index].told);
        self.head = slab[index].next;
        if self.head == NONE {
            self.tail = NONE;
        } else {
            // a frame whose leader is gone leads
            slab[self.head].joined = false;
        }
        slab.remove(index);
    }
}
