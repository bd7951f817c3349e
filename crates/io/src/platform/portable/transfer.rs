//! Packets one by one.

use std::io::ErrorKind;
use std::net::SocketAddr;

use tm_probe::port::{Sending, BATCH};

use super::Socket;
use crate::udp::{Arrived, Slots};

/// The packets of the last receiving call.
pub struct Transfer {
    sources: [Option<SocketAddr>; BATCH],
    /// A byte longer than any packet that is ours, so that one that is cut off shows.
    room: Vec<u8>,
}

impl Transfer {
    /// For places of so many bytes.
    pub fn new(slot_bytes: usize) -> Self {
        Self {
            sources: [None; BATCH],
            room: vec![0; slot_bytes + 1],
        }
    }

    /// Takes what is there, at most a batch; returns how many packets.
    pub fn receive(&mut self, socket: &mut Socket, slots: &mut Slots) -> usize {
        let mut count = 0;
        for _ in 0..BATCH {
            let (length, source) = match socket.inner.recv_from(&mut self.room) {
                Ok((length, source)) => (length, Some(source)),
                Err(error) => match error.kind() {
                    ErrorKind::WouldBlock => break,
                    // The response of a closed port to an earlier packet: no packet of ours.
                    ErrorKind::ConnectionReset
                    | ErrorKind::ConnectionRefused
                    | ErrorKind::Interrupted => continue,
                    // Windows: the packet was longer than the room for it.
                    _ if error.raw_os_error() == Some(WSAEMSGSIZE) => (self.room.len(), None),
                    _ => break,
                },
            };
            let ours = length <= slots.slot_bytes;
            slots.lengths[count] = if ours { length } else { 0 };
            if ours {
                slots.place(count)[..length].copy_from_slice(&self.room[..length]);
            }
            self.sources[count] = source;
            count += 1;
        }
        count
    }

    /// What is known of a packet of the last receiving call.
    pub fn arrived(&self, place: usize, _socket: &mut Socket) -> Arrived {
        Arrived {
            source: self.sources[place],
            ..Arrived::default()
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
        let mut place = from;
        while place < to {
            let packet = &*slots.packet(place);
            let sent = match self.sources[place] {
                Some(source) if reply => socket.inner.send_to(packet, source),
                _ => socket.inner.send(packet),
            };
            match sent.map_err(|error| error.kind()) {
                Ok(_) => place += 1,
                // Of an earlier packet, as above; this one has not been tried yet.
                Err(
                    ErrorKind::Interrupted
                    | ErrorKind::ConnectionRefused
                    | ErrorKind::ConnectionReset,
                ) => {}
                Err(ErrorKind::WouldBlock) => return (place - from, Sending::Full),
                Err(_) => return (place - from, Sending::Refused),
            }
        }
        (to - from, Sending::Done)
    }

    /// As [`Transfer::send`] without replies: no run is cut.
    pub fn send_runs(
        &mut self,
        socket: &mut Socket,
        slots: &mut Slots,
        from: usize,
        to: usize,
    ) -> (usize, Sending) {
        self.send(socket, slots, from, to, false)
    }
}

const WSAEMSGSIZE: i32 = 10_040;
