//! What a process asks of the system about itself: little that all systems have.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;

use crate::IoError;

/// Real-time priority for the calling thread: not to be had.
pub fn become_realtime(_priority: u8) -> bool {
    false
}

/// The usual scheduling for the calling thread, which it always has.
pub fn give_realtime_back() -> bool {
    true
}

/// The program has the descriptors that it has.
pub fn all_descriptors() {}

/// Keeps the calling thread on one processor: not to be had.
pub fn pin(_cpu: usize) -> std::io::Result<()> {
    Err(std::io::ErrorKind::Unsupported.into())
}

/// The system's timers are as they are.
pub fn steady() {}

/// Sets `requested` on Ctrl-C, and on what else the system has programs end by.
pub fn on_end(requested: &Arc<AtomicBool>) -> Result<(), IoError> {
    let requested = Arc::clone(requested);
    ctrlc::set_handler(move || requested.store(true, Ordering::Relaxed))
        .map_err(|error| IoError::new("Ctrl-C", std::io::Error::other(error)))
}

/// Watching another process: not to be had.
pub fn watch(parent: u32, _requested: Arc<AtomicBool>) -> Result<(), IoError> {
    Err(IoError::needs_linux(format!("parent_pid is {parent}")))
}
