//! What a process asks of the kernel about itself.

use std::io::ErrorKind;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;

use rustix::event::{poll, PollFd, PollFlags};
use rustix::process::{pidfd_open, Pid, PidfdFlags};
use signal_hook::consts::{SIGINT, SIGTERM};

use super::clock::timespec;
use crate::process::spawn;
use crate::IoError;

/// `SCHED_FIFO` for the calling thread; whether it has it.
pub fn become_realtime(priority: u8) -> bool {
    schedule(libc::SCHED_FIFO, priority)
}

/// The usual scheduling for the calling thread; whether it has it.
pub fn give_realtime_back() -> bool {
    schedule(libc::SCHED_OTHER, 0)
}

fn schedule(policy: i32, priority: u8) -> bool {
    // SAFETY: all-zero is a valid sched_param, of which libc's have different fields; it lives across
    // the call, and 0 is the calling thread.
    unsafe {
        let mut param: libc::sched_param = std::mem::zeroed();
        param.sched_priority = i32::from(priority);
        libc::sched_setscheduler(0, policy, &raw const param) == 0
    }
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

/// Keeps the calling thread on one processor.
pub fn pin(cpu: usize) -> std::io::Result<()> {
    // The set of glibc ends at 1,024 processors, that of the kernel does not.
    let bits = usize::BITS as usize;
    let mut set = vec![0_usize; cpu / bits + 1];
    set[cpu / bits] = 1 << (cpu % bits);
    // SAFETY: the bytes of `set`; 0 is the calling thread.
    let result = unsafe { libc::sched_setaffinity(0, size_of_val(&set[..]), set.as_ptr().cast()) };
    if result == 0 {
        Ok(())
    } else {
        Err(std::io::Error::last_os_error())
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

/// Sets `requested` on SIGTERM and SIGINT.
pub fn on_end(requested: &Arc<AtomicBool>) -> Result<(), IoError> {
    on_signal(SIGTERM, requested)?;
    on_signal(SIGINT, requested)
}

/// Sets `flag` whenever a signal comes.
pub fn on_signal(signal: i32, flag: &Arc<AtomicBool>) -> Result<(), IoError> {
    signal_hook::flag::register(signal, Arc::clone(flag))
        .map_err(|error| IoError::new(format!("signal {signal}"), error))?;
    Ok(())
}

/// Sets `requested` when the process `parent` has ended.
pub fn watch(parent: u32, requested: Arc<AtomicBool>) -> Result<(), IoError> {
    let place = || format!("parent_pid is {parent}, cannot watch it");
    let pid = i32::try_from(parent).ok().and_then(Pid::from_raw);
    let pid = pid.ok_or_else(|| IoError::new(place(), ErrorKind::InvalidInput.into()))?;
    let watched = pidfd_open(pid, PidfdFlags::empty())
        .map_err(|error| IoError::new(place(), error.into()))?;
    spawn("parent", move || {
        while !requested.load(Ordering::Relaxed) {
            let mut ended = [PollFd::new(&watched, PollFlags::IN)];
            if poll(&mut ended, Some(&timespec(500_000_000))).is_ok_and(|ready| ready > 0) {
                requested.store(true, Ordering::Relaxed);
            }
        }
    })?;
    Ok(())
}
