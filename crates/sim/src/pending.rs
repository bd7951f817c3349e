//! What the ends of tunnels are working on, in the order in which it is done.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use tm_wire::Instant;

/// Something that an end of a tunnel has done.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Done {
    /// When.
    pub at: Instant,
    /// In the order in which it was begun.
    number: u64,
    /// Of which datagram.
    pub datagram: u64,
    /// To which of its packets that entered the tunnel.
    pub inner: u16,
    /// It goes onto the link, else to its host.
    pub wrapped: bool,
}

/// All that ends are about to have done, in order of time, then of their numbers.
#[derive(Default)]
pub struct Pending {
    /// Each later than the one before it: an end without delay, and one that is never overtaken.
    line: VecDeque<Done>,
    /// Those before one that was begun earlier.
    strays: BinaryHeap<Reverse<Done>>,
    number: u64,
}

impl Pending {
    /// Begins something; its number is the next.
    pub fn begin(&mut self, at: Instant, wrapped: bool, datagram: u64, inner: u16) {
        self.number += 1;
        let done = Done {
            at,
            number: self.number,
            datagram,
            inner,
            wrapped,
        };
        match self.line.back() {
            Some(last) if last.at > at => self.strays.push(Reverse(done)),
            _ => self.line.push_back(done),
        }
    }

    /// The next, and whether it is a stray.
    fn first(&self) -> Option<(&Done, bool)> {
        match (self.line.front(), self.strays.peek()) {
            (Some(line), Some(Reverse(stray))) if stray < line => Some((stray, true)),
            (Some(line), _) => Some((line, false)),
            (None, stray) => stray.map(|Reverse(stray)| (stray, true)),
        }
    }

    /// When the next is done.
    pub fn next_due(&self) -> Option<Instant> {
        self.first().map(|(done, _)| done.at)
    }

    /// Whether something is done by `now`.
    pub fn has_due(&self, now: Instant) -> bool {
        self.next_due().is_some_and(|due| due <= now)
    }

    /// The next that is done by `now`.
    pub fn next(&mut self, now: Instant) -> Option<Done> {
        let (_, stray) = self.first().filter(|(done, _)| done.at <= now)?;
        if stray {
            self.strays.pop().map(|Reverse(done)| done)
        } else {
            self.line.pop_front()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn work_is_done_by_time_then_in_the_order_in_which_it_began(
            steps in proptest::collection::vec((0_i64..40, 0_i64..50), 1..200),
        ) {
            let mut work = Pending::default();
            let mut expected: Vec<(Instant, u64)> = Vec::new();
            for (number, (at, now)) in (0_u64..).zip(steps) {
                work.begin(Instant(at), true, number, 0);
                expected.push((Instant(at), number));
                expected.sort_unstable();
                prop_assert_eq!(work.next_due(), Some(expected[0].0));
                while let Some(done) = work.next(Instant(now)) {
                    prop_assert_eq!((done.at, done.datagram), expected.remove(0));
                }
                prop_assert!(expected.iter().all(|(at, _)| *at > Instant(now)));
            }
        }
    }
}
