//! Programs that ask over TCP on a wire, for the tests of whole simulations.

use tm_sim::{
    run, Carrier, ClientOutcome, ClientPlan, Congestion, DirectionPlan, Exchange, Forms, Inner,
    LinkPlan, Outcome, PathPlan, Plan, StagePlan, WayPlan,
};
use tm_wire::Duration;

pub const MS: i64 = 1_000_000;
pub const SEGMENT: u32 = 1_448;
/// Of Ethernet, which the link counts with each packet.
pub const FRAME: u64 = 14;

pub fn wire(rate_bit_s: Option<u64>, delay_ns: i64, loss: f64) -> DirectionPlan {
    DirectionPlan {
        config: crate::common::direction(rate_bit_s, delay_ns, 1_000, loss),
        opportunities: None,
    }
}

pub fn exchange(request: u64, reply: u64) -> Exchange {
    Exchange {
        request: vec![request],
        reply: vec![reply],
        ..Exchange::default()
    }
}

pub fn stage(exchanges: Vec<Exchange>) -> StagePlan {
    StagePlan {
        wait: Duration(0),
        connections: 1,
        fresh: false,
        awaits_close: false,
        opening_counts: true,
        opening: Vec::new(),
        exchanges,
        lasts: None,
        turns: None,
    }
}

pub fn forms(client: &ClientPlan) -> Forms {
    let mut sizes = client.sizes();
    sizes.sort_unstable();
    sizes.dedup();
    let form = |size| {
        let bytes = size + 28;
        let outer = vec![bytes];
        (size, vec![Inner { bytes, outer }])
    };
    Forms::new(sizes.into_iter().map(form)).unwrap()
}

pub fn plan(link: [DirectionPlan; 2], stages: Vec<StagePlan>) -> Plan {
    let client = ClientPlan {
        path: 0,
        segment_bytes: SEGMENT,
        window_bytes: 64 << 20,
        congestion: Congestion::Cubic,
        stages,
        patience: Duration::from_secs(100),
        limit: Duration::from_secs(1_000),
    };
    Plan {
        seed: 1,
        link: LinkPlan::Wire(Box::new(link)),
        paths: vec![PathPlan {
            forms: forms(&client),
            carrier: Carrier::Bare,
        }],
        cores: [None; 2],
        ways: [
            WayPlan {
                clients: vec![client],
                ..WayPlan::default()
            },
            WayPlan::default(),
        ],
        loads: Vec::new(),
        lead: Duration(0),
    }
}

pub fn client(outcome: Outcome) -> ClientOutcome {
    let [mut client, _] = outcome.ways;
    client.clients.remove(0)
}

/// What a client came to over a way without losses, by its stage.
pub fn over(rate_bit_s: Option<u64>, one: StagePlan) -> ClientOutcome {
    let way = || wire(rate_bit_s, 20 * MS, 0.0);
    client(run(&plan([way(), way()], vec![one]), &mut ()))
}
