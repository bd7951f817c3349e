//! Sockets, clocks, scheduling: what drives the state machines in real time.
//!
//! The only crate that reads a clock, opens a socket or holds unsafe code.

pub mod alarm;
pub mod clock;
pub mod emulator;
pub mod genl;
pub mod hwsim;
pub mod netns;
pub mod overruns;
pub mod packet;
pub mod process;
pub mod records;
pub mod reflect;
pub mod rr;
mod rr_line;
pub mod rr_respond;
pub mod send;
pub mod udp;
pub mod wired;
pub mod wlan;

/// Something the operating system refused, with what was tried.
#[derive(Debug, thiserror::Error)]
#[error("{what}: {source}")]
pub struct IoError {
    /// What was tried, with the value.
    pub what: String,
    /// Why it failed.
    pub source: std::io::Error,
}

impl IoError {
    /// The last error of the calling thread.
    #[must_use]
    pub fn last(what: impl Into<String>) -> Self {
        Self {
            what: what.into(),
            source: std::io::Error::last_os_error(),
        }
    }

    /// Wraps an error.
    #[must_use]
    pub fn new(what: impl Into<String>, source: std::io::Error) -> Self {
        Self {
            what: what.into(),
            source,
        }
    }
}
