//! One flow of a sender: what left, what came back, and the record of every packet.

use std::collections::VecDeque;

use tm_wire::{Duration, Instant, RemoteInstant};

use super::open::Open;
use crate::delays::Delays;
use crate::record::{flags, SendRecord};
use crate::REMEMBERED_WORDS;

/// Counters of a flow; `due = sent + not_sent + send_errors` at any moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SendCounters {
    /// Packets that were due.
    pub due: u64,
    /// Packets handed to the kernel.
    pub sent: u64,
    /// Packets skipped because they were too late.
    pub not_sent: u64,
    /// Packets that the kernel refused.
    pub send_errors: u64,
    /// Payload bytes handed to the kernel.
    pub bytes_sent: u64,
    /// Distinct packets answered in time.
    pub returned: u64,
    /// Payload bytes of these.
    pub bytes_returned: u64,
    /// Replies beyond the first to the same packet.
    pub duplicates: u64,
    /// Replies that came behind one with a higher sequence number.
    pub reordered: u64,
    /// Distinct packets answered after the limit.
    pub late: u64,
    /// First replies that came after their packet's record had been written: beyond all waiting.
    pub unrecorded: u64,
    /// Replies in time whose residence time at the reflector is unknown: they are in no round trip.
    pub residence_unknown: u64,
    /// Replies to packets that were never sent.
    pub rejected: u64,
}

impl SendCounters {
    /// Distinct packets that were answered at all.
    #[must_use]
    pub fn seen(&self) -> u64 {
        self.returned + self.late + self.unrecorded
    }
}

/// What a reply says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReceivedReply {
    /// Sequence number of the test packet.
    pub seq: u32,
    /// When the test packet reached the reflector, by its clock.
    pub remote_rx: RemoteInstant,
    /// Residence time: how long the reflector had it; None if it did not say.
    pub residence: Option<Duration>,
    /// The reply's own number, where it has one: a stateful reflector's count from 0, else that of
    /// the test packet again.
    pub remote_seq: Option<u32>,
}

/// The state of one flow, bounded. Packets are entered in order of their sequence numbers.
pub struct SenderFlow {
    flow: u16,
    late: Duration,
    /// Packets without a record yet; the front has the sequence number `base`.
    window: VecDeque<Open>,
    base: u64,
    /// A bit for each packet whose record is written: whether a reply to it would be another one.
    settled: VecDeque<u64>,
    /// Words of `settled` that were given up.
    forgotten: u64,
    highest_returned: Option<u64>,
    last_rtt: Option<Duration>,
    smallest_rtt: Option<Duration>,
    /// Largest number of a reply.
    remote_highest: Option<u32>,
    /// A reply had another number than its test packet: the reflector counts.
    remote_counts: bool,
    /// Counters so far.
    pub counters: SendCounters,
    /// First and last time of sending.
    pub sent_span: Option<(Instant, Instant)>,
    /// Round trips.
    pub rtt: Delays,
    /// One way there.
    pub owd_forward: Delays,
    /// One way back, from arrival at the reflector.
    pub owd_reverse: Delays,
    /// Sent minus scheduled, of the packets whose record is written.
    pub lateness: Delays,
}

impl SenderFlow {
    /// A flow whose replies count as late after `late`.
    #[must_use]
    pub fn new(flow: u16, late: Duration) -> Self {
        Self {
            flow,
            late,
            window: VecDeque::new(),
            base: 0,
            settled: VecDeque::new(),
            forgotten: 0,
            highest_returned: None,
            last_rtt: None,
            smallest_rtt: None,
            remote_highest: None,
            remote_counts: false,
            counters: SendCounters::default(),
            sent_span: None,
            rtt: Delays::default(),
            owd_forward: Delays::default(),
            owd_reverse: Delays::default(),
            lateness: Delays::default(),
        }
    }

    /// The last round trip seen.
    #[must_use]
    pub fn last_rtt(&self) -> Option<Duration> {
        self.last_rtt
    }

    /// The smallest round trip seen.
    #[must_use]
    pub fn smallest_rtt(&self) -> Option<Duration> {
        self.smallest_rtt
    }

    /// How many packets a reflector that counts says it received; what it received behind the last
    /// reply is beyond it. None until it is seen to count: its numbers are those of the test packets
    /// until the first one is lost.
    #[must_use]
    pub fn remote_received(&self) -> Option<u64> {
        let highest = self.remote_highest.filter(|_| self.remote_counts)?;
        Some(u64::from(highest) + 1)
    }

    /// Packets without a record yet.
    #[must_use]
    pub fn pending(&self) -> usize {
        self.window.len()
    }

    /// A packet was due: `sent` is when it was handed to the kernel, None if it was skipped.
    pub fn on_due(&mut self, scheduled: Instant, sent: Option<Instant>, size: u32) {
        self.counters.due += 1;
        if let Some(at) = sent {
            self.counters.sent += 1;
            self.counters.bytes_sent += u64::from(size);
            self.sent_span = Some((self.sent_span.map_or(at, |(first, _)| first), at));
        } else {
            self.counters.not_sent += 1;
        }
        self.window.push_back(Open::new(scheduled, sent, size));
    }

    /// Packet `seq`, which had been entered as sent, had to wait for room and left only now.
    pub fn on_held_up(&mut self, seq: u32, sent: Instant) {
        if let Some(record) = slot(&mut self.window, self.base, seq) {
            if record.sent.get().is_some() && record.returned.get().is_none() {
                record.sent = Some(sent).into();
                self.sent_span = self.sent_span.map(|(first, last)| (first, last.max(sent)));
            }
        }
    }

    /// The kernel refused packet `seq`, which had been entered as sent.
    pub fn on_send_error(&mut self, seq: u32) {
        let Some(record) = slot(&mut self.window, self.base, seq) else {
            return;
        };
        if record.sent.take().is_none() {
            return;
        }
        record.flags |= flags::SEND_ERROR;
        self.counters.sent -= 1;
        self.counters.bytes_sent -= u64::from(record.size);
        self.counters.send_errors += 1;
    }

    /// When packet `seq` was sent, while its record is open.
    #[must_use]
    pub fn sent_at(&self, seq: u32) -> Option<Instant> {
        let index = u64::from(seq).checked_sub(self.base)?;
        self.window.get(usize::try_from(index).ok()?)?.sent.get()
    }

    /// A reply came at `returned`.
    pub fn on_reply(&mut self, reply: &ReceivedReply, returned: Instant, user_time: bool) {
        let (seq, remote_rx) = (reply.seq, reply.remote_rx);
        let next = self.base + self.window.len() as u64;
        let seq64 = u64::from(seq);
        if seq64 >= next {
            self.counters.rejected += 1;
            return;
        }
        self.remote_highest = self.remote_highest.max(reply.remote_seq);
        self.remote_counts |= reply.remote_seq.is_some_and(|number| number != seq);
        let Some(record) = slot(&mut self.window, self.base, seq) else {
            // Its record is written: late beyond all waiting, or a copy.
            if self.settle(seq64) {
                self.counters.unrecorded += 1;
            } else {
                self.counters.duplicates += 1;
            }
            return;
        };
        let Some(sent) = record.sent.get() else {
            self.counters.rejected += 1;
            return;
        };
        if record.returned.get().is_some() {
            record.duplicates += 1;
            self.counters.duplicates += 1;
            return;
        }
        record.returned = Some(returned).into();
        record.remote_rx = Some(remote_rx).into();
        if user_time {
            record.flags |= flags::USER_TIME;
        }
        if self.highest_returned.is_some_and(|highest| seq64 < highest) {
            record.flags |= flags::REORDERED;
            self.counters.reordered += 1;
        }
        self.highest_returned = self.highest_returned.max(Some(seq64));
        record.had(reply.residence);
        if returned - sent > self.late {
            record.flags |= flags::LATE;
            self.counters.late += 1;
            return;
        }
        self.counters.returned += 1;
        self.counters.bytes_returned += u64::from(record.size);
        self.owd_forward.add(remote_rx.since(sent));
        let Some(residence) = reply.residence else {
            self.counters.residence_unknown += 1;
            return;
        };
        // What the reflector's reader took is no delay of the path (RFC 5357, section 3.1.2, has
        // both of its times in the reply for this).
        let rtt = returned - sent - residence;
        self.rtt.add(rtt);
        self.owd_reverse.add(remote_rx.until(returned) - residence);
        self.smallest_rtt = Some(self.smallest_rtt.map_or(rtt, |least| least.min(rtt)));
        self.last_rtt = Some(rtt);
    }

    /// Gives out the records of packets that are `keep` old: nothing more is waited for.
    pub fn expire(&mut self, now: Instant, keep: Duration, mut sink: impl FnMut(&SendRecord)) {
        while let Some(front) = self.window.front() {
            if now - front.sent.get().unwrap_or(front.scheduled) <= keep {
                break;
            }
            self.close(&mut sink);
        }
    }

    /// Gives out all records at the end of the run.
    pub fn finish(&mut self, mut sink: impl FnMut(&SendRecord)) {
        while !self.window.is_empty() {
            self.close(&mut sink);
        }
    }

    /// Gives out the record of the oldest packet.
    fn close(&mut self, sink: &mut impl FnMut(&SendRecord)) {
        let Some(front) = self.window.pop_front() else {
            return;
        };
        let record = front.record(self.base, self.flow);
        sink(&record);
        if let Some(sent) = record.sent {
            self.lateness.add(sent - record.scheduled);
        }
        let bit = self.base % 64;
        if bit == 0 {
            self.settled.push_back(0);
            if self.settled.len() > REMEMBERED_WORDS {
                self.settled.pop_front();
                self.forgotten += 1;
            }
        }
        let answered = record.returned.is_some() || record.sent.is_none();
        if let (true, Some(word)) = (answered, self.settled.back_mut()) {
            *word |= 1 << bit;
        }
        self.base += 1;
    }

    /// Notes a reply to a packet whose record is written; whether it is the first one. One that is
    /// too old to tell is a copy.
    fn settle(&mut self, seq: u64) -> bool {
        let place = (seq / 64).checked_sub(self.forgotten);
        let place = place.and_then(|place| usize::try_from(place).ok());
        let Some(word) = place.and_then(|place| self.settled.get_mut(place)) else {
            return false;
        };
        let bit = 1 << (seq % 64);
        let first = *word & bit == 0;
        *word |= bit;
        first
    }
}

fn slot(window: &mut VecDeque<Open>, base: u64, seq: u32) -> Option<&mut Open> {
    let index = u64::from(seq).checked_sub(base)?;
    window.get_mut(usize::try_from(index).ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn reply(seq: u32, remote_rx: i64) -> ReceivedReply {
        ReceivedReply {
            seq,
            remote_rx: RemoteInstant(remote_rx),
            residence: Some(Duration(0)),
            remote_seq: None,
        }
    }

    /// A path that loses, delays and duplicates, in virtual time.
    fn run(fates: &[(bool, i64, u8)], late: i64) -> (SenderFlow, Vec<SendRecord>) {
        let mut flow = SenderFlow::new(3, Duration(late));
        let mut replies = Vec::new();
        let mut records = Vec::new();
        for (k, (lost, delay, copies)) in fates.iter().enumerate() {
            let at = Instant(i64::try_from(k).unwrap() * 100);
            if !lost {
                for copy in 0..=*copies {
                    let back = at + Duration(delay + i64::from(copy));
                    replies.push((back, u32::try_from(k).unwrap()));
                }
            }
        }
        replies.sort_unstable();
        let mut replies = replies.into_iter().peekable();
        for k in 0..fates.len() {
            let now = Instant(i64::try_from(k).unwrap() * 100);
            while let Some((back, seq)) = replies.next_if(|(back, _)| *back <= now) {
                flow.on_reply(&reply(seq, back.0 - 1), back, false);
            }
            flow.on_due(now, Some(now), 64);
            flow.expire(now, Duration(late * 2), |record| records.push(*record));
        }
        for (back, seq) in replies {
            flow.on_reply(&reply(seq, back.0 - 1), back, false);
        }
        flow.finish(|record| records.push(*record));
        (flow, records)
    }

    proptest! {
        #[test]
        fn every_packet_gives_one_record_and_none_is_lost_by_us(
            fates in proptest::collection::vec((any::<bool>(), 1_i64..5_000, 0_u8..3), 1..200),
        ) {
            let (flow, records) = run(&fates, 1_000);
            let seqs: Vec<u64> = records.iter().map(|record| record.seq).collect();
            prop_assert_eq!(seqs, (0..fates.len() as u64).collect::<Vec<_>>());
            let counters = flow.counters;
            prop_assert_eq!(counters.due, counters.sent + counters.not_sent + counters.send_errors);
            let lost = fates.iter().filter(|fate| fate.0).count() as u64;
            prop_assert_eq!(counters.seen() + lost, counters.sent);
            let unanswered = records.iter().filter(|record| record.returned.is_none()).count();
            prop_assert_eq!(unanswered as u64, lost + counters.unrecorded);
            let late = fates.iter().filter(|(gone, delay, _)| !gone && *delay > 1_000).count();
            prop_assert_eq!(counters.late + counters.unrecorded, late as u64);
            let copies: u64 = fates.iter().filter(|fate| !fate.0).map(|f| u64::from(f.2)).sum();
            prop_assert_eq!(counters.duplicates, copies);
            prop_assert_eq!(flow.lateness.summary().unwrap().count, counters.sent);
        }

        #[test]
        fn a_constant_delay_has_no_variation(count in 2_usize..100, delay in 1_i64..900) {
            let (flow, _) = run(&vec![(false, delay, 0); count], 1_000);
            prop_assert_eq!(flow.rtt.summary().unwrap().max, u64::try_from(delay).unwrap());
            prop_assert_eq!(flow.counters.reordered, 0);
            prop_assert_eq!(flow.smallest_rtt(), Some(Duration(delay)));
        }
    }

    #[test]
    fn a_refused_packet_was_not_sent_and_its_reply_is_no_reply() {
        let mut flow = SenderFlow::new(0, Duration(1_000));
        flow.on_due(Instant(0), Some(Instant(5)), 64);
        flow.on_send_error(0);
        flow.on_reply(&reply(0, 6), Instant(7), false);
        assert_eq!((flow.counters.sent, flow.counters.send_errors), (0, 1));
        assert_eq!((flow.counters.returned, flow.counters.rejected), (0, 1));
    }

    #[test]
    fn a_reply_to_a_packet_of_the_future_is_rejected() {
        let mut flow = SenderFlow::new(0, Duration(1_000));
        flow.on_reply(&reply(0, 6), Instant(7), false);
        assert_eq!(flow.counters.rejected, 1);
    }

    #[test]
    fn overtaking_is_counted_by_the_one_that_was_overtaken() {
        let (flow, records) = run(&[(false, 500, 0), (false, 10, 0), (false, 10, 0)], 1_000);
        assert_eq!(flow.counters.reordered, 1);
        assert_eq!(records[0].flags, flags::REORDERED);
    }

    #[test]
    fn a_reply_after_its_record_was_written_is_late_and_the_next_one_a_copy() {
        let mut flow = SenderFlow::new(0, Duration(1_000));
        for seq in 0..70 {
            flow.on_due(Instant(seq), Some(Instant(seq)), 64);
        }
        flow.on_reply(&reply(68, 6), Instant(100), false);
        flow.expire(Instant(10_000), Duration(2_000), |_| {});
        for (seq, unrecorded, duplicates) in [(66, 1, 0), (66, 1, 1), (68, 1, 2), (69, 2, 2)] {
            flow.on_reply(&reply(seq, 6), Instant(11_000), false);
            let seen = (flow.counters.unrecorded, flow.counters.duplicates);
            assert_eq!(seen, (unrecorded, duplicates), "after a reply to {seq}");
        }
        assert_eq!((flow.counters.returned, flow.counters.late), (1, 0));
    }

    #[test]
    fn however_long_a_flow_is_it_remembers_as_many_packets() {
        let mut flow = SenderFlow::new(0, Duration(1_000));
        let remembered = u32::try_from(REMEMBERED_WORDS).unwrap() * 64;
        let packets = 2 * remembered;
        for seq in 0..packets {
            let at = Instant(i64::from(seq));
            flow.on_due(at, Some(at), 64);
            flow.expire(at, Duration(10), |_| {});
        }
        flow.finish(|_| {});
        assert_eq!(flow.settled.len(), REMEMBERED_WORDS);
        let oldest = packets - remembered;
        for (seq, unrecorded, duplicates) in [
            (packets - 1, 1, 0),
            (packets - 1, 1, 1),
            (oldest, 2, 1),
            (oldest, 2, 2),
            (oldest - 1, 2, 3),
            (0, 2, 4),
        ] {
            flow.on_reply(&reply(seq, 6), Instant(i64::from(packets)), false);
            let seen = (flow.counters.unrecorded, flow.counters.duplicates);
            assert_eq!(seen, (unrecorded, duplicates), "after a reply to {seq}");
        }
    }

    #[test]
    fn what_had_to_wait_for_room_left_only_then() {
        let mut flow = SenderFlow::new(0, Duration(1_000));
        flow.on_due(Instant(0), Some(Instant(5)), 64);
        flow.on_held_up(0, Instant(400));
        flow.on_reply(&reply(0, 450), Instant(500), false);
        flow.finish(|record| assert_eq!(record.sent, Some(Instant(400))));
        assert_eq!(flow.rtt.summary().unwrap().max, 100);
        assert_eq!(flow.lateness.summary().unwrap().max, 400);
    }

    #[test]
    fn an_unknown_residence_time_is_no_round_trip_and_is_counted() {
        let mut flow = SenderFlow::new(0, Duration(1_000_000_000));
        flow.on_due(Instant(0), Some(Instant(0)), 64);
        let reply = ReceivedReply {
            residence: None,
            ..reply(0, 100)
        };
        flow.on_reply(&reply, Instant(5_000_000), false);
        assert_eq!(
            (flow.counters.returned, flow.counters.residence_unknown),
            (1, 1)
        );
        assert_eq!(
            (flow.rtt.summary(), flow.owd_reverse.summary()),
            (None, None)
        );
        assert_eq!(flow.owd_forward.summary().unwrap().count, 1);
    }

    #[test]
    fn what_the_reflector_took_is_no_delay() {
        let mut flow = SenderFlow::new(0, Duration(1_000));
        flow.on_due(Instant(0), Some(Instant(0)), 64);
        let reply = ReceivedReply {
            seq: 0,
            remote_rx: RemoteInstant(100),
            residence: Some(Duration(30)),
            remote_seq: Some(0),
        };
        flow.on_reply(&reply, Instant(250), false);
        let p50 = |delays: &Delays| delays.summary().unwrap().p50;
        assert_eq!(p50(&flow.rtt), 220);
        assert_eq!((p50(&flow.owd_forward), p50(&flow.owd_reverse)), (100, 120));
        assert_eq!(flow.remote_received(), None);
    }
}
