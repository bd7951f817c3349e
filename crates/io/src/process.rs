//! What a process asks of the kernel about itself: priority, processor, end.

use std::io::ErrorKind;
use std::os::fd::{FromRawFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;
use std::thread::{Builder, JoinHandle, Scope, ScopedJoinHandle};

use tm_wire::{Duration, Instant};

use crate::{clock, IoError};

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
        let has = priority.is_some_and(|priority| schedule(libc::SCHED_FIFO, priority));
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
        if busy.0 > (now - since).0 / 20 * 17 && schedule(libc::SCHED_OTHER, 0) {
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

fn schedule(policy: i32, priority: u8) -> bool {
    let param = libc::sched_param {
        sched_priority: i32::from(priority),
    };
    // SAFETY: `param` lives across the call; 0 is the calling thread.
    unsafe { libc::sched_setscheduler(0, policy, &raw const param) == 0 }
}

/// Lets the process open as many descriptors as it may: a thousand flows need two thousand.
pub fn all_descriptors() {
    // SAFETY: `limit` is written by the one call and read by the other. A refusal leaves it as it is,
    // and who finds no descriptor says so.
    unsafe {
        let mut limit: libc::rlimit = std::mem::zeroed();
        if libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) == 0 {
            limit.rlim_cur = limit.rlim_max;
            libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit);
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
    // The set of glibc ends at 1,024 processors, that of the kernel does not.
    let bits = usize::BITS as usize;
    let mut set = vec![0_usize; cpu / bits + 1];
    set[cpu / bits] = 1 << (cpu % bits);
    // SAFETY: the bytes of `set`; 0 is the calling thread.
    let result = unsafe { libc::sched_setaffinity(0, size_of_val(&set[..]), set.as_ptr().cast()) };
    if result == 0 {
        Ok(())
    } else {
        Err(IoError::last(what()))
    }
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

/// Timers of the calling thread fire when due, not up to 50 µs later; pages stay in memory where
/// that is allowed.
pub fn steady() {
    // SAFETY: both calls take plain integers.
    unsafe {
        libc::prctl(libc::PR_SET_TIMERSLACK, 1_u64);
        libc::mlockall(libc::MCL_CURRENT);
    }
}

/// A request to end: SIGTERM, SIGINT, or the death of the process that is watched.
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

    /// Listens for SIGTERM and SIGINT, and watches `parent` if there is one.
    pub fn listen(parent: Option<u32>) -> Result<Self, IoError> {
        let stop = Self::new();
        on_signal(libc::SIGTERM, &stop.requested)?;
        on_signal(libc::SIGINT, &stop.requested)?;
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

/// The signal that asks a subcommand for a report.
pub const SIGUSR1: i32 = libc::SIGUSR1;

/// The signal that begins schedules again.
pub const SIGUSR2: i32 = libc::SIGUSR2;

/// Sets `flag` whenever a signal comes.
pub fn on_signal(signal: i32, flag: &Arc<AtomicBool>) -> Result<(), IoError> {
    signal_hook::flag::register(signal, Arc::clone(flag))
        .map_err(|error| IoError::new(format!("signal {signal}"), error))?;
    Ok(())
}

fn watch(parent: u32, requested: Arc<AtomicBool>) -> Result<(), IoError> {
    // SAFETY: pidfd_open takes two integers and returns a descriptor or -1.
    let raw = unsafe { libc::syscall(libc::SYS_pidfd_open, parent, 0) };
    let Ok(raw) = i32::try_from(raw) else {
        return Err(IoError::last(format!("parent_pid is {parent}")));
    };
    if raw < 0 {
        return Err(IoError::last(format!(
            "parent_pid is {parent}, cannot watch it"
        )));
    }
    // SAFETY: the descriptor was just made and belongs to nobody else.
    let fd = unsafe { OwnedFd::from_raw_fd(raw) };
    spawn("parent", move || {
        use std::os::fd::AsRawFd;
        let mut poll = libc::pollfd {
            fd: fd.as_raw_fd(),
            events: libc::POLLIN,
            revents: 0,
        };
        while !requested.load(Ordering::Relaxed) {
            // SAFETY: one valid pollfd.
            let ready = unsafe { libc::poll(&raw mut poll, 1, 500) };
            if ready > 0 {
                requested.store(true, Ordering::Relaxed);
            }
        }
    })?;
    Ok(())
}

#[cfg(test)]
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
