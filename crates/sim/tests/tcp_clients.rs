//! Programs that ask over TCP in virtual time, beside what handshakes, serialization and slow start
//! say of them.

#[path = "common/clients.rs"]
mod clients;
mod common;

use proptest::prelude::*;
use tm_link::VariationConfig;
use tm_sim::{run, Exchange, Plan, Turns};
use tm_wire::{Duration, Instant};

use clients::{client, exchange, forms, over, plan, stage, wire, FRAME, MS, SEGMENT};

/// How long bytes take at 10 Mbit/s, in ns.
fn at_10m(bytes: i64) -> i64 {
    bytes * 800
}

fn near(found: Duration, expected_ns: i64) {
    assert!(
        (found.0 - expected_ns).abs() < 1_000,
        "{found:?}, not {expected_ns} ns"
    );
}

#[test]
fn an_exchange_takes_its_handshake_round_trips_and_bytes() {
    let line = || wire(Some(10_000_000), 20 * MS, 0.0);
    let two = stage(vec![exchange(100, 200), exchange(1_448, 100)]);
    let outcome = run(&plan([line(), line()], vec![two]), &mut ());
    let [there, back] = outcome.link;
    let found = client(outcome);
    let [first, second] = &found.exchanges[..] else {
        panic!("{:?}", found.exchanges);
    };
    // SYN, SYN and ACK; then the ACK before the request, and the reply, all with 52 bytes of headers.
    let (connected, opened) = first.opened.unwrap();
    near(connected - first.began, 40 * MS + at_10m(2 * 60));
    assert_eq!(connected, opened);
    near(
        first.replied.1 - connected,
        40 * MS + at_10m(52 + 152 + 252),
    );
    assert_eq!(first.replied.0, first.replied.1);
    assert_eq!(second.opened, None);
    assert_eq!(second.began, first.replied.1);
    near(
        second.replied.1 - second.began,
        40 * MS + at_10m(1_500 + 152),
    );
    assert!(found.finished && found.retransmits == 0 && found.begun == 2);
    // Acknowledgements go with requests and replies: nothing else is on the link.
    let bytes = |counters: tm_link::Counters| counters.delivered_bytes - FRAME * counters.delivered;
    assert_eq!((there.delivered, back.delivered), (4, 3));
    assert_eq!(bytes(there), 60 + 52 + 152 + 1_500);
    assert_eq!(bytes(back), 60 + 252 + 152);
}

#[test]
fn slow_start_doubles_what_comes_in_a_round_trip() {
    for (segments, round_trips) in [(10, 2), (11, 3), (30, 3), (31, 4), (70, 4), (71, 5)] {
        let line = || wire(None, 25 * MS, 0.0);
        let one = stage(vec![exchange(80, segments * u64::from(SEGMENT))]);
        let found = client(run(&plan([line(), line()], vec![one]), &mut ()));
        let done = &found.exchanges[0];
        near(done.replied.1 - done.began, round_trips * 50 * MS);
        // The first flight, and the handshake before it.
        near(done.replied.0 - done.began, 100 * MS);
    }
}

#[test]
fn a_connection_that_stays_keeps_its_window_and_a_new_one_has_its_own() {
    let ten = |fresh| {
        let line = || wire(None, 25 * MS, 0.0);
        let mut stage = stage(vec![exchange(80, 30 * u64::from(SEGMENT)); 3]);
        stage.fresh = fresh;
        client(run(&plan([line(), line()], vec![stage]), &mut ())).exchanges
    };
    let took = |fresh| -> Vec<i64> {
        let took = ten(fresh)
            .into_iter()
            .map(|one| (one.replied.1 - one.began).0 / MS);
        took.collect()
    };
    assert_eq!(took(true), [150, 150, 150]);
    // 30 segments were acknowledged: a window of 40 has room for all.
    assert_eq!(took(false), [150, 50, 50]);
}

#[test]
fn connections_take_what_is_next_and_the_next_stage_waits() {
    let line = || wire(Some(10_000_000), 5 * MS, 0.0);
    let mut parallel = stage((1..=7).map(|n| exchange(80, n * 20_000)).collect());
    (parallel.connections, parallel.opening) = (3, vec![exchange(200, 700)]);
    let mut later = stage(vec![exchange(80, 10)]);
    later.wait = Duration::from_secs(2);
    let outcome = client(run(&plan([line(), line()], vec![parallel, later]), &mut ()));
    let mut all = outcome.exchanges;
    let last = all.pop().unwrap();
    assert_eq!(last.place, (1, 0));
    let end = all.iter().map(|one| one.replied.1).max().unwrap();
    assert_eq!(last.began - end, Duration::from_secs(2));
    all.sort_by_key(|one| one.place);
    assert_eq!(all.iter().filter(|one| one.opened.is_some()).count(), 3);
    assert!(all[..3].iter().all(|one| one.began == all[0].began));
    let mut ends: Vec<Instant> = all.iter().map(|one| one.replied.1).collect();
    ends.sort_unstable();
    for (next, end) in all[3..].iter().zip(ends) {
        assert_eq!(next.began, end, "it begins when a connection is free");
    }
    for one in all.iter().filter_map(|one| one.opened) {
        assert!(
            one.1 - one.0 > Duration(10 * MS),
            "what it begins with is a round trip"
        );
    }
}

#[test]
fn transactions_are_begun_for_their_time() {
    let line = || wire(None, 5 * MS, 0.0);
    for (fresh, each) in [(false, 10), (true, 20)] {
        let mut again = stage(vec![exchange(64, 64)]);
        again.lasts = Some(Duration::from_secs(1));
        (again.fresh, again.awaits_close, again.opening_counts) = (fresh, fresh, fresh);
        let found = client(run(&plan([line(), line()], vec![again]), &mut ()));
        let summary = found.delays.summary().unwrap();
        assert_eq!(found.begun, 1_000 / each);
        assert_eq!(summary.count, found.begun);
        // As exact as a histogram is.
        let longest = summary.max as f64 / (each as f64 * MS as f64);
        assert!((longest - 1.0).abs() < 0.001, "{longest}");
        let (first, last) = found.span.unwrap();
        near(last - first, 1_000 * MS);
        assert!(found.finished && found.exchanges.is_empty());
    }
}

#[test]
fn who_hears_nothing_gives_up() {
    let mut plan = plan(
        [wire(None, 5 * MS, 0.0), wire(None, 5 * MS, 1.0)],
        vec![stage(vec![exchange(64, 64)])],
    );
    plan.ways[0].clients[0].patience = Duration::from_secs(5);
    let outcome = run(&plan, &mut ());
    // SYN after 0, 1 and 3 s.
    assert_eq!(outcome.link[0].delivered, 3);
    assert!(outcome.end.0 < 7_000 * MS);
    let found = client(outcome);
    assert!(!found.finished && found.exchanges.is_empty() && found.begun == 0);
}

#[test]
fn a_piece_that_is_held_waits_for_the_acknowledgement_of_the_one_before() {
    let took = [false, true].map(|held| {
        let pieces = Exchange {
            request: vec![16, 44],
            reply: vec![460, 44],
            held,
            ..Exchange::default()
        };
        let way = || wire(None, 20 * MS, 0.0);
        let found = client(run(
            &plan([way(), way()], vec![stage(vec![pieces])]),
            &mut (),
        ));
        let one = found.exchanges[0];
        one.replied.1 - one.opened.unwrap().1
    });
    // A round trip, and for each piece that waits another one behind a delayed acknowledgement.
    assert_eq!(took[0], Duration(40 * MS));
    assert_eq!(took[1], Duration(3 * 40 * MS + 2 * 40 * MS));
}

#[test]
fn exchanges_that_may_be_under_way_together_share_a_round_trip() {
    for (ahead, trips) in [(0, 8), (1, 4), (3, 2), (7, 1)] {
        let one = Exchange {
            ahead,
            ..exchange(68, 1_000)
        };
        let found = over(None, stage(vec![one; 8]));
        assert_eq!(found.begun, 8);
        let opened = found.exchanges[0].opened.unwrap().1;
        let last = found.exchanges.last().unwrap();
        assert_eq!(last.replied.1 - opened, Duration(trips * 40 * MS));
        let places: Vec<usize> = found.exchanges.iter().map(|one| one.place.1).collect();
        assert_eq!(places, (0..8).collect::<Vec<_>>());
    }
}

#[test]
fn what_is_begun_with_a_connection_waited_for_it_as_well() {
    let one = Exchange {
        ahead: 1,
        ..exchange(68, 1_000)
    };
    let found = over(None, stage(vec![one; 3])).exchanges;
    assert_eq!(found[0].began, found[1].began);
    assert_eq!(found[2].began, found[0].replied.1);
    assert!(found[0].opened.is_some() && found[1].opened.is_none());
}

#[test]
fn an_exchange_is_begun_no_earlier_than_it_is_due() {
    let due = |ms: i64| Exchange {
        due: Duration(ms * MS),
        ..exchange(68, 1_000)
    };
    // Longer than the patience: who waits for a time of its own does not give up.
    let found = over(None, stage(vec![due(0), due(10), due(500), due(150_000)]));
    assert!(found.finished);
    let first = found.exchanges[0].replied.0;
    let began: Vec<i64> = found.exchanges[1..]
        .iter()
        .map(|one| (one.began - first).0 / MS)
        .collect();
    assert_eq!(began, [10, 500, 150_000]);
}

#[test]
fn pieces_leave_when_they_are_due_and_in_their_order() {
    let one = Exchange {
        request: vec![1_000; 3],
        request_due: [0, 100, 300].map(|ms| Duration(ms * MS)).to_vec(),
        reply: vec![5_000, 10],
        reply_due: vec![Duration(0), Duration(50 * MS)],
        ..Exchange::default()
    };
    let found = over(None, stage(vec![one, exchange(10, 10)])).exchanges;
    let opened = found[0].opened.unwrap().1;
    assert_eq!(found[0].replied.0 - opened, Duration(340 * MS));
    assert_eq!(found[0].replied.1 - opened, Duration(390 * MS));
    assert_eq!(found[1].replied.1 - opened, Duration(430 * MS));
}

fn lossy(seed: u64, loss: f64, exchanges: Vec<Exchange>, connections: usize, fresh: bool) -> Plan {
    let way = || {
        let mut way = wire(Some(20_000_000), 10 * MS, loss);
        way.config.delay_variation = VariationConfig::Uniform { spread_ns: 3 * MS };
        way.config.duplicate = 0.01;
        way
    };
    let mut one = stage(exchanges);
    (one.connections, one.fresh) = (connections, fresh);
    one.opening = vec![
        exchange(240, 727),
        Exchange {
            request: vec![80],
            reply: Vec::new(),
            held: true,
            ..Exchange::default()
        },
    ];
    let mut plan = plan([way(), way()], vec![one]);
    plan.seed = seed;
    plan
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn whatever_is_lost_each_exchange_is_done_once_and_in_order(
        seed in 0_u64..1_000,
        loss in 0.0_f64..0.1,
        sizes in proptest::collection::vec((1_u64..20_000, 1_u64..200_000), 1..8),
        connections in 1_usize..4,
        fresh in any::<bool>(),
        held in any::<bool>(),
        ahead in 0_usize..4,
        turns in proptest::option::of((1_000_u64..70_000, 100_u64..20_000, 0_u64..30)),
    ) {
        let exchanges = sizes.iter().map(|(one, other)| Exchange {
            request: vec![*one, 16],
            reply: vec![*other, 44],
            held,
            ahead,
            ..Exchange::default()
        });
        let exchanges: Vec<Exchange> = exchanges.collect();
        let mut plan = lossy(seed, loss, exchanges, connections, fresh);
        let mut turned = plan.ways[0].clients[0].clone();
        turned.stages[0].turns = turns.map(|(turn_bytes, record_bytes, seal_bytes)| Turns {
            turn_bytes,
            record_bytes,
            seal_bytes,
        });
        plan.paths[0].forms = forms(&turned);
        plan.ways[0].clients = vec![turned];
        let found = client(run(&plan, &mut ()));
        prop_assert!(found.finished);
        prop_assert_eq!(found.begun, sizes.len() as u64);
        let mut places: Vec<usize> = found.exchanges.iter().map(|one| one.place.1).collect();
        places.sort_unstable();
        prop_assert_eq!(places, (0..sizes.len()).collect::<Vec<_>>());
        for one in &found.exchanges {
            prop_assert!(one.replied.0 <= one.replied.1);
            let least = sizes[one.place.1].1.cast_signed() * 8 * 1_000_000_000 / 20_000_000;
            prop_assert!((one.replied.1 - one.began).0 >= least, "faster than the line");
            if let Some((connected, opened)) = one.opened {
                prop_assert!(one.began < connected && connected < opened && opened < one.replied.0);
            }
        }
    }
}

#[test]
fn the_same_seed_gives_the_same_times() {
    let exchanges = (1..=6).map(|n| exchange(100 * n, 40_000 * n)).collect();
    let found = client(run(&lossy(7, 0.02, exchanges, 2, false), &mut ()));
    let bytes: Vec<u8> = found
        .exchanges
        .iter()
        .flat_map(|one| [one.began, one.replied.0, one.replied.1])
        .flat_map(|time| time.0.to_le_bytes())
        .collect();
    let hash = common::hash(&bytes);
    assert!(found.retransmits > 0);
    assert_eq!(hash, GOLDEN, "{hash:#x}");
}

const GOLDEN: u64 = 0xdf15_cb2c_335d_901d;
