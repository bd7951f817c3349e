//! An emulator that runs, and its reports: every second, at its end, and on SIGUSR1 and SIGUSR2.

use std::cell::Cell;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;

use serde_json::{json, Value};
use tm_io::emulator::{self, Awake, Event, LinkDriver, Requests, Threads, SIGUSR1, SIGUSR2};
use tm_io::process::{on_signal, Stop};
use tm_io::report::DirectionReport;
use tm_probe::Delays;

use crate::counters::direction;
use crate::events::Reader;
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
/// SIGUSR1 asks for a report now; SIGUSR2 begins schedules and recent lateness again, and asks, too.
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
    let reader = Reader::of(&stop)?;
    let (answering, beginning) = (Cell::new(false), Cell::new(false));
    let mut begun = Begun::default();
    let (last, awake) = emulator::run(
        drivers,
        threads,
        &stop,
        &mut || {
            let restart = restart.swap(false, Ordering::Relaxed);
            let report = report.swap(false, Ordering::Relaxed) || restart;
            answering.set(answering.get() || report);
            beginning.set(beginning.get() || restart);
            Requests { report, restart }
        },
        &mut |event| match event {
            Event::Ready => reader.tell(&json!({"event": "ready"})),
            Event::Progress(report, awake) => {
                if beginning.take() {
                    begun.note(&report);
                }
                let mut event = begun.event("progress", &report, awake);
                event["asked"] = answering.take().into();
                reader.tell(&event);
            }
        },
    )?;
    reader.finish(&begun.event("summary", &last, awake))
}

/// Lateness as it was when schedules last began, so that a reader learns of one trial alone.
#[derive(Default)]
struct Begun([Delays; 2]);

impl Begun {
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
