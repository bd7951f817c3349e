//! Packets in batches: taken from a socket, or handed to one, in one system call.

use std::mem::{size_of, zeroed};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};

use tm_probe::port::{Arrival, Inbox, Outbox, Packets, Sending, WallClock, BATCH};
use tm_wire::Instant;

use super::control::{ancillary, cut_into, CONTROL_WORDS, CUT_WORDS};
use super::Socket;
use crate::clock::{self, Wall};
use crate::process::Stop;

/// Space for a batch of packets of at most `slot_bytes` each.
pub struct Batch {
    slot_bytes: usize,
    bytes: Vec<u8>,
    lengths: [usize; BATCH],
    /// The headers of the next receiving call, which point into this batch.
    incoming: Box<Headers>,
    /// Packets of the last receiving call: their headers must be made ready again.
    used: usize,
    count: usize,
    arrivals: Box<[Arrival; BATCH]>,
    wall: Wall,
}

/// What `recvmmsg` fills in. It stands on the heap, so that a batch may be moved.
struct Headers {
    messages: [libc::mmsghdr; BATCH],
    vectors: [libc::iovec; BATCH],
    names: [libc::sockaddr_storage; BATCH],
    controls: [[u64; CONTROL_WORDS]; BATCH],
}

impl Batch {
    /// Makes room once; nothing is allocated per packet.
    #[must_use]
    pub fn new(slot_bytes: usize) -> Self {
        let none = Arrival {
            at: Instant(0),
            user_time: true,
            source: None,
            time_to_live: None,
        };
        Self {
            slot_bytes,
            bytes: vec![0; slot_bytes * BATCH],
            lengths: [0; BATCH],
            // SAFETY: all-zero is a valid value of these plain structures.
            incoming: Box::new(unsafe { zeroed() }),
            used: BATCH,
            count: 0,
            arrivals: Box::new([none; BATCH]),
            wall: Wall::new(),
        }
    }

    /// Looks at the clocks, as is to be done now and then before packets are sent; returns now.
    pub fn look(&mut self) -> Instant {
        self.wall.look()
    }

    /// Takes what is there, at most a batch; returns how many packets.
    pub fn receive(&mut self, socket: &mut Socket) -> usize {
        self.prepare();
        self.count = 0;
        // SAFETY: BATCH headers, made ready above, pointing into memory that self owns.
        let count = unsafe {
            libc::recvmmsg(
                socket.fd(),
                self.incoming.messages.as_mut_ptr(),
                u32::try_from(BATCH).unwrap_or(0),
                libc::MSG_DONTWAIT,
                std::ptr::null_mut(),
            )
        };
        let count = usize::try_from(count).unwrap_or(0);
        if count == 0 {
            return 0;
        }
        self.used = count;
        self.count = count;
        let taken = self.wall.look();
        for (place, message) in self.incoming.messages.iter().enumerate().take(count) {
            let truncated = message.msg_hdr.msg_flags & libc::MSG_TRUNC != 0;
            // A packet longer than the slot is none of ours: length 0 is rejected by the parser.
            self.lengths[place] = if truncated {
                0
            } else {
                message.msg_len as usize
            };
            let reported = ancillary(&message.msg_hdr);
            self.arrivals[place] = Arrival {
                at: reported
                    .time
                    .map_or(taken, |stamp| self.wall.stamped(stamp, taken)),
                user_time: reported.time.is_none(),
                source: address(&self.incoming.names[place]),
                time_to_live: reported.time_to_live,
            };
            if let Some(overrun) = reported.overrun {
                socket.note_overrun(overrun);
            }
        }
        count
    }

    /// Makes the headers ready that the last call used.
    fn prepare(&mut self) {
        let headers = &mut *self.incoming;
        for place in 0..std::mem::take(&mut self.used) {
            let start = place * self.slot_bytes;
            headers.vectors[place].iov_base = self.bytes[start..].as_mut_ptr().cast();
            headers.vectors[place].iov_len = self.slot_bytes;
            let header = &mut headers.messages[place].msg_hdr;
            header.msg_iov = &raw mut headers.vectors[place];
            header.msg_iovlen = 1;
            header.msg_name = (&raw mut headers.names[place]).cast();
            header.msg_namelen =
                libc::socklen_t::try_from(size_of::<libc::sockaddr_storage>()).unwrap_or(0);
            header.msg_control = headers.controls[place].as_mut_ptr().cast();
            header.msg_controllen = CONTROL_WORDS * size_of::<u64>();
        }
    }

    /// Sends packets `from..to`; with `reply` each to where the packet in its place came from.
    fn send(&mut self, socket: &Socket, from: usize, to: usize, reply: bool) -> (usize, Sending) {
        let mut call = Call::new();
        for place in from..to {
            call.vectors[place - from] = self.vector(place);
            let header = &mut call.messages[place - from].msg_hdr;
            header.msg_iov = &raw mut call.vectors[place - from];
            header.msg_iovlen = 1;
            if reply {
                header.msg_name = (&raw mut self.incoming.names[place]).cast();
                header.msg_namelen = self.incoming.messages[place].msg_hdr.msg_namelen;
            }
        }
        transmit(socket, &mut call.messages[..to - from])
    }

    /// Sends packets `from..to` to the socket's peer, runs of one length as one packet that the
    /// kernel cuts (`UDP_SEGMENT`); what it refuses whole goes singly from then on.
    fn send_runs(&mut self, socket: &mut Socket, from: usize, to: usize) -> (usize, Sending) {
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
        let mut call = Call::new();
        let mut controls = [[0_u64; CUT_WORDS]; BATCH];
        for place in from..to {
            call.vectors[place - from] = self.vector(place);
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
            let header = &mut call.messages[runs].msg_hdr;
            header.msg_iov = &raw mut call.vectors[at - from];
            header.msg_iovlen = count;
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

    fn vector(&mut self, place: usize) -> libc::iovec {
        let start = place * self.slot_bytes;
        libc::iovec {
            iov_base: self.bytes[start..].as_mut_ptr().cast(),
            iov_len: self.lengths[place],
        }
    }
}

impl Packets for Batch {
    fn now(&mut self) -> Instant {
        clock::now()
    }

    fn wall_clock(&mut self) -> WallClock {
        self.wall.clock()
    }

    fn packet(&mut self, place: usize) -> &mut [u8] {
        let start = place * self.slot_bytes;
        &mut self.bytes[start..start + self.lengths[place]]
    }
}

impl Inbox for Batch {
    fn count(&self) -> usize {
        self.count
    }

    fn arrival(&self, place: usize) -> Arrival {
        self.arrivals[place]
    }
}

/// A batch that leaves through a socket, to its peer.
pub struct Departure<'a> {
    /// The packets.
    pub batch: &'a mut Batch,
    /// Where they leave.
    pub socket: &'a mut Socket,
    /// Runs of one length leave as one, which the kernel cuts.
    pub segment: bool,
    /// Nobody waits for room once this is asked.
    pub stop: &'a Stop,
}

/// A batch that arrived at a socket, and goes back where it came from.
pub struct Reply<'a> {
    /// The packets.
    pub batch: &'a mut Batch,
    /// Where they came.
    pub socket: &'a Socket,
    /// Nobody waits for room once this is asked.
    pub stop: &'a Stop,
}

macro_rules! packets_of_its_batch {
    ($name:ident) => {
        impl Packets for $name<'_> {
            fn now(&mut self) -> Instant {
                self.batch.now()
            }

            fn wall_clock(&mut self) -> WallClock {
                self.batch.wall_clock()
            }

            fn packet(&mut self, place: usize) -> &mut [u8] {
                self.batch.packet(place)
            }
        }
    };
}

packets_of_its_batch!(Departure);
packets_of_its_batch!(Reply);

impl Inbox for Reply<'_> {
    fn count(&self) -> usize {
        self.batch.count()
    }

    fn arrival(&self, place: usize) -> Arrival {
        self.batch.arrival(place)
    }
}

impl Outbox for Departure<'_> {
    fn set_length(&mut self, place: usize, bytes: usize) {
        self.batch.lengths[place] = bytes.min(self.batch.slot_bytes);
    }

    fn send(&mut self, from: usize, to: usize) -> (usize, Sending) {
        if self.segment {
            self.batch.send_runs(self.socket, from, to)
        } else {
            self.batch.send(self.socket, from, to, false)
        }
    }

    fn wait_for_room(&mut self) -> bool {
        !self.stop.requested() && {
            self.socket.wait_writable();
            true
        }
    }
}

impl Outbox for Reply<'_> {
    fn set_length(&mut self, place: usize, bytes: usize) {
        self.batch.lengths[place] = bytes.min(self.batch.slot_bytes);
    }

    fn send(&mut self, from: usize, to: usize) -> (usize, Sending) {
        self.batch.send(self.socket, from, to, true)
    }

    fn wait_for_room(&mut self) -> bool {
        !self.stop.requested() && {
            self.socket.wait_writable();
            true
        }
    }
}

/// The headers of one sending call.
struct Call {
    messages: [libc::mmsghdr; BATCH],
    vectors: [libc::iovec; BATCH],
}

impl Call {
    fn new() -> Self {
        // SAFETY: all-zero is a valid value of these plain structures.
        unsafe { zeroed() }
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::udp::{Options, ReceiveTime};

    fn options(buffer_bytes: usize, receive_time: ReceiveTime) -> Options {
        Options {
            buffer_bytes,
            dont_fragment: false,
            interface: None,
            netns: None,
            time_to_live: false,
            receive_time,
            shared: false,
        }
    }

    fn pair(receive_time: ReceiveTime) -> (Socket, Socket) {
        let any = SocketAddr::from(([127, 0, 0, 1], 0));
        let options = options(4096, receive_time);
        let receiver = Socket::open(any, None, &options).unwrap();
        let sender = Socket::open(any, Some(receiver.local().unwrap()), &options).unwrap();
        (sender, receiver)
    }

    fn send(batch: &mut Batch, socket: &mut Socket, bytes: usize, count: usize) {
        let stop = Stop::new();
        let mut departure = Departure {
            batch,
            socket,
            segment: false,
            stop: &stop,
        };
        for place in 0..count {
            departure.set_length(place, bytes);
        }
        assert_eq!(departure.send(0, count), (count, Sending::Done));
    }

    #[test]
    fn drops_behind_the_last_packet_that_is_read_are_seen() {
        let (mut sender, receiver) = pair(ReceiveTime::Kernel);
        let mut batch = Batch::new(1000);
        for _ in 0..4 {
            send(&mut batch, &mut sender, 1000, BATCH);
        }
        // Nothing was read, so no packet brought its count along.
        assert!(receiver.overrun() > 0);
        assert_eq!(sender.overrun(), 0);
    }

    #[test]
    fn an_arrival_has_the_kernels_time_only_where_that_was_asked_for() {
        for (receive_time, user_time) in [(ReceiveTime::Kernel, false), (ReceiveTime::User, true)] {
            let (mut sender, mut receiver) = pair(receive_time);
            let mut batch = Batch::new(100);
            let before = clock::now();
            send(&mut batch, &mut sender, 100, 1);
            while batch.receive(&mut receiver) == 0 {}
            let after = clock::now();
            let arrival = batch.arrival(0);
            assert_eq!(arrival.user_time, user_time);
            assert_eq!(arrival.source, Some(sender.local().unwrap()));
            if user_time {
                assert!((before..=after).contains(&arrival.at));
            }
        }
    }

    #[test]
    fn a_batch_can_be_used_again_after_fewer_and_longer_packets() {
        let (mut sender, mut receiver) = pair(ReceiveTime::Kernel);
        let (mut out, mut batch) = (Batch::new(300), Batch::new(200));
        for (count, bytes) in [(3, 50), (1, 300), (5, 60), (2, 200)] {
            send(&mut out, &mut sender, bytes, count);
            let mut seen = 0;
            while seen < count {
                let taken = batch.receive(&mut receiver);
                for place in 0..taken {
                    let wanted = if bytes > 200 { 0 } else { bytes };
                    assert_eq!(batch.packet(place).len(), wanted);
                    assert!(!batch.arrival(place).user_time);
                }
                seen += taken;
            }
        }
    }
}
