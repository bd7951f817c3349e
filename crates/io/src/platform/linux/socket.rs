//! UDP sockets, with the kernel's time of arrival and its count of overruns.

use std::mem::size_of;
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::{AsRawFd, RawFd};

use rustix::net::sockopt::set_socket_reuseport;
use rustix::net::{socket_with, AddressFamily, SocketFlags, SocketType};

use super::{control, netns};
use crate::udp::{Options, ReceiveTime};
use crate::IoError;

/// A bound socket.
pub struct Socket {
    inner: UdpSocket,
    overrun: u32,
    tells_drops: bool,
    /// The kernel did not refuse to cut runs so far.
    pub(super) cuts: bool,
}

impl Socket {
    /// Binds to `local`; connects to `peer` if there is one.
    pub fn open(
        local: SocketAddr,
        peer: Option<SocketAddr>,
        options: &Options,
    ) -> Result<Self, IoError> {
        let inner = netns::within(options.netns.as_deref(), || {
            let bound = if options.shared {
                bind_shared(local)
            } else {
                UdpSocket::bind(local)
            };
            bound.map_err(|error| IoError::new(format!("cannot bind to {local}"), error))
        })?;
        let fd = inner.as_raw_fd();
        let bytes = i32::try_from(options.buffer_bytes).unwrap_or(i32::MAX);
        for (force, plain) in [
            (libc::SO_RCVBUFFORCE, libc::SO_RCVBUF),
            (libc::SO_SNDBUFFORCE, libc::SO_SNDBUF),
        ] {
            if set(fd, libc::SOL_SOCKET, force, bytes).is_err() {
                set(fd, libc::SOL_SOCKET, plain, bytes)
                    .map_err(|error| IoError::new("cannot set the socket buffer", error))?;
            }
        }
        if options.receive_time == ReceiveTime::Kernel {
            // Without it all times are the program's, and marked as such.
            set_if_there_is(fd, control::TIMESTAMP, "SO_TIMESTAMPNS")?;
        }
        let tells_drops = set_if_there_is(fd, libc::SO_RXQ_OVFL, "SO_RXQ_OVFL")?;
        let (level, option, value) = fragmentation(local, options.dont_fragment);
        set(fd, level, option, value).map_err(|error| IoError::new("dont_fragment", error))?;
        if options.time_to_live {
            let (level, option) = match local {
                SocketAddr::V4(_) => (libc::IPPROTO_IP, libc::IP_RECVTTL),
                SocketAddr::V6(_) => (libc::IPPROTO_IPV6, libc::IPV6_RECVHOPLIMIT),
            };
            set(fd, level, option, 1).map_err(|error| IoError::new("time to live", error))?;
        }
        if options.traffic_class != 0 {
            let (level, option) = match local {
                SocketAddr::V4(_) => (libc::IPPROTO_IP, libc::IP_TOS),
                SocketAddr::V6(_) => (libc::IPPROTO_IPV6, libc::IPV6_TCLASS),
            };
            set(fd, level, option, i32::from(options.traffic_class))
                .map_err(|error| IoError::new("traffic class", error))?;
        }
        if let Some(name) = &options.interface {
            bind_to_interface(fd, name)?;
        }
        if let Some(peer) = peer {
            inner
                .connect(peer)
                .map_err(|error| IoError::new(format!("cannot connect to {peer}"), error))?;
        }
        inner
            .set_nonblocking(true)
            .map_err(|error| IoError::new("non-blocking socket", error))?;
        Ok(Self {
            inner,
            overrun: 0,
            tells_drops,
            cuts: true,
        })
    }

    /// Where it is bound.
    pub fn local(&self) -> Result<SocketAddr, IoError> {
        self.inner
            .local_addr()
            .map_err(|error| IoError::new("local address", error))
    }

    /// Another handle of the same socket, for a thread of its own.
    pub fn share(&self) -> Result<Self, IoError> {
        let inner = self
            .inner
            .try_clone()
            .map_err(|error| IoError::new("socket", error))?;
        Ok(Self {
            inner,
            overrun: 0,
            tells_drops: self.tells_drops,
            cuts: true,
        })
    }

    /// Packets that the kernel dropped at the full receive buffer so far.
    ///
    /// `SO_RXQ_OVFL` counts them in the next packet only, so the socket is asked too: what was
    /// dropped at the end has no next packet. None where the kernel tells nothing.
    #[must_use]
    pub fn overrun(&self) -> Option<u32> {
        match drops(self.inner.as_raw_fd()) {
            Some(dropped) => Some(self.overrun.max(dropped)),
            None => self.tells_drops.then_some(self.overrun),
        }
    }

    pub(super) fn fd(&self) -> RawFd {
        self.inner.as_raw_fd()
    }

    /// The kernel reported how many packets it has dropped so far.
    pub(super) fn note_overrun(&mut self, so_far: u32) {
        self.overrun = so_far;
    }

    /// Waits until there is room for a packet, for 100 ms at most.
    pub(crate) fn wait_writable(&self) {
        let mut poll = libc::pollfd {
            fd: self.inner.as_raw_fd(),
            events: libc::POLLOUT,
            revents: 0,
        };
        // SAFETY: one valid pollfd.
        unsafe { libc::poll(&raw mut poll, 1, 100) };
    }
}

fn bind_shared(local: SocketAddr) -> std::io::Result<UdpSocket> {
    let family = if local.is_ipv4() {
        AddressFamily::INET
    } else {
        AddressFamily::INET6
    };
    let socket = socket_with(family, SocketType::DGRAM, SocketFlags::CLOEXEC, None)?;
    set_socket_reuseport(&socket, true)?;
    rustix::net::bind(&socket, &local)?;
    Ok(UdpSocket::from(socket))
}

/// The option that has long packets refused or cut, with its level and value.
fn fragmentation(local: SocketAddr, refuse: bool) -> (i32, i32, i32) {
    match (local, refuse) {
        (SocketAddr::V4(_), true) => (
            libc::IPPROTO_IP,
            libc::IP_MTU_DISCOVER,
            libc::IP_PMTUDISC_DO,
        ),
        (SocketAddr::V4(_), false) => (
            libc::IPPROTO_IP,
            libc::IP_MTU_DISCOVER,
            libc::IP_PMTUDISC_DONT,
        ),
        (SocketAddr::V6(_), true) => (
            libc::IPPROTO_IPV6,
            libc::IPV6_MTU_DISCOVER,
            libc::IPV6_PMTUDISC_DO,
        ),
        (SocketAddr::V6(_), false) => (
            libc::IPPROTO_IPV6,
            libc::IPV6_MTU_DISCOVER,
            libc::IPV6_PMTUDISC_DONT,
        ),
    }
}

/// Packets that the kernel dropped at the socket so far; None where it does not tell.
fn drops(fd: RawFd) -> Option<u32> {
    let mut counts = [0_u32; MEMINFO_COUNTS];
    let mut length = libc::socklen_t::try_from(size_of_val(&counts)).ok()?;
    // SAFETY: the kernel writes at most `length` bytes into `counts`, and the length back.
    let result = unsafe {
        libc::getsockopt(
            fd,
            libc::SOL_SOCKET,
            libc::SO_MEMINFO,
            counts.as_mut_ptr().cast(),
            &raw mut length,
        )
    };
    let reported = result == 0 && length as usize == size_of_val(&counts);
    reported.then(|| counts[MEMINFO_DROPS])
}

/// `SK_MEMINFO_VARS` and `SK_MEMINFO_DROPS` of `linux/sock_diag.h`.
const MEMINFO_COUNTS: usize = 9;
const MEMINFO_DROPS: usize = 8;

fn set(fd: RawFd, level: i32, option: i32, value: i32) -> std::io::Result<()> {
    let length = libc::socklen_t::try_from(size_of::<i32>()).unwrap_or(0);
    // SAFETY: `value` is an int of the length given.
    let result = unsafe { libc::setsockopt(fd, level, option, (&raw const value).cast(), length) };
    if result == 0 {
        Ok(())
    } else {
        Err(std::io::Error::last_os_error())
    }
}

/// Switches an option on; whether the system has it. Old kernels lack some, and QEMU's user emulation.
fn set_if_there_is(fd: RawFd, option: i32, name: &str) -> Result<bool, IoError> {
    match set(fd, libc::SOL_SOCKET, option, 1) {
        Ok(()) => Ok(true),
        Err(error) if error.raw_os_error() == Some(libc::ENOPROTOOPT) => Ok(false),
        Err(error) => Err(IoError::new(name, error)),
    }
}

fn bind_to_interface(fd: RawFd, name: &str) -> Result<(), IoError> {
    let length = libc::socklen_t::try_from(name.len()).unwrap_or(0);
    // SAFETY: the name's bytes of the length given.
    let result = unsafe {
        libc::setsockopt(
            fd,
            libc::SOL_SOCKET,
            libc::SO_BINDTODEVICE,
            name.as_ptr().cast(),
            length,
        )
    };
    if result == 0 {
        Ok(())
    } else {
        Err(IoError::last(format!(
            "cannot bind to the interface {name}"
        )))
    }
}
