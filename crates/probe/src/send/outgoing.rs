//! The half of a sender that sends: which flow is due, and its packets, a batch at a time.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use tm_wire::{Duration, Instant};

use crate::content::{Content, Filler, Pool};
use crate::format::Format;
use crate::port::{Outbox, Sending, BATCH};
use crate::schedule::{Missed, Pacer, Schedule, Slot, Stop};
use crate::size::Size;

/// One flow as it is sent.
#[derive(Clone)]
pub struct OutgoingFlow {
    /// What its packets look like.
    pub format: Format,
    /// First packet after the start of the run.
    pub start_offset: Duration,
    /// When the others follow.
    pub schedule: Schedule,
    /// When it ends.
    pub end: Stop,
    /// Payload sizes, none below the least of the format.
    pub size: Size,
    /// Filling.
    pub content: Content,
    /// Seed of gaps, sizes and filling.
    pub seed: u64,
}

impl OutgoingFlow {
    /// Smallest and largest payload of the flow.
    #[must_use]
    pub fn size_limits(&self) -> (u32, u32) {
        match (self.size.limits(), &self.schedule) {
            (Some(limits), _) => limits,
            (None, Schedule::Trace { trace, .. }) => trace.sizes(),
            (None, _) => (0, 0),
        }
    }
}

/// What became of a packet that was due, for [`Incoming`](crate::Incoming).
///
/// Notes of a batch are given out before its packets leave, so a reply always finds its test packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Note {
    /// It was handed over, or skipped.
    Due {
        /// Place of the flow in the plan.
        flow: u16,
        /// When it was due.
        scheduled: Instant,
        /// When it left; None: it was skipped.
        sent: Option<Instant>,
        /// Payload size in bytes.
        size: u32,
    },
    /// It was refused.
    Refused {
        /// Place of the flow in the plan.
        flow: u16,
        /// Which packet.
        seq: u32,
    },
    /// It had to wait for room and leaves at `sent`.
    HeldUp {
        /// Place of the flow in the plan.
        flow: u16,
        /// Which packet.
        seq: u32,
        /// When it leaves.
        sent: Instant,
    },
}

/// All flows of a sender, in order of their next packets.
pub struct Outgoing {
    flows: Vec<Flow>,
    /// The flow with the earliest packet is on top.
    queue: BinaryHeap<Reverse<(Instant, usize)>>,
    pool: Pool,
    /// Packets that were due at once, those that are skipped too.
    due: Vec<Slot>,
}

/// Where schedules begin until their start is known.
const UNMOVED: Instant = Instant(0);

struct Flow {
    format: Format,
    pacer: Pacer,
    filler: Filler,
}

impl Outgoing {
    /// The flows, none of which has begun.
    #[must_use]
    pub fn new<'a>(flows: impl IntoIterator<Item = &'a OutgoingFlow>, missed: Missed) -> Self {
        let flows: Vec<Flow> = flows
            .into_iter()
            .map(|flow| Flow::new(flow, missed))
            .collect();
        Self {
            pool: Pool::of(flows.iter().map(|flow| flow.filler.content())),
            flows,
            queue: BinaryHeap::new(),
            due: Vec::with_capacity(BATCH),
        }
    }

    /// Begins the schedule of all flows at `start`.
    pub fn begin(&mut self, start: Instant) {
        for (index, flow) in self.flows.iter_mut().enumerate() {
            flow.pacer.shift(start - UNMOVED);
            let due = flow.pacer.next_due();
            self.queue.extend(due.map(|due| Reverse((due, index))));
        }
    }

    /// When the next packet is due, and its flow; None: all have ended.
    #[must_use]
    pub fn next_due(&self) -> Option<(Instant, usize)> {
        self.queue.peek().map(|Reverse(next)| *next)
    }

    /// Sends what is due of the flow that [`Outgoing::next_due`] names, at most a batch, to `outbox`;
    /// `note` is called with each packet. Where it says that nobody hears it (false), the packet and those
    /// behind it do not leave: the run is to end.
    pub fn send_due(&mut self, outbox: &mut impl Outbox, mut note: impl FnMut(Note) -> bool) {
        let Some(Reverse((_, index))) = self.queue.pop() else {
            return;
        };
        let flow = &mut self.flows[index];
        flow.fill_due(&self.pool, &mut self.due, outbox);
        // Flows are numbered as places of a plan of at most 65,536.
        let number = u16::try_from(index).unwrap_or(u16::MAX);
        let noted = flow.stamp_due(number, &self.due, outbox, &mut note);
        self.due.truncate(noted);
        self.due.retain(|slot| slot.send);
        flow.transmit(number, &self.due, outbox, &mut note);
        let next = flow.pacer.next_due();
        self.queue.extend(next.map(|due| Reverse((due, index))));
    }
}

impl Flow {
    fn new(flow: &OutgoingFlow, missed: Missed) -> Self {
        Self {
            format: flow.format.clone(),
            pacer: Pacer::new(
                UNMOVED + flow.start_offset,
                flow.schedule.clone(),
                flow.size.clone(),
                flow.end,
                missed,
                flow.seed,
            ),
            filler: Filler::new(flow.content.clone(), flow.seed),
        }
    }

    /// Fills the packets that are due.
    fn fill_due(&mut self, pool: &Pool, due: &mut Vec<Slot>, outbox: &mut impl Outbox) {
        let now = outbox.now();
        let mut count = 0;
        due.clear();
        while count < BATCH {
            let Some(slot) = self.pacer.poll(now) else {
                break;
            };
            due.push(slot);
            if slot.send {
                outbox.set_length(count, slot.size as usize);
                let packet = outbox.packet(count);
                let head = self.format.header_bytes(packet.len());
                self.filler.fill(pool, slot.seq, &mut packet[head..]);
                count += 1;
            }
        }
    }

    /// Stamps them: all are filled before the first is stamped, since that work is no delay of the
    /// path. How many could be noted.
    fn stamp_due(
        &self,
        flow: u16,
        due: &[Slot],
        outbox: &mut impl Outbox,
        note: &mut impl FnMut(Note) -> bool,
    ) -> usize {
        let mut place = 0;
        for (count, slot) in due.iter().enumerate() {
            let sent = slot.send.then(|| {
                let sent = self.stamp(place, slot.seq, outbox);
                place += 1;
                sent
            });
            let heard = note(Note::Due {
                flow,
                scheduled: slot.scheduled,
                sent,
                size: slot.size,
            });
            if !heard {
                return count;
            }
        }
        due.len()
    }

    fn transmit(
        &self,
        flow: u16,
        due: &[Slot],
        outbox: &mut impl Outbox,
        note: &mut impl FnMut(Note) -> bool,
    ) {
        let mut from = 0;
        while from < due.len() {
            let (sent, end) = outbox.send(from, due.len());
            from += sent;
            let refused = match end {
                Sending::Done => 0,
                Sending::Refused => 1,
                Sending::Full if outbox.wait_for_room() => {
                    // The wait is ours, not the path's: what did not leave is stamped again.
                    for (place, slot) in due.iter().enumerate().skip(from) {
                        let seq = slot.seq;
                        let sent = self.stamp(place, seq, outbox);
                        note(Note::HeldUp { flow, seq, sent });
                    }
                    0
                }
                Sending::Full => due.len() - from,
            };
            for slot in &due[from..from + refused] {
                let seq = slot.seq;
                note(Note::Refused { flow, seq });
            }
            from += refused;
        }
    }

    fn stamp(&self, place: usize, seq: u32, outbox: &mut impl Outbox) -> Instant {
        let wall = outbox.wall_clock();
        let now = outbox.now();
        self.format
            .write_test_packet(outbox.packet(place), seq, now, wall);
        now
    }
}
