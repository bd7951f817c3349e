//! Loads beside what is measured: what they add is what can be worked out by hand.

mod common;
#[path = "common/flows.rs"]
mod flows;

use proptest::prelude::*;
use tm_probe::{Missed, ReflectRecord, Schedule, SendRecord, Waiting};
use tm_sim::{
    run, Carrier, Congestion, ConnectionPlan, DirectionPlan, EndPlan, FlowPlan, Forms, Inner,
    LinkPlan, Outcome, PathPlan, Plan, Sink, WayOutcome, WayPlan, Work, START,
};
use tm_wire::{Duration, Instant};

const MS: i64 = 1_000_000;
/// Payloads of the echo and of the load over UDP: 100 and 1000 bytes with their headers.
const ECHO: u32 = 72;
const LOAD: u32 = 972;
/// Of a connection: 1500 bytes with headers.
const SEGMENT: u32 = 1448;
const RATE_BIT_S: u64 = 8_000_000;
const DELAY_NS: i64 = 10 * MS;

fn flow(number: u16, gap_ns: i64, offset_ns: i64, packets: u64, payload: u32) -> FlowPlan {
    let schedule = Schedule::Fixed {
        gap: Duration(gap_ns),
    };
    flows::flow(0, number, Duration(offset_ns), schedule, packets, payload)
}

fn sending(flows: Vec<FlowPlan>, reply: bool) -> WayPlan {
    WayPlan {
        flows,
        waiting: Waiting {
            late: Duration(5_000 * MS),
            drain: Duration(500 * MS),
        },
        missed: Missed::Send,
        reply,
        ..WayPlan::default()
    }
}

/// An echo of so many packets, 20 ms apart, on a link with room for so many packets.
fn echo(packets: u64, queue: u64, carrier: Carrier) -> Plan {
    let direction = || DirectionPlan {
        config: common::direction(Some(RATE_BIT_S), DELAY_NS, queue, 0.0),
        opportunities: None,
    };
    let connection = connection(1, SEGMENT * 100);
    let payloads = connection.sizes().into_iter().chain([ECHO, LOAD]);
    let sizes = payloads.map(|payload| {
        let bytes = payload + 28;
        (
            payload,
            vec![Inner {
                bytes,
                outer: vec![bytes],
            }],
        )
    });
    Plan {
        seed: 1,
        link: LinkPlan::Wire(Box::new([direction(), direction()])),
        paths: vec![PathPlan {
            forms: Forms::new(sizes).unwrap(),
            carrier,
        }],
        ways: [
            sending(vec![flow(0, 20 * MS, 0, packets, ECHO)], true),
            WayPlan::default(),
        ],
        cores: [None; 2],
        loads: Vec::new(),
        lead: Duration(1_000 * MS),
    }
}

fn connection(seconds: u32, window: u32) -> ConnectionPlan {
    ConnectionPlan {
        path: 0,
        segment_bytes: SEGMENT,
        window_bytes: u64::from(window),
        congestion: Congestion::Cubic,
        seconds,
    }
}

fn bulk(count: usize, seconds: u32, window: u32) -> [WayPlan; 2] {
    let connections = vec![connection(seconds, window); count];
    [
        WayPlan {
            connections,
            ..WayPlan::default()
        },
        WayPlan::default(),
    ]
}

fn udp(gap_ns: i64, offset_ns: i64, packets: u64) -> [WayPlan; 2] {
    let flows = vec![flow(0, gap_ns, offset_ns, packets, LOAD)];
    [sending(flows, false), WayPlan::default()]
}

#[derive(Default)]
struct Kept(Vec<(usize, SendRecord)>, Vec<(usize, ReflectRecord)>);

impl Sink for Kept {
    fn sent(&mut self, way: usize, record: &SendRecord) {
        self.0.push((way, *record));
    }
    fn reflected(&mut self, way: usize, record: &ReflectRecord) {
        self.1.push((way, *record));
    }
}

impl Kept {
    /// Round trips of what is measured, in nanoseconds and in order of size.
    fn round_trips(&self) -> Vec<i64> {
        let of_echo = self.0.iter().filter(|(way, _)| *way == 0);
        let times = of_echo.filter_map(|(_, one)| Some((one.returned? - one.sent?).0));
        let mut times: Vec<i64> = times.collect();
        times.sort_unstable();
        times
    }
}

fn carried_out(plan: &Plan) -> (Outcome, Kept) {
    let mut kept = Kept::default();
    let outcome = run(plan, &mut kept);
    assert_eq!(outcome.lacking, None);
    (outcome, kept)
}

fn sent(way: &WayOutcome) -> u64 {
    way.flows.iter().map(|flow| flow.counters.sent).sum()
}

fn came(way: &WayOutcome) -> u64 {
    let flows = way.reflected.iter();
    flows.map(|flow| flow.counters.received).sum()
}

/// Of the records of one plan with loads, on every computer.
const GOLDEN: u64 = 3_258_542_956_307_511_897;
/// Both ways of the echo, and 100 bytes at 8 Mbit/s twice.
const ALONE_NS: i64 = 2 * (DELAY_NS + 100_000);

#[test]
fn a_packet_of_a_load_is_waited_for_to_the_nanosecond() {
    // 1000 bytes take 1 ms; one leaves 0.4 ms before each packet of the echo, which waits 0.6 ms.
    let mut plan = echo(50, 100, Carrier::Bare);
    plan.loads = vec![vec![udp(20 * MS, 20 * MS - 400_000, 100_000)]];
    let (_, kept) = carried_out(&plan);
    let times = kept.round_trips();
    assert_eq!(times.len(), 50);
    assert!(
        times.iter().all(|time| *time == ALONE_NS + 600_000),
        "{times:?}"
    );
}

#[test]
fn half_a_line_of_packets_adds_what_the_mean_residual_of_one_is() {
    // A packet of 1 ms every 1.999 ms: the echo, every 20 ms, meets each phase of it alike often. It
    // waits for the rest of the packet that is under way, if one is: rho / 2 packets in the mean.
    let mut plan = echo(1999, 100, Carrier::Bare);
    plan.loads = vec![vec![udp(1_999_000, 0, 1_000_000)]];
    let (outcome, kept) = carried_out(&plan);
    let times = kept.round_trips();
    let mean_ns = times.iter().sum::<i64>() as f64 / times.len() as f64;
    let rho = 1.0 / 1.999;
    let added_ns = mean_ns - ALONE_NS as f64;
    assert!((added_ns / 1e6 - rho / 2.0).abs() < 0.01, "{added_ns}");
    // It began a second before the echo, ended with it, and nothing of it was lost.
    let load = &outcome.loads[0][0][0];
    assert_eq!(load.began, START);
    assert_eq!(outcome.ways[0].began, START + Duration(1_000 * MS));
    let lasted_ns = (1_000 + 1_998 * 20) * MS + times[times.len() - 1];
    let expected = lasted_ns / 1_999_000 + 1;
    assert!(sent(load).abs_diff(u64::try_from(expected).unwrap()) <= 1);
    assert_eq!(came(load), sent(load));
}

#[test]
fn more_than_the_line_carries_fills_its_queue() {
    let mut plan = echo(200, 20, Carrier::Bare);
    // 12 Mbit/s of 8.
    plan.loads = vec![vec![udp(666_667, 0, 1_000_000)]];
    let (outcome, kept) = carried_out(&plan);
    let times = kept.round_trips();
    let added_ms = (times[times.len() / 2] - ALONE_NS) as f64 / 1e6;
    assert!((19.0..=21.0).contains(&added_ms), "{added_ms}");
    let load = &outcome.loads[0][0][0];
    let lost = 1.0 - came(load) as f64 / sent(load) as f64;
    assert!((lost - 1.0 / 3.0).abs() < 0.02, "{lost}");
    let link = outcome.link[0];
    assert_eq!(link.offered, sent(load) + sent(&outcome.ways[0]));
    assert_eq!(link.delivered, came(load) + came(&outcome.ways[0]));
}

#[test]
fn a_connection_with_a_fixed_window_holds_as_many_segments_in_the_queue() {
    // 40 segments of 1.5 ms: 60 ms, of which 20 ms and the acknowledgement's 52 us are no queue.
    let mut plan = echo(500, 100, Carrier::Bare);
    plan.loads = vec![vec![bulk(1, 60, 40 * SEGMENT)]];
    let (outcome, kept) = carried_out(&plan);
    let times = kept.round_trips();
    let median_ms = times[times.len() / 2] as f64 / 1e6;
    assert!((median_ms - 60.0).abs() < 1.8, "{median_ms}");
    let connection = &outcome.loads[0][0][0].connections[0];
    assert!(connection.opened);
    // Whole seconds, and the rest of the one in which it was stopped.
    let rest = connection.rest.expect("it was stopped");
    assert_eq!(connection.seconds.len(), 11 + 1);
    assert!(rest > Duration(0) && rest <= Duration(1_000 * MS));
    let delivered: u64 = connection
        .seconds
        .iter()
        .map(|one| one.delivered_bytes)
        .sum();
    let lasted_s = 11.0 + rest.0 as f64 / 1e9;
    let of_line = delivered as f64 * 8.0 / lasted_s / RATE_BIT_S as f64;
    assert!((of_line - 1448.0 / 1500.0).abs() < 0.03, "{of_line}");
}

#[test]
fn several_connections_fill_the_queue_and_never_more_than_it() {
    // Room for 50 packets: at most 49 of 1.5 ms are before the echo's, 73.5 ms. What the connections
    // give up together after a loss (30 % of a window, RFC 9438) brings the median below that.
    let mut plan = echo(1000, 50, Carrier::Bare);
    plan.loads = vec![vec![bulk(8, 60, 1 << 20)]];
    let (_, kept) = carried_out(&plan);
    let times = kept.round_trips();
    let added_ms = |time: i64| (time - ALONE_NS) as f64 / 1e6;
    let (median, most) = (
        added_ms(times[times.len() / 2]),
        added_ms(times[times.len() - 1]),
    );
    assert!((72.0..=73.51).contains(&most), "{most}");
    assert!((73.5 * 0.8..=73.5).contains(&median), "{median}");
}

#[test]
fn a_load_that_ends_is_begun_again_behind_its_wait_and_one_too_few_is_said() {
    let mut plan = echo(100, 100, Carrier::Bare);
    // Each run: 400 ms and a wait of 500 ms.
    plan.loads = vec![vec![udp(10 * MS, 0, 40), udp(10 * MS, 0, 40)]];
    let mut kept = Kept::default();
    let outcome = run(&plan, &mut kept);
    assert_eq!(outcome.lacking, Some(0));
    plan.loads = vec![(0..6).map(|_| udp(10 * MS, 0, 40)).collect()];
    let (outcome, _) = carried_out(&plan);
    // 1 s ahead and 1.98 s of echo with its last reply: 890 ms for each run.
    let began: Vec<i64> = outcome.loads[0]
        .iter()
        .map(|ways| (ways[0].began - START).0 / MS)
        .collect();
    assert_eq!(began, [0, 890, 1_780, 2_670]);
    let counts: Vec<u64> = outcome.loads[0].iter().map(|ways| sent(&ways[0])).collect();
    assert_eq!(counts, [40, 40, 40, 34]);
    assert_eq!(
        outcome.loads[0]
            .iter()
            .map(|ways| came(&ways[0]))
            .sum::<u64>(),
        154
    );
}

#[test]
fn a_load_shares_the_ends_of_the_tunnel() {
    let work = |packet_ns| Work {
        packet_ns,
        byte_ps: 0,
        scatter: 0.0,
        most_waiting: 100,
    };
    let end = EndPlan {
        servers: 1,
        in_order: true,
        wrap: work(2 * MS),
        unwrap: work(0),
    };
    let carrier = Carrier::Tunnel {
        ends: [end.clone(), end],
        drops_copies: true,
        over: None,
    };
    let mut plan = echo(50, 100, carrier);
    // It occupies the client's end from 1 ms before to 1 ms behind each packet of the echo.
    plan.loads = vec![vec![udp(20 * MS, 19 * MS, 100_000)]];
    let (outcome, kept) = carried_out(&plan);
    let expected = ALONE_NS + 1_000_000 + 2 * 2_000_000;
    assert!(kept.round_trips().iter().all(|time| *time == expected));
    let [client, server] = outcome.ends[0].unwrap();
    assert_eq!(client[0].offered, 50 + sent(&outcome.loads[0][0][0]));
    assert_eq!(server[0].offered, 50);
}

#[test]
fn the_same_plan_gives_the_same_records_and_ends_at_one_time() {
    let mut plan = echo(200, 30, Carrier::Bare);
    plan.loads = vec![
        vec![bulk(2, 1, 1 << 20), bulk(2, 9, 1 << 20)],
        vec![udp(3 * MS, 0, 9_999)],
    ];
    let hash = |kept: &Kept| -> u64 {
        let records = kept.0.iter().flat_map(|(_, one)| one.to_bytes());
        common::hash(&records.collect::<Vec<u8>>())
    };
    let (first, one) = carried_out(&plan);
    let (second, other) = carried_out(&plan);
    assert_eq!([hash(&one), hash(&other)], [GOLDEN; 2]);
    assert_eq!((first.end, first.link), (second.end, second.link));
    let connections = |outcome: &Outcome| {
        let runs = outcome.loads[0].iter();
        runs.map(|ways| ways[0].connections.clone())
            .collect::<Vec<_>>()
    };
    assert_eq!(connections(&first), connections(&second));
    assert_eq!(first.loads[0].len(), 2);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(16))]

    #[test]
    fn every_packet_has_one_fate_whatever_runs_beside(
        gap_us in 200_i64..5_000,
        queue in 1_u64..60,
        packets in 1_u64..40,
        load in 1_u64..400,
        connections in 0_usize..3,
    ) {
        let mut plan = echo(packets, queue, Carrier::Bare);
        plan.lead = Duration(200 * MS);
        plan.loads = vec![(0..16).map(|_| udp(gap_us * 1_000, 0, load)).collect()];
        if connections > 0 {
            plan.loads.push(vec![bulk(connections, 60, 1 << 18)]);
        }
        let (outcome, _) = carried_out(&plan);
        let runs: Vec<&WayOutcome> = outcome.loads[0].iter().map(|ways| &ways[0]).collect();
        let (offered, arrived) = runs.iter().fold((0, 0), |sum, way| (sum.0 + sent(way), sum.1 + came(way)));
        let measured = &outcome.ways[0];
        prop_assert_eq!(sent(measured), packets);
        prop_assert!(arrived <= offered && came(measured) <= packets);
        let link = outcome.link[0];
        if connections == 0 {
            prop_assert_eq!(link.offered, offered + packets);
            prop_assert_eq!(link.delivered, arrived + came(measured));
            prop_assert_eq!(link.offered, link.delivered + link.queue_dropped);
        }
        prop_assert!(outcome.end >= Instant(START.0 + 200 * MS));
        if connections > 0 {
            let of_load = &outcome.loads[1][0][0].connections;
            let sum = |of: fn(&tm_sim::ConnectionSecond) -> u64| {
                of_load.iter().flat_map(|one| &one.seconds).map(of).sum::<u64>()
            };
            prop_assert!(sum(|one| one.delivered_bytes) <= sum(|one| one.sent_bytes));
        }
    }
}
