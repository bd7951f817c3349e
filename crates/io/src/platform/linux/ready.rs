//! Which of many sockets can be read (`epoll(7)`).

use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use tm_wire::Duration;

use super::Socket;
use crate::IoError;

/// Sockets by their places in a list; only those with packets are looked at.
pub struct Ready {
    epoll: OwnedFd,
    events: Vec<libc::epoll_event>,
    found: usize,
}

/// Sockets reported at one time; the others have their turn with the next call.
const MOST_AT_ONCE: usize = 256;

impl Ready {
    /// Watches the sockets, which must stay open.
    pub fn watch(sockets: &[Socket]) -> Result<Self, IoError> {
        // SAFETY: epoll_create1 takes a flag and returns a descriptor or -1.
        let raw = unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) };
        if raw < 0 {
            return Err(IoError::last("epoll"));
        }
        // SAFETY: the descriptor was just made and belongs to nobody else.
        let epoll = unsafe { OwnedFd::from_raw_fd(raw) };
        for (place, socket) in sockets.iter().enumerate() {
            let mut event = libc::epoll_event {
                events: libc::EPOLLIN as u32,
                u64: place as u64,
            };
            // SAFETY: both descriptors are open, and `event` lives across the call.
            let result =
                unsafe { libc::epoll_ctl(raw, libc::EPOLL_CTL_ADD, socket.fd(), &raw mut event) };
            if result < 0 {
                return Err(IoError::last(format!("epoll: socket {place}")));
            }
        }
        let most = sockets.len().clamp(1, MOST_AT_ONCE);
        Ok(Self {
            epoll,
            events: vec![libc::epoll_event { events: 0, u64: 0 }; most],
            found: 0,
        })
    }

    /// Waits until a socket can be read or the time, rounded up to a millisecond, has passed.
    pub fn wait(&mut self, timeout: Duration) {
        let ms = u64::try_from(timeout.0).unwrap_or(0).div_ceil(1_000_000);
        // SAFETY: `events` has room for as many as are said.
        let found = unsafe {
            libc::epoll_wait(
                self.epoll.as_raw_fd(),
                self.events.as_mut_ptr(),
                i32::try_from(self.events.len()).unwrap_or(i32::MAX),
                i32::try_from(ms).unwrap_or(i32::MAX),
            )
        };
        // A signal is no packet.
        self.found = usize::try_from(found).unwrap_or(0);
    }

    /// Places of the sockets that could be read when the wait ended.
    pub fn places(&self) -> impl Iterator<Item = usize> + '_ {
        let found = self.events[..self.found].iter();
        found.map(|event| usize::try_from(event.u64).unwrap_or(usize::MAX))
    }
}
