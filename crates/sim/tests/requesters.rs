//! Programs that ask over UDP in virtual time, beside what the line says of each transaction.

#[allow(dead_code)] // of what all share it needs a part
mod common;

use proptest::prelude::*;
use tm_sim::{
    run, Carrier, DirectionPlan, Forms, Inner, LinkPlan, PathPlan, Plan, RequesterOutcome,
    RequesterPlan, WayPlan,
};
use tm_wire::Duration;

const MS: i64 = 1_000_000;

fn wire(rate_bit_s: Option<u64>, delay_ns: i64, loss: f64) -> DirectionPlan {
    DirectionPlan {
        config: common::direction(rate_bit_s, delay_ns, 1_000, loss),
        opportunities: None,
    }
}

fn requester(lasts_ns: i64, timeout_ns: i64) -> RequesterPlan {
    RequesterPlan {
        path: 0,
        request_bytes: 100,
        response_bytes: 1_000,
        lasts: Duration(lasts_ns),
        timeout: Duration(timeout_ns),
    }
}

fn plan(link: [DirectionPlan; 2], requesters: Vec<RequesterPlan>) -> Plan {
    let form = |size: u32| {
        let bytes = size + 28;
        let outer = vec![bytes];
        (size, vec![Inner { bytes, outer }])
    };
    Plan {
        seed: 1,
        link: LinkPlan::Wire(Box::new(link)),
        paths: vec![PathPlan {
            forms: Forms::new([form(100), form(1_000)]).unwrap(),
            carrier: Carrier::Bare,
        }],
        cores: [None; 2],
        ways: [
            WayPlan {
                requesters,
                ..WayPlan::default()
            },
            WayPlan::default(),
        ],
        loads: Vec::new(),
        lead: Duration(0),
    }
}

fn ran(plan: &Plan) -> Vec<RequesterOutcome> {
    let [client, server] = run(plan, &mut ()).ways;
    assert!(server.requesters.is_empty());
    client.requesters
}

fn answered(outcome: &RequesterOutcome) -> u64 {
    outcome.delays.summary().map_or(0, |summary| summary.count)
}

#[test]
fn a_transaction_takes_its_round_trip_and_bytes_and_the_next_follows_at_once() {
    let line = || wire(Some(10_000_000), 20 * MS, 0.0);
    let found = &ran(&plan(
        [line(), line()],
        vec![requester(1_000 * MS, 500 * MS)],
    ))[0];
    // With headers of 28 bytes, at 800 ns a byte.
    let takes_ns = 40 * MS + (128 + 1_028) * 800;
    let summary = found.delays.summary().unwrap();
    for value in [summary.min, summary.p50, summary.max] {
        assert!(
            value.abs_diff(u64::try_from(takes_ns).unwrap()) < 50_000,
            "{value}"
        );
    }
    let transactions = (1_000 * MS + takes_ns - 1) / takes_ns;
    assert_eq!(i64::try_from(found.begun).unwrap(), transactions);
    assert_eq!((answered(found), found.late), (found.begun, 0));
    let (first, last) = found.span.unwrap();
    assert!(((last - first).0 - transactions * takes_ns).abs() < 1_000 * transactions);
}

#[test]
fn those_that_ask_at_once_share_the_line() {
    // Of 1 Mbit/s one alone takes 9 ms of a round trip of 11; ten take 10 times 8 ms, and no less.
    let line = || wire(Some(1_000_000), MS, 0.0);
    let ten = ran(&plan(
        [line(), line()],
        vec![requester(4_000 * MS, 2_000 * MS); 10],
    ));
    let all: u64 = ten.iter().map(answered).sum();
    let most = 4_000 * MS / (1_028 * 8_000);
    assert!(
        all.abs_diff(u64::try_from(most).unwrap()) <= 11,
        "{all} of {most}"
    );
    let slowest = ten
        .iter()
        .map(|one| one.delays.summary().unwrap().p50)
        .min()
        .unwrap();
    assert!(slowest > 75_000_000, "{slowest}");
}

#[test]
fn what_either_way_loses_is_given_up_in_time() {
    let line = || wire(None, MS, 0.1);
    let found = &ran(&plan(
        [line(), line()],
        vec![requester(600_000 * MS, 50 * MS)],
    ))[0];
    let share = 1.0 - answered(found) as f64 / found.begun as f64;
    // 1 - 0.9^2; 52,000 transactions scatter by 0.0017.
    assert!((share - 0.19).abs() < 0.007, "{share}");
    let lasts = found.begun as f64 * (0.19 * 50e6 + 0.81 * 2e6);
    assert!((lasts / 600e9 - 1.0).abs() < 0.03, "{lasts}");
    assert_eq!(found.late, 0);
}

#[test]
fn an_answer_past_its_time_is_late_and_counts_as_lost() {
    let line = || wire(None, 30 * MS, 0.0);
    let found = &ran(&plan(
        [line(), line()],
        vec![requester(1_000 * MS, 50 * MS)],
    ))[0];
    assert_eq!((found.begun, answered(found)), (20, 0));
    // That to the last one comes when nobody waits any more.
    assert_eq!(found.late, 19);
}

#[test]
fn a_second_answer_is_neither_late_nor_one_more() {
    let mut there = wire(None, MS, 0.0);
    there.config.duplicate = 1.0;
    let found = &ran(&plan(
        [there, wire(None, MS, 0.0)],
        vec![requester(100 * MS, 50 * MS)],
    ))[0];
    assert_eq!((found.begun, answered(found), found.late), (50, 50, 0));
}

#[test]
fn the_wait_for_an_answer_that_never_comes_is_not_asking() {
    let line = || wire(None, MS, 1.0);
    let found = &ran(&plan(
        [line(), line()],
        vec![requester(200 * MS, 2_000 * MS)],
    ))[0];
    assert_eq!((found.begun, answered(found)), (1, 0));
    let (first, last) = found.span.unwrap();
    assert_eq!((last - first).0, 200 * MS);
}

#[test]
fn a_load_asks_until_it_is_ended_whatever_it_waits_for() {
    let line = || wire(None, MS, 1.0);
    let mut plan = plan([line(), line()], vec![requester(200 * MS, 10 * MS)]);
    let beside = WayPlan {
        requesters: vec![requester(10_000 * MS, 5_000 * MS)],
        ..WayPlan::default()
    };
    plan.loads = vec![vec![[beside, WayPlan::default()]]];
    let outcome = run(&plan, &mut ());
    let measured = outcome.ways[0].requesters[0].span.unwrap();
    let load = &outcome.loads[0][0][0].requesters[0];
    assert_eq!((load.begun, answered(load)), (0, 0));
    let (first, last) = load.span.unwrap();
    assert!(first < last && (last - measured.1).0.abs() <= 10 * MS);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    #[test]
    fn every_transaction_has_one_end(
        loss in 0.0_f64..0.6,
        delay_ns in 0_i64..40 * MS,
        timeout_ns in MS..60 * MS,
        number in 1_usize..5,
    ) {
        let line = || wire(Some(5_000_000), delay_ns, loss);
        let plan = plan([line(), line()], vec![requester(500 * MS, timeout_ns); number]);
        let found = ran(&plan);
        prop_assert_eq!(found.len(), number);
        for (one, again) in found.iter().zip(ran(&plan)) {
            let lost = one.begun - answered(one);
            prop_assert!(one.begun > 0 && one.late <= lost);
            let (first, last) = one.span.unwrap();
            // Each that is lost takes all of its time, but for the last; nothing is begun behind the end.
            prop_assert!((last - first).0 >= (i64::try_from(lost).unwrap() - 1) * timeout_ns);
            prop_assert!((last - first).0 >= 500 * MS);
            prop_assert!((last - first).0 <= 500 * MS + timeout_ns);
            prop_assert_eq!((one.begun, one.late, one.span), (again.begun, again.late, again.span));
        }
    }
}
