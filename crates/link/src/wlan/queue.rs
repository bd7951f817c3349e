//! Frames that wait in a station: a slab of frames and one list for each sender and receiver, and
//! what callers learn when they end.

use std::collections::VecDeque;

use super::chosen::{Chain, Report};
use super::frame::{Fate, Frame, Outcome, Receiver, StationId};

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
    /// Its outcome has been reported.
    pub reported: bool,
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
            reported: false,
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

/// Frames from one sender to one receiver in one access category, in order.
#[derive(Debug)]
pub(super) struct Flow {
    pub sender: StationId,
    pub receiver: Receiver,
    pub head: u32,
    pub tail: u32,
    /// The receiver does not know yet that frames were given up (10.25.6.7).
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

    /// Whether there are frames to send, or a receiver to notify of some that were given up.
    pub(super) fn has_work(&self) -> bool {
        !self.is_empty() || self.request
    }

    fn outcome(&self, entry: &Entry, fate: Fate, time_ns: u64) -> Outcome {
        Outcome {
            time_ns,
            token: entry.token,
            sender: self.sender,
            receiver: self.receiver,
            msdu_bytes: entry.msdu_bytes,
            fate,
        }
    }

    /// Append a frame; returns its place in the slab.
    fn push(&mut self, slab: &mut Slab, frame: &Frame, body_bytes: u32) -> u32 {
        let index = slab.insert(frame.token, frame.msdu_bytes, body_bytes);
        if self.head == NONE {
            self.head = index;
        } else {
            slab[self.tail].next = index;
        }
        self.tail = index;
        index
    }

    /// Take the first frame out of the list; it must have been reported.
    fn pop(&mut self, slab: &mut Slab) {
        let index = self.head;
        debug_assert!(slab[index].reported);
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

/// All frames of the medium, and the ends that have come about and were not yet reported.
#[derive(Debug)]
pub(super) struct Queues {
    pub flows: Vec<Flow>,
    pub slab: Slab,
    outcomes: VecDeque<Outcome>,
    /// What senders learn of frames for which they chose the rates
    reports: VecDeque<Report>,
}

/// What the frames of an MPDU took in the queue of their station.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Settled {
    pub frames: u32,
    pub bytes: u64,
}

impl Queues {
    pub(super) fn new() -> Self {
        Self {
            flows: Vec::new(),
            slab: Slab::new(),
            outcomes: VecDeque::new(),
            reports: VecDeque::new(),
        }
    }

    pub(super) fn flow(&self, flow: u32) -> &Flow {
        &self.flows[flow as usize]
    }

    pub(super) fn flow_mut(&mut self, flow: u32) -> &mut Flow {
        &mut self.flows[flow as usize]
    }

    /// Append a frame to a flow; returns its place in the slab.
    pub(super) fn push(&mut self, flow: u32, frame: &Frame, body_bytes: u32) -> u32 {
        self.flows[flow as usize].push(&mut self.slab, frame, body_bytes)
    }

    /// The first frame of a flow, `NONE` if there is none.
    pub(super) fn head(&self, flow: u32) -> u32 {
        self.flow(flow).head
    }

    /// The frame behind an MPDU.
    pub(super) fn after_mpdu(&self, leader: u32) -> u32 {
        let mut index = self.slab[leader].next;
        while index != NONE && self.slab[index].joined {
            index = self.slab[index].next;
        }
        index
    }

    /// The MPDU of this frame arrives, with all MSDUs in it.
    pub(super) fn receive(&mut self, leader: u32) {
        let end = self.after_mpdu(leader);
        let mut index = leader;
        while index != end {
            let entry = &mut self.slab[index];
            if entry.state == State::Waiting {
                entry.state = State::Received;
            }
            index = entry.next;
        }
    }

    /// The sender is done with an MPDU: report the frames that were lost, free their places.
    pub(super) fn settle(&mut self, flow: u32, leader: u32, state: State, time_ns: u64) -> Settled {
        let flow = &self.flows[flow as usize];
        let end = self.after_mpdu(leader);
        let mut settled = Settled::default();
        let mut index = leader;
        while index != end {
            let entry = &mut self.slab[index];
            entry.state = state;
            settled.frames += 1;
            settled.bytes += u64::from(entry.msdu_bytes);
            if state == State::Dropped {
                entry.reported = true;
                self.outcomes
                    .push_back(flow.outcome(entry, Fate::RetryLimit, time_ns));
            }
            index = entry.next;
        }
        settled
    }

    /// The receiver gives out what is there in order, up to the first gap (10.25.6.6). Of frames that
    /// were given up it has heard: until then their sender sends it nothing but the request.
    pub(super) fn deliver(&mut self, flow: u32, time_ns: u64) {
        let flow = &self.flows[flow as usize];
        let mut index = flow.head;
        while index != NONE {
            let entry = &mut self.slab[index];
            match entry.state {
                State::Waiting => break,
                State::Received | State::Acknowledged if !entry.reported => {
                    entry.reported = true;
                    self.outcomes
                        .push_back(flow.outcome(entry, Fate::Delivered, time_ns));
                }
                _ => {}
            }
            index = entry.next;
        }
    }

    /// Take what is settled out of the flow; true if nothing is left to send.
    pub(super) fn drop_settled(&mut self, flow: u32) -> bool {
        let flow = &mut self.flows[flow as usize];
        while flow.head != NONE {
            let entry = &self.slab[flow.head];
            let settled = match entry.state {
                State::Acknowledged => entry.reported,
                State::Dropped => !flow.request,
                State::Waiting | State::Received => false,
            };
            if !settled {
                break;
            }
            flow.pop(&mut self.slab);
        }
        !flow.has_work()
    }

    /// Tell the sender of a frame for which it chose the rates.
    pub(super) fn report(&mut self, flow: u32, leader: u32, acknowledged: bool, time_ns: u64) {
        let entry = &self.slab[leader];
        if entry.chain.is_some() {
            self.reports.push_back(Report {
                time_ns,
                token: entry.token,
                sender: self.flows[flow as usize].sender,
                attempts: entry.attempts,
                acknowledged,
            });
        }
    }

    /// The next outcome of `now_ns` or before.
    pub(super) fn next_outcome(&mut self, now_ns: u64) -> Option<Outcome> {
        self.outcomes.front().filter(|one| one.time_ns <= now_ns)?;
        self.outcomes.pop_front()
    }

    /// The next report of `now_ns` or before.
    pub(super) fn next_report(&mut self, now_ns: u64) -> Option<Report> {
        self.reports.front().filter(|one| one.time_ns <= now_ns)?;
        self.reports.pop_front()
    }

    /// When the first outcome or report is to be reported. Both are in order of time.
    pub(super) fn reported_ns(&self) -> Option<u64> {
        let outcome = self.outcomes.front().map(|outcome| outcome.time_ns);
        let report = self.reports.front().map(|report| report.time_ns);
        match (outcome, report) {
            (Some(outcome), Some(report)) => Some(outcome.min(report)),
            (one, other) => one.or(other),
        }
    }
}
