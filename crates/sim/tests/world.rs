//! Whole measurements in virtual time, beside what can be worked out by hand.

mod common;
#[path = "common/flows.rs"]
mod flows;

use proptest::prelude::*;
use tm_link::wlan::{
    BackgroundConfig, Config, EifsConfig, ErrorConfig, PhyConfig, ProtectionConfig,
    QueueConfig as FrameQueue, RateConfig, RtsCounts, SecurityConfig,
};
use tm_link::DirectionConfig;
use tm_probe::{Missed, ReflectRecord, Schedule, SendRecord, SenderFlow, Waiting};
use tm_sim::{
    run, Carrier, DirectionPlan, EndPlan, Enough, FlowPlan, Forms, Inner, LinkPlan, Outcome,
    PathPlan, Plan, Sink, WayPlan, Work, START,
};
use tm_wire::Duration;

const MS: i64 = 1_000_000;
const PAYLOAD: u32 = 500;

/// IPv4 and UDP headers, and 60 bytes of a tunnel where there is one.
fn form(outer_bytes: u32, pieces: usize) -> Vec<Inner> {
    vec![Inner {
        bytes: PAYLOAD + 28,
        outer: vec![outer_bytes; pieces],
    }]
}

fn wire(loss: f64) -> DirectionConfig {
    common::direction(Some(8_000_000), 10 * MS, 50, loss)
}

fn work(packet_ns: i64) -> Work {
    Work {
        packet_ns,
        byte_ps: 0,
        scatter: 0.0,
        most_waiting: 100,
    }
}

fn end(wrap_ns: i64, unwrap_ns: i64) -> EndPlan {
    EndPlan {
        servers: 1,
        in_order: true,
        wrap: work(wrap_ns),
        unwrap: work(unwrap_ns),
    }
}

fn tunnel(cost_ns: i64) -> Carrier {
    Carrier::Tunnel {
        ends: [end(cost_ns, cost_ns), end(cost_ns, cost_ns)],
        drops_copies: true,
        over: None,
    }
}

fn flow(path: usize, number: u16, schedule: Schedule, packets: u64) -> FlowPlan {
    flows::flow(path, number, Duration(0), schedule, packets, PAYLOAD)
}

fn plan(carrier: Carrier, form: Vec<Inner>, gap_ns: i64, packets: u64) -> Plan {
    let direction = || DirectionPlan {
        config: wire(0.0),
        opportunities: None,
    };
    Plan {
        seed: 1,
        link: LinkPlan::Wire(Box::new([direction(), direction()])),
        paths: vec![PathPlan {
            forms: Forms::new([(PAYLOAD, form)]).unwrap(),
            carrier,
        }],
        cores: [None; 2],
        ways: [
            WayPlan {
                flows: vec![flow(
                    0,
                    0,
                    Schedule::Fixed {
                        gap: Duration(gap_ns),
                    },
                    packets,
                )],
                ..way()
            },
            WayPlan::default(),
        ],
        loads: Vec::new(),
        lead: Duration(0),
    }
}

/// The configuration of a direction.
fn way_of(plan: &mut Plan, way: usize) -> &mut DirectionConfig {
    match &mut plan.link {
        LinkPlan::Wire(ways) => &mut ways[way].config,
        LinkPlan::Wlan(_) => panic!("the plans of these tests have a wire"),
    }
}

fn way() -> WayPlan {
    WayPlan {
        waiting: Waiting {
            late: Duration(1_000 * MS),
            drain: Duration(500 * MS),
        },
        missed: Missed::Send,
        reply: true,
        ..WayPlan::default()
    }
}

#[derive(Default)]
struct Kept {
    sent: Vec<SendRecord>,
    reflected: Vec<ReflectRecord>,
}

impl Sink for Kept {
    fn sent(&mut self, _way: usize, record: &SendRecord) {
        self.sent.push(*record);
    }
    fn reflected(&mut self, _way: usize, record: &ReflectRecord) {
        self.reflected.push(*record);
    }
}

fn only(outcome: &Outcome) -> &SenderFlow {
    &outcome.ways[0].flows[0]
}

/// Serialization of an outer packet of so many bytes at 8 Mbit/s.
fn serial_ns(bytes: i64) -> i64 {
    bytes * 1_000
}

#[test]
fn a_round_trip_is_the_sum_of_its_parts_to_the_nanosecond() {
    let mut kept = Kept::default();
    let outcome = run(
        &plan(tunnel(40_000), form(588, 1), 2 * MS, 1_000),
        &mut kept,
    );
    let one_way = 2 * 40_000 + serial_ns(588) + 10 * MS;
    let rtt = only(&outcome).rtt.summary().unwrap();
    assert_eq!(rtt.count, 1_000);
    assert!(kept.sent.iter().all(|record| {
        let (sent, returned) = (record.sent.unwrap(), record.returned.unwrap());
        (returned - sent).0 == 2 * one_way
            && record.remote_rx.map(|at| at.since(sent)) == Some(Duration(one_way))
    }));
    assert_eq!(kept.reflected.len(), 1_000);
    // Each end wraps one way's packets and unwraps the other's.
    for end in outcome.ends[0].unwrap() {
        for job in end {
            assert_eq!((job.offered, job.dropped, job.busy.0), (1_000, 0, 40 * MS));
        }
    }
}

#[test]
fn without_a_tunnel_only_the_link_takes_time() {
    let mut kept = Kept::default();
    let outcome = run(&plan(Carrier::Bare, form(528, 1), 2 * MS, 100), &mut kept);
    let expected = Duration(2 * (serial_ns(528) + 10 * MS));
    let took = |record: &SendRecord| record.returned.unwrap() - record.sent.unwrap();
    assert!(kept.sent.len() == 100 && kept.sent.iter().all(|record| took(record) == expected));
    assert_eq!(outcome.ends[0], None);
}

#[test]
fn an_end_at_its_limit_carries_what_it_can_work_on() {
    // 250 us of work each, a packet every 100 us: 4,000 a second pass, the rest is dropped.
    let mut slow = plan(tunnel(0), form(588, 1), 100_000, 20_000);
    way_of(&mut slow, 0).rate_bit_s = None;
    slow.paths[0].carrier = Carrier::Tunnel {
        ends: [end(250_000, 0), end(0, 0)],
        drops_copies: true,
        over: None,
    };
    slow.ways[0].reply = false;
    let outcome = run(&slow, &mut ());
    let received = outcome.ways[0].reflected[0].counters.received;
    let [client, _] = outcome.ends[0].unwrap();
    assert_eq!(client[0].offered, 20_000);
    assert_eq!(received, client[0].offered - client[0].dropped);
    let rate = received as f64 / 2.0;
    assert!(
        (rate / 4_000.0 - 1.0).abs() < 0.02,
        "{rate} packets a second"
    );
}

#[test]
fn a_load_ends_once_it_has_lost_enough_and_what_is_under_way_still_comes() {
    let loaded = |gap_ns: i64, enough: Option<Enough>| {
        let mut plan = plan(Carrier::Bare, form(528, 1), gap_ns, 20_000);
        plan.ways[0].reply = false;
        plan.ways[0].enough = enough;
        let outcome = run(&plan, &mut ());
        let sent = only(&outcome).counters.sent;
        (sent, outcome.ways[0].reflected[0].counters.received)
    };
    let enough = Enough {
        lost: 1,
        after: Duration(500 * MS),
    };
    // Twice what the line carries: half of it is lost, less what fills the queue.
    let (sent, received) = loaded(264_000, Some(enough));
    assert!((1_894..2_300).contains(&sent), "{sent} sent");
    assert!(
        received * 2 >= sent && received * 2 < sent + 200,
        "{received} of {sent}"
    );
    // What loses nothing, or not so much, goes on to its end.
    assert_eq!(loaded(600_000, Some(enough)), (20_000, 20_000));
    let all = loaded(264_000, None);
    let much = Enough {
        lost: 15_000,
        ..enough
    };
    assert_eq!(loaded(264_000, Some(much)), all);
    assert_eq!(all.0, 20_000);
}

#[test]
fn of_a_datagram_in_two_pieces_the_second_goes_though_the_first_had_no_room() {
    for (carrier, pieces) in [(Carrier::Bare, 2), (tunnel(0), 2), (Carrier::Bare, 1)] {
        let mut plan = plan(carrier, form(528, pieces), 264_000, 5_000);
        plan.ways[0].reply = false;
        let outcome = run(&plan, &mut ());
        let link = outcome.link[0];
        assert_eq!(link.offered, 5_000 * pieces as u64);
        assert_eq!(link.offered, link.delivered + link.queue_dropped);
        let received = outcome.ways[0].reflected[0].counters.received;
        assert!(received * pieces as u64 <= link.delivered && received > 0);
    }
}

#[test]
fn what_a_tunnel_has_no_room_for_ends_a_load_too() {
    let mut slow = plan(tunnel(250_000), form(588, 1), 100_000, 20_000);
    way_of(&mut slow, 0).rate_bit_s = None;
    slow.ways[0].reply = false;
    slow.ways[0].enough = Some(Enough {
        lost: 1,
        after: Duration(0),
    });
    let outcome = run(&slow, &mut ());
    // Looked at each 100 ms.
    assert!(only(&outcome).counters.sent <= 2_000);
}

#[test]
fn tunnels_on_one_core_carry_together_what_one_carries_alone() {
    // As above, and a second tunnel beside it; the server has a core for each.
    let received = |cores| {
        let mut two = plan(tunnel(0), form(588, 1), 100_000, 20_000);
        way_of(&mut two, 0).rate_bit_s = None;
        let carrier = || Carrier::Tunnel {
            ends: [end(250_000, 0), end(0, 100_000)],
            drops_copies: true,
            over: None,
        };
        two.paths = vec![
            PathPlan {
                forms: Forms::new([(PAYLOAD, form(588, 1))]).unwrap(),
                carrier: carrier(),
            },
            PathPlan {
                forms: Forms::new([(PAYLOAD, form(588, 1))]).unwrap(),
                carrier: carrier(),
            },
        ];
        let gap = Duration(100_000);
        two.ways[0]
            .flows
            .push(flow(1, 1, Schedule::Fixed { gap }, 20_000));
        two.ways[0].reply = false;
        two.cores = cores;
        let outcome = run(&two, &mut ());
        let flows = outcome.ways[0].reflected.iter();
        flows.map(|flow| flow.counters.received).collect::<Vec<_>>()
    };
    for (cores, expected) in [
        ([None, None], 8_000.0),
        ([Some(2), None], 8_000.0),
        ([Some(1), None], 4_000.0),
    ] {
        let counts = received(cores);
        // With what still waits when the senders stop, 100 packets of each.
        let rate = counts.iter().sum::<u64>() as f64 / 2.0;
        assert!(
            (rate / expected - 1.0).abs() < 0.03,
            "{rate} of {expected} a second"
        );
        assert!(counts.iter().all(|count| *count > 3_000), "{counts:?}");
    }
}

#[test]
fn a_datagram_in_two_pieces_is_lost_with_either() {
    let mut lossy = plan(tunnel(1_000), form(400, 2), 2 * MS, 20_000);
    *way_of(&mut lossy, 0) = wire(0.05);
    *way_of(&mut lossy, 1) = wire(0.0);
    let outcome = run(&lossy, &mut ());
    let counters = only(&outcome).counters;
    let lost = 1.0 - counters.returned as f64 / counters.sent as f64;
    let expected = 1.0 - 0.95_f64.powi(2);
    // Four standard deviations of a binomial share.
    let off = 4.0 * (expected * (1.0 - expected) / 20_000.0_f64).sqrt();
    assert!(
        (lost - expected).abs() < off,
        "{lost} instead of {expected}"
    );
}

#[test]
fn copies_pass_where_nothing_drops_them_and_damage_never_does() {
    let counted = |carrier, duplicate, corrupt| {
        let mut plan = plan(carrier, form(588, 1), 2 * MS, 5_000);
        way_of(&mut plan, 1).duplicate = duplicate;
        way_of(&mut plan, 1).corrupt = corrupt;
        let outcome = run(&plan, &mut ());
        let counters = only(&outcome).counters;
        (counters.returned, counters.duplicates, outcome.damaged)
    };
    let (returned, duplicates, _) = counted(Carrier::Bare, 0.1, 0.0);
    assert_eq!(returned, 5_000);
    assert!((400..600).contains(&duplicates), "{duplicates} copies");
    assert_eq!(counted(tunnel(1_000), 0.1, 0.0), (5_000, 0, 0));
    let (returned, _, damaged) = counted(tunnel(1_000), 0.0, 0.1);
    assert_eq!(returned + damaged, 5_000);
    assert!((400..600).contains(&damaged), "{damaged} damaged");
}

#[test]
fn both_hosts_send_at_a_time_and_share_the_link() {
    let mut both = plan(tunnel(1_000), form(588, 1), 5 * MS, 200);
    both.ways[1] = WayPlan {
        flows: vec![flow(
            0,
            4,
            Schedule::Fixed {
                gap: Duration(5 * MS),
            },
            200,
        )],
        ..way()
    };
    let outcome = run(&both, &mut ());
    for way in &outcome.ways {
        assert_eq!(way.flows[0].counters.returned, 200);
        assert_eq!(way.reflected[0].counters.answered, 200);
    }
    assert_eq!(outcome.link[0].offered, 400);
}

/// 802.11b at 11 Mbit/s with Acks at 1 Mbit/s and headers with four addresses.
fn wlan(background: u16) -> LinkPlan {
    LinkPlan::Wlan(Box::new(Config {
        phy: PhyConfig::B {
            short_preamble: false,
        },
        rate: RateConfig::Fixed {
            rate_bit_s: 11_000_000,
        },
        basic_rates_bit_s: vec![1_000_000],
        protection: ProtectionConfig::None,
        rts_threshold_bytes: 2_347,
        rts_counts: RtsCounts::Psdu,
        fragmentation_threshold_bytes: 2_346,
        short_retry_limit: 7,
        long_retry_limit: 4,
        queue: FrameQueue::Packets { limit: 200 },
        qos: None,
        aggregation: None,
        security: SecurityConfig::None,
        four_addresses: true,
        errors: ErrorConfig::None {},
        beacon: None,
        eifs: EifsConfig::LowestRate,
        stations: 1 + background,
        background: (background > 0).then_some(BackgroundConfig { msdu_bytes: 1_500 }),
    }))
}

#[test]
fn a_saturated_wlan_carries_what_jun_peddabachagari_and_sichitiu_work_out() {
    // An IP packet of 1492 bytes is an MSDU of 1500: 6.056 Mbit/s (NCA 2003).
    let saturated = |background| {
        let mut plan = plan(Carrier::Bare, form(1_492, 1), MS, 20_000);
        plan.link = wlan(background);
        plan.ways[0].reply = false;
        run(&plan, &mut ())
    };
    let rate = |outcome: &Outcome| {
        let seconds = (outcome.end - START).0 as f64 / 1e9;
        outcome.link[0].delivered as f64 * 1_500.0 * 8.0 / seconds / 1e6
    };
    let alone = saturated(0);
    assert!(
        (rate(&alone) / 6.056 - 1.0).abs() < 0.005,
        "{}",
        rate(&alone)
    );
    let counters = alone.link[0];
    assert_eq!(counters.offered, 20_000);
    assert_eq!(
        counters.offered,
        counters.delivered + counters.queue_dropped + counters.lost + counters.in_flight
    );
    // One of two has half, less what collides.
    let shared = saturated(1);
    assert!((0.45..0.55).contains(&(rate(&shared) / rate(&alone))));
    let stations = shared.stations.unwrap();
    assert_eq!(stations.len(), 3);
    assert!(stations[1].collisions > 0 && stations[2].mpdus > 1_000);
}

#[test]
fn a_reply_over_a_wlan_waits_for_the_medium() {
    let mut echo = plan(Carrier::Bare, form(528, 1), 20 * MS, 200);
    echo.link = wlan(0);
    let mut kept = Kept::default();
    let outcome = run(&echo, &mut kept);
    assert_eq!(only(&outcome).counters.returned, 200);
    // DIFS, preamble and the frame's 568 bytes, there and back; at most a whole window of 31 slots,
    // SIFS and Ack beside.
    let least = 2 * (50 + 192) * 1_000 + 2 * 562 * 8 * 1_000 / 11;
    let most = least + 2 * (31 * 20 + 10 + 304) * 1_000 + 50_000;
    for record in &kept.sent {
        let took = record.returned.unwrap() - record.sent.unwrap();
        assert!((least..=most).contains(&took.0), "{took:?}");
    }
}

#[test]
fn the_same_plan_gives_the_same_bytes_and_another_seed_others() {
    let records = |seed| {
        let mut jittery = plan(tunnel(100_000), form(588, 1), MS, 2_000);
        jittery.seed = seed;
        *way_of(&mut jittery, 0) = wire(0.1);
        if let Carrier::Tunnel { ends, .. } = &mut jittery.paths[0].carrier {
            ends[0].wrap.scatter = 0.5;
        }
        let mut kept = Kept::default();
        run(&jittery, &mut kept);
        kept.sent
            .iter()
            .flat_map(SendRecord::to_bytes)
            .collect::<Vec<u8>>()
    };
    assert_eq!(records(1), records(1));
    assert_ne!(records(1), records(2));
    // On every platform, all records of seed 1.
    let hash = common::hash(&records(1));
    assert_eq!(hash, GOLDEN, "{hash:#x}");
}

const GOLDEN: u64 = 0x3874_8108_4b42_102e;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn every_packet_has_one_fate(
        cost in 0_i64..400_000, scatter in 0.0_f64..0.8, servers in 1_usize..3, loss in 0.0_f64..0.4,
        pieces in 1_usize..4, gap in 100_000_i64..2 * MS, packets in 1_u64..300,
        waiting in 0_usize..40, poisson: bool, reply: bool, bare: bool,
    ) {
        let mut any = plan(tunnel(cost), form(588, pieces), gap, packets);
        if poisson {
            let mean_gap = Duration(gap);
            any.ways[0].flows = vec![flow(0, 0, Schedule::Poisson { mean_gap }, packets)];
        }
        any.ways[0].reply = reply;
        *way_of(&mut any, 0) = wire(loss);
        *way_of(&mut any, 1) = wire(loss);
        match &mut any.paths[0].carrier {
            carrier if bare => *carrier = Carrier::Bare,
            Carrier::Tunnel { ends, .. } => for end in ends {
                end.servers = servers;
                end.wrap = Work { scatter, most_waiting: waiting, ..end.wrap };
            },
            Carrier::Bare => {}
        }
        let mut kept = Kept::default();
        let outcome = run(&any, &mut kept);
        let counters = only(&outcome).counters;
        let reflected = outcome.ways[0].reflected[0].counters;
        prop_assert_eq!(counters.due, packets);
        prop_assert_eq!(counters.sent, packets);
        prop_assert_eq!(kept.sent.len() as u64, packets);
        prop_assert_eq!(kept.reflected.len() as u64, reflected.received);
        prop_assert!(counters.seen() <= reflected.answered && reflected.answered <= reflected.received);
        prop_assert_eq!(reflected.duplicates + counters.duplicates, 0);
        prop_assert!(reflected.received <= packets);
        for link in outcome.link {
            prop_assert_eq!(link.offered, link.delivered + link.queue_dropped + link.lost + link.in_flight);
        }
        if let Some([client, server]) = outcome.ends[0] {
            prop_assert_eq!(client[0].offered, packets);
            prop_assert_eq!(server[0].offered, reflected.answered);
            prop_assert_eq!(server[1].offered - server[1].dropped, reflected.received);
            prop_assert_eq!(client[1].offered - client[1].dropped, counters.seen());
        }
        for record in &kept.sent {
            if let (Some(sent), Some(at), Some(returned)) = (record.sent, record.remote_rx, record.returned) {
                prop_assert!(at.since(sent) > Duration::ZERO && at.until(returned) > Duration::ZERO);
            }
        }
    }
}
