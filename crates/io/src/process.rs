//! What a process asks of the kernel about itself: priority, processor, end.

use std::os::fd::{FromRawFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;

use tm_wire::Nanos;

use crate::{clock, IoError};

/// `SCHED_FIFO` for the calling thread, given back when it takes nearly all of its processor.
///
/// The kernel takes a real-time thread that never rests off its processor for 50 ms of every second
/// (`sched_rt_runtime_us`), which tears holes into a schedule: a thread without rest is better off
/// without the priority.
pub struct Priority {
    /// None: it never had the priority, or has given it back.
    window: Option<(Nanos, Nanos)>,
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

const WINDOW: Nanos = Nanos(200_000_000);

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

/// Keeps the calling thread on one processor.
pub fn pin(cpu: Option<usize>) -> Result<(), IoError> {
    let Some(cpu) = cpu else { return Ok(()) };
    // SAFETY: an all-zero cpu_set_t is an empty set; CPU_SET checks its bound.
    let result = unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(cpu, &mut set);
        libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &raw const set)
    };
    if result == 0 {
        Ok(())
    } else {
        Err(IoError::last(format!(
            "cpu is {cpu}, cannot pin a thread to it"
        )))
    }
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
#[derive(Clone)]
pub struct Stop {
    asked: Arc<AtomicBool>,
}

impl Stop {
    /// Listens for SIGTERM and SIGINT, and watches `parent` if there is one.
    pub fn listen(parent: Option<u32>) -> Result<Self, IoError> {
        let asked = Arc::new(AtomicBool::new(false));
        on_signal(libc::SIGTERM, &asked)?;
        on_signal(libc::SIGINT, &asked)?;
        if let Some(parent) = parent {
            watch(parent, Arc::clone(&asked))?;
        }
        Ok(Self { asked })
    }

    /// Whether the end was asked for.
    #[must_use]
    pub fn asked(&self) -> bool {
        self.asked.load(Ordering::Relaxed)
    }

    /// Asks for it.
    pub fn ask(&self) {
        self.asked.store(true, Ordering::Relaxed);
    }
}

/// The signal that asks a subcommand for a report.
pub const SIGUSR1: i32 = libc::SIGUSR1;

/// The signal that begins schedules anew.
pub const SIGUSR2: i32 = libc::SIGUSR2;

/// Sets `flag` whenever a signal comes.
pub fn on_signal(signal: i32, flag: &Arc<AtomicBool>) -> Result<(), IoError> {
    signal_hook::flag::register(signal, Arc::clone(flag))
        .map_err(|error| IoError::new(format!("signal {signal}"), error))?;
    Ok(())
}

fn watch(parent: u32, asked: Arc<AtomicBool>) -> Result<(), IoError> {
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
    std::thread::spawn(move || {
        use std::os::fd::AsRawFd;
        let mut poll = libc::pollfd {
            fd: fd.as_raw_fd(),
            events: libc::POLLIN,
            revents: 0,
        };
        while !asked.load(Ordering::Relaxed) {
            // SAFETY: one valid pollfd.
            let ready = unsafe { libc::poll(&raw mut poll, 1, 500) };
            if ready > 0 {
                asked.store(true, Ordering::Relaxed);
            }
        }
    });
    Ok(())
}
