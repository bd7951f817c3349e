//! What every process of the machine has used, read at one moment. See proc(5).
//!
//! ```json
//! {"stat": "cpu  1 2 …", "processes": [[pid, parent, run_ns, user_ticks, system_ticks], …]}
//! ```
//!
//! `run_ns` is exact (the sum of `task/*/schedstat`), the ticks are sampled by the kernel. Threads of
//! the kernel are left out.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use serde_json::{json, Value};

/// Parent of all threads of the kernel.
const KTHREADD: u64 = 2;
const FORGET_AFTER: u32 = 32;

/// Reads all processes, and remembers which are threads of the kernel: most are, and reading them
/// again and again would cost more than what is measured.
#[derive(Debug, Default)]
pub struct Reader {
    kernel: BTreeSet<u64>,
    readings: u32,
}

impl Reader {
    /// Read all processes.
    pub fn snapshot(&mut self) -> Result<Value, String> {
        // A process id may come again, as that of a program.
        if self.readings.is_multiple_of(FORGET_AFTER) {
            self.kernel.clear();
        }
        self.readings = self.readings.wrapping_add(1);
        snapshot(&mut self.kernel)
    }
}

fn snapshot(kernel: &mut BTreeSet<u64>) -> Result<Value, String> {
    let fail = |e: std::io::Error| format!("cpu: /proc: {e}");
    let stat = fs::read_to_string("/proc/stat").map_err(fail)?;
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
                let Reading {
                    parent,
                    run_ns,
                    user,
                    system,
                } = reading;
                processes.push(json!([pid, parent, run_ns, user, system]));
            }
        }
    }
    Ok(json!({ "stat": stat, "processes": processes }))
}

#[derive(Debug, PartialEq, Eq)]
struct Reading {
    parent: u64,
    run_ns: u64,
    user: u64,
    system: u64,
}

fn read(directory: &Path) -> Option<Reading> {
    let stat = fs::read(directory.join("stat")).ok()?;
    let (parent, user, system) = parse(&String::from_utf8_lossy(&stat))?;
    let mut run_ns = 0;
    for task in fs::read_dir(directory.join("task")).ok()?.flatten() {
        let text = fs::read_to_string(task.path().join("schedstat")).unwrap_or_default();
        run_ns += text
            .split_whitespace()
            .next()
            .and_then(|n| n.parse::<u64>().ok())
            .unwrap_or(0);
    }
    Some(Reading {
        parent,
        run_ns,
        user,
        system,
    })
}

/// Parse the line of a process: parent, user and system ticks; its name may hold anything.
fn parse(stat: &str) -> Option<(u64, u64, u64)> {
    let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
    let number = |index: usize| fields.get(index)?.parse().ok();
    Some((number(1)?, number(11)?, number(12)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_brackets_and_blanks_is_passed_over() {
        let line = "42 (a) b (c) S 7 42 42 0 -1 0 0 0 0 0 123 45 0 0 20 0 1 0 99";
        assert_eq!(parse(line), Some((7, 123, 45)));
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
        assert!(row[2].as_u64().unwrap() > 0, "{row}");
        assert!(processes
            .iter()
            .all(|row| row[0] != KTHREADD && row[1] != KTHREADD));
    }
}
