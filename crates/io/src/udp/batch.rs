//! Packets in batches: taken from a socket, or handed to one.

use std::net::SocketAddr;

use tm_probe::port::{Arrival, Inbox, Outbox, Packets, Sending, WallClock, BATCH};
use tm_wire::{Instant, UnixTime};

use super::Socket;
use crate::clock::{self, Wall};
use crate::platform::Transfer;
use crate::process::Stop;

/// Space for a batch of packets of at most so many bytes each.
pub struct Batch {
    slots: Slots,
    transfer: Transfer,
    count: usize,
    arrivals: Box<[Arrival; BATCH]>,
    wall: Wall,
}

/// The bytes of packets, each in a place of its own.
pub(crate) struct Slots {
    pub slot_bytes: usize,
    pub bytes: Vec<u8>,
    /// A packet that is longer than its place is none of ours: length 0 is rejected by the parser.
    pub lengths: [usize; BATCH],
}

impl Slots {
    /// The whole place, whatever is in it.
    pub fn place(&mut self, place: usize) -> &mut [u8] {
        let start = place * self.slot_bytes;
        &mut self.bytes[start..start + self.slot_bytes]
    }

    /// The packet in it.
    pub fn packet(&mut self, place: usize) -> &mut [u8] {
        let length = self.lengths[place];
        &mut self.place(place)[..length]
    }
}

/// What the system says of a packet that came.
#[derive(Default)]
pub(crate) struct Arrived {
    /// When the kernel took it in, if it tells.
    pub time: Option<UnixTime>,
    /// Where it came from.
    pub source: Option<SocketAddr>,
    /// Time to live, or hop limit, if it was requested.
    pub time_to_live: Option<u8>,
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
            slots: Slots {
                slot_bytes,
                bytes: vec![0; slot_bytes * BATCH],
                lengths: [0; BATCH],
            },
            transfer: Transfer::new(slot_bytes),
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
        self.count = self.transfer.receive(socket, &mut self.slots);
        if self.count == 0 {
            return 0;
        }
        let taken = self.wall.look();
        for place in 0..self.count {
            let arrived = self.transfer.arrived(place, socket);
            self.arrivals[place] = Arrival {
                at: arrived
                    .time
                    .map_or(taken, |stamp| self.wall.stamped(stamp, taken)),
                user_time: arrived.time.is_none(),
                source: arrived.source,
                time_to_live: arrived.time_to_live,
            };
        }
        self.count
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
        self.slots.packet(place)
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
        let slots = &mut self.batch.slots;
        slots.lengths[place] = bytes.min(slots.slot_bytes);
    }

    fn send(&mut self, from: usize, to: usize) -> (usize, Sending) {
        let Batch {
            slots, transfer, ..
        } = &mut *self.batch;
        if self.segment {
            transfer.send_runs(self.socket, slots, from, to)
        } else {
            transfer.send(self.socket, slots, from, to, false)
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
        let slots = &mut self.batch.slots;
        slots.lengths[place] = bytes.min(slots.slot_bytes);
    }

    fn send(&mut self, from: usize, to: usize) -> (usize, Sending) {
        let Batch {
            slots, transfer, ..
        } = &mut *self.batch;
        transfer.send(self.socket, slots, from, to, true)
    }

    fn wait_for_room(&mut self) -> bool {
        !self.stop.requested() && {
            self.socket.wait_writable();
            true
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::udp::{Options, ReceiveTime};

    const KERNEL_TELLS_NOTHING: bool = cfg!(feature = "portable");

    fn options(buffer_bytes: usize, receive_time: ReceiveTime) -> Options {
        Options {
            buffer_bytes,
            dont_fragment: false,
            interface: None,
            netns: None,
            traffic_class: 0,
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

    #[cfg(not(feature = "portable"))]
    #[test]
    fn drops_behind_the_last_packet_that_is_read_are_seen() {
        let (mut sender, receiver) = pair(ReceiveTime::Kernel);
        let mut batch = Batch::new(1000);
        for _ in 0..4 {
            send(&mut batch, &mut sender, 1000, BATCH);
        }
        // Nothing was read, so no packet brought its count along.
        assert!(receiver.overrun().unwrap() > 0);
        assert_eq!(sender.overrun(), Some(0));
    }

    #[test]
    fn an_arrival_has_the_kernels_time_only_where_that_was_asked_for() {
        let kernel = (ReceiveTime::Kernel, KERNEL_TELLS_NOTHING);
        for (receive_time, user_time) in [kernel, (ReceiveTime::User, true)] {
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
                    assert_eq!(batch.arrival(place).user_time, KERNEL_TELLS_NOTHING);
                }
                seen += taken;
            }
        }
    }
}
