//! Events: one JSON object a line on standard output.

use std::io::Write;

use serde::Serialize;
use serde_json::{json, Value};
use tm_io::process::Realtime;
use tm_probe::Delays;

/// Writes an event. A reader that is gone is no reason to fail: the run ends by its parent's death.
pub fn write(event: &impl Serialize) {
    let mut out = std::io::stdout().lock();
    if serde_json::to_writer(&mut out, event).is_ok() {
        let _ = out.write_all(b"\n").and_then(|()| out.flush());
    }
}

/// Writes why a subcommand fails.
pub fn error(message: &str) {
    write(&json!({"event": "error", "message": message}));
    eprintln!("tunnelmark-engine: error: {message}");
}

/// Writes the version.
pub fn version() {
    write(&json!({
        "event": "version",
        "version": env!("CARGO_PKG_VERSION"),
        "protocol": crate::config::PROTOCOL,
    }));
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
