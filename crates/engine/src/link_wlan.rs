//! The subcommand `link` with a WLAN as its medium.

use std::cell::Cell;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;

use serde::Deserialize;
use serde_json::{json, Value};
use tm_io::process::{on_signal, Stop, SIGUSR1};
use tm_io::wireless::{run, WirelessError, WirelessEvent, WirelessPlan, WirelessReport};
use tm_link::wlan::{Config, StationCounters};

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
        .setup(&plan.path)
        .map_err(|error| Failure::Config(error.to_string()))?;
    let stop = Stop::listen(parent_pid)?;
    let asked = Arc::new(AtomicBool::new(false));
    on_signal(SIGUSR1, &asked)?;
    let answering = Cell::new(false);
    let mut asked_last = AskedLast::default();
    let report = run(
        plan,
        &stop,
        || {
            let now = asked.swap(false, Ordering::Relaxed);
            answering.set(answering.get() || now);
            now
        },
        |event| match event {
            WirelessEvent::Ready => events::write(&json!({"event": "ready"})),
            WirelessEvent::Progress(report) => {
                write("progress", &report, &asked_last);
                if answering.take() {
                    asked_last.note(&report.forward, &report.reverse);
                }
            }
        },
    )
    .map_err(|error| match error {
        WirelessError::Config(error) => Failure::Config(error.to_string()),
        WirelessError::Io(error) => error.into(),
    })?;
    write("summary", &report, &asked_last);
    Ok(())
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
