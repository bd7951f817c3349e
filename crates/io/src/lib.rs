//! Sockets, clocks, scheduling: what drives the state machines in real time.
//!
//! Linux has all of it; with the feature `portable` every other system has the sender and the reflector.
//! The only crate that reads a clock, opens a socket or holds unsafe code.

pub mod alarm;
pub mod clock;
#[cfg(not(feature = "portable"))]
pub mod emulator;
#[cfg(not(feature = "portable"))]
pub mod genl;
#[cfg(not(feature = "portable"))]
pub mod hwsim;
pub mod overruns;
#[cfg(not(feature = "portable"))]
pub mod packet;
mod platform;
pub mod process;
pub mod records;
pub mod reflect;
pub mod report;
#[cfg(not(feature = "portable"))]
pub mod rr;
#[cfg(not(feature = "portable"))]
mod rr_line;
#[cfg(not(feature = "portable"))]
pub mod rr_respond;
pub mod send;
pub mod udp;
#[cfg(not(feature = "portable"))]
pub mod wired;
#[cfg(not(feature = "portable"))]
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

    /// Something that only Linux has.
    #[cfg(feature = "portable")]
    pub(crate) fn needs_linux(what: impl Into<String>) -> Self {
        Self {
            what: what.into(),
            source: std::io::Error::new(std::io::ErrorKind::Unsupported, "needs Linux"),
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
