//! What a measurement in virtual time costs: an echo of 10,000 packets over a serial link, tunnelled.
//!
//! `cargo bench -p tm-sim`.

use criterion::Criterion;
use tm_link::{DirectionConfig, HoldBack, LossConfig, QueueConfig, VariationConfig};
use tm_probe::{Content, Format, Missed, OutgoingFlow, Schedule, SessionPlan, Size, Stop, Waiting};
use tm_sim::{
    run, Carrier, DirectionPlan, EndPlan, FlowPlan, Forms, Inner, LinkPlan, PathPlan, Plan,
    WayPlan, Work,
};
use tm_wire::{Duration, Key};

const PAYLOAD: u32 = 200;

fn plan() -> Plan {
    let direction = || DirectionPlan {
        config: DirectionConfig {
            rate_bit_s: Some(2_000_000),
            delay_ns: 20_000_000,
            queue: QueueConfig::Packets { limit: 50 },
            frame_overhead_bytes: -14,
            frame_min_bytes: 0,
            loss: LossConfig::Independent { probability: 0.01 },
            delay_variation: VariationConfig::None {},
            reorder: false,
            trace: None,
            duplicate: 0.0,
            corrupt: 0.0,
            hold_back: HoldBack::default(),
            changes: Vec::new(),
        },
        opportunities: None,
    };
    let work = Work {
        packet_ns: 30_000,
        byte_ps: 10_000,
        scatter: 0.2,
        most_waiting: 100,
    };
    let end = || EndPlan {
        servers: 1,
        in_order: true,
        wrap: work,
        unwrap: work,
    };
    let key = Key::Secret([1; 16]);
    Plan {
        seed: 1,
        link: LinkPlan::Wire(Box::new([direction(), direction()])),
        paths: vec![PathPlan {
            forms: Forms::new([(
                PAYLOAD,
                vec![Inner {
                    bytes: PAYLOAD + 28,
                    outer: vec![PAYLOAD + 88],
                }],
            )])
            .expect("one size"),
            carrier: Carrier::Tunnel {
                ends: [end(), end()],
                drops_copies: true,
                over: None,
            },
        }],
        cores: [None; 2],
        ways: [
            WayPlan {
                flows: vec![FlowPlan {
                    path: 0,
                    session: SessionPlan {
                        flow: 0,
                        session: 1,
                        key,
                    },
                    outgoing: OutgoingFlow {
                        format: Format::Own { session: 1, key },
                        start_offset: Duration(0),
                        schedule: Schedule::Fixed {
                            gap: Duration(2_000_000),
                        },
                        end: Stop::Packets(10_000),
                        size: Size::Fixed(PAYLOAD),
                        content: Content::Random,
                        seed: 1,
                    },
                }],
                waiting: Waiting {
                    late: Duration(1_000_000_000),
                    drain: Duration(500_000_000),
                },
                missed: Missed::Send,
                reply: true,
                ..WayPlan::default()
            },
            WayPlan::default(),
        ],
        loads: Vec::new(),
        lead: Duration(0),
    }
}

fn main() {
    let mut criterion = Criterion::default().configure_from_args();
    let plan = plan();
    criterion.bench_function("echo of 10,000 packets", |bencher| {
        bencher.iter(|| run(&plan, &mut ()).end);
    });
    criterion.final_summary();
}
