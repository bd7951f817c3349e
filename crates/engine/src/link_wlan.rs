//! The subcommand `link` with a WLAN as its medium.

use serde::Deserialize;
use serde_json::{json, Value};
use tm_io::relay::Report;
use tm_io::wireless::{run, WirelessPlan, WirelessReport};
use tm_link::wlan::{Config, StationCounters};

use crate::following::{follow, BothWays};
use crate::link::{direction, AskedLast};
use crate::{events, Failure};

/// A medium that both directions share.
#[derive(Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum MediumConfig {
    /// IEEE 802.11.
    Wlan(Box<Config>),
}

/// Runs it.
pub fn main(plan: &WirelessPlan, parent_pid: Option<u32>) -> Result<(), Failure> {
    // refused before any interface is touched
    plan.medium
        .config
        .setup(&plan.medium.path)
        .map_err(|error| Failure::Config(error.to_string()))?;
    follow(
        parent_pid,
        |stop, wanted, tell| run(plan, stop, wanted, tell),
        write,
    )
}

impl BothWays for WirelessReport {
    fn both_ways(&self) -> (&Report, &Report) {
        (&self.forward, &self.reverse)
    }
}

fn write(event: &str, report: &WirelessReport, asked_last: &AskedLast) {
    let stations: Vec<_> = report.stations.iter().map(station).collect();
    events::write(&json!({
        "event": event,
        "a_to_b": direction(&report.forward, &asked_last.forward),
        "b_to_a": direction(&report.reverse, &asked_last.reverse),
        "stations": stations,
    }));
}

/// Counters of a station, as events have them.
pub fn station(c: &StationCounters) -> Value {
    json!({
        "attempts": c.attempts, "collisions": c.collisions,
        "internal_collisions": c.internal_collisions, "mpdus": c.mpdus,
        "retry_dropped": c.retry_dropped, "airtime_ns": c.airtime_ns,
    })
}
