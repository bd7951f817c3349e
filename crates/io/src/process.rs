//! What a process asks of the kernel about itself: priority, processor, end.

use std::io::ErrorKind;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;
use std::thread::{Builder, JoinHandle, Scope, ScopedJoinHandle};

use tm_wire::{Duration, Instant};

use crate::platform::process::{on_end, watch};
use crate::{clock, platform, IoError};

#[cfg(not(feature = "portable"))]
pub use crate::platform::process::on_signal;
pub use crate::platform::process::{all_descriptors, steady};

/// `SCHED_FIFO` for the calling thread, given back while it takes nearly all of its processor.
///
/// The kernel takes a real-time thread that never rests off its processor for 50 ms of every second
/// (`sched_rt_runtime_us`), which tears holes into a schedule: a thread without rest is better off
/// without the priority. One that rests again takes it again: a link lives for many trials, and a
/// burst of work before the first of them must not make it late in all others.
pub struct Priority {
    /// None: it was not asked for, or not allowed.
    granted: Option<u8>,
    pace: Pace,
    lost: bool,
}

/// What became of the real-time priority of one or several threads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Realtime {
    /// They had it all the time.
    Kept,
    /// It was not asked for, or not allowed.
    Never,
    /// One had to give it back since it took nearly all of its processor.
    Lost,
}

impl Priority {
    /// Takes it where there is one to take and that is allowed.
    #[must_use]
    pub fn take(priority: Option<u8>) -> Self {
        Self {
            granted: priority.filter(|priority| platform::process::become_realtime(*priority)),
            pace: Pace::new(clock::now(), clock::thread_time()),
            lost: false,
        }
    }

    /// To be called now and then by a thread that is busy.
    pub fn check(&mut self) {
        let Some(priority) = self.granted else {
            return;
        };
        match self.pace.look(clock::now(), clock::thread_time) {
            Some(Change::GiveBack) => {
                platform::process::give_realtime_back();
                self.lost = true;
            }
            Some(Change::Take) => {
                platform::process::become_realtime(priority);
            }
            None => {}
        }
    }

    /// What became of it.
    #[must_use]
    pub fn fate(&self) -> Realtime {
        match (self.granted, self.lost) {
            (None, _) => Realtime::Never,
            (Some(_), false) => Realtime::Kept,
            (Some(_), true) => Realtime::Lost,
        }
    }
}

/// A thread's share of its processor is that of so long a time, or longer where it looks seldom. A
/// thread that is busy from any moment on has given back before the kernel's 950 ms are used up.
const WINDOW: Duration = Duration::from_millis(400);
/// Above this share of a window, in percent, it gives back.
const MOST: i64 = 85;
/// Below this one it takes again.
const REST: i64 = 50;

/// Whether a thread is one that rests, by what it used of its processor.
struct Pace {
    since: Instant,
    used: Duration,
    realtime: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Change {
    GiveBack,
    Take,
}

impl Pace {
    fn new(now: Instant, used: Duration) -> Self {
        Self {
            since: now,
            used,
            realtime: true,
        }
    }

    /// Judges a window when it is over; `used` says what the thread has used since it began.
    fn look(&mut self, now: Instant, used: impl FnOnce() -> Duration) -> Option<Change> {
        if now - self.since < WINDOW {
            return None;
        }
        let used = used();
        let percent = (used - self.used).0 * 100 / (now - self.since).0.max(1);
        (self.since, self.used) = (now, used);
        let change = match self.realtime {
            true if percent > MOST => Change::GiveBack,
            false if percent < REST => Change::Take,
            _ => return None,
        };
        self.realtime = change == Change::Take;
        Some(change)
    }
}

/// Largest number of a processor: more than any kernel is built for.
pub const LARGEST_CPU: usize = 65_535;

/// Keeps the calling thread on one processor.
pub fn pin(cpu: Option<usize>) -> Result<(), IoError> {
    let Some(cpu) = cpu else { return Ok(()) };
    let what = || format!("cpu is {cpu}, cannot pin a thread to it");
    if cpu > LARGEST_CPU {
        return Err(IoError::new(what(), ErrorKind::InvalidInput.into()));
    }
    platform::process::pin(cpu).map_err(|error| IoError::new(what(), error))
}

/// Starts a thread of a scope; where the system has none left that is an error and no panic.
pub fn spawn_scoped<'scope, T: Send + 'scope>(
    scope: &'scope Scope<'scope, '_>,
    name: &str,
    run: impl FnOnce() -> T + Send + 'scope,
) -> Result<ScopedJoinHandle<'scope, T>, IoError> {
    let thread = Builder::new().name(name.to_owned());
    thread
        .spawn_scoped(scope, run)
        .map_err(|error| IoError::new(format!("cannot start the thread {name}"), error))
}

/// Starts a thread, as [`spawn_scoped`].
pub fn spawn<T: Send + 'static>(
    name: &str,
    run: impl FnOnce() -> T + Send + 'static,
) -> Result<JoinHandle<T>, IoError> {
    let thread = Builder::new().name(name.to_owned());
    thread
        .spawn(run)
        .map_err(|error| IoError::new(format!("cannot start the thread {name}"), error))
}

/// A request to end: SIGTERM, SIGINT (Ctrl-C), or the death of the process that is watched.
#[derive(Clone, Default)]
pub struct Stop {
    requested: Arc<AtomicBool>,
}

impl Stop {
    /// One that comes by [`Stop::request`] alone.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Listens for SIGTERM and SIGINT, once in a program, and watches `parent` if there is one.
    pub fn listen(parent: Option<u32>) -> Result<Self, IoError> {
        let stop = Self::new();
        on_end(&stop.requested)?;
        if let Some(parent) = parent {
            watch(parent, Arc::clone(&stop.requested))?;
        }
        Ok(stop)
    }

    /// Whether the end was requested.
    #[must_use]
    pub fn requested(&self) -> bool {
        self.requested.load(Ordering::Relaxed)
    }

    /// Requests it.
    pub fn request(&self) {
        self.requested.store(true, Ordering::Relaxed);
    }
}

#[cfg(all(test, not(feature = "portable")))]
mod tests {
    use super::*;

    #[test]
    fn a_processor_that_is_not_there_is_an_error() {
        for cpu in [1_023, 1_024, 5_000, LARGEST_CPU, usize::MAX] {
            let error = pin(Some(cpu)).unwrap_err().to_string();
            assert!(
                error.starts_with(&format!("cpu is {cpu}, cannot")),
                "{error}"
            );
        }
        pin(Some(0)).unwrap();
    }

    const MS: i64 = 1_000_000;

    /// Runs a thread that uses `busy(ms)` percent of each millisecond; returns when it changed.
    fn changes(ms: i64, busy: impl Fn(i64) -> i64) -> Vec<(i64, Change)> {
        let (mut used, mut found) = (Duration(0), Vec::new());
        let mut pace = Pace::new(Instant(0), Duration(0));
        for at in 0..ms {
            used += Duration(busy(at) * MS / 100);
            let change = pace.look(Instant((at + 1) * MS), || used);
            found.extend(change.map(|change| (at + 1, change)));
        }
        found
    }

    #[test]
    fn a_thread_without_rest_gives_back_before_the_kernel_takes_it_off() {
        for begin in 0..1_000 {
            let found = changes(3_000, |at| i64::from(at >= begin) * 100);
            let [(at, Change::GiveBack)] = found[..] else {
                panic!("{found:?}");
            };
            // 950 ms of each second.
            assert!(at - begin < 950, "busy from {begin} to {at}");
        }
    }

    #[test]
    fn a_thread_that_rests_again_has_the_priority_again() {
        let found = changes(3_000, |at| if at < 1_000 { 100 } else { 30 });
        assert_eq!(found, [(400, Change::GiveBack), (1_600, Change::Take)]);
    }

    #[test]
    fn a_burst_and_a_busy_thread_that_rests_in_between_change_nothing() {
        assert_eq!(changes(3_000, |at| i64::from(at % 400 < 330) * 100), []);
        assert_eq!(changes(3_000, |_| 84), []);
    }
}
