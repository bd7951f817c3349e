//! Transactions of the subcommand `sim`: who asks over UDP, and what `ask` would say of all that asks.

use serde::Deserialize;
use serde_json::{json, Value};
use tm_probe::Delays;
use tm_sim::{PathPlan, RequesterOutcome, RequesterPlan};
use tm_wire::Instant;

use crate::sim_tcp::{self, MOST_CONNECTIONS};
use crate::{config, events, Failure};

/// Programs that ask over UDP as the configuration has them.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RequesterConfig {
    path: usize,
    /// So many alike.
    count: usize,
    request_bytes: u32,
    response_bytes: u32,
    lasts_ns: i64,
    timeout_ns: i64,
}

impl RequesterConfig {
    /// So many alike.
    pub fn count(&self) -> usize {
        self.count
    }
}

/// The plans, those of one configuration behind each other.
pub fn plans(
    configs: &[RequesterConfig],
    paths: &[PathPlan],
) -> Result<Vec<RequesterPlan>, Failure> {
    let counts = configs.iter().map(RequesterConfig::count);
    let count = counts.fold(0, usize::saturating_add);
    config::within(
        "requesters: number of requesters",
        count,
        0,
        MOST_CONNECTIONS,
    )?;
    let mut found = Vec::with_capacity(count);
    for (index, one) in configs.iter().enumerate() {
        let at = format!("requesters[{index}]");
        let key = |name: &str| format!("{at}.{name}");
        config::within(&key("path"), one.path, 0, paths.len() - 1)?;
        config::within(&key("count"), one.count, 1, MOST_CONNECTIONS)?;
        sim_tcp::known(
            &at,
            one.path,
            vec![one.request_bytes, one.response_bytes],
            paths,
        )?;
        let plan = RequesterPlan {
            path: one.path,
            request_bytes: one.request_bytes,
            response_bytes: one.response_bytes,
            lasts: config::duration(&key("lasts_ns"), one.lasts_ns)?,
            timeout: config::duration(&key("timeout_ns"), one.timeout_ns)?,
        };
        found.extend(std::iter::repeat_n(plan, one.count));
    }
    Ok(found)
}

/// What became of transactions between one pair of programs.
#[derive(Default)]
pub struct Flow {
    begun: u64,
    late: u64,
    delays: Delays,
    span: Option<(Instant, Instant)>,
}

impl Flow {
    /// Adds those of one socket.
    pub fn add(&mut self, begun: u64, delays: &Delays, span: Option<(Instant, Instant)>) {
        self.begun += begun;
        self.delays.merge(delays);
        self.span = both(self.span, span);
    }
}

/// All flows, as `ask` reports them.
#[derive(Default)]
pub struct Asked {
    span: Option<(Instant, Instant)>,
    delays: Delays,
    flows: Vec<Value>,
}

impl Asked {
    /// Adds a flow behind the others.
    pub fn add(&mut self, flow: &Flow) {
        let answered = flow.delays.summary().map_or(0, |summary| summary.count);
        self.flows.push(json!({
            "begun": flow.begun, "answered": answered, "lost": flow.begun - answered,
            "late": flow.late, "latency_ns": events::delays(&flow.delays),
        }));
        self.delays.merge(&flow.delays);
        self.span = both(self.span, flow.span);
    }

    /// Adds programs that asked over UDP, so many of each configuration.
    pub fn add_requesters(&mut self, counts: &[usize], outcomes: Vec<RequesterOutcome>) {
        let mut outcomes = outcomes.into_iter();
        for count in counts {
            let mut flow = Flow::default();
            for one in outcomes.by_ref().take(*count) {
                flow.add(one.begun, &one.delays, one.span);
                flow.late += one.late;
            }
            self.add(&flow);
        }
    }

    /// What `ask` would say.
    pub fn reported(self) -> Value {
        json!({
            "span_ns": self.span.map_or(0, |(first, last)| (last - first).0),
            "latency_ns": events::delays(&self.delays), "flows": self.flows,
        })
    }
}

/// The time that two spans take together.
fn both(
    one: Option<(Instant, Instant)>,
    other: Option<(Instant, Instant)>,
) -> Option<(Instant, Instant)> {
    match (one, other) {
        (Some((first, last)), Some((from, to))) => Some((from.min(first), to.max(last))),
        (one, other) => other.or(one),
    }
}
