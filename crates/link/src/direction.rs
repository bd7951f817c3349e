//! One direction of a link: queue, serializer, loss, delay. The time is an argument.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use crate::chance::{Loss, Variation};
use crate::config::{DirectionConfig, QueueConfig};

/// What happened to a frame that was offered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It is on its way, or will be lost on it.
    Accepted,
    /// The queue was full.
    QueueDropped,
}

/// Counters; `offered = delivered + queue_dropped + lost + in_flight` at any moment.
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
    config: DirectionConfig,
    loss: Loss,
    variation: Variation,
    /// When the serializer is free, in ns × bit/s, so that no rounding adds up.
    free: i128,
    /// Start of serialization and cost of the frames that have not begun yet.
    waiting: VecDeque<(i64, u64)>,
    waiting_bytes: u64,
    under_way: BinaryHeap<Reverse<Flight<F>>>,
    next_number: u64,
    latest_due_ns: i64,
    counters: Counters,
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

const NS_PER_S: i128 = 1_000_000_000;

impl<F> Direction<F> {
    /// An idle direction; `name` (`a_to_b`) starts the names of its random streams.
    #[must_use]
    pub fn new(config: DirectionConfig, seed: u64, name: &str) -> Self {
        Self {
            loss: Loss::new(config.loss, seed, &format!("{name}/loss")),
            variation: Variation::new(
                config.delay_variation,
                seed,
                &format!("{name}/delay_variation"),
            ),
            config,
            free: i128::MIN,
            waiting: VecDeque::new(),
            waiting_bytes: 0,
            under_way: BinaryHeap::new(),
            next_number: 0,
            latest_due_ns: i64::MIN,
            counters: Counters::default(),
        }
    }

    /// Takes a frame that came at `now_ns`, of `bytes` from destination address without FCS.
    ///
    /// Times of successive calls do not go back.
    pub fn offer(&mut self, now_ns: i64, bytes: u64, frame: F) -> Verdict {
        self.counters.offered += 1;
        self.counters.offered_bytes += bytes;
        let cost = self.cost_bytes(bytes);
        self.begin_serializing(now_ns);
        let (start_ns, sent_ns, free) = self.serialization(now_ns, cost);
        if start_ns > now_ns && self.is_full(cost) {
            self.counters.queue_dropped += 1;
            return Verdict::QueueDropped;
        }
        self.free = free;
        if start_ns > now_ns {
            self.waiting.push_back((start_ns, cost));
            self.waiting_bytes += cost;
        }
        let lost = self.loss.next_lost();
        let varied = self.variation.next_ns();
        let mut due_ns = sent_ns;
        if !lost {
            due_ns += self.config.delay_ns + varied;
            if !self.config.reorder {
                due_ns = due_ns.max(self.latest_due_ns);
            }
            self.latest_due_ns = self.latest_due_ns.max(due_ns);
        }
        let flight = Flight {
            due_ns,
            number: self.next_number,
            bytes,
            frame: (!lost).then_some(frame),
        };
        self.next_number += 1;
        self.counters.in_flight += 1;
        self.under_way.push(Reverse(flight));
        Verdict::Accepted
    }

    /// When something happens next, ns; None while nothing is under way.
    #[must_use]
    pub fn next_due_ns(&self) -> Option<i64> {
        self.under_way.peek().map(|Reverse(flight)| flight.due_ns)
    }

    /// The next frame that has arrived by `now_ns`.
    pub fn poll(&mut self, now_ns: i64) -> Option<Arrival<F>> {
        loop {
            if self.next_due_ns()? > now_ns {
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

    fn cost_bytes(&self, bytes: u64) -> u64 {
        let cost = i64::try_from(bytes).unwrap_or(i64::MAX - 1024)
            + i64::from(self.config.frame_overhead_bytes);
        u64::try_from(cost)
            .unwrap_or(0)
            .max(u64::from(self.config.frame_min_bytes))
    }

    /// Start and end of serialization of a frame that comes now, and when the serializer is free.
    fn serialization(&self, now_ns: i64, cost: u64) -> (i64, i64, i128) {
        let Some(rate) = self.config.rate_bit_s else {
            return (now_ns, now_ns, self.free);
        };
        let rate = i128::from(rate);
        let start = self.free.max(i128::from(now_ns) * rate);
        let free = start + i128::from(cost) * 8 * NS_PER_S;
        (ceil_div(start, rate), ceil_div(free, rate), free)
    }

    fn begin_serializing(&mut self, now_ns: i64) {
        while let Some((start_ns, cost)) = self.waiting.front() {
            if *start_ns > now_ns {
                break;
            }
            self.waiting_bytes -= cost;
            self.waiting.pop_front();
        }
    }

    fn is_full(&self, cost: u64) -> bool {
        match self.config.queue {
            QueueConfig::Bytes { limit } => self.waiting_bytes + cost > limit,
            QueueConfig::Packets { limit } => self.waiting.len() as u64 >= limit,
        }
    }
}

fn ceil_div(value: i128, by: i128) -> i64 {
    let quotient = value.div_euclid(by) + i128::from(value.rem_euclid(by) != 0);
    i64::try_from(quotient).unwrap_or(i64::MAX)
}
