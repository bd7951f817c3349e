//! Frames under way: in line while they arrive in the order in which they left.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use tm_wire::Instant;

/// A frame on its way.
pub(crate) struct Flight<F> {
    /// When it arrives
    pub due: Instant,
    /// In the order of leaving
    number: u64,
    /// As on the interface
    pub bytes: u64,
    /// None: it is lost when `due` comes
    pub frame: Option<F>,
}

/// All frames on their way, first to arrive first; of those due together, first to leave first.
pub(crate) struct Flights<F> {
    /// Each due no earlier than the one before it
    line: VecDeque<Flight<F>>,
    /// Those that arrive before one that left earlier
    strays: BinaryHeap<Reverse<Flight<F>>>,
    next_number: u64,
    held_bytes: u64,
}

/// What a frame takes beside its bytes, at least.
const FRAME_BYTES: u64 = 256;

impl<F> Flights<F> {
    pub(crate) fn new() -> Self {
        Self {
            line: VecDeque::new(),
            strays: BinaryHeap::new(),
            next_number: 0,
            held_bytes: 0,
        }
    }

    /// A frame leaves.
    pub(crate) fn add(&mut self, due: Instant, bytes: u64, frame: Option<F>) {
        let flight = Flight {
            due,
            number: self.next_number,
            bytes,
            frame,
        };
        self.next_number += 1;
        self.held_bytes += held(bytes);
        match self.line.back() {
            Some(last) if last.due > due => self.strays.push(Reverse(flight)),
            _ => self.line.push_back(flight),
        }
    }

    /// When the next arrives.
    pub(crate) fn next_due(&self) -> Option<Instant> {
        let line = self.line.front().map(|flight| flight.due);
        let stray = self.strays.peek().map(|Reverse(flight)| flight.due);
        match (line, stray) {
            (Some(line), Some(stray)) => Some(line.min(stray)),
            (one, other) => one.or(other),
        }
    }

    /// The next that has arrived by `now`.
    pub(crate) fn next(&mut self, now: Instant) -> Option<Flight<F>> {
        let stray_first = match (self.line.front(), self.strays.peek()) {
            (Some(line), Some(Reverse(stray))) => stray < line,
            (line, _) => line.is_none(),
        };
        let flight = if stray_first {
            if self.strays.peek()?.0.due > now {
                return None;
            }
            self.strays.pop()?.0
        } else {
            if self.line.front()?.due > now {
                return None;
            }
            self.line.pop_front()?
        };
        self.held_bytes -= held(flight.bytes);
        Some(flight)
    }

    /// Memory that they hold, about.
    pub(crate) fn held_bytes(&self) -> u64 {
        self.held_bytes
    }
}

fn held(bytes: u64) -> u64 {
    bytes.saturating_add(FRAME_BYTES)
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
        (self.due, self.number).cmp(&(other.due, other.number))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn they_arrive_by_time_then_by_leaving(
            dues in proptest::collection::vec((0_i64..50, 0_i64..60), 1..200),
        ) {
            let mut flights = Flights::new();
            let mut expected: Vec<(Instant, usize)> = Vec::new();
            let mut arrived = Vec::new();
            for (number, (due, now)) in dues.into_iter().enumerate() {
                let (due, now) = (Instant(due), Instant(now));
                flights.add(due, 100, Some(number));
                expected.push((due, number));
                expected.sort_unstable();
                prop_assert_eq!(flights.next_due(), Some(expected[0].0));
                while let Some(flight) = flights.next(now) {
                    arrived.push((flight.due, flight.frame.unwrap()));
                    prop_assert_eq!(arrived.last().copied(), Some(expected.remove(0)));
                }
                prop_assert!(expected.iter().all(|(due, _)| *due > now));
                prop_assert_eq!(flights.held_bytes(), expected.len() as u64 * 356);
            }
        }
    }
}
