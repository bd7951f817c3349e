//! One session of a reflector: what arrived, once or again, and in which order.

use std::collections::VecDeque;

use tm_wire::Instant;

use crate::record::{flags, ReflectRecord};
use crate::REMEMBERED_WORDS;

/// What became of the reply to a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReplyOutcome {
    /// Handed to the kernel at this time.
    Sent(Instant),
    /// The kernel refused it.
    Refused,
    /// The reflector only counts.
    NotAsked,
    /// The session is over its rate.
    Limited,
}

/// Counters of a session.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReflectCounters {
    /// Distinct packets that arrived.
    pub received: u64,
    /// Payload bytes of these.
    pub bytes_received: u64,
    /// Replies handed to the kernel, those to duplicates included.
    pub answered: u64,
    /// Arrivals beyond the first of the same packet.
    pub duplicates: u64,
    /// Packets that arrived behind one with a higher sequence number.
    pub reordered: u64,
    /// Replies that the kernel refused.
    pub send_errors: u64,
    /// Packets beyond the rate at which a STAMP session is answered.
    pub limited: u64,
}

impl ReflectCounters {
    /// The sum of these and others.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        Self {
            received: self.received + other.received,
            bytes_received: self.bytes_received + other.bytes_received,
            answered: self.answered + other.answered,
            duplicates: self.duplicates + other.duplicates,
            reordered: self.reordered + other.reordered,
            send_errors: self.send_errors + other.send_errors,
            limited: self.limited + other.limited,
        }
    }
}

/// The state of one session, bounded: it tracks 4 million sequence numbers behind the highest.
pub struct ReflectorFlow {
    flow: u16,
    session: u32,
    /// Bit k: sequence number `base + k` has arrived.
    seen: VecDeque<u64>,
    base: u64,
    highest: Option<u64>,
    /// Counters so far.
    pub counters: ReflectCounters,
}

const BITS: u64 = 64;

impl ReflectorFlow {
    /// A session that has seen nothing; `session` is its place among those of the flow.
    #[must_use]
    pub fn new(flow: u16, session: u32) -> Self {
        Self {
            flow,
            session,
            seen: VecDeque::new(),
            base: 0,
            highest: None,
            counters: ReflectCounters::default(),
        }
    }

    /// Its number in events and records.
    #[must_use]
    pub fn flow(&self) -> u16 {
        self.flow
    }

    /// A packet arrived.
    ///
    /// Returns its record if it is the first arrival of this sequence number.
    pub fn on_packet(
        &mut self,
        seq: u32,
        received: Instant,
        outcome: ReplyOutcome,
        size: u32,
        user_time: bool,
    ) -> Option<ReflectRecord> {
        match outcome {
            ReplyOutcome::Sent(_) => self.counters.answered += 1,
            ReplyOutcome::Refused => self.counters.send_errors += 1,
            ReplyOutcome::NotAsked => {}
            ReplyOutcome::Limited => self.counters.limited += 1,
        }
        let seq = u64::from(seq);
        if !self.mark(seq) {
            self.counters.duplicates += 1;
            return None;
        }
        self.counters.received += 1;
        self.counters.bytes_received += u64::from(size);
        let mut bits = if outcome == ReplyOutcome::Refused {
            flags::SEND_ERROR
        } else {
            0
        };
        if user_time {
            bits |= flags::USER_TIME;
        }
        if self.highest.is_some_and(|highest| seq < highest) {
            bits |= flags::REORDERED;
            self.counters.reordered += 1;
        }
        self.highest = self.highest.max(Some(seq));
        let answered = if let ReplyOutcome::Sent(at) = outcome {
            Some(at)
        } else {
            None
        };
        Some(ReflectRecord {
            seq,
            received,
            answered,
            size,
            flow: self.flow,
            flags: bits,
            duplicates: 0,
            session: self.session,
        })
    }

    /// Enters a sequence number; false if it was there, or is too old to tell.
    fn mark(&mut self, seq: u64) -> bool {
        let Some(offset) = seq.checked_sub(self.base) else {
            return false;
        };
        let mut word = offset / BITS;
        // A jump past the whole window (a sender that skipped, or a forged session) starts it again:
        // memory and time stay bounded whatever the sequence numbers are.
        if word >= 2 * REMEMBERED_WORDS as u64 {
            self.seen.clear();
            self.base = seq - seq % BITS;
            word = 0;
        }
        while self.seen.len() as u64 <= word {
            self.seen.push_back(0);
        }
        while self.seen.len() > REMEMBERED_WORDS {
            self.seen.pop_front();
            self.base += BITS;
            word -= 1;
        }
        let bit = 1 << (seq % BITS);
        let Ok(index) = usize::try_from(word) else {
            return false;
        };
        let fresh = self.seen[index] & bit == 0;
        self.seen[index] |= bit;
        fresh
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::HashSet;

    proptest! {
        #[test]
        fn distinct_packets_are_received_and_the_others_are_duplicates(
            seqs in proptest::collection::vec(0_u32..300, 0..400),
        ) {
            let mut flow = ReflectorFlow::new(0, 0);
            let mut seen = HashSet::new();
            for (k, seq) in seqs.iter().enumerate() {
                let at = Instant(i64::try_from(k).unwrap());
                let record = flow.on_packet(*seq, at, ReplyOutcome::Sent(at), 64, false);
                prop_assert_eq!(record.is_some(), seen.insert(*seq));
            }
            prop_assert_eq!(flow.counters.received, seen.len() as u64);
            prop_assert_eq!(flow.counters.received + flow.counters.duplicates, seqs.len() as u64);
        }

        #[test]
        fn any_sequence_numbers_keep_the_window_bounded(
            seqs in proptest::collection::vec(any::<u32>(), 0..50),
        ) {
            let mut flow = ReflectorFlow::new(0, 0);
            for seq in seqs {
                flow.on_packet(seq, Instant(0), ReplyOutcome::Sent(Instant(0)), 64, false);
                prop_assert!(flow.seen.len() <= REMEMBERED_WORDS);
            }
        }
    }

    #[test]
    fn a_packet_behind_a_higher_one_is_reordered() {
        let mut flow = ReflectorFlow::new(0, 0);
        flow.on_packet(5, Instant(1), ReplyOutcome::Sent(Instant(1)), 64, false);
        let record = flow
            .on_packet(4, Instant(2), ReplyOutcome::Sent(Instant(2)), 64, false)
            .unwrap();
        assert_eq!(record.flags, flags::REORDERED);
        assert_eq!(flow.counters.reordered, 1);
    }
}
