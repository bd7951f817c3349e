//! Replies that share a connection in records, in virtual time: what is in them, when it can be read, and
//! what the server owes a client that has gone on.

#[path = "common/clients.rs"]
mod clients;
mod common;

use proptest::prelude::*;
use tm_sim::{run, ClientOutcome, Exchange, StagePlan, Turns};
use tm_wire::{Duration, Instant};

use clients::{client, exchange, over, plan, stage, wire, FRAME, MS, SEGMENT};

const TURNS: Turns = Turns {
    turn_bytes: 65_536,
    record_bytes: 16_384,
    seal_bytes: 22,
};

/// Replies of such lengths, all asked for at once.
fn shared(sizes: &[u64], turns: Option<Turns>) -> StagePlan {
    let reply = |bytes: &u64| Exchange {
        ahead: 999,
        ..exchange(45, *bytes)
    };
    let mut one = stage(sizes.iter().map(reply).collect());
    one.turns = turns;
    one
}

/// When each exchange was done.
fn done(found: &ClientOutcome) -> Vec<Instant> {
    let mut exchanges = found.exchanges.clone();
    exchanges.sort_by_key(|one| one.place);
    exchanges.iter().map(|one| one.replied.1).collect()
}

#[test]
fn replies_that_take_turns_end_together_and_the_short_one_first() {
    let of = |turns| {
        let found = over(Some(10_000_000), shared(&[500_000, 500_000, 8_000], turns));
        let ms: Vec<i64> = done(&found).iter().map(|at| at.0 / MS).collect();
        ms
    };
    let (turned, whole) = (of(Some(TURNS)), of(None));
    assert!(whole[0] < whole[1] && whole[1] < whole[2]);
    assert!(turned[2] < whole[0] && turned[0] > whole[0]);
    // A turn takes 54 ms of the line, with headers, and the last one 34: the request that comes first is one ahead.
    assert!(turned[1] - turned[0] < 90);
    // Bytes that join fill segments up: no more packets than in one piece but for the seals.
    assert!((turned[1] - whole[2]).abs() <= 3);
}

#[test]
fn what_shares_a_record_can_be_read_at_its_end() {
    // Ten segments are under way at first: no more is written than thrice as much. The first four
    // replies are written before that, each in a record of its own, and the others in pairs.
    let found = over(Some(8_000_000), shared(&[8_150; 12], Some(TURNS)));
    let at = done(&found);
    for pair in at[..4].windows(2) {
        assert!(pair[0] < pair[1]);
    }
    let pairs: Vec<&[Instant]> = at[4..].chunks(2).collect();
    assert!(pairs[1..3].iter().all(|pair| pair[0] == pair[1]), "{at:?}");
    // A record is 12 packets of 1.5 ms.
    let record = pairs[2][0] - pairs[1][0];
    assert!((16 * MS..=18 * MS).contains(&record.0), "{record:?}");
    let mut begins = found
        .exchanges
        .iter()
        .filter(|one| one.replied.0 == pairs[2][0]);
    assert!(
        begins.any(|one| one.replied.1 > one.replied.0),
        "what a record begins is not readable"
    );
}

#[test]
fn requests_that_wait_for_the_window_share_segments() {
    let way = || wire(None, 20 * MS, 0.0);
    for (turns, packets) in [(None, 44), (Some(TURNS), 10 + 2)] {
        let outcome = run(
            &plan([way(), way()], vec![shared(&[100; 44], turns)]),
            &mut (),
        );
        // SYN and its ACK, then ten requests; 34 of 45 bytes are two segments.
        let [there, _] = outcome.link;
        let bytes = there.delivered_bytes - (FRAME + 52) * there.delivered - 8;
        assert_eq!(bytes, 44 * 45);
        let data = there.delivered - 2;
        assert!((packets..packets + 12).contains(&data), "{data}");
    }
}

#[test]
fn a_client_that_goes_on_does_not_wait_for_the_reply() {
    let took = |opening: Vec<Exchange>| {
        let mut one = stage(vec![exchange(100, 1_000)]);
        one.opening = opening;
        let way = || wire(None, 20 * MS, 0.0);
        let outcome = run(&plan([way(), way()], vec![one]), &mut ());
        let [_, back] = outcome.link;
        let found = client(outcome).exchanges[0];
        (found.replied.1 - found.began, back.delivered)
    };
    let silent = exchange(80, 1);
    let goes_on = Exchange {
        reply: vec![79, 79],
        goes_on: true,
        ..silent.clone()
    };
    let (trip, alone) = took(vec![exchange(80, 1)]);
    let (quick, with) = took(vec![goes_on]);
    assert_eq!((trip, quick), (Duration(120 * MS), Duration(80 * MS)));
    assert_eq!(
        with,
        alone + 1,
        "two segments, and one less that was waited for"
    );
}

#[test]
fn a_reply_can_be_read_when_its_first_record_is_there() {
    let first = |readable_bytes| {
        let one = Exchange {
            readable_bytes,
            ..exchange(80, 30 * u64::from(SEGMENT))
        };
        let found = over(None, stage(vec![one])).exchanges[0];
        (
            (found.replied.0 - found.began).0 / MS,
            (found.replied.1 - found.began).0 / MS,
        )
    };
    // Ten segments at first, twenty a round trip later.
    assert_eq!(first(0), (80, 120));
    assert_eq!(first(10 * u64::from(SEGMENT)), (80, 120));
    assert_eq!(first(16_406), (120, 120));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn every_byte_is_sent_once_and_equal_replies_end_in_their_order(
        bytes in 1_u64..30_000,
        count in 1_usize..60,
        turn_bytes in 100_u64..70_000,
        record_bytes in 100_u64..20_000,
        seal_bytes in 0_u64..30,
    ) {
        let turns = Turns { turn_bytes, record_bytes, seal_bytes };
        let way = || wire(Some(20_000_000), 5 * MS, 0.0);
        let one = shared(&vec![bytes; count], Some(turns));
        let outcome = run(&plan([way(), way()], vec![one]), &mut ());
        let [_, back] = outcome.link;
        let found = client(outcome);
        prop_assert!(found.finished && found.retransmits == 0);
        let ends = done(&found);
        prop_assert_eq!(ends.len(), count);
        prop_assert!(ends.is_sorted());
        // All but the SYN, which is 8 bytes longer, have 52 bytes of headers.
        let sent = back.delivered_bytes - (FRAME + 52) * back.delivered - 8;
        let plain = bytes * count as u64;
        let sealed = sent - plain;
        if seal_bytes == 0 {
            prop_assert_eq!(sealed, 0);
        } else {
            prop_assert_eq!(sealed % seal_bytes, 0);
            let records = sealed / seal_bytes;
            prop_assert!(records >= plain.div_ceil(record_bytes));
            // None is short but where the server had nothing more for the moment: each request once.
            prop_assert!(records <= plain.div_ceil(record_bytes) + count as u64);
        }
    }
}

#[test]
fn the_same_seed_gives_the_same_times() {
    let way = || wire(Some(8_000_000), 20 * MS, 0.01);
    let one = shared(
        &[[8_150; 40].as_slice(), &[200_000; 4]].concat(),
        Some(TURNS),
    );
    let mut plan = plan([way(), way()], vec![one]);
    plan.seed = 7;
    let found = client(run(&plan, &mut ()));
    let times = done(&found);
    let bytes: Vec<u8> = times.iter().flat_map(|at| at.0.to_le_bytes()).collect();
    let hash = common::hash(&bytes);
    assert!(found.retransmits > 0);
    assert_eq!(hash, GOLDEN, "{hash:#x}");
}

const GOLDEN: u64 = 0xfccf_3026_0040_6059;
