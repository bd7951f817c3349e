//! UDP sockets as every system has them.

use std::net::{SocketAddr, UdpSocket};

use socket2::SockRef;
use tm_wire::Duration;

use super::netns;
use crate::udp::Options;
use crate::{clock, IoError};

/// A bound socket.
pub struct Socket {
    pub(super) inner: UdpSocket,
}

impl Socket {
    /// Binds to `local`; connects to `peer` if there is one.
    ///
    /// Refuses options that only Linux has.
    pub fn open(
        local: SocketAddr,
        peer: Option<SocketAddr>,
        options: &Options,
    ) -> Result<Self, IoError> {
        if let Some(interface) = &options.interface {
            return Err(IoError::needs_linux(format!("interface is {interface}")));
        }
        for (asked, what) in [
            (options.dont_fragment, "dont_fragment is true"),
            (options.time_to_live, "stamp is not empty"),
            (options.shared, "shards is more than 1"),
            (options.traffic_class != 0, "traffic_class is not 0"),
        ] {
            if asked {
                return Err(IoError::needs_linux(what));
            }
        }
        let inner = netns::within(options.netns.as_deref(), || {
            UdpSocket::bind(local)
                .map_err(|error| IoError::new(format!("cannot bind to {local}"), error))
        })?;
        let socket = SockRef::from(&inner);
        // What the system refuses it keeps as it was, smaller: a full buffer shows as loss.
        let _ = socket.set_recv_buffer_size(options.buffer_bytes);
        let _ = socket.set_send_buffer_size(options.buffer_bytes);
        if let Some(peer) = peer {
            inner
                .connect(peer)
                .map_err(|error| IoError::new(format!("cannot connect to {peer}"), error))?;
        }
        inner
            .set_nonblocking(true)
            .map_err(|error| IoError::new("non-blocking socket", error))?;
        Ok(Self { inner })
    }

    /// Where it is bound.
    pub fn local(&self) -> Result<SocketAddr, IoError> {
        self.inner
            .local_addr()
            .map_err(|error| IoError::new("local address", error))
    }

    /// Another handle of the same socket, for a thread of its own.
    pub fn share(&self) -> Result<Self, IoError> {
        let inner = self.inner.try_clone();
        inner
            .map(|inner| Self { inner })
            .map_err(|error| IoError::new("socket", error))
    }

    /// Packets that were dropped at the full receive buffer: nobody tells.
    #[must_use]
    pub fn overrun(&self) -> Option<u32> {
        None
    }

    /// Waits for room for a packet: buffers of UDP empty themselves in less.
    #[allow(clippy::unused_self, reason = "as on Linux, which asks the socket")]
    pub(crate) fn wait_writable(&self) {
        clock::sleep_until(clock::now() + ROOM);
    }
}

const ROOM: Duration = Duration(200_000);
