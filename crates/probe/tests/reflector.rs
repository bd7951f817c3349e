//! The Session-Reflector in virtual time: sessions, numbers, rates, and two that face each other.

mod fake;

use std::collections::HashMap;
use std::net::SocketAddr;

use fake::{Fake, WALL};
use proptest::prelude::*;
use tm_probe::port::Sending;
use tm_probe::{Endpoint, Format, Peer, Reflector, SessionPlan, StampPlan, MOST_SENDERS};
use tm_wire::stamp::{parse_reply, Reply};
use tm_wire::{Instant, Key};

const KEY: &[u8] = b"a key of a session";

fn plan(key: Option<&[u8]>) -> StampPlan {
    StampPlan {
        flow: 3,
        key: key.map(<[u8]>::to_vec),
        stateful: true,
        peer: Peer::Anyone,
        most_per_s: 10_000,
    }
}

fn sender(port: u16) -> SocketAddr {
    SocketAddr::from(([192, 0, 2, 1], port))
}

fn test_packet(seq: u32, key: Option<&[u8]>) -> Vec<u8> {
    let format = Format::Stamp {
        key: key.map(<[u8]>::to_vec),
    };
    let mut packet = vec![0; 150];
    format.write_test_packet(&mut packet, seq, Instant(i64::from(seq) * 1_000), WALL);
    packet
}

fn replies(fake: &Fake) -> Vec<(usize, Reply)> {
    let parsed = fake
        .left
        .iter()
        .map(|(place, packet)| (*place, parse_reply(packet, None).unwrap()));
    parsed.collect()
}

proptest! {
    #[test]
    fn two_reflectors_that_face_each_other_reply_to_a_test_packet_once(
        seq: u32, authenticated: bool, now in 0_i64..1_000_000_000_000,
    ) {
        let key = authenticated.then_some(KEY);
        let mut reflectors = [0; 2].map(|_| Reflector::new(&[], &[plan(key)], true));
        // Whoever forges its source has one reflector reply to the other.
        let mut flying = vec![test_packet(seq, key)];
        for turn in 0..4 {
            let mut fake = Fake::arrived(
                now + i64::try_from(turn).unwrap() * 50_000_000,
                flying.drain(..).map(|packet| (sender(862), packet)),
            );
            reflectors[turn % 2].take(Endpoint::Stamp(0), &mut fake, |_| {});
            flying.extend(fake.left.into_iter().map(|(_, packet)| packet));
        }
        prop_assert!(flying.is_empty());
        prop_assert_eq!(reflectors[0].totals()[0].counters.answered, 1);
        prop_assert_eq!((reflectors[1].totals()[0].counters.answered, reflectors[1].rejected), (0, 1));
    }

    #[test]
    fn a_session_is_a_pair_of_addresses_and_ports(
        arrivals in proptest::collection::vec((0_u16..3, 0_u32..40), 1..120),
        forged in proptest::option::of(any::<u32>()),
    ) {
        let mut reflector = Reflector::new(&[], &[plan(None)], true);
        let mut numbers: HashMap<SocketAddr, u32> = HashMap::new();
        let mut records = Vec::new();
        let mut now = 0;
        let mut take = |arrived: Vec<(SocketAddr, Vec<u8>)>| {
            now += 1_000_000_000;
            let mut fake = Fake::arrived(now, arrived);
            reflector.take(Endpoint::Stamp(0), &mut fake, |record| records.push(*record));
            fake
        };
        // A number far away, from another port, moves nobody's window.
        if let Some(seq) = forged {
            take(vec![(sender(9), test_packet(seq, None))]);
        }
        for batch in arrivals.chunks(7) {
            let from = |(port, seq): &(u16, u32)| (sender(100 + port), test_packet(*seq, None));
            let fake = take(batch.iter().map(from).collect());
            for (place, reply) in replies(&fake) {
                let number = numbers.entry(fake.sources[place]).or_default();
                prop_assert_eq!(reply.seq, *number, "of {}", fake.sources[place]);
                *number += 1;
                prop_assert_eq!(reply.test_packet.seq, batch[place].1);
                prop_assert_eq!(reply.error, WALL.error.to_wire());
            }
        }
        let total = reflector.totals().remove(0);
        let mut distinct = arrivals.clone();
        distinct.sort_unstable();
        distinct.dedup();
        let forged = usize::from(forged.is_some());
        prop_assert_eq!(total.counters.received, (distinct.len() + forged) as u64);
        prop_assert_eq!(total.counters.answered, (arrivals.len() + forged) as u64);
        prop_assert_eq!(records.len(), distinct.len() + forged);
        for (place, (source, counters)) in total.senders.iter().flatten().enumerate().skip(forged) {
            prop_assert_eq!(counters.answered, u64::from(numbers[source]));
            let of = |record: &&tm_probe::ReflectRecord| record.session as usize == place;
            prop_assert_eq!(records.iter().filter(of).count() as u64, counters.received);
        }
    }

    #[test]
    fn what_had_no_room_is_numbered_once_and_stamped_when_it_leaves(
        script in proptest::collection::vec((0_usize..20, prop_oneof![
            Just(Sending::Full), Just(Sending::Refused),
        ]), 0..6),
        count in 1_u32..20,
        ends: bool,
    ) {
        let mut reflector = Reflector::new(&[], &[plan(None)], true);
        let packets = (0..count).map(|seq| (sender(1), test_packet(seq, None)));
        let mut fake = Fake::arrived(5_000_000_000, packets);
        fake.script = script.into();
        fake.ends = ends;
        let mut records = Vec::new();
        reflector.take(Endpoint::Stamp(0), &mut fake, |record| records.push(*record));
        let total = reflector.totals().remove(0).counters;
        prop_assert_eq!(total.answered + total.send_errors, u64::from(count));
        prop_assert_eq!((total.received, records.len()), (u64::from(count), count as usize));
        let left = replies(&fake);
        let numbers: Vec<u32> = left.iter().map(|(_, reply)| reply.seq).collect();
        prop_assert_eq!(numbers, (0..u32::try_from(left.len()).unwrap()).collect::<Vec<_>>());
        let at = |at: Instant| tm_wire::stamp::Timestamp::from_realtime(WALL.unix(at));
        for (place, reply) in left {
            prop_assert_eq!(Some(reply.sent), records[place].answered.map(at));
        }
    }

    #[test]
    fn any_bytes_are_survived_and_never_answered_longer(
        packets in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..200), 0..64),
    ) {
        let own = SessionPlan { flow: 0, session: 1, key: Key::Secret([7; 16]) };
        let mut reflector = Reflector::new(&[own], &[plan(None), plan(Some(KEY))], true);
        for endpoint in [Endpoint::Own, Endpoint::Stamp(0), Endpoint::Stamp(1)] {
            let arrived = packets.iter().map(|packet| (sender(1), packet.clone()));
            let mut fake = Fake::arrived(1, arrived);
            reflector.take(endpoint, &mut fake, |_| {});
            for (place, packet) in &fake.left {
                prop_assert_eq!(packet.len(), packets[*place].len());
            }
        }
    }
}

#[test]
fn only_the_peer_is_answered_with_its_port_where_that_is_said() {
    let others = [
        sender(862),
        sender(863),
        SocketAddr::from(([192, 0, 2, 9], 862)),
    ];
    for (peer, answered) in [
        (Peer::Anyone, 3),
        (Peer::Host(others[0].ip()), 2),
        (Peer::Port(others[0]), 1),
    ] {
        let plan = StampPlan { peer, ..plan(None) };
        let mut reflector = Reflector::new(&[], &[plan], true);
        let packets = others.iter().map(|source| (*source, test_packet(0, None)));
        let mut fake = Fake::arrived(1, packets);
        reflector.take(Endpoint::Stamp(0), &mut fake, |_| {});
        let total = reflector.totals().remove(0);
        assert_eq!(
            (total.counters.answered, reflector.rejected),
            (answered, 3 - answered)
        );
        assert_eq!(
            total.senders.unwrap().len() as u64,
            answered,
            "a stranger takes no room"
        );
    }
}

#[test]
fn what_is_over_the_rate_is_counted_and_not_answered() {
    let plan = StampPlan {
        most_per_s: 100,
        ..plan(None)
    };
    let mut reflector = Reflector::new(&[], &[plan], true);
    let mut records = 0;
    for second in 0..3_i64 {
        let packets = (0..50).map(|seq| {
            let seq = u32::try_from(second).unwrap() * 50 + seq;
            (sender(1), test_packet(seq, None))
        });
        let mut fake = Fake::arrived(second * 1_000_000_000, packets);
        reflector.take(Endpoint::Stamp(0), &mut fake, |_| records += 1);
        // A tenth of a second at once, and one more that makes it full.
        assert_eq!(fake.left.len(), 11);
    }
    let total = reflector.totals().remove(0).counters;
    assert_eq!(
        (total.received, total.answered, total.limited),
        (150, 33, 117)
    );
    assert_eq!(records, 150);
}

#[test]
fn senders_beyond_the_limit_are_refused_and_those_that_are_known_go_on() {
    let mut reflector = Reflector::new(&[], &[plan(None)], true);
    let most = u16::try_from(MOST_SENDERS).unwrap();
    for port in 0..most + 10 {
        let mut fake = Fake::arrived(1, [(sender(port), test_packet(0, None))]);
        reflector.take(Endpoint::Stamp(0), &mut fake, |_| {});
    }
    assert_eq!(reflector.rejected, 10);
    let mut fake = Fake::arrived(1, [(sender(0), test_packet(1, None))]);
    reflector.take(Endpoint::Stamp(0), &mut fake, |_| {});
    assert_eq!(replies(&fake)[0].1.seq, 1);
}

#[test]
fn with_nothing_to_answer_packets_are_counted() {
    let mut reflector = Reflector::new(&[], &[plan(None)], false);
    let mut fake = Fake::arrived(1, [(sender(1), test_packet(0, None))]);
    reflector.take(Endpoint::Stamp(0), &mut fake, |record| {
        assert_eq!(record.answered, None);
    });
    let total = reflector.totals().remove(0).counters;
    assert_eq!((total.received, total.answered, fake.left.len()), (1, 0, 0));
}
