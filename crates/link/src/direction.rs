//! One direction of a link: queue, serializer, loss, delay. The time is an argument.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::sync::Arc;

use crate::chance::{Chance, Loss, Variation};
use crate::config::{Change, DirectionConfig, QueueConfig};
use crate::opportunities::Opportunities;
use crate::serializer::Serializer;

/// What is kept of a frame while it is under way.
pub trait Frame: Clone {
    /// Damages one bit, which `draw` chooses.
    fn corrupt(&mut self, draw: u64);
}

impl Frame for Vec<u8> {
    /// A bit behind the Ethernet header: the frame still finds its way.
    fn corrupt(&mut self, draw: u64) {
        let bits = (self.len().saturating_sub(ETHERNET_HEADER_BYTES) * 8) as u64;
        if bits == 0 {
            return;
        }
        let bit = usize::try_from(draw % bits).unwrap_or(0);
        if let Some(byte) = self.get_mut(ETHERNET_HEADER_BYTES + bit / 8) {
            *byte ^= 1 << (bit % 8);
        }
    }
}

const ETHERNET_HEADER_BYTES: usize = 14;

/// What happened to a frame that was offered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It is on its way, or will be lost on it.
    Accepted,
    /// The queue was full.
    QueueDropped,
}

/// Counters; `offered + duplicated = delivered + queue_dropped + lost + in_flight` at any moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Frames that came.
    pub offered: u64,
    /// Bytes of these, as on the interface.
    pub offered_bytes: u64,
    /// Frames handed on.
    pub delivered: u64,
    /// Bytes of these.
    pub delivered_bytes: u64,
    /// Frames that found the queue full.
    pub queue_dropped: u64,
    /// Frames lost on the way.
    pub lost: u64,
    /// Frames that wait, are serialized or are under way.
    pub in_flight: u64,
    /// Copies made on the way.
    pub duplicated: u64,
    /// Frames damaged on the way.
    pub corrupted: u64,
    /// Frames held back so that others overtake them.
    pub held_back: u64,
}

/// A frame that arrives at the far end.
#[derive(Debug, PartialEq, Eq)]
pub struct Arrival<F> {
    /// When it was due there, ns.
    pub due_ns: i64,
    /// The frame.
    pub frame: F,
}

/// The state of a direction; `F` is whatever the caller keeps of a frame.
pub struct Direction<F> {
    base: DirectionConfig,
    /// As changed by the schedule.
    now: DirectionConfig,
    /// When the schedule of changes began; None: with the first frame.
    epoch_ns: Option<i64>,
    /// Changes that have been made.
    changes_made: usize,
    fate: Fate,
    serializer: Serializer,
    /// Frames that have not begun, with their cost on the link.
    waiting: VecDeque<(u64, u64, F)>,
    waiting_bytes: u64,
    under_way: BinaryHeap<Reverse<Flight<F>>>,
    next_number: u64,
    latest_due_ns: i64,
    counters: Counters,
}

/// A random stream for each thing that can happen to a frame. Every frame draws from each of them,
/// so the fate of frame k depends on the seed and on k alone.
struct Fate {
    loss: Loss,
    variation: Variation,
    duplicate: Chance,
    hold_back: Chance,
    corrupt: Chance,
}

struct Flight<F> {
    due_ns: i64,
    number: u64,
    bytes: u64,
    /// None: it is lost when `due_ns` comes.
    frame: Option<F>,
}

impl<F> PartialEq for Flight<F> {
    fn eq(&self, other: &Self) -> bool {
        self.number == other.number
    }
}
impl<F> Eq for Flight<F> {}
impl<F> PartialOrd for Flight<F> {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
impl<F> Ord for Flight<F> {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.due_ns, self.number).cmp(&(other.due_ns, other.number))
    }
}

impl<F: Frame> Direction<F> {
    /// An idle direction; `name` (`a_to_b`) starts the names of its random streams. `opportunities`
    /// are those of the configuration's trace, if it has one.
    #[must_use]
    pub fn new(
        config: DirectionConfig,
        opportunities: Option<Arc<Opportunities>>,
        seed: u64,
        name: &str,
    ) -> Self {
        let stream = |what: &str| format!("{name}/{what}");
        Self {
            fate: Fate {
                loss: Loss::new(seed, &stream("loss")),
                variation: Variation::new(seed, &stream("delay_variation")),
                duplicate: Chance::new(seed, &stream("duplicate")),
                hold_back: Chance::new(seed, &stream("hold_back")),
                corrupt: Chance::new(seed, &stream("corrupt")),
            },
            serializer: Serializer::new(opportunities),
            now: config.clone(),
            base: config,
            epoch_ns: None,
            changes_made: 0,
            waiting: VecDeque::new(),
            waiting_bytes: 0,
            under_way: BinaryHeap::new(),
            next_number: 0,
            latest_due_ns: i64::MIN,
            counters: Counters::default(),
        }
    }

    /// Begins the schedule of changes, and the trace, anew at `now_ns`; frames under way stay so.
    pub fn restart(&mut self, now_ns: i64) {
        self.advance(now_ns);
        self.now = self.base.clone();
        self.epoch_ns = Some(now_ns);
        self.changes_made = 0;
        self.serializer.restart(now_ns);
    }

    /// Takes a frame that came at `now_ns`, of `bytes` from destination address without FCS.
    ///
    /// Times of successive calls do not go back.
    pub fn offer(&mut self, now_ns: i64, bytes: u64, frame: F) -> Verdict {
        if self.epoch_ns.is_none() {
            self.restart(now_ns);
        }
        self.advance(now_ns);
        self.counters.offered += 1;
        self.counters.offered_bytes += bytes;
        let cost = self.cost_bytes(bytes);
        if self.waiting.is_empty() && self.serializer.free_ns() <= now_ns {
            self.counters.in_flight += 1;
            self.begin(now_ns, bytes, cost, frame, false);
            return Verdict::Accepted;
        }
        if self.is_full(cost) {
            self.counters.queue_dropped += 1;
            return Verdict::QueueDropped;
        }
        self.counters.in_flight += 1;
        self.waiting.push_back((bytes, cost, frame));
        self.waiting_bytes += cost;
        Verdict::Accepted
    }

    /// When something happens next, ns; None while nothing is under way.
    #[must_use]
    pub fn next_due_ns(&self) -> Option<i64> {
        let arrival = self.under_way.peek().map(|Reverse(flight)| flight.due_ns);
        let begin = (!self.waiting.is_empty()).then(|| self.serializer.free_ns());
        match (arrival, begin) {
            (Some(arrival), Some(begin)) => Some(arrival.min(begin)),
            (one, other) => one.or(other),
        }
    }

    /// The next frame that has arrived by `now_ns`.
    pub fn poll(&mut self, now_ns: i64) -> Option<Arrival<F>> {
        self.advance(now_ns);
        loop {
            if self.under_way.peek()?.0.due_ns > now_ns {
                return None;
            }
            let Reverse(flight) = self.under_way.pop()?;
            self.counters.in_flight -= 1;
            let Some(frame) = flight.frame else {
                self.counters.lost += 1;
                continue;
            };
            self.counters.delivered += 1;
            self.counters.delivered_bytes += flight.bytes;
            return Some(Arrival {
                due_ns: flight.due_ns,
                frame,
            });
        }
    }

    /// The counters now.
    #[must_use]
    pub fn counters(&self) -> Counters {
        self.counters
    }

    /// Begins the frames whose turn has come by `now_ns`.
    fn advance(&mut self, now_ns: i64) {
        while self.serializer.free_ns() <= now_ns {
            let Some((bytes, cost, frame)) = self.waiting.pop_front() else {
                break;
            };
            self.waiting_bytes -= cost;
            self.begin(self.serializer.free_ns(), bytes, cost, frame, true);
        }
    }

    /// Serializes a frame from `start_ns` and decides what becomes of it.
    fn begin(&mut self, start_ns: i64, bytes: u64, cost: u64, mut frame: F, waited: bool) {
        self.change(start_ns);
        let rate = self.now.rate_bit_s;
        let sent_ns = self.serializer.send(start_ns, cost, rate, waited);
        let Fate {
            loss,
            variation,
            duplicate,
            hold_back,
            corrupt,
        } = &mut self.fate;
        let lost = loss.next_lost(self.now.loss);
        let varied = variation.next_ns(self.now.delay_variation);
        let copied = duplicate.next_happens(self.now.duplicate).is_some();
        let held = hold_back
            .next_happens(self.now.hold_back.probability)
            .is_some();
        let damaged = corrupt.next_happens(self.now.corrupt);
        if lost {
            self.fly(sent_ns, bytes, None);
            return;
        }
        if let Some(draw) = damaged {
            frame.corrupt(draw);
            self.counters.corrupted += 1;
        }
        let mut due_ns = sent_ns + self.now.delay_ns + varied;
        if held {
            due_ns += self.now.hold_back.extra_ns;
            self.counters.held_back += 1;
        } else {
            if !self.now.reorder {
                due_ns = due_ns.max(self.latest_due_ns);
            }
            self.latest_due_ns = self.latest_due_ns.max(due_ns);
        }
        if copied {
            self.counters.duplicated += 1;
            self.counters.in_flight += 1;
            self.fly(due_ns, bytes, Some(frame.clone()));
        }
        self.fly(due_ns, bytes, Some(frame));
    }

    fn fly(&mut self, due_ns: i64, bytes: u64, frame: Option<F>) {
        let number = self.next_number;
        self.next_number += 1;
        self.under_way.push(Reverse(Flight {
            due_ns,
            number,
            bytes,
            frame,
        }));
    }

    /// Makes the changes whose time has come by `at_ns`.
    fn change(&mut self, at_ns: i64) {
        let epoch = self.epoch_ns.unwrap_or(at_ns);
        while let Some(change) = self.base.changes.get(self.changes_made) {
            if epoch.saturating_add(change.at_ns) > at_ns {
                break;
            }
            apply(change, &mut self.now);
            self.changes_made += 1;
        }
    }

    fn cost_bytes(&self, bytes: u64) -> u64 {
        let cost = i64::try_from(bytes).unwrap_or(i64::MAX - 1024)
            + i64::from(self.now.frame_overhead_bytes);
        u64::try_from(cost)
            .unwrap_or(0)
            .max(u64::from(self.now.frame_min_bytes))
    }

    fn is_full(&self, cost: u64) -> bool {
        match self.now.queue {
            QueueConfig::Bytes { limit } => self.waiting_bytes + cost > limit,
            QueueConfig::Packets { limit } => self.waiting.len() as u64 >= limit,
        }
    }
}

fn apply(change: &Change, config: &mut DirectionConfig) {
    if change.rate_bit_s.is_some() {
        config.rate_bit_s = change.rate_bit_s;
    }
    config.delay_ns = change.delay_ns.unwrap_or(config.delay_ns);
    config.queue = change.queue.unwrap_or(config.queue);
    config.loss = change.loss.unwrap_or(config.loss);
    config.delay_variation = change.delay_variation.unwrap_or(config.delay_variation);
    config.duplicate = change.duplicate.unwrap_or(config.duplicate);
    config.corrupt = change.corrupt.unwrap_or(config.corrupt);
    config.hold_back = change.hold_back.unwrap_or(config.hold_back);
}
