//! An emulator that runs, and its reports: every second, at its end, and on SIGUSR1.

use std::cell::Cell;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;

use serde_json::{json, Value};
use tm_io::emulator::{self, Awake, DirectionReport, Event, LinkDriver, Requests, Threads};
use tm_io::process::{on_signal, Stop, SIGUSR1, SIGUSR2};
use tm_link::wlan::StationCounters;
use tm_link::{ConfigError, Kinds};
use tm_probe::Delays;

use crate::events::{self, Reader};
use crate::Failure;

/// A report of both directions.
pub trait BothWays {
    /// Forward, reverse.
    fn both_ways(&self) -> [&DirectionReport; 2];

    /// What stands beside the two directions.
    fn beside(&self) -> Value {
        json!({})
    }
}

/// Runs the drivers to their end and writes their reports.
///
/// SIGUSR1 asks for a report now, SIGUSR2 begins schedules again.
pub fn follow<L: LinkDriver, const N: usize>(
    parent_pid: Option<u32>,
    threads: Threads,
    open: impl FnOnce() -> Result<[L; N], Failure>,
) -> Result<(), Failure>
where
    [L::Report; N]: BothWays,
{
    let stop = Stop::listen(parent_pid)?;
    let [report, restart] = [SIGUSR1, SIGUSR2].map(|signal| {
        let flag = Arc::new(AtomicBool::new(false));
        on_signal(signal, &flag).map(|()| flag)
    });
    let (report, restart) = (report?, restart?);
    let drivers = open()?;
    let mut reader = Reader::of(&stop);
    let answering = Cell::new(false);
    let mut answered = Answered::default();
    let (last, awake) = emulator::run(
        drivers,
        threads,
        &stop,
        &mut || {
            let requests = Requests {
                report: report.swap(false, Ordering::Relaxed),
                restart: restart.swap(false, Ordering::Relaxed),
            };
            answering.set(answering.get() || requests.report);
            requests
        },
        &mut |event| match event {
            Event::Ready => reader.tell(&json!({"event": "ready"})),
            Event::Progress(report, awake) => {
                reader.tell(&answered.event("progress", &report, awake));
                if answering.take() {
                    answered.note(&report);
                }
            }
        },
    )?;
    reader.finish(&answered.event("summary", &last, awake))
}

/// Lateness as it was when a report was last asked for, so that a reader who asks before and after
/// a trial learns of the trial alone.
#[derive(Default)]
struct Answered([Delays; 2]);

impl Answered {
    fn note(&mut self, report: &impl BothWays) {
        self.0 = report.both_ways().map(|way| way.lateness.clone());
    }

    fn event(&self, event: &str, report: &impl BothWays, awake: Awake) -> Value {
        let [forward, reverse] = report.both_ways();
        let mut object = report.beside();
        object["event"] = event.into();
        object["awake_ns"] = awake.0 .0.into();
        object["a_to_b"] = direction(forward, &self.0[0]);
        object["b_to_a"] = direction(reverse, &self.0[1]);
        object
    }
}

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

impl From<ConfigError> for Failure {
    fn from(error: ConfigError) -> Self {
        Self::Config(error.to_string())
    }
}
