//! What every process of the machine has used, read at one moment. See proc(5).
//!
//! ```json
//! {"stat": "cpu  1 2 …", "time_ns": 3,
//!  "processes": [[pid, parent, user_ticks, system_ticks, waited_ticks, [[tid, run_ns], …], stopped], …],
//!  "ended": [[pid, …], …]}
//! ```
//!
//! `time_ns` is the machine's monotonic clock when `stat` was read. `run_ns` is exact
//! (`task/*/schedstat`); `waited_ticks` is what children used that were waited for; `stopped` says
//! whether a signal or a tracer has stopped it. Threads of the kernel are no processes here: what they
//! do shows in the cores alone. `ended` are programs that the agent started and that have ended, the
//! last [`ENDED_MAX`] of them, as they were then.

use std::collections::{BTreeSet, VecDeque};
use std::fs;
use std::path::Path;

use rustix::time::{clock_gettime, ClockId, Timespec};
use serde_json::{json, Value};

use crate::error::{AgentError, Step};

/// Parent of all threads of the kernel.
const KTHREADD: u64 = 2;
const FORGET_AFTER: u32 = 32;

/// Reads all processes, and remembers which are threads of the kernel: most are, and reading them
/// again and again would cost more than what is measured.
#[derive(Debug, Default)]
pub struct Reader {
    kernel: BTreeSet<u64>,
    readings: u32,
    ended: VecDeque<Value>,
}

/// Ended programs whose usage is kept.
pub const ENDED_MAX: usize = 256;

impl Reader {
    /// Read all processes.
    pub fn snapshot(&mut self) -> Result<Value, AgentError> {
        // A process id may come again, as that of a program.
        if self.readings.is_multiple_of(FORGET_AFTER) {
            self.kernel.clear();
        }
        self.readings = self.readings.wrapping_add(1);
        snapshot(&mut self.kernel, &self.ended)
    }

    /// Keep what a process has used that has ended and that nobody has waited for yet: then it is gone.
    pub fn keep(&mut self, pid: u64) {
        if let Some(reading) = read(&Path::new("/proc").join(pid.to_string())) {
            self.ended.truncate(ENDED_MAX - 1);
            self.ended.push_front(reading.row(pid));
        }
    }
}

fn snapshot(kernel: &mut BTreeSet<u64>, ended: &VecDeque<Value>) -> Result<Value, AgentError> {
    let fail = |error| AgentError::system::<std::io::Error>(Step::Cpu)(error);
    let stat = fs::read_to_string("/proc/stat").map_err(fail)?;
    let time_ns = nanoseconds(clock_gettime(ClockId::Monotonic));
    let mut processes = Vec::new();
    for entry in fs::read_dir("/proc").map_err(fail)?.flatten() {
        let pid = entry
            .file_name()
            .to_str()
            .and_then(|name| name.parse::<u64>().ok());
        let Some(pid) = pid.filter(|pid| !kernel.contains(pid)) else {
            continue;
        };
        // One that ends meanwhile is not there: that is no error.
        if let Some(reading) = read(&entry.path()) {
            if pid == KTHREADD || reading.parent == KTHREADD {
                kernel.insert(pid);
            } else {
                processes.push(reading.row(pid));
            }
        }
    }
    Ok(json!({ "stat": stat, "time_ns": time_ns, "processes": processes, "ended": ended }))
}

struct Reading {
    parent: u64,
    /// User, system, and both of children that were waited for.
    ticks: [u64; 3],
    /// Thread and what it ran, ns.
    threads: Vec<(u64, u64)>,
    stopped: bool,
}

impl Reading {
    fn row(&self, pid: u64) -> Value {
        let Self {
            parent,
            ticks: [user, system, waited],
            threads,
            stopped,
        } = self;
        json!([pid, parent, user, system, waited, threads, stopped])
    }
}

fn read(directory: &Path) -> Option<Reading> {
    let stat = fs::read(directory.join("stat")).ok()?;
    let (parent, ticks, stopped) = parse(&String::from_utf8_lossy(&stat))?;
    let mut threads = Vec::new();
    for task in fs::read_dir(directory.join("task")).ok()?.flatten() {
        let text = fs::read_to_string(task.path().join("schedstat")).unwrap_or_default();
        let run_ns = text.split_whitespace().next().and_then(|n| n.parse().ok());
        let tid = task.file_name().to_str().and_then(|name| name.parse().ok());
        threads.extend(tid.zip(run_ns));
    }
    Some(Reading {
        parent,
        ticks,
        threads,
        stopped,
    })
}

/// Parse the line of a process: parent, user and system ticks, both of children that it waited for,
/// and whether it is stopped; its name may hold anything.
fn parse(stat: &str) -> Option<(u64, [u64; 3], bool)> {
    let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
    let number = |index: usize| fields.get(index)?.parse::<u64>().ok();
    let waited = number(13)?.saturating_add(number(14)?);
    let stopped = matches!(*fields.first()?, "T" | "t");
    Some((number(1)?, [number(11)?, number(12)?, waited], stopped))
}

fn nanoseconds(time: Timespec) -> i64 {
    time.tv_sec * 1_000_000_000 + time.tv_nsec
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_brackets_and_blanks_is_passed_over() {
        let line = "42 (a) b (c) S 7 42 42 0 -1 0 0 0 0 0 123 45 6 1 20 0 1 0 99";
        assert_eq!(parse(line), Some((7, [123, 45, 7], false)));
        let stopped = line.replace(") S", ") T");
        assert_eq!(parse(&stopped), Some((7, [123, 45, 7], true)));
        assert_eq!(parse("42 (short) S 7"), None);
        assert_eq!(parse("nonsense"), None);
    }

    #[test]
    fn this_process_is_among_them_and_has_run() {
        let mut reader = Reader::default();
        reader.snapshot().unwrap();
        let snapshot = reader.snapshot().unwrap();
        assert!(snapshot["stat"].as_str().unwrap().starts_with("cpu "));
        let own = u64::from(std::process::id());
        let processes = snapshot["processes"].as_array().unwrap();
        let row = processes.iter().find(|row| row[0] == own).unwrap();
        assert_eq!(row[1], u64::from(std::os::unix::process::parent_id()));
        let threads = row[5].as_array().unwrap();
        assert!(threads.iter().any(|thread| thread[0] == own), "{row}");
        assert!(threads.iter().any(|thread| thread[1] != 0), "{row}");
        assert!(snapshot["time_ns"].as_i64().unwrap() > 0);
        assert!(processes
            .iter()
            .all(|row| row[0] != KTHREADD && row[1] != KTHREADD));
    }
}
