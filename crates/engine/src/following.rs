//! A medium that runs, and its reports: every second, and on SIGUSR1.

use std::cell::Cell;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;

use serde_json::json;
use tm_io::medium::{MediumError, MediumEvent};
use tm_io::process::{on_signal, Stop, SIGUSR1};
use tm_io::relay::Report;

use crate::link::AskedLast;
use crate::{events, Failure};

/// A report of both directions.
pub trait BothWays {
    /// Forward, reverse.
    fn both_ways(&self) -> (&Report, &Report);
}

/// Runs a medium to its end and writes its reports.
///
/// `run` is given when to stop, whether a report is asked for now, and where to tell.
pub fn follow<R: BothWays>(
    parent_pid: Option<u32>,
    run: impl FnOnce(
        &Stop,
        &mut dyn FnMut() -> bool,
        &mut dyn FnMut(MediumEvent<R>),
    ) -> Result<R, MediumError>,
    write: impl Fn(&str, &R, &AskedLast),
) -> Result<(), Failure> {
    let stop = Stop::listen(parent_pid)?;
    let asked = Arc::new(AtomicBool::new(false));
    on_signal(SIGUSR1, &asked)?;
    let answering = Cell::new(false);
    let mut asked_last = AskedLast::default();
    let report = run(
        &stop,
        &mut || {
            let now = asked.swap(false, Ordering::Relaxed);
            answering.set(answering.get() || now);
            now
        },
        &mut |event| match event {
            MediumEvent::Ready => events::write(&json!({"event": "ready"})),
            MediumEvent::Progress(report) => {
                write("progress", &report, &asked_last);
                if answering.take() {
                    let (forward, reverse) = report.both_ways();
                    asked_last.note(forward, reverse);
                }
            }
        },
    )
    .map_err(|error| match error {
        MediumError::Config(error) => Failure::Config(error.to_string()),
        MediumError::Io(error) => error.into(),
    })?;
    write("summary", &report, &asked_last);
    Ok(())
}
