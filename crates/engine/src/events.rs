//! Events: one JSON object a line on standard output.

use std::io::{ErrorKind, Write};
use std::sync::mpsc::{sync_channel, SyncSender};
use std::thread::JoinHandle;

use serde::Serialize;
use serde_json::{json, Value};
use tm_io::process::{self, Realtime, Stop};
use tm_io::IoError;
use tm_probe::Delays;

use crate::Failure;

/// Whoever reads the events of a run. Where that is nobody any more, the run ends in order: its files
/// are completed, and it fails.
///
/// A thread of its own writes: packets wait for no reader. What one that is behind has not read when
/// more comes is left out, all but the last event.
pub struct Reader {
    lines: SyncSender<Vec<u8>>,
    writer: JoinHandle<std::io::Result<()>>,
}

/// Events that wait for a reader that is behind.
const BEHIND: usize = 8;

impl Reader {
    /// The reader of standard output, whose end is that of the run.
    pub fn of(stop: &Stop) -> Result<Self, Failure> {
        Self::at(std::io::stdout(), stop)
    }

    fn at(mut out: impl Write + Send + 'static, stop: &Stop) -> Result<Self, Failure> {
        let (lines, waiting) = sync_channel::<Vec<u8>>(BEHIND);
        let stop = stop.clone();
        let writer = process::spawn("events", move || {
            let written = waiting.iter().try_for_each(|bytes| put(&mut out, &bytes));
            if written.is_err() {
                stop.request();
            }
            written
        })?;
        Ok(Self { lines, writer })
    }

    /// Has an event written, unless the reader is behind.
    pub fn tell(&self, event: &impl Serialize) {
        if let Ok(bytes) = as_line(event) {
            let _ = self.lines.try_send(bytes);
        }
    }

    /// Writes the last event; an error if one found no reader.
    pub fn finish(self, summary: &impl Serialize) -> Result<(), Failure> {
        let last = as_line(summary).map(|bytes| self.lines.send(bytes));
        drop(self.lines);
        let died = || std::io::Error::other("thread died");
        let written = self.writer.join().unwrap_or_else(|_| Err(died()));
        last.map(|_| ()).and(written).map_err(unwritten)
    }
}

/// Writes the one event of a program that has no other.
pub fn only(event: &impl Serialize) -> Result<(), Failure> {
    line(&mut std::io::stdout().lock(), event).map_err(unwritten)
}

fn unwritten(error: std::io::Error) -> Failure {
    IoError::new("standard output: the events cannot be written", error).into()
}

/// Writes a line; whether that is to be had at all is for the caller to say.
fn line(out: &mut impl Write, event: &impl Serialize) -> std::io::Result<()> {
    put(out, &as_line(event)?)
}

fn as_line(event: &impl Serialize) -> std::io::Result<Vec<u8>> {
    let mut bytes = serde_json::to_vec(event)?;
    bytes.push(b'\n');
    Ok(bytes)
}

fn put(out: &mut impl Write, bytes: &[u8]) -> std::io::Result<()> {
    match out.write_all(bytes).and_then(|()| out.flush()) {
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::{channel, Receiver, Sender};

    /// Takes a write each time that it is let, and tells what it took.
    struct Slow {
        let_in: Receiver<()>,
        took: Sender<Vec<u8>>,
    }

    impl Write for Slow {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.let_in.recv().map_err(std::io::Error::other)?;
            self.took
                .send(bytes.to_vec())
                .map_err(std::io::Error::other)?;
            Ok(bytes.len())
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn nobody_waits_for_a_reader_that_is_behind_and_the_last_event_is_written() {
        let ((go, let_in), (took, taken)) = (channel(), channel());
        let reader = Reader::at(Slow { let_in, took }, &Stop::new()).unwrap();
        // Each call returns, although nothing is read.
        for number in 0..1_000 {
            reader.tell(&json!({"event": "progress", "number": number}));
        }
        for _ in 0..=BEHIND + 2 {
            go.send(()).unwrap();
        }
        reader.finish(&json!({"event": "summary"})).unwrap();
        let lines: Vec<_> = taken.iter().collect();
        assert_eq!(lines[0], b"{\"event\":\"progress\",\"number\":0}\n");
        assert_eq!(lines.last().unwrap(), b"{\"event\":\"summary\"}\n");
        assert!((BEHIND + 1..=BEHIND + 2).contains(&lines.len()));
    }

    #[test]
    fn a_reader_that_is_gone_ends_the_run_and_fails_it() {
        let ((go, let_in), (took, _)) = (channel(), channel());
        drop(go);
        let stop = Stop::new();
        let reader = Reader::at(Slow { let_in, took }, &stop).unwrap();
        reader.tell(&json!({"event": "ready"}));
        while !stop.requested() {
            std::thread::yield_now();
        }
        assert!(reader.finish(&json!({"event": "summary"})).is_err());
    }
}
