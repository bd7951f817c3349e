//! Events: one JSON object a line on standard output.

use std::io::{ErrorKind, Write};

use serde::Serialize;
use serde_json::{json, Value};
use tm_io::process::{Realtime, Stop};
use tm_io::IoError;
use tm_probe::Delays;

use crate::Failure;

/// Whoever reads the events of a run. Where that is nobody any more, the run ends in order: its files
/// are completed, and it fails.
pub struct Reader {
    stop: Stop,
    gone: Option<std::io::Error>,
}

impl Reader {
    /// A reader whose end is that of the run.
    pub fn of(stop: &Stop) -> Self {
        Self {
            stop: stop.clone(),
            gone: None,
        }
    }

    /// Writes an event.
    pub fn tell(&mut self, event: &impl Serialize) {
        if self.gone.is_some() {
            return;
        }
        if let Err(error) = line(&mut std::io::stdout().lock(), event) {
            self.stop.request();
            self.gone = Some(error);
        }
    }

    /// Writes the last event; an error if one found no reader.
    pub fn finish(mut self, summary: &impl Serialize) -> Result<(), Failure> {
        self.tell(summary);
        match self.gone {
            None => Ok(()),
            Some(error) => {
                Err(IoError::new("standard output: the events cannot be written", error).into())
            }
        }
    }
}

/// Writes a line; whether that is to be had at all is for the caller to say.
fn line(out: &mut impl Write, event: &impl Serialize) -> std::io::Result<()> {
    let mut bytes = serde_json::to_vec(event)?;
    bytes.push(b'\n');
    match out.write_all(&bytes).and_then(|()| out.flush()) {
        // Somebody else made the pipe non-blocking and does not read for now: an event is lost.
        Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(()),
        result => result,
    }
}

/// Writes why a subcommand fails, to whoever is there to read it.
pub fn error(message: &str) {
    let event = json!({"event": "error", "message": message});
    let _ = line(&mut std::io::stdout().lock(), &event);
    let _ = writeln!(std::io::stderr(), "tunnelmark-engine: error: {message}");
}

/// Writes the version.
pub fn version() {
    let event = json!({
        "event": "version",
        "version": env!("CARGO_PKG_VERSION"),
        "protocol": crate::config::PROTOCOL,
    });
    let _ = line(&mut std::io::stdout().lock(), &event);
}

/// A histogram as an object, or null without values.
pub fn delays(delays: &Delays) -> Value {
    delays.summary().map_or(Value::Null, |s| {
        json!({
            "count": s.count, "min": s.min, "p50": s.p50, "p90": s.p90, "p99": s.p99,
            "tail": s.tail, "p999": s.p999, "max": s.max, "mean": s.mean, "below_zero": s.below_zero,
        })
    })
}

/// What became of the real-time priority.
pub fn realtime(priority: Realtime) -> &'static str {
    match priority {
        Realtime::Kept => "kept",
        Realtime::Lost => "lost",
        Realtime::Never => "never",
    }
}

/// Which clock stamped the arrivals.
pub fn timestamps(kernel: bool) -> &'static str {
    if kernel {
        "kernel"
    } else {
        "user"
    }
}
