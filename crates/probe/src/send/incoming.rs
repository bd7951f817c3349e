//! The half of a sender that receives: replies, records, and the end of waiting.

use tm_wire::{Duration, Instant};

use super::flow::SenderFlow;
use super::outgoing::Note;
use crate::format::Format;
use crate::port::Inbox;
use crate::record::SendRecord;

/// How long replies are waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Waiting {
    /// A reply later than this after its sending is late.
    pub late: Duration,
    /// How long replies are waited for after the last packet.
    pub drain: Duration,
}

/// All flows of a sender as their replies come.
pub struct Incoming {
    flows: Vec<SenderFlow>,
    formats: Vec<Format>,
    waiting: Waiting,
    /// When the last packet left, once it has.
    sent_until: Option<Instant>,
    /// Every reply had a kernel timestamp.
    pub kernel_timestamps: bool,
}

impl Incoming {
    /// The flows with their numbers in events and records, in the order of the plan.
    #[must_use]
    pub fn new(flows: impl IntoIterator<Item = (u16, Format)>, waiting: Waiting) -> Self {
        let (numbers, formats): (Vec<_>, _) = flows.into_iter().unzip();
        let flow = |number| SenderFlow::new(number, waiting.late);
        Self {
            flows: numbers.into_iter().map(flow).collect(),
            formats,
            waiting,
            sent_until: None,
            kernel_timestamps: true,
        }
    }

    /// The flows in the order of the plan.
    #[must_use]
    pub fn flows(&self) -> &[SenderFlow] {
        &self.flows
    }

    /// Enters what became of a packet.
    pub fn note(&mut self, note: Note) {
        match note {
            Note::Due {
                flow,
                scheduled,
                sent,
                size,
            } => self.flows[usize::from(flow)].on_due(scheduled, sent, size),
            Note::Refused { flow, seq } => self.flows[usize::from(flow)].on_send_error(seq),
            Note::HeldUp { flow, seq, sent } => {
                self.flows[usize::from(flow)].on_held_up(seq, sent);
            }
        }
    }

    /// Takes a batch of the flow at `place`. The notes of all packets that left before it was read
    /// must have been entered.
    pub fn take(&mut self, place: usize, inbox: &mut impl Inbox) {
        let (flow, format) = (&mut self.flows[place], &self.formats[place]);
        let wall = inbox.wall_clock();
        for place in 0..inbox.count() {
            let arrival = inbox.arrival(place);
            let packet = inbox.packet(place);
            let reply = format.read_reply(packet, arrival.at, wall, |seq| flow.sent_at(seq));
            if let Some(reply) = reply {
                self.kernel_timestamps &= !arrival.user_time;
                flow.on_reply(&reply, arrival.at, arrival.user_time);
            } else {
                flow.counters.rejected += 1;
            }
        }
    }

    /// The last packet left at `at`.
    pub fn sending_done(&mut self, at: Instant) {
        self.sent_until.get_or_insert(at);
    }

    /// Whether nothing more is waited for: all was answered, or the wait is over.
    #[must_use]
    pub fn over(&self, now: Instant) -> bool {
        let answered = |flow: &SenderFlow| flow.counters.seen() == flow.counters.sent;
        self.sent_until
            .is_some_and(|at| now >= at + self.waiting.drain || self.flows.iter().all(answered))
    }

    /// Gives out the records of packets for which nothing more is waited for.
    pub fn expire(&mut self, now: Instant, mut sink: impl FnMut(&SendRecord)) {
        // Two limits: a reply just past the limit is still distinguished from a loss.
        let keep = self.waiting.late.saturating_mul(2);
        let keep = keep.max(self.waiting.drain);
        for flow in &mut self.flows {
            flow.expire(now, keep, &mut sink);
        }
    }

    /// Gives out all records at the end, and the flows.
    pub fn finish(mut self, mut sink: impl FnMut(&SendRecord)) -> Vec<SenderFlow> {
        for flow in &mut self.flows {
            flow.finish(&mut sink);
        }
        self.flows
    }
}
