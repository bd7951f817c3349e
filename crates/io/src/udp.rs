//! UDP sockets in batches, with the kernel's time of arrival and its count of overruns.

use std::mem::{size_of, zeroed};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::os::fd::{AsRawFd, RawFd};

use tm_wire::Nanos;

use crate::clock;
use crate::IoError;

/// Packets handed to the kernel, or taken from it, in one system call.
pub const BATCH: usize = 64;

/// How a socket is made.
#[derive(Clone, Debug)]
pub struct Options {
    /// Send and receive buffer asked for; beyond the system's limit where privileges allow.
    pub buffer_bytes: usize,
    /// Refuse to fragment; otherwise long packets are fragmented on the way out.
    pub dont_fragment: bool,
    /// Interface that all packets use.
    pub interface: Option<String>,
    /// Tell the time to live (or hop limit) with which packets arrive.
    pub time_to_live: bool,
    /// What an arrival is.
    pub receive_time: ReceiveTime,
}

/// When a packet has arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReceiveTime {
    /// When the kernel took it in (`SO_TIMESTAMPNS`). Behind a tunnel of the kernel that is when the
    /// outer packet came, before it was decapsulated.
    Kernel,
    /// When the program had it: what the kernel did with it before is in the delay.
    User,
}

/// A bound socket.
pub struct Socket {
    inner: UdpSocket,
    overrun: u32,
    /// The kernel has not refused to cut runs yet.
    cuts: bool,
}

impl Socket {
    /// Binds to `local`; connects to `peer` if there is one.
    pub fn open(
        local: SocketAddr,
        peer: Option<SocketAddr>,
        options: &Options,
    ) -> Result<Self, IoError> {
        let inner = UdpSocket::bind(local)
            .map_err(|error| IoError::new(format!("cannot bind to {local}"), error))?;
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
        let stamped = i32::from(options.receive_time == ReceiveTime::Kernel);
        for (option, name, value) in [
            (libc::SO_TIMESTAMPNS, "SO_TIMESTAMPNS", stamped),
            (libc::SO_RXQ_OVFL, "SO_RXQ_OVFL", 1),
        ] {
            set(fd, libc::SOL_SOCKET, option, value).map_err(|error| IoError::new(name, error))?;
        }
        let (level, option, value) = match (local, options.dont_fragment) {
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
        };
        set(fd, level, option, value).map_err(|error| IoError::new("dont_fragment", error))?;
        if options.time_to_live {
            let (level, option) = match local {
                SocketAddr::V4(_) => (libc::IPPROTO_IP, libc::IP_RECVTTL),
                SocketAddr::V6(_) => (libc::IPPROTO_IPV6, libc::IPV6_RECVHOPLIMIT),
            };
            set(fd, level, option, 1).map_err(|error| IoError::new("time to live", error))?;
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
            cuts: true,
        })
    }

    /// Packets that the kernel dropped at the full receive buffer so far.
    ///
    /// `SO_RXQ_OVFL` tells of them with the next packet only, so the socket is asked too: what was
    /// dropped at the end has no next packet.
    #[must_use]
    pub fn overrun(&self) -> u32 {
        self.overrun.max(drops(self.inner.as_raw_fd()).unwrap_or(0))
    }

    /// Waits until there is room for a packet, for 100 ms at most.
    pub fn wait_writable(&self) {
        let mut poll = libc::pollfd {
            fd: self.inner.as_raw_fd(),
            events: libc::POLLOUT,
            revents: 0,
        };
        // SAFETY: one valid pollfd.
        unsafe { libc::poll(&raw mut poll, 1, 100) };
    }
}

/// How an attempt to send several packets ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sending {
    /// All were taken.
    Done,
    /// The next one was refused.
    Refused,
    /// There is no room for the next one now.
    Full,
}

/// Waits until a socket can be read or the time has passed.
pub fn wait_readable(sockets: &[Socket], timeout: Nanos) {
    let mut polls: Vec<libc::pollfd> = sockets
        .iter()
        .map(|s| libc::pollfd {
            fd: s.inner.as_raw_fd(),
            events: libc::POLLIN,
            revents: 0,
        })
        .collect();
    let ns = timeout.0.max(0);
    let time = libc::timespec {
        tv_sec: ns / 1_000_000_000,
        tv_nsec: ns % 1_000_000_000,
    };
    let count = polls.len() as libc::nfds_t;
    // SAFETY: `polls` holds `count` entries; `time` lives across the call; no signal mask.
    unsafe { libc::ppoll(polls.as_mut_ptr(), count, &raw const time, std::ptr::null()) };
}

/// Space for a batch of packets of at most `slot_bytes` each.
pub struct Batch {
    slot_bytes: usize,
    bytes: Vec<u8>,
    lengths: [usize; BATCH],
    names: [libc::sockaddr_storage; BATCH],
    name_lengths: [libc::socklen_t; BATCH],
    controls: Box<[[u64; CONTROL_WORDS]; BATCH]>,
    arrivals: [Option<Nanos>; BATCH],
    hops: [Option<u8>; BATCH],
    taken: Nanos,
    offset: Nanos,
}

/// Room for a timestamp, an overrun count and a time to live, aligned as control messages are.
const CONTROL_WORDS: usize = 16;

impl Batch {
    /// Makes room once; nothing is allocated per packet.
    #[must_use]
    pub fn new(slot_bytes: usize) -> Self {
        // SAFETY: sockaddr_storage is plain old data, all zero is a valid value.
        let names = unsafe { zeroed() };
        Self {
            slot_bytes,
            bytes: vec![0; slot_bytes * BATCH],
            lengths: [0; BATCH],
            names,
            name_lengths: [0; BATCH],
            controls: Box::new([[0; CONTROL_WORDS]; BATCH]),
            arrivals: [None; BATCH],
            hops: [None; BATCH],
            taken: Nanos(0),
            offset: Nanos(0),
        }
    }

    /// Packet `index`, to be filled or read.
    pub fn packet(&mut self, index: usize) -> &mut [u8] {
        let start = index * self.slot_bytes;
        &mut self.bytes[start..start + self.lengths[index]]
    }

    /// Sets the length of packet `index`, at most the slot's.
    pub fn set_length(&mut self, index: usize, bytes: usize) {
        self.lengths[index] = bytes.min(self.slot_bytes);
    }

    /// When packet `index` arrived by the kernel's time, on `CLOCK_MONOTONIC`; None without one.
    #[must_use]
    pub fn arrival(&self, index: usize) -> Option<Nanos> {
        self.arrivals[index]
    }

    /// When the program had the packets.
    #[must_use]
    pub fn taken(&self) -> Nanos {
        self.taken
    }

    /// Time to live (or hop limit) with which packet `index` arrived, where it was asked for.
    #[must_use]
    pub fn time_to_live(&self, index: usize) -> Option<u8> {
        self.hops[index]
    }

    /// Where packet `index` came from.
    #[must_use]
    pub fn source(&self, index: usize) -> Option<SocketAddr> {
        address(&self.names[index])
    }

    /// `CLOCK_REALTIME` minus `CLOCK_MONOTONIC` as it was when the batch was received.
    #[must_use]
    pub fn realtime_offset(&self) -> Nanos {
        self.offset
    }

    /// Sends packets `from..to`; answers go to where each packet came from with `reply`.
    ///
    /// Returns how many were taken, and what became of the one behind them.
    pub fn send(
        &mut self,
        socket: &Socket,
        from: usize,
        to: usize,
        reply: bool,
    ) -> (usize, Sending) {
        // SAFETY: all-zero is a valid value of these plain structures.
        let (mut vectors, mut headers): ([libc::iovec; BATCH], [libc::mmsghdr; BATCH]) =
            unsafe { (zeroed(), zeroed()) };
        for (place, index) in (from..to).enumerate() {
            vectors[place] = self.vector(index);
            let header = &mut headers[place].msg_hdr;
            header.msg_iov = &raw mut vectors[place];
            header.msg_iovlen = 1;
            if reply {
                header.msg_name = (&raw mut self.names[index]).cast();
                header.msg_namelen = self.name_lengths[index];
            }
        }
        transmit(socket, &mut headers[..to - from])
    }

    /// Sends packets `from..to` to the socket's peer, runs of one length as one packet that the
    /// kernel cuts (`UDP_SEGMENT`); what it refuses whole goes singly from then on.
    ///
    /// Returns as [`Batch::send`].
    pub fn send_runs(&mut self, socket: &mut Socket, from: usize, to: usize) -> (usize, Sending) {
        let mut done = from;
        while done < to && socket.cuts {
            let (sent, end) = self.send_cut(socket, done, to);
            done += sent;
            if end == Sending::Full {
                return (done - from, end);
            }
            socket.cuts = end != Sending::Refused;
        }
        let (sent, end) = self.send(socket, done, to, false);
        (done + sent - from, end)
    }

    fn send_cut(&mut self, socket: &Socket, from: usize, to: usize) -> (usize, Sending) {
        // SAFETY: all-zero is a valid value of these plain structures.
        let (mut vectors, mut headers): ([libc::iovec; BATCH], [libc::mmsghdr; BATCH]) =
            unsafe { (zeroed(), zeroed()) };
        let mut controls = [[0_u64; CUT_WORDS]; BATCH];
        for (place, index) in (from..to).enumerate() {
            vectors[place] = self.vector(index);
        }
        let mut runs = 0;
        let mut ends = [0; BATCH];
        let mut at = from;
        while at < to {
            let bytes = self.lengths[at];
            let most = (LONGEST_RUN_BYTES / bytes.max(1)).clamp(1, to - at);
            let count = self.lengths[at..at + most]
                .iter()
                .take_while(|length| **length == bytes)
                .count();
            let header = &mut headers[runs].msg_hdr;
            header.msg_iov = &raw mut vectors[at - from];
            header.msg_iovlen = count;
            if count > 1 {
                let bytes = u16::try_from(bytes).unwrap_or(u16::MAX);
                cut_into(header, &mut controls[runs], bytes);
            }
            at += count;
            ends[runs] = at;
            runs += 1;
        }
        let (sent, end) = transmit(socket, &mut headers[..runs]);
        let taken = sent.checked_sub(1).map_or(0, |last| ends[last] - from);
        (taken, end)
    }

    fn vector(&mut self, index: usize) -> libc::iovec {
        let start = index * self.slot_bytes;
        libc::iovec {
            iov_base: self.bytes[start..].as_mut_ptr().cast(),
            iov_len: self.lengths[index],
        }
    }

    /// Takes what is there, at most a batch; returns how many packets.
    pub fn receive(&mut self, socket: &mut Socket) -> usize {
        // SAFETY: all-zero is a valid value of these plain structures.
        let (mut vectors, mut headers): ([libc::iovec; BATCH], [libc::mmsghdr; BATCH]) =
            unsafe { (zeroed(), zeroed()) };
        for index in 0..BATCH {
            let start = index * self.slot_bytes;
            vectors[index].iov_base = self.bytes[start..].as_mut_ptr().cast();
            vectors[index].iov_len = self.slot_bytes;
            let header = &mut headers[index].msg_hdr;
            header.msg_iov = &raw mut vectors[index];
            header.msg_iovlen = 1;
            header.msg_name = (&raw mut self.names[index]).cast();
            header.msg_namelen =
                libc::socklen_t::try_from(size_of::<libc::sockaddr_storage>()).unwrap_or(0);
            header.msg_control = self.controls[index].as_mut_ptr().cast();
            header.msg_controllen = CONTROL_WORDS * size_of::<u64>();
        }
        // SAFETY: BATCH headers, filled in above, pointing into self and `vectors`.
        let count = unsafe {
            libc::recvmmsg(
                socket.inner.as_raw_fd(),
                headers.as_mut_ptr(),
                u32::try_from(BATCH).unwrap_or(0),
                libc::MSG_DONTWAIT,
                std::ptr::null_mut(),
            )
        };
        let Ok(count) = usize::try_from(count) else {
            return 0;
        };
        if count == 0 {
            return 0;
        }
        self.taken = clock::now();
        let offset = clock::realtime_offset();
        for (index, header) in headers.iter().enumerate().take(count) {
            let truncated = header.msg_hdr.msg_flags & libc::MSG_TRUNC != 0;
            // A packet longer than the slot is none of ours: length 0 is rejected by the parser.
            self.lengths[index] = if truncated {
                0
            } else {
                header.msg_len as usize
            };
            self.name_lengths[index] = header.msg_hdr.msg_namelen;
            let told = control(&header.msg_hdr);
            self.arrivals[index] = told.time.map(|real| real - offset);
            self.hops[index] = told.time_to_live;
            if let Some(overrun) = told.overrun {
                socket.overrun = overrun;
            }
        }
        self.offset = offset;
        count
    }
}

/// Room for the length at which the kernel cuts.
const CUT_WORDS: usize = 3;
/// A run is one IP packet until it is cut.
const LONGEST_RUN_BYTES: usize = 65_000;

/// Has the kernel cut a message into packets of `bytes`.
fn cut_into(header: &mut libc::msghdr, control: &mut [u64; CUT_WORDS], bytes: u16) {
    let wanted = u32::try_from(size_of::<u16>()).unwrap_or(0);
    // SAFETY: `control` has room for one message of two bytes, aligned as control messages are, and
    // the caller keeps it in place until the message has been sent.
    unsafe {
        header.msg_control = control.as_mut_ptr().cast();
        header.msg_controllen = libc::CMSG_SPACE(wanted) as usize;
        let message = libc::CMSG_FIRSTHDR(header);
        (*message).cmsg_level = libc::SOL_UDP;
        (*message).cmsg_type = libc::UDP_SEGMENT;
        (*message).cmsg_len = libc::CMSG_LEN(wanted) as usize;
        std::ptr::write_unaligned(libc::CMSG_DATA(message).cast::<u16>(), bytes);
    }
}

/// Hands messages to the kernel; how many it took, and what became of the next.
fn transmit(socket: &Socket, headers: &mut [libc::mmsghdr]) -> (usize, Sending) {
    let mut done = 0;
    while done < headers.len() {
        let count = u32::try_from(headers.len() - done).unwrap_or(0);
        // SAFETY: the callers filled these headers in, and what they point to outlives the call.
        let sent = unsafe {
            libc::sendmmsg(
                socket.inner.as_raw_fd(),
                headers[done..].as_mut_ptr(),
                count,
                0,
            )
        };
        if let Ok(sent) = usize::try_from(sent) {
            done += sent;
            continue;
        }
        let error = std::io::Error::last_os_error();
        match error.raw_os_error() {
            // ECONNREFUSED is the answer of a closed port to an earlier packet; this one has
            // not been tried yet.
            Some(libc::EINTR | libc::ECONNREFUSED) => {}
            Some(libc::EAGAIN) => return (done, Sending::Full),
            _ => return (done, Sending::Refused),
        }
    }
    (done, Sending::Done)
}

/// What the kernel says beside a packet.
#[derive(Default)]
struct Told {
    /// On `CLOCK_REALTIME`.
    time: Option<Nanos>,
    overrun: Option<u32>,
    time_to_live: Option<u8>,
}

fn control(header: &libc::msghdr) -> Told {
    let mut told = Told::default();
    // SAFETY: the kernel filled msg_control up to msg_controllen; the CMSG macros stay inside, and
    // the data of each kind is read unaligned, in the size that the kernel writes.
    unsafe {
        let mut message = libc::CMSG_FIRSTHDR(header);
        while !message.is_null() {
            let data = libc::CMSG_DATA(message);
            match ((*message).cmsg_level, (*message).cmsg_type) {
                (libc::SOL_SOCKET, libc::SO_TIMESTAMPNS) => {
                    let at: libc::timespec = std::ptr::read_unaligned(data.cast());
                    told.time = Some(Nanos(at.tv_sec * 1_000_000_000 + at.tv_nsec));
                }
                (libc::SOL_SOCKET, libc::SO_RXQ_OVFL) => {
                    told.overrun = Some(std::ptr::read_unaligned(data.cast::<u32>()));
                }
                (libc::IPPROTO_IP, libc::IP_TTL) | (libc::IPPROTO_IPV6, libc::IPV6_HOPLIMIT) => {
                    let value = std::ptr::read_unaligned(data.cast::<i32>());
                    told.time_to_live = u8::try_from(value).ok();
                }
                _ => {}
            }
            message = libc::CMSG_NXTHDR(header, message);
        }
    }
    told
}

fn address(name: &libc::sockaddr_storage) -> Option<SocketAddr> {
    let start = std::ptr::from_ref(name);
    match i32::from(name.ss_family) {
        libc::AF_INET => {
            // SAFETY: the family says which structure the kernel wrote into the storage, which is
            // large enough and aligned for each of them.
            let v4 = unsafe { *start.cast::<libc::sockaddr_in>() };
            let ip = Ipv4Addr::from(u32::from_be(v4.sin_addr.s_addr));
            Some(SocketAddr::from((ip, u16::from_be(v4.sin_port))))
        }
        libc::AF_INET6 => {
            // SAFETY: as above.
            let v6 = unsafe { *start.cast::<libc::sockaddr_in6>() };
            let ip = Ipv6Addr::from(v6.sin6_addr.s6_addr);
            Some(SocketAddr::from((ip, u16::from_be(v6.sin6_port))))
        }
        _ => None,
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
    let told = result == 0 && length as usize == size_of_val(&counts);
    told.then(|| counts[MEMINFO_DROPS])
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

#[cfg(test)]
mod tests {
    use super::*;

    fn options(buffer_bytes: usize, receive_time: ReceiveTime) -> Options {
        Options {
            buffer_bytes,
            dont_fragment: false,
            interface: None,
            time_to_live: false,
            receive_time,
        }
    }

    fn pair(receive_time: ReceiveTime) -> (Socket, Socket) {
        let any = SocketAddr::from(([127, 0, 0, 1], 0));
        let options = options(4096, receive_time);
        let receiver = Socket::open(any, None, &options).unwrap();
        let sender = Socket::open(any, Some(receiver.local().unwrap()), &options).unwrap();
        (sender, receiver)
    }

    #[test]
    fn drops_behind_the_last_packet_that_is_read_are_seen() {
        let (sender, receiver) = pair(ReceiveTime::Kernel);
        let mut batch = Batch::new(1000);
        for place in 0..BATCH {
            batch.set_length(place, 1000);
        }
        for _ in 0..4 {
            assert_eq!(batch.send(&sender, 0, BATCH, false), (BATCH, Sending::Done));
        }
        // Nothing was read, so no packet brought its count along.
        assert!(receiver.overrun() > 0);
        assert_eq!(sender.overrun(), 0);
    }

    #[test]
    fn an_arrival_has_the_kernels_time_only_where_that_was_asked_for() {
        for (receive_time, stamped) in [(ReceiveTime::Kernel, true), (ReceiveTime::User, false)] {
            let (sender, mut receiver) = pair(receive_time);
            let mut batch = Batch::new(100);
            batch.set_length(0, 100);
            let before = clock::now();
            batch.send(&sender, 0, 1, false);
            while batch.receive(&mut receiver) == 0 {}
            let after = clock::now();
            assert_eq!(batch.arrival(0).is_some(), stamped);
            assert!((before..=after).contains(&batch.taken()));
        }
    }
}
