//! The end of a TCP connection that takes the data: what it has, and when it says so.

use tm_wire::{Duration, Instant};

/// Linux delays an acknowledgement so long at least (`TCP_DELACK_MIN`).
const DELAY: Duration = Duration::from_millis(40);
/// RFC 9293 section 3.8.6.3: at least every second segment is acknowledged.
const UNSAID_SEGMENTS: u32 = 2;
/// RFC 2018 section 3: so many fit beside the timestamps.
pub const MOST_BLOCKS: usize = 3;

/// What a receiver says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Acknowledgement {
    /// The next segment that it has not.
    pub next: u64,
    /// Segments behind it that it has, from the first to before the last; the newest first.
    pub blocks: Vec<(u64, u64)>,
    /// When the segment was sent that the acknowledgement is for (RFC 7323 section 4.3).
    pub echo: Instant,
}

impl Acknowledgement {
    /// One that goes with data, where there is no room for blocks.
    pub fn with_data((next, echo): (u64, Instant)) -> Self {
        Self {
            next,
            blocks: Vec::new(),
            echo,
        }
    }
}

/// The state of this end, in segments.
#[derive(Default)]
pub struct Receiver {
    next: u64,
    /// As in an acknowledgement, without a limit.
    blocks: Vec<(u64, u64)>,
    unsaid: u32,
    timer: Option<Instant>,
    /// What was said last, and the time of sending that goes with what is said next.
    said: u64,
    echo: Instant,
}

impl Receiver {
    /// Segments that came in order, which is what the application has.
    pub fn delivered(&self) -> u64 {
        self.next
    }

    /// When an acknowledgement is due that was delayed.
    pub fn timer(&self) -> Option<Instant> {
        self.timer
    }

    /// Takes a segment at `now` that was sent at `sent`: whether an acknowledgement goes out at
    /// once.
    pub fn take(&mut self, now: Instant, segment: u64, sent: Instant) -> bool {
        if segment <= self.said {
            self.echo = self.echo.max(sent);
        }
        if segment != self.next {
            // RFC 5681 section 4.2: at once for what is out of order, and for what it has.
            if segment > self.next {
                self.keep(segment);
            }
            return true;
        }
        self.next += 1;
        let gaps = !self.blocks.is_empty();
        if let Some(place) = self.blocks.iter().position(|block| block.0 == self.next) {
            self.next = self.blocks.remove(place).1;
        }
        self.unsaid += 1;
        if gaps || self.unsaid >= UNSAID_SEGMENTS {
            return true;
        }
        self.timer.get_or_insert(now + DELAY);
        false
    }

    /// What is said now.
    pub fn acknowledgement(&mut self) -> Acknowledgement {
        self.unsaid = 0;
        self.timer = None;
        self.said = self.next;
        Acknowledgement {
            next: self.next,
            echo: self.echo,
            blocks: self.blocks.iter().take(MOST_BLOCKS).copied().collect(),
        }
    }

    /// What goes with data that leaves now: an acknowledgement that is delayed, the next segment and
    /// the echo of it.
    pub fn go_with_data(&mut self) -> Option<(u64, Instant)> {
        self.timer.is_some().then(|| {
            let said = self.acknowledgement();
            (said.next, said.echo)
        })
    }

    /// Keeps a segment that is out of order, in the block that comes first.
    fn keep(&mut self, segment: u64) {
        let mut grown = (segment, segment + 1);
        self.blocks.retain(|block| {
            let touches = block.0 <= grown.1 && grown.0 <= block.1;
            if touches {
                grown = (grown.0.min(block.0), grown.1.max(block.1));
            }
            !touches
        });
        self.blocks.insert(0, grown);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn every_second_segment_is_acknowledged_and_a_single_one_after_a_delay() {
        let mut receiver = Receiver::default();
        assert!(!receiver.take(Instant(5), 0, Instant(1)));
        assert_eq!(receiver.timer(), Some(Instant(5) + DELAY));
        assert!(receiver.take(Instant(6), 1, Instant(2)));
        let said = receiver.acknowledgement();
        assert_eq!((said.next, said.blocks.len()), (2, 0));
        assert_eq!(
            said.echo,
            Instant(1),
            "of the first of both: the delay is a part of the RTT"
        );
        assert_eq!(receiver.timer(), None);
    }

    #[test]
    fn what_is_out_of_order_is_said_at_once_the_newest_first() {
        let mut receiver = Receiver::default();
        for segment in [2, 4, 6, 8] {
            assert!(receiver.take(Instant(0), segment, Instant(0)));
        }
        let blocks = [(8, 9), (6, 7), (4, 5)];
        assert_eq!(receiver.acknowledgement().blocks, blocks);
        // One that joins two blocks.
        receiver.take(Instant(0), 3, Instant(0));
        assert_eq!(receiver.acknowledgement().blocks[0], (2, 5));
        assert!(receiver.take(Instant(0), 0, Instant(0)), "there are gaps");
        assert!(receiver.take(Instant(0), 1, Instant(0)), "it fills a gap");
        assert_eq!(receiver.delivered(), 5);
        assert!(receiver.take(Instant(0), 1, Instant(0)), "a copy");
        assert_eq!(receiver.acknowledgement().next, 5);
    }

    #[test]
    fn the_echo_is_that_of_the_segment_that_fills_the_gap() {
        let mut receiver = Receiver::default();
        receiver.take(Instant(0), 0, Instant(10));
        receiver.acknowledgement();
        receiver.take(Instant(0), 2, Instant(12));
        assert_eq!(receiver.acknowledgement().echo, Instant(10));
        receiver.take(Instant(0), 1, Instant(50));
        let said = receiver.acknowledgement();
        assert_eq!((said.next, said.echo), (3, Instant(50)));
    }

    proptest! {
        #[test]
        fn whatever_the_order_all_is_delivered_once(
            order in Just((0_u64..60).collect::<Vec<_>>()).prop_shuffle(),
            copies in proptest::collection::vec(0_u64..60, 0..40),
        ) {
            let mut receiver = Receiver::default();
            let mut has = std::collections::BTreeSet::new();
            for segment in order.iter().zip(copies.iter().chain(std::iter::repeat(&0))) {
                for one in [*segment.0, *segment.1] {
                    receiver.take(Instant(0), one, Instant(0));
                    has.insert(one);
                    let said = receiver.acknowledgement();
                    prop_assert!((0..said.next).all(|one| has.contains(&one)));
                    prop_assert!(!has.contains(&said.next));
                    for (from, to) in said.blocks {
                        prop_assert!(from > said.next && from < to);
                        prop_assert!((from..to).all(|one| has.contains(&one)));
                    }
                }
            }
            prop_assert_eq!(receiver.delivered(), 60);
            prop_assert!(receiver.blocks.is_empty());
        }
    }
}
