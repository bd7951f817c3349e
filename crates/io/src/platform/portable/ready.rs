//! Which of many sockets can be read (`kqueue`, I/O completion ports, what the system has).

use std::net::UdpSocket;

use polling::{Event, Events, PollMode, Poller};
use tm_wire::Duration;

use super::Socket;
use crate::IoError;

/// Sockets by their places in a list; only those with packets are looked at.
pub struct Ready {
    poller: Poller,
    events: Events,
    /// Handles of their own, so that each is there until it is no longer watched.
    watched: Vec<UdpSocket>,
}

impl Ready {
    /// Watches the sockets.
    pub fn watch(sockets: &[Socket]) -> Result<Self, IoError> {
        let failed = |error| IoError::new("watching sockets", error);
        let poller = Poller::new().map_err(failed)?;
        let mut ready = Self {
            poller,
            events: Events::new(),
            watched: Vec::new(),
        };
        for (place, socket) in sockets.iter().enumerate() {
            let socket = socket.inner.try_clone().map_err(failed)?;
            // SAFETY: the handle is held until it has been taken out again (`drop`).
            unsafe {
                ready
                    .poller
                    .add_with_mode(&socket, Event::readable(place), PollMode::Level)
            }
            .map_err(failed)?;
            ready.watched.push(socket);
        }
        Ok(ready)
    }

    /// Waits until a socket can be read or the time has passed.
    pub fn wait(&mut self, timeout: Duration) {
        let timeout = std::time::Duration::from_nanos(u64::try_from(timeout.0).unwrap_or(0));
        self.events.clear();
        // Interrupted: a signal is no packet.
        let _ = self.poller.wait(&mut self.events, Some(timeout));
    }

    /// Places of the sockets that could be read when the wait ended.
    pub fn places(&self) -> impl Iterator<Item = usize> + '_ {
        self.events.iter().map(|event| event.key)
    }
}

impl Drop for Ready {
    fn drop(&mut self) {
        for socket in &self.watched {
            let _ = self.poller.delete(socket);
        }
    }
}
