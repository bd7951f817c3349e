//! Tunnels that a TCP connection carries, in virtual time: what is worked out by hand, and laws.

mod common;
#[path = "common/flows.rs"]
mod flows;

use proptest::prelude::*;
use tm_probe::{Missed, Schedule, SendRecord, Waiting};
use tm_sim::{
    run, Carrier, Congestion, DirectionPlan, EndPlan, Forms, Inner, LinkPlan, Outcome, PathPlan,
    Plan, Sink, TcpCarrierPlan, WayPlan, Work,
};
use tm_wire::Duration;

const MS: i64 = 1_000_000;
const PAYLOAD: u32 = 500;
/// In the stream: the packet of 528 bytes and 40 of the tunnel.
const MESSAGE: u32 = 568;
/// IP, TCP and timestamps.
const HEADERS: u32 = 52;

/// Echoes over a tunnel through a line of 8 Mbit/s and 10 ms each way.
fn plan(loss: f64, queue_packets: u64, gap_ns: i64, packets: u64, reply: bool) -> Plan {
    let direction = || DirectionPlan {
        config: common::direction(Some(8_000_000), 10 * MS, queue_packets, loss),
        opportunities: None,
    };
    let work = Work {
        packet_ns: 20_000,
        byte_ps: 0,
        scatter: 0.0,
        most_waiting: 500,
    };
    let end = || EndPlan {
        servers: 1,
        in_order: true,
        wrap: work,
        unwrap: work,
    };
    let gap = Duration(gap_ns);
    let schedule = Schedule::Fixed { gap };
    let form = vec![Inner {
        bytes: PAYLOAD + 28,
        outer: vec![MESSAGE],
    }];
    Plan {
        seed: 3,
        link: LinkPlan::Wire(Box::new([direction(), direction()])),
        paths: vec![PathPlan {
            forms: Forms::new([(PAYLOAD, form)]).unwrap(),
            carrier: Carrier::Tunnel {
                ends: [end(), end()],
                drops_copies: true,
                over: Some(TcpCarrierPlan {
                    ip_header_bytes: 20,
                    segment_bytes: 1_448,
                    window_bytes: 3 << 20,
                    congestion: Congestion::Cubic,
                }),
            },
        }],
        cores: [None; 2],
        ways: [
            WayPlan {
                flows: vec![flows::flow(0, 0, Duration(0), schedule, packets, PAYLOAD)],
                waiting: Waiting {
                    late: Duration(60_000 * MS),
                    drain: Duration(60_000 * MS),
                },
                missed: Missed::Send,
                reply,
                ..WayPlan::default()
            },
            WayPlan::default(),
        ],
        loads: Vec::new(),
        lead: Duration(0),
    }
}

#[derive(Default)]
struct Kept(Vec<SendRecord>);

impl Sink for Kept {
    fn sent(&mut self, _way: usize, record: &SendRecord) {
        self.0.push(*record);
    }
    fn reflected(&mut self, _way: usize, _record: &tm_probe::ReflectRecord) {}
}

fn round_trips(plan: &Plan) -> (Vec<i64>, Outcome) {
    let mut kept = Kept::default();
    let outcome = run(plan, &mut kept);
    kept.0.sort_by_key(|record| record.sent);
    let took = |record: &SendRecord| Some((record.returned? - record.sent?).0);
    (kept.0.iter().filter_map(took).collect(), outcome)
}

#[test]
fn a_packet_on_an_idle_stream_takes_what_its_parts_take() {
    // A packet each 100 ms: nothing of the one before it is under way, not even its acknowledgement.
    let (took, outcome) = round_trips(&plan(0.0, 50, 100 * MS, 100, true));
    let one_way = 2 * 20_000 + i64::from(MESSAGE + HEADERS) * 1_000 + 10 * MS;
    assert_eq!(took, vec![2 * one_way; 100]);
    // The reply carries the acknowledgement of its request; its own comes 40 ms later.
    let [forward, back] = outcome.link.map(|way| way.delivered);
    assert_eq!((forward, back), (199, 100), "the last wait is cut off");
}

#[test]
fn what_the_link_loses_comes_late_but_comes() {
    let (took, outcome) = round_trips(&plan(0.02, 50, 5 * MS, 2_000, true));
    assert_eq!(took.len(), 2_000);
    assert!(outcome.link.iter().all(|way| way.lost > 0));
    let least = *took.iter().min().unwrap();
    let late = took.iter().filter(|one| **one > least + 5 * MS).count();
    // All behind a lost one wait for it: a round trip and three packets at least.
    assert!((200..1_900).contains(&late), "{late} of them waited");
}

#[test]
fn an_overload_fills_the_line_and_the_queue_of_the_tunnel_drops_the_rest() {
    // 500 bytes each 400 us are 10 Mbit/s before the tunnel adds its own.
    let (_, outcome) = round_trips(&plan(0.0, 1_000, 400_000, 25_000, false));
    let received = outcome.ways[0].reflected[0].counters.received;
    let [client, _] = outcome.ends[0].unwrap();
    assert_eq!(received + client[0].dropped, 25_000);
    // While there is more than enough, segments are full: 1448 of 1500 bytes are messages.
    let link = outcome.link[0];
    let octets = (link.delivered_bytes - 14 * link.delivered) as f64;
    let possible = octets * (1_448.0 / 1_500.0) / f64::from(MESSAGE);
    let ratio = received as f64 / possible;
    assert!((0.98..=1.0).contains(&ratio), "{received} of {possible}");
}

#[test]
fn what_waits_in_the_stream_is_waited_for() {
    // 100 packets at once through 8 kbit/s: the last is there after a minute.
    let mut slow = plan(0.0, 1_000, 1_000, 100, false);
    if let LinkPlan::Wire(ways) = &mut slow.link {
        ways[0].config.rate_bit_s = Some(8_000);
    }
    slow.ways[0].waiting.drain = Duration(120_000 * MS);
    let (_, outcome) = round_trips(&slow);
    assert_eq!(outcome.ways[0].reflected[0].counters.received, 100);
}

#[test]
fn the_same_seed_gives_the_same_round_trips() {
    let (took, _) = round_trips(&plan(0.02, 20, MS, 3_000, true));
    let bytes: Vec<u8> = took.iter().flat_map(|one| one.to_le_bytes()).collect();
    // Whoever changes what is modelled changes this.
    assert_eq!(format!("{:016x}", common::hash(&bytes)), "7f2070cc23fe2f46");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// What was sent was received, or dropped where it entered the tunnel: the link loses nothing of it.
    #[test]
    fn packets_are_conserved(
        loss in 0.0..0.1_f64,
        queue in 2_u64..60,
        gap_us in 300_i64..8_000,
        packets in 1_u64..800,
    ) {
        let (took, outcome) = round_trips(&plan(loss, queue, gap_us * 1_000, packets, true));
        let [client, server] = outcome.ends[0].unwrap();
        prop_assert_eq!(client[0].offered, packets);
        let received = outcome.ways[0].reflected[0].counters.received;
        prop_assert_eq!(received, packets - client[0].dropped);
        prop_assert_eq!(took.len() as u64, received - server[0].dropped);
        let least = 2 * (2 * 20_000 + i64::from(MESSAGE) * 1_000 + 10 * MS);
        prop_assert!(took.iter().all(|one| *one >= least));
    }
}
