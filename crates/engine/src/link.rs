//! The subcommand `link`.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;

use serde::Deserialize;
use serde_json::{json, Value};
use tm_io::medium::MediumPlan;
use tm_io::process::{on_signal, SIGUSR2};
use tm_io::relay::{run, RelayPlan, Report};
use tm_io::wireless::WirelessPlan;
use tm_link::{DirectionConfig, Kinds, Opportunities, LARGEST_TRACE_BYTES};
use tm_probe::Delays;

use crate::config;
use crate::flow::read_bounded;
use crate::following::{follow, BothWays};
use crate::link_wlan::{self, MediumConfig};
use crate::{events, Failure};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct LinkConfig {
    protocol: u32,
    #[serde(default)]
    parent_pid: Option<u32>,
    a: Side,
    b: Side,
    #[serde(default)]
    a_to_b: Option<DirectionConfig>,
    #[serde(default)]
    b_to_a: Option<DirectionConfig>,
    /// In place of the two directions: what both share.
    #[serde(default)]
    medium: Option<MediumConfig>,
    seed: u64,
    realtime_priority: Option<u8>,
    cpu: Option<usize>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Side {
    interface: String,
}

/// Runs it.
pub fn main(path: &str) -> Result<(), Failure> {
    let config: LinkConfig = config::read(path)?;
    config::protocol(config.protocol)?;
    for (place, side) in [("a.interface", &config.a), ("b.interface", &config.b)] {
        config::within(&format!("{place}: length"), side.interface.len(), 1, 15)?;
    }
    let realtime_priority = config::priority(config.realtime_priority)?;
    let (a_to_b, b_to_a) = match (config.a_to_b, config.b_to_a, config.medium) {
        (Some(a_to_b), Some(b_to_a), None) => (a_to_b, b_to_a),
        (None, None, Some(MediumConfig::Wlan(medium))) => {
            let plan = WirelessPlan {
                a: config.a.interface,
                b: config.b.interface,
                medium: MediumPlan {
                    config: *medium,
                    path: "medium".to_owned(),
                    seed: config.seed,
                    realtime_priority,
                    cpu: config.cpu,
                },
            };
            return link_wlan::main(&plan, config.parent_pid);
        }
        _ => return config::wrong("a_to_b and b_to_a must both be set, or medium alone"),
    };
    let plan = RelayPlan {
        a: config.a.interface,
        b: config.b.interface,
        a_to_b: checked("a_to_b", a_to_b)?,
        b_to_a: checked("b_to_a", b_to_a)?,
        seed: config.seed,
        realtime_priority,
        cpu: config.cpu,
    };
    let anew = Arc::new(AtomicBool::new(false));
    on_signal(SIGUSR2, &anew)?;
    follow(
        config.parent_pid,
        |stop, wanted, tell| {
            let anew = || anew.swap(false, Ordering::Relaxed);
            Ok(run(&plan, stop, wanted, anew, tell)?)
        },
        |event, (forward, reverse): &(Report, Report), asked_last| {
            write(event, forward, reverse, asked_last);
        },
    )
}

impl BothWays for (Report, Report) {
    fn both_ways(&self) -> (&Report, &Report) {
        (&self.0, &self.1)
    }
}

/// Checks a configuration; traces are taken for right.
pub fn check(text: &[u8]) -> Result<(), Failure> {
    let config: LinkConfig = config::parse(text).map_err(Failure::Config)?;
    config::protocol(config.protocol)?;
    for (place, way) in [("a_to_b", &config.a_to_b), ("b_to_a", &config.b_to_a)] {
        if let Some(way) = way {
            way.check(place).map_err(Failure::Config)?;
        }
    }
    Ok(())
}

fn checked(
    place: &str,
    config: DirectionConfig,
) -> Result<(DirectionConfig, Option<Arc<Opportunities>>), Failure> {
    config.check(place).map_err(Failure::Config)?;
    let Some(trace) = &config.trace else {
        return Ok((config, None));
    };
    let at = format!("{place}.trace.path");
    let text = read_bounded(&at, &trace.path, LARGEST_TRACE_BYTES)?;
    let opportunities = Opportunities::parse(&text, trace.opportunity_bytes)
        .map_err(|error| Failure::Config(format!("{at}: {}: {error}", trace.path.display())))?;
    Ok((config, Some(Arc::new(opportunities))))
}

fn write(event: &str, forward: &Report, reverse: &Report, asked_last: &AskedLast) {
    events::write(&json!({
        "event": event,
        "a_to_b": direction(forward, &asked_last.forward),
        "b_to_a": direction(reverse, &asked_last.reverse),
    }));
}

/// Lateness as it was when a report was last asked for, so that a reader who asks before and after
/// a trial is told of the trial alone.
#[derive(Default)]
pub struct AskedLast {
    /// From a to b.
    pub forward: Delays,
    /// From b to a.
    pub reverse: Delays,
}

impl AskedLast {
    /// Takes the reports that answer a question.
    pub fn note(&mut self, forward: &Report, reverse: &Report) {
        self.forward.clone_from(&forward.lateness);
        self.reverse.clone_from(&reverse.lateness);
    }
}

fn kinds(kinds: &Kinds) -> Value {
    let counted: Vec<_> = kinds
        .counts()
        .iter()
        .map(|(kind, frames)| {
            json!({
                "ether_type": kind.ether_type, "protocol": kind.protocol, "ports": kind.ports,
                "later_fragment": kind.later_fragment, "frames": frames,
            })
        })
        .collect();
    json!({"counted": counted, "others": kinds.others()})
}

/// Counters of a direction, as events have them.
pub fn direction(report: &Report, asked_last: &Delays) -> Value {
    let c = report.counters;
    json!({
        "offered": c.offered, "offered_bytes": c.offered_bytes, "delivered": c.delivered,
        "delivered_bytes": c.delivered_bytes, "queue_dropped": c.queue_dropped, "lost": c.lost,
        "in_flight": c.in_flight, "duplicated": c.duplicated, "corrupted": c.corrupted,
        "held_back": c.held_back, "capture_dropped": report.capture_dropped,
        "send_errors": report.send_errors, "oversized": report.oversized,
        "checksum_missing": report.checksum_missing,
        "kinds": report.kinds.as_ref().map(kinds),
        "lateness_ns": events::delays(&report.lateness),
        "lateness_recent_ns": events::delays(&report.lateness.since(asked_last)),
    })
}
