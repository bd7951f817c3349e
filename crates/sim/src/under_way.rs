//! Datagrams between their sender and their receiver, and what has come of each.

use std::collections::VecDeque;
use std::rc::Rc;

use tm_link::Frame;
use tm_wire::{Duration, Instant};

use crate::forms::Inner;

/// One that lost a part is forgotten so long after the others have come, as by Linux (`ipfrag_time`).
const REASSEMBLY: Duration = Duration::from_secs(30);

/// A packet on the link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    /// Number of the datagram.
    pub datagram: u64,
    /// Which of its packets that entered the tunnel.
    pub inner: u16,
    /// Which of those that carry it.
    pub outer: u16,
    /// A bit of it was turned over on the way.
    pub damaged: bool,
}

impl Frame for Piece {
    fn corrupt(&mut self, _draw: u64) {
        self.damaged = true;
    }
}

/// Whose a datagram is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Whose {
    /// Of a flow.
    Flow {
        /// Of which way's sender it is, or to which it is the reply.
        way: usize,
        /// It goes back to the sender.
        reply: bool,
        /// Place of the flow.
        flow: usize,
    },
    /// Of the connection that carries a tunnel: one of its segments.
    Carrier {
        /// Place of the path.
        path: usize,
        /// The end that sends it, 0 the client.
        from: usize,
    },
}

/// One datagram.
pub struct Datagram {
    pub whose: Whose,
    /// Bytes of its payload.
    pub payload: u32,
    /// What it becomes.
    pub form: Rc<[Inner]>,
    /// What is kept of its payload: the bytes that somebody reads.
    bytes: Vec<u8>,
    /// It is forgotten then.
    until: Instant,
    /// Bits of the packets on the link that have come, of the first that entered the tunnel.
    come: u64,
    /// The same of the others: most datagrams are not cut.
    come_others: Vec<u64>,
    /// Bits of the packets that left the tunnel.
    whole: u64,
}

/// Those under way, by their numbers.
#[derive(Default)]
pub struct UnderWay {
    first: u64,
    window: VecDeque<Option<Datagram>>,
    spare: Vec<Vec<u8>>,
    copies: bool,
    longest: Duration,
}

impl UnderWay {
    /// None yet. With `copies` what was delivered is kept, since a copy of it may come; on the link it
    /// is for `longest` at most.
    pub fn new(copies: bool, longest: Duration) -> Self {
        Self {
            copies,
            longest,
            ..Self::default()
        }
    }

    /// Whether copies may come.
    pub fn copies(&self) -> bool {
        self.copies
    }

    /// The number that the next datagram to enter has.
    pub fn next_number(&self) -> u64 {
        self.first + self.window.len() as u64
    }

    /// Enters a datagram at `now` with what is to be kept of its `payload` of so many bytes; returns
    /// its number.
    pub fn enter(
        &mut self,
        now: Instant,
        whose: Whose,
        form: Rc<[Inner]>,
        payload: u32,
        bytes: &[u8],
    ) -> u64 {
        let number = self.next_number();
        self.forget(now);
        let mut kept = self.spare.pop().unwrap_or_default();
        kept.clear();
        kept.extend_from_slice(bytes);
        let come_others = vec![0; form.len() - 1];
        self.window.push_back(Some(Datagram {
            whose,
            payload,
            form,
            bytes: kept,
            until: now.saturating_add(self.longest).saturating_add(REASSEMBLY),
            come: 0,
            come_others,
            whole: 0,
        }));
        number
    }

    /// A datagram; None: nothing more is waited for.
    pub fn get(&self, number: u64) -> Option<&Datagram> {
        let place = usize::try_from(number.checked_sub(self.first)?).ok()?;
        self.window.get(place)?.as_ref()
    }

    /// Nothing of a datagram gets lost from now on: it is waited for however long that takes.
    pub fn keep(&mut self, number: u64) {
        if let Some(datagram) = self.slot(number) {
            datagram.until = Instant::MAX;
        }
    }

    /// A packet on the link came: whether it completes the one that it carries.
    pub fn come(&mut self, piece: Piece) -> bool {
        let Some(datagram) = self.slot(piece.datagram) else {
            return false;
        };
        let inner = usize::from(piece.inner);
        let come = match inner.checked_sub(1) {
            None => &mut datagram.come,
            Some(other) => &mut datagram.come_others[other],
        };
        *come |= 1 << piece.outer;
        if *come != all(datagram.form[inner].outer.len()) {
            return false;
        }
        *come = 0;
        true
    }

    /// A packet left the tunnel: its datagram's bytes where that is whole now.
    pub fn left_tunnel(&mut self, number: u64, inner: u16) -> Option<Vec<u8>> {
        let copies = self.copies;
        let datagram = self.slot(number)?;
        datagram.whole |= 1 << inner;
        if datagram.whole != all(datagram.form.len()) {
            return None;
        }
        datagram.whole = 0;
        if copies {
            return Some(datagram.bytes.clone());
        }
        let bytes = std::mem::take(&mut datagram.bytes);
        self.drop_now(number);
        Some(bytes)
    }

    /// Gives bytes back that were delivered, to be used again.
    pub fn give_back(&mut self, bytes: Vec<u8>) {
        if bytes.capacity() > 0 && self.spare.len() < 1024 {
            self.spare.push(bytes);
        }
    }

    /// A datagram of which a packet was dropped: nothing more is waited for. Whose it was.
    pub fn drop_now(&mut self, number: u64) -> Option<Whose> {
        let place = usize::try_from(number.checked_sub(self.first)?).ok()?;
        let datagram = self.window.get_mut(place)?.take()?;
        self.give_back(datagram.bytes);
        self.shrink();
        Some(datagram.whose)
    }

    fn slot(&mut self, number: u64) -> Option<&mut Datagram> {
        let place = usize::try_from(number.checked_sub(self.first)?).ok()?;
        self.window.get_mut(place)?.as_mut()
    }

    fn forget(&mut self, now: Instant) {
        while let Some(Some(oldest)) = self.window.front() {
            if now <= oldest.until {
                break;
            }
            self.window.pop_front();
            self.first += 1;
            self.shrink();
        }
    }

    fn shrink(&mut self) {
        while let Some(None) = self.window.front() {
            self.window.pop_front();
            self.first += 1;
        }
    }
}

/// So many bits, at most 64.
fn all(count: usize) -> u64 {
    u64::MAX >> (64 - count.clamp(1, 64))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(way: usize, reply: bool, flow: usize) -> Whose {
        Whose::Flow { way, reply, flow }
    }

    fn form(outer: &[usize]) -> Rc<[Inner]> {
        let inner = |count: &usize| Inner {
            bytes: 100,
            outer: vec![120; *count],
        };
        outer.iter().map(inner).collect()
    }

    fn piece(datagram: u64, inner: u16, outer: u16) -> Piece {
        Piece {
            datagram,
            inner,
            outer,
            damaged: false,
        }
    }

    #[test]
    fn a_datagram_is_whole_when_all_of_it_has_come_in_any_order() {
        let mut under_way = UnderWay::default();
        let number = under_way.enter(Instant(0), of(0, false, 3), form(&[2, 1]), 5, b"hello");
        assert!(!under_way.come(piece(number, 0, 1)));
        assert!(!under_way.come(piece(number, 0, 1)), "a copy adds nothing");
        assert!(under_way.come(piece(number, 1, 0)));
        assert_eq!(under_way.left_tunnel(number, 1), None);
        assert!(under_way.come(piece(number, 0, 0)));
        assert_eq!(under_way.left_tunnel(number, 0), Some(b"hello".to_vec()));
        assert!(under_way.get(number).is_none());
        assert!(!under_way.come(piece(number, 1, 0)), "it is gone");
    }

    #[test]
    fn a_copy_is_delivered_where_copies_pass() {
        let mut under_way = UnderWay::new(true, Duration::ZERO);
        let number = under_way.enter(Instant(0), of(0, false, 0), form(&[1]), 5, b"twice");
        for _ in 0..2 {
            assert!(under_way.come(piece(number, 0, 0)));
            assert_eq!(under_way.left_tunnel(number, 0), Some(b"twice".to_vec()));
        }
    }

    #[test]
    fn memory_is_bounded_by_time_and_numbers_stay_valid() {
        let mut under_way = UnderWay::default();
        let lost = under_way.enter(Instant(0), of(0, false, 0), form(&[1]), 4, b"lost");
        let dropped = under_way.enter(Instant(1), of(0, false, 0), form(&[1]), 7, b"dropped");
        under_way.drop_now(dropped);
        let late = under_way.enter(
            Instant(1) + REASSEMBLY,
            of(1, true, 0),
            form(&[1]),
            4,
            b"late",
        );
        assert!(under_way.get(lost).is_none() && under_way.get(dropped).is_none());
        assert_eq!(under_way.window.len(), 1);
        assert_eq!(under_way.get(late).unwrap().whose, of(1, true, 0));
    }

    #[test]
    fn what_may_still_be_on_the_link_is_waited_for() {
        let mut under_way = UnderWay::new(false, Duration::from_secs(50));
        let number = under_way.enter(Instant(0), of(0, false, 0), form(&[1]), 5, b"slow");
        let later = Instant(0).saturating_add(Duration::from_secs(50));
        under_way.enter(later, of(0, false, 0), form(&[1]), 5, b"next");
        assert!(under_way.come(piece(number, 0, 0)));
        let lost = later.saturating_add(Duration::from_secs(31));
        under_way.enter(lost, of(0, false, 0), form(&[1]), 5, b"last");
        assert!(under_way.get(number).is_none());
    }
}
