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

/// `SCHED_FIFO` for the calling thread, given back when it takes nearly all of its processor.
///
/// The kernel takes a real-time thread that never rests off its processor for 50 ms of every second
/// (`sched_rt_runtime_us`), which tears holes into a schedule: a thread without rest is better off
/// without the priority.
pub struct Priority {
    /// Its begin, and what the thread had used then; None: it never had the priority, or has given it
    /// back.
    window: Option<(Instant, Duration)>,
    had: bool,
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

const WINDOW: Duration = Duration::from_millis(200);

impl Priority {
    /// Takes it where there is one to take and that is allowed.
    #[must_use]
    pub fn take(priority: Option<u8>) -> Self {
        let has = priority.is_some_and(platform::process::become_realtime);
        let window = has.then(|| (clock::now(), clock::thread_time()));
        Self { window, had: has }
    }

    /// To be called now and then by a thread that is busy.
    pub fn check(&mut self) {
        let Some((since, used)) = self.window else {
            return;
        };
        let now = clock::now();
        if now - since < WINDOW {
            return;
        }
        let busy = clock::thread_time() - used;
        if busy.0 > (now - since).0 / 20 * 17 && platform::process::give_realtime_back() {
            self.window = None;
        } else {
            self.window = Some((now, clock::thread_time()));
        }
    }

    /// What became of it.
    #[must_use]
    pub fn fate(&self) -> Realtime {
        match (self.had, self.window) {
            (true, Some(_)) => Realtime::Kept,
            (true, None) => Realtime::Lost,
            (false, _) => Realtime::Never,
        }
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
}
