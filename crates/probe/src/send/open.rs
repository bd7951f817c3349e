//! A packet without a record yet, in little room: of a thousand flows half a million are open.

use std::marker::PhantomData;

use tm_wire::{Duration, Instant, RemoteInstant};

use crate::record::{flags, SendRecord};

/// A point in time that may be missing, in the 8 bytes of one that is not.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Maybe<T>(i64, PhantomData<T>);

/// A point in time as its nanoseconds, of whichever clock.
pub(super) trait Point: Copy {
    fn from_ns(ns: i64) -> Self;
    fn ns(self) -> i64;
}

impl Point for Instant {
    fn from_ns(ns: i64) -> Self {
        Self(ns)
    }

    fn ns(self) -> i64 {
        self.0
    }
}

impl Point for RemoteInstant {
    fn from_ns(ns: i64) -> Self {
        Self(ns)
    }

    fn ns(self) -> i64 {
        self.0
    }
}

impl<T: Point> Maybe<T> {
    const NONE: Self = Self(i64::MIN, PhantomData);

    pub fn get(self) -> Option<T> {
        (self.0 != i64::MIN).then(|| T::from_ns(self.0))
    }

    pub fn take(&mut self) -> Option<T> {
        std::mem::replace(self, Self::NONE).get()
    }
}

impl<T: Point> From<Option<T>> for Maybe<T> {
    fn from(time: Option<T>) -> Self {
        time.map_or(Self::NONE, |time| Self(time.ns(), PhantomData))
    }
}

/// What a [`SendRecord`] says beside its packet's number and flow, which its place in a window tells.
pub(super) struct Open {
    pub scheduled: Instant,
    pub sent: Maybe<Instant>,
    pub remote_rx: Maybe<RemoteInstant>,
    pub returned: Maybe<Instant>,
    pub size: u32,
    pub duplicates: u32,
    /// The largest number: it is unknown.
    residence_ns: u32,
    pub flags: u16,
}

impl Open {
    pub fn new(scheduled: Instant, sent: Option<Instant>, size: u32) -> Self {
        Self {
            scheduled,
            sent: sent.into(),
            remote_rx: Maybe::NONE,
            returned: Maybe::NONE,
            size,
            duplicates: 0,
            residence_ns: u32::MAX,
            flags: if sent.is_none() { flags::NOT_SENT } else { 0 },
        }
    }

    /// Notes how long the reflector had it, if it said so, in at most 4 s.
    pub fn had(&mut self, residence: Option<Duration>) {
        let ns = residence.and_then(|ns| u32::try_from(ns.0).ok());
        self.residence_ns = ns.unwrap_or(u32::MAX);
    }

    /// The record of packet `seq` of a flow.
    pub fn record(&self, seq: u64, flow: u16) -> SendRecord {
        SendRecord {
            seq,
            scheduled: self.scheduled,
            sent: self.sent.get(),
            remote_rx: self.remote_rx.get(),
            returned: self.returned.get(),
            size: self.size,
            flow,
            flags: self.flags,
            duplicates: self.duplicates,
            residence_ns: Some(self.residence_ns).filter(|ns| *ns != u32::MAX),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thousand_flows_of_200_packets_a_second_are_open_in_little_room() {
        // Two limits of 1 s, and a queue that doubles its room: 25 MB of the 100 that a sender has.
        assert!(1000 * 512 * size_of::<Open>() <= 25_000_000);
    }

    #[test]
    fn what_is_missing_is_missing_in_the_record() {
        let mut open = Open::new(Instant(-5), None, 64);
        let record = open.record(7, 3);
        assert_eq!((record.seq, record.flow, record.size), (7, 3, 64));
        assert_eq!((record.scheduled, record.sent), (Instant(-5), None));
        assert_eq!((record.remote_rx, record.returned), (None, None));
        assert_eq!((record.flags, record.residence_ns), (flags::NOT_SENT, None));
        open.had(Some(Duration(0)));
        open.returned = Some(Instant(-1)).into();
        let record = open.record(7, 3);
        assert_eq!(record.residence_ns, Some(0));
        assert_eq!(record.returned, Some(Instant(-1)));
    }
}
