//! Packets in batches, each in one system call (`recvmmsg`, `sendmmsg`).

use std::mem::{size_of, zeroed};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};

use tm_probe::port::{Sending, BATCH};

use super::control::{ancillary, cut_into, CONTROL_WORDS, CUT_WORDS};
use super::Socket;
use crate::udp::{Arrived, Slots};

/// The system calls of a batch.
pub struct Transfer {
    /// The headers of the next receiving call, which point into this and into the slots.
    incoming: Box<Headers>,
    /// Packets of the last receiving call: their headers must be made ready again.
    used: usize,
    /// The headers of sending calls: to clear all of them for each packet of one flow among many took
    /// longer than to fill in one.
    outgoing: Box<Call>,
}

/// What `recvmmsg` fills in. It stands on the heap, so that a batch may be moved.
struct Headers {
    messages: [libc::mmsghdr; BATCH],
    vectors: [libc::iovec; BATCH],
    names: [libc::sockaddr_storage; BATCH],
    controls: [[u64; CONTROL_WORDS]; BATCH],
}

impl Transfer {
    /// For places of so many bytes.
    pub fn new(_slot_bytes: usize) -> Self {
        Self {
            // SAFETY: all-zero is a valid value of these plain structures.
            incoming: Box::new(unsafe { zeroed() }),
            used: BATCH,
            outgoing: Box::new(Call::new()),
        }
    }

    /// Takes what is there, at most a batch; returns how many packets.
    pub fn receive(&mut self, socket: &mut Socket, slots: &mut Slots) -> usize {
        self.prepare(slots);
        // SAFETY: BATCH headers, made ready above, pointing into memory of self and of the slots.
        let count = unsafe {
            libc::recvmmsg(
                socket.fd(),
                self.incoming.messages.as_mut_ptr(),
                u32::try_from(BATCH).unwrap_or(0),
                libc::MSG_DONTWAIT as _,
                std::ptr::null_mut(),
            )
        };
        let count = usize::try_from(count).unwrap_or(0);
        self.used = count;
        for (place, message) in self.incoming.messages.iter().enumerate().take(count) {
            let truncated = message.msg_hdr.msg_flags & libc::MSG_TRUNC != 0;
            slots.lengths[place] = if truncated {
                0
            } else {
                message.msg_len as usize
            };
        }
        count
    }

    /// What the kernel said of a packet of the last receiving call.
    pub fn arrived(&self, place: usize, socket: &mut Socket) -> Arrived {
        let reported = ancillary(&self.incoming.messages[place].msg_hdr);
        if let Some(overrun) = reported.overrun {
            socket.note_overrun(overrun);
        }
        Arrived {
            time: reported.time,
            source: address(&self.incoming.names[place]),
            time_to_live: reported.time_to_live,
        }
    }

    /// Makes the headers ready that the last call used.
    fn prepare(&mut self, slots: &mut Slots) {
        let headers = &mut *self.incoming;
        for place in 0..std::mem::take(&mut self.used) {
            let room = slots.place(place);
            headers.vectors[place].iov_base = room.as_mut_ptr().cast();
            headers.vectors[place].iov_len = room.len();
            let header = &mut headers.messages[place].msg_hdr;
            header.msg_iov = &raw mut headers.vectors[place];
            header.msg_iovlen = 1;
            header.msg_name = (&raw mut headers.names[place]).cast();
            header.msg_namelen =
                libc::socklen_t::try_from(size_of::<libc::sockaddr_storage>()).unwrap_or(0);
            header.msg_control = headers.controls[place].as_mut_ptr().cast();
            header.msg_controllen = (CONTROL_WORDS * size_of::<u64>()) as _;
        }
    }

    /// Sends packets `from..to`; with `reply` each to where the packet in its place came from.
    pub fn send(
        &mut self,
        socket: &Socket,
        slots: &mut Slots,
        from: usize,
        to: usize,
        reply: bool,
    ) -> (usize, Sending) {
        let call = &mut *self.outgoing;
        for place in from..to {
            call.vectors[place - from] = vector(slots, place);
            let header = call.message(place - from, place - from, 1);
            if reply {
                header.msg_name = (&raw mut self.incoming.names[place]).cast();
                header.msg_namelen = self.incoming.messages[place].msg_hdr.msg_namelen;
            }
        }
        transmit(socket, &mut call.messages[..to - from])
    }

    /// Sends packets `from..to` to the socket's peer, runs of one length as one packet that the
    /// kernel cuts (`UDP_SEGMENT`); what it refuses whole goes singly from then on.
    pub fn send_runs(
        &mut self,
        socket: &mut Socket,
        slots: &mut Slots,
        from: usize,
        to: usize,
    ) -> (usize, Sending) {
        let mut done = from;
        while done < to && socket.cuts {
            let (sent, end) = send_cut(&mut self.outgoing, socket, slots, done, to);
            done += sent;
            if end == Sending::Full {
                return (done - from, end);
            }
            socket.cuts = end != Sending::Refused;
        }
        let (sent, end) = self.send(socket, slots, done, to, false);
        (done + sent - from, end)
    }
}

fn send_cut(
    call: &mut Call,
    socket: &Socket,
    slots: &mut Slots,
    from: usize,
    to: usize,
) -> (usize, Sending) {
    let mut controls = [[0_u64; CUT_WORDS]; BATCH];
    for place in from..to {
        call.vectors[place - from] = vector(slots, place);
    }
    let mut runs = 0;
    let mut ends = [0; BATCH];
    let mut at = from;
    while at < to {
        let bytes = slots.lengths[at];
        let most = (LONGEST_RUN_BYTES / bytes.max(1)).clamp(1, to - at);
        let count = slots.lengths[at..at + most]
            .iter()
            .take_while(|length| **length == bytes)
            .count();
        let header = call.message(runs, at - from, count);
        if count > 1 {
            let bytes = u16::try_from(bytes).unwrap_or(u16::MAX);
            cut_into(header, &mut controls[runs], bytes);
        }
        at += count;
        ends[runs] = at;
        runs += 1;
    }
    let (sent, end) = transmit(socket, &mut call.messages[..runs]);
    let taken = sent.checked_sub(1).map_or(0, |last| ends[last] - from);
    (taken, end)
}

fn vector(slots: &mut Slots, place: usize) -> libc::iovec {
    let packet = slots.packet(place);
    libc::iovec {
        iov_base: packet.as_mut_ptr().cast(),
        iov_len: packet.len(),
    }
}

/// The headers of a sending call.
struct Call {
    messages: [libc::mmsghdr; BATCH],
    vectors: [libc::iovec; BATCH],
}

impl Call {
    fn new() -> Self {
        // SAFETY: all-zero is a valid value of these plain structures.
        unsafe { zeroed() }
    }

    /// Message `place` of the call, of nothing but `count` parts from `vector` on.
    fn message(&mut self, place: usize, vector: usize, count: usize) -> &mut libc::msghdr {
        let header = &mut self.messages[place].msg_hdr;
        // SAFETY: as above.
        *header = unsafe { zeroed() };
        header.msg_iov = &raw mut self.vectors[vector];
        header.msg_iovlen = count as _;
        header
    }
}

/// A run is one IP packet until it is cut.
const LONGEST_RUN_BYTES: usize = 65_000;

/// Hands messages to the kernel; how many it took, and what became of the next.
fn transmit(socket: &Socket, messages: &mut [libc::mmsghdr]) -> (usize, Sending) {
    let mut done = 0;
    while done < messages.len() {
        let count = u32::try_from(messages.len() - done).unwrap_or(0);
        // SAFETY: the callers filled these headers in, and what they point to outlives the call.
        let sent = unsafe { libc::sendmmsg(socket.fd(), messages[done..].as_mut_ptr(), count, 0) };
        if let Ok(sent) = usize::try_from(sent) {
            done += sent;
            continue;
        }
        let error = std::io::Error::last_os_error();
        match error.raw_os_error() {
            // ECONNREFUSED is the response of a closed port to an earlier packet; this one has
            // not been tried yet.
            Some(libc::EINTR | libc::ECONNREFUSED) => {}
            Some(libc::EAGAIN) => return (done, Sending::Full),
            _ => return (done, Sending::Refused),
        }
    }
    (done, Sending::Done)
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
