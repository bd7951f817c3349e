//! A sender and a reflector on a path of ours, in virtual time: nothing is lost but what the path loses.

mod fake;

use std::collections::BTreeMap;
use std::net::SocketAddr;

use fake::Fake;
use proptest::prelude::*;
use tm_probe::port::Sending;
use tm_probe::{
    Content, Endpoint, Format, Incoming, Missed, Outgoing, OutgoingFlow, Peer, Reflector, Schedule,
    SendRecord, SenderFlow, SessionPlan, Size, StampPlan, Stop, Waiting,
};
use tm_wire::{Duration, Instant, Key};

const MS: i64 = 1_000_000;
const SECOND: i64 = 1_000 * MS;

fn flows(packets: u64, stamp: bool) -> Vec<OutgoingFlow> {
    let flow = |index: u32| OutgoingFlow {
        format: if stamp && index == 1 {
            Format::Stamp { key: None }
        } else {
            Format::Own {
                session: index,
                key: Key::Secret([9; 16]),
            }
        },
        start_offset: Duration(i64::from(index) * MS / 3),
        schedule: Schedule::Fixed { gap: Duration(MS) },
        end: Stop::Packets(packets),
        size: Size::Fixed(100),
        content: Content::Random,
        seed: u64::from(index),
    };
    (0..3).map(flow).collect()
}

/// What becomes of a packet on the way there and back.
#[derive(Clone, Copy, Debug)]
struct Path {
    lost_there: bool,
    lost_back: bool,
    delay: i64,
}

fn path() -> impl Strategy<Value = Path> {
    (0_u8..8, 0_u8..8, 1..20 * MS).prop_map(|(there, back, delay)| Path {
        lost_there: there == 0,
        lost_back: back == 0,
        delay,
    })
}

struct Outcome {
    flows: Vec<SenderFlow>,
    records: Vec<SendRecord>,
    received: Vec<u64>,
    /// From the last packet until nothing more was waited for.
    waited: i64,
}

/// Runs the flows over a path; `script` is what becomes of the sender's calls.
fn run(plans: &[OutgoingFlow], paths: &[Path], script: &[(usize, Sending)], ends: bool) -> Outcome {
    let waiting = Waiting {
        late: Duration(SECOND),
        drain: Duration(SECOND / 2),
    };
    let mut outgoing = Outgoing::new(plans, Missed::Send);
    let numbered = (0..).zip(plans.iter().map(|plan| plan.format.clone()));
    let mut incoming = Incoming::new(numbered, waiting);
    let sessions: Vec<SessionPlan> = (0..3)
        .map(|flow| SessionPlan {
            flow,
            session: u32::from(flow),
            key: Key::Secret([9; 16]),
        })
        .collect();
    let stamp = StampPlan {
        flow: 1,
        key: None,
        stateful: true,
        peer: Peer::Anyone,
        most_per_s: 1_000_000,
    };
    let mut reflector = Reflector::new(&sessions, &[stamp], true);
    let source = SocketAddr::from(([192, 0, 2, 1], 1));
    let mut outbox = Fake {
        now: SECOND,
        script: script.to_vec().into(),
        ends,
        ..Fake::default()
    };
    outgoing.begin(Instant(outbox.now));
    let mut fates = paths.iter().cycle();
    // Replies under way, by the time of their arrival and in order of sending.
    let mut flying: BTreeMap<(i64, usize), (usize, Vec<u8>)> = BTreeMap::new();
    let mut number = 0;
    let mut records = Vec::new();
    while let Some((due, flow)) = outgoing.next_due() {
        outbox.now = outbox.now.max(due.0);
        outgoing.send_due(&mut outbox, |note| {
            incoming.note(note);
            true
        });
        for (_, packet) in outbox.left.drain(..) {
            number += 1;
            let fate = fates.next().unwrap();
            if fate.lost_there {
                continue;
            }
            let mut there = Fake::arrived(outbox.now + fate.delay, [(source, packet)]);
            let stamp = matches!(plans[flow].format, Format::Stamp { .. });
            let endpoint = if stamp {
                Endpoint::Stamp(0)
            } else {
                Endpoint::Own
            };
            reflector.take(endpoint, &mut there, |_| {});
            let (_, reply) = there.left.remove(0);
            if !fate.lost_back {
                flying.insert((there.now + fate.delay, number), (flow, reply));
            }
        }
        let now = outbox.now;
        while let Some(entry) = flying.first_entry().filter(|entry| entry.key().0 <= now) {
            let ((at, _), (flow, reply)) = entry.remove_entry();
            incoming.take(flow, &mut Fake::arrived(at, [(source, reply)]));
        }
        incoming.expire(Instant(now), |record| records.push(*record));
        assert!(
            !incoming.over(Instant(now)),
            "it does not know yet that all have left"
        );
    }
    let done = outbox.now;
    incoming.sending_done(Instant(done));
    let mut now = done;
    while !incoming.over(Instant(now)) {
        now = flying
            .first_key_value()
            .map_or(done + SECOND / 2, |((at, _), _)| *at);
        if let Some((_, (flow, reply))) = flying.pop_first() {
            incoming.take(flow, &mut Fake::arrived(now, [(source, reply)]));
        }
    }
    let totals = reflector.totals();
    let received = (0..3).map(|flow| {
        let of = totals.iter().filter(|total| total.flow == flow);
        of.map(|total| total.counters.received).sum()
    });
    Outcome {
        received: received.collect(),
        flows: incoming.finish(|record| records.push(*record)),
        records,
        waited: now - done,
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn every_packet_has_one_fate_and_the_wait_ends(
        paths in proptest::collection::vec(path(), 1..50), packets in 1_u64..60, stamp: bool,
        script in proptest::collection::vec((0_usize..3, prop_oneof![
            Just(Sending::Full), Just(Sending::Refused),
        ]), 0..20),
        ends: bool,
    ) {
        let plans = flows(packets, stamp);
        let outcome = run(&plans, &paths, &script, ends);
        prop_assert_eq!(outcome.records.len() as u64, 3 * packets);
        prop_assert!(outcome.waited <= SECOND / 2, "{} ns", outcome.waited);
        let mut all = true;
        for (flow, received) in outcome.flows.iter().zip(&outcome.received) {
            let counters = flow.counters;
            prop_assert_eq!(counters.due, packets);
            prop_assert_eq!(counters.due, counters.sent + counters.send_errors);
            prop_assert!(counters.seen() <= *received && *received <= counters.sent);
            prop_assert_eq!((counters.rejected, counters.duplicates, counters.unrecorded), (0, 0, 0));
            all &= counters.seen() == counters.sent;
            if let Some(reported) = flow.remote_received() {
                prop_assert!(reported <= *received, "{} reported of {}", reported, received);
            }
        }
        // At once where all came back; its whole time where something is missing.
        prop_assert_eq!(all, outcome.waited < SECOND / 2);
    }

    #[test]
    fn the_residence_time_is_in_no_round_trip(delay in 1..20 * MS, stamp: bool) {
        let even = [Path { lost_there: false, lost_back: false, delay }];
        let outcome = run(&flows(20, stamp), &even, &[], false);
        for flow in &outcome.flows {
            let rtt = flow.rtt.summary().unwrap();
            // Three digits of the histogram, and a microsecond for each look at the clock.
            let path = u64::try_from(2 * delay).unwrap();
            let (least, most) = (path * 999 / 1_000, path * 1_001 / 1_000 + 3_000);
            prop_assert!(rtt.min >= least && rtt.max <= most, "{:?}", rtt);
            prop_assert_eq!(flow.counters.residence_unknown, 0);
        }
    }
}

#[test]
fn what_does_not_leave_since_the_run_ends_was_not_sent() {
    let late = [Path {
        lost_there: false,
        lost_back: false,
        delay: MS,
    }];
    // The first call takes one packet and there is no room for the next, ever.
    let outcome = run(&flows(5, false), &late, &[(0, Sending::Full)], true);
    let errors: u64 = outcome
        .flows
        .iter()
        .map(|flow| flow.counters.send_errors)
        .sum();
    assert_eq!(errors, 1);
    assert_eq!(outcome.records.len(), 15);
}

#[test]
fn a_stateful_reflector_is_known_by_the_first_loss_and_counts_from_then_on() {
    let lost = |lost_there| Path {
        lost_there,
        lost_back: false,
        delay: 1,
    };
    let plans = [flows(8, true).remove(1)];
    let mut plans = plans.to_vec();
    plans[0].start_offset = Duration(0);
    let whole = run(&plans, &[lost(false)], &[], false);
    assert_eq!(whole.flows[0].remote_received(), None);
    let paths = [false, false, true, false, false, false, false, false].map(lost);
    let outcome = run(&plans, &paths, &[], false);
    assert_eq!(outcome.flows[0].remote_received(), Some(7));
}

#[test]
fn what_could_not_be_noted_does_not_leave() {
    let plans = flows(30, false);
    for heard in 0..5 {
        let mut outgoing = Outgoing::new(&plans, Missed::Send);
        // Late, so that a batch is due at once.
        let mut outbox = Fake {
            now: SECOND,
            ..Fake::default()
        };
        outgoing.begin(Instant(0));
        let mut notes = Vec::new();
        outgoing.send_due(&mut outbox, |note| {
            notes.push(note);
            notes.len() <= heard
        });
        assert_eq!(outbox.left.len(), heard);
    }
}
