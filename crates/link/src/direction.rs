//! One direction of a link: queue, serializer, loss, delay. The time is an argument.

use std::collections::VecDeque;
use std::sync::Arc;

use tm_wire::{Duration, Instant};

use crate::chance::{Chance, Loss, Variation};
use crate::config::{Change, DirectionConfig, LossConfig, QueueConfig, VariationConfig};
use crate::flight::Flights;
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
    /// Frames forwarded.
    pub delivered: u64,
    /// Bytes of these.
    pub delivered_bytes: u64,
    /// Frames that found the queue full, or as much under way as is kept.
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
    /// When it was due there.
    pub due: Instant,
    /// The frame.
    pub frame: F,
}

/// The state of a direction; `F` is whatever the caller keeps of a frame.
pub struct Direction<F> {
    base: DirectionConfig,
    /// As changed by the schedule.
    current: DirectionConfig,
    /// When the schedule of changes began; None: with the first frame.
    epoch: Option<Instant>,
    /// Changes that have been made.
    changes_made: usize,
    fate: Fate,
    serializer: Serializer,
    /// Frames that have not begun, with their cost on the link.
    waiting: VecDeque<(u64, u64, F)>,
    waiting_bytes: u64,
    under_way: Flights<F>,
    latest_due: Instant,
    least_delay: Duration,
    counters: Counters,
}

/// A random stream for each thing that can happen to a frame. Every frame draws from each of them,
/// so the fate of frame k depends on the seed and on k alone; what can never happen, by the
/// configuration and all its changes, has no stream, since nobody would see its numbers.
struct Fate {
    loss: Option<Loss>,
    variation: Option<Variation>,
    duplicate: Option<Chance>,
    hold_back: Option<Chance>,
    corrupt: Option<Chance>,
}

impl Fate {
    fn new(config: &DirectionConfig, seed: u64, name: &str) -> Self {
        let stream = |what: &str| format!("{name}/{what}");
        let changes = &config.changes;
        let ever = |now: bool, later: &dyn Fn(&Change) -> bool| now || changes.iter().any(later);
        let chance =
            |possible: bool, what: &str| possible.then(|| Chance::new(seed, &stream(what)));
        let loses = |loss: LossConfig| loss != LossConfig::None {};
        let varies = |variation: VariationConfig| variation != VariationConfig::None {};
        let happens = |probability: f64| probability > 0.0;
        Self {
            loss: ever(loses(config.loss), &|c| c.loss.is_some_and(loses))
                .then(|| Loss::new(seed, &stream("loss"))),
            variation: ever(varies(config.delay_variation), &|c| {
                c.delay_variation.is_some_and(varies)
            })
            .then(|| Variation::new(seed, &stream("delay_variation"))),
            duplicate: chance(
                ever(happens(config.duplicate), &|c| {
                    c.duplicate.is_some_and(happens)
                }),
                "duplicate",
            ),
            hold_back: chance(
                ever(happens(config.hold_back.probability), &|c| {
                    c.hold_back.is_some_and(|one| happens(one.probability))
                }),
                "hold_back",
            ),
            corrupt: chance(
                ever(happens(config.corrupt), &|c| c.corrupt.is_some_and(happens)),
                "corrupt",
            ),
        }
    }
}

/// Memory that frames under way may hold: 0.8 s of 10 Gbit/s.
const MOST_HELD_BYTES: u64 = 1 << 30;

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
        let changed = config.changes.iter().filter_map(|change| change.delay_ns);
        Self {
            fate: Fate::new(&config, seed, name),
            least_delay: Duration(changed.fold(config.delay_ns, i64::min)),
            serializer: Serializer::new(opportunities),
            current: config.clone(),
            base: config,
            epoch: None,
            changes_made: 0,
            waiting: VecDeque::new(),
            waiting_bytes: 0,
            under_way: Flights::new(),
            latest_due: Instant::MIN,
            counters: Counters::default(),
        }
    }

    /// Begins the schedule of changes, and the trace, again at `now`; frames under way stay so.
    pub fn restart(&mut self, now: Instant) {
        self.advance(now);
        self.current = self.base.clone();
        self.epoch = Some(now);
        self.changes_made = 0;
        self.serializer.restart(now);
    }

    /// Takes a frame that came at `now`, of `bytes` from destination address without FCS.
    ///
    /// While 1 GiB is under way, which takes a rate and a delay that no link has, frames are dropped as
    /// from a full queue.
    ///
    /// Times of successive calls do not go back.
    pub fn offer(&mut self, now: Instant, bytes: u64, frame: F) -> Verdict {
        if self.epoch.is_none() {
            self.restart(now);
        }
        self.advance(now);
        self.counters.offered += 1;
        self.counters.offered_bytes += bytes;
        let cost = self.cost_bytes(bytes);
        if self.under_way.held_bytes() >= MOST_HELD_BYTES {
            self.counters.queue_dropped += 1;
            return Verdict::QueueDropped;
        }
        if self.waiting.is_empty() && self.serializer.free_at() <= now {
            self.counters.in_flight += 1;
            self.begin(now, bytes, cost, frame, false);
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

    /// When something happens next; None while nothing is under way.
    #[must_use]
    pub fn next_due(&self) -> Option<Instant> {
        self.next(Duration::ZERO)
    }

    /// When it is to be polled, so that no frame is forwarded late; None while nothing is under way.
    ///
    /// That is no sooner than `next_due`: a frame begins when its turn comes, whenever that is seen, and
    /// arrives [`Self::least_delay`] later at the earliest.
    #[must_use]
    pub fn look_by(&self) -> Option<Instant> {
        self.next(self.least_delay)
    }

    /// The next arrival, or so long after the next frame begins, whichever comes first.
    fn next(&self, after_begin: Duration) -> Option<Instant> {
        let arrival = self.under_way.next_due();
        let begin = (!self.waiting.is_empty())
            .then(|| self.serializer.free_at().saturating_add(after_begin));
        match (arrival, begin) {
            (Some(arrival), Some(begin)) => Some(arrival.min(begin)),
            (one, other) => one.or(other),
        }
    }

    /// The shortest time, by the configuration and all its changes, from when a frame is offered, or
    /// begins after it has waited, until it arrives.
    #[must_use]
    pub fn least_delay(&self) -> Duration {
        self.least_delay
    }

    /// The next frame that has arrived by `now`.
    pub fn poll(&mut self, now: Instant) -> Option<Arrival<F>> {
        self.advance(now);
        loop {
            let flight = self.under_way.next(now)?;
            self.counters.in_flight -= 1;
            let Some(frame) = flight.frame else {
                self.counters.lost += 1;
                continue;
            };
            self.counters.delivered += 1;
            self.counters.delivered_bytes += flight.bytes;
            return Some(Arrival {
                due: flight.due,
                frame,
            });
        }
    }

    /// The counters now.
    #[must_use]
    pub fn counters(&self) -> Counters {
        self.counters
    }

    /// Begins the frames whose turn has come by `now`.
    fn advance(&mut self, now: Instant) {
        while self.serializer.free_at() <= now {
            let Some((bytes, cost, frame)) = self.waiting.pop_front() else {
                break;
            };
            self.waiting_bytes -= cost;
            self.begin(self.serializer.free_at(), bytes, cost, frame, true);
        }
    }

    /// Serializes a frame from `start` on and decides what becomes of it.
    fn begin(&mut self, start: Instant, bytes: u64, cost: u64, mut frame: F, waited: bool) {
        self.change(start);
        let rate = self.current.rate_bit_s;
        let sent = self.serializer.send(start, cost, rate, waited);
        let Fate {
            loss,
            variation,
            duplicate,
            hold_back,
            corrupt,
        } = &mut self.fate;
        let current = &self.current;
        let draw = |chance: &mut Option<Chance>, probability: f64| {
            chance
                .as_mut()
                .and_then(|one| one.next_happens(probability))
        };
        let lost = loss.as_mut().is_some_and(|one| one.next_lost(current.loss));
        let varied = variation
            .as_mut()
            .map_or(0, |one| one.next_ns(current.delay_variation));
        let copied = draw(duplicate, current.duplicate).is_some();
        let held = draw(hold_back, current.hold_back.probability).is_some();
        let damaged = draw(corrupt, current.corrupt);
        if lost {
            self.under_way.add(sent, bytes, None);
            return;
        }
        if let Some(draw) = damaged {
            frame.corrupt(draw);
            self.counters.corrupted += 1;
        }
        let mut due = sent + Duration(current.delay_ns + varied);
        if !current.reorder {
            due = due.max(self.latest_due);
        }
        // Nothing else is later because this one is held back.
        self.latest_due = self.latest_due.max(due);
        if held {
            due += Duration(current.hold_back.extra_ns);
            self.counters.held_back += 1;
        }
        if copied {
            self.counters.duplicated += 1;
            self.counters.in_flight += 1;
            self.under_way.add(due, bytes, Some(frame.clone()));
        }
        self.under_way.add(due, bytes, Some(frame));
    }

    /// Makes the changes whose time has come at `now`.
    fn change(&mut self, now: Instant) {
        let epoch = self.epoch.unwrap_or(now);
        while let Some(change) = self.base.changes.get(self.changes_made) {
            if epoch.saturating_add(Duration(change.at_ns)) > now {
                break;
            }
            apply(change, &mut self.current);
            self.changes_made += 1;
        }
    }

    fn cost_bytes(&self, bytes: u64) -> u64 {
        let cost = i64::try_from(bytes).unwrap_or(i64::MAX - 1024)
            + i64::from(self.current.frame_overhead_bytes);
        u64::try_from(cost)
            .unwrap_or(0)
            .max(u64::from(self.current.frame_min_bytes))
    }

    fn is_full(&self, cost: u64) -> bool {
        match self.current.queue {
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
