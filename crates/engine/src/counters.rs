//! Counters of links and stations, as events have them.

use serde_json::{json, Value};
use tm_io::report::DirectionReport;
use tm_link::wlan::StationCounters;
use tm_link::Kinds;
use tm_probe::Delays;

use crate::events;

/// Counters of a direction, as events have them.
pub fn direction(report: &DirectionReport, answered: &Delays) -> Value {
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
        "lateness_recent_ns": events::delays(&report.lateness.since(answered)),
    })
}

/// Counters of stations, as events have them.
pub fn stations(stations: &[StationCounters]) -> Value {
    stations.iter().map(station).collect()
}

fn station(c: &StationCounters) -> Value {
    json!({
        "attempts": c.attempts, "collisions": c.collisions,
        "internal_collisions": c.internal_collisions, "mpdus": c.mpdus,
        "retry_dropped": c.retry_dropped, "airtime_ns": c.airtime_ns,
    })
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
