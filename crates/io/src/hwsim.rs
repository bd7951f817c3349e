//! Two simulated radios of the kernel (`mac80211_hwsim`) and the medium between them, in real time.

use tm_link::radio::header::Header;
use tm_link::radio::hwsim::{
    outgoing, put_frame, put_new_radio, put_register, put_status, Heard, Status, TxRate, FAMILY,
    FRAME, NO_RATE,
};
use tm_link::radio::netlink::{messages, Malformed, Message, Writer, ERROR};
use tm_link::radio::{Address, Air, Event, Sent};
use tm_link::wlan::{StationCounters, StationId, ACCESS_POINT, CHAIN_LENGTH};
use tm_probe::Delays;
use tm_wire::Instant;

use crate::emulator::{LinkDriver, Turn};
use crate::genl::{Genl, Received};
use crate::packet::Wake;
use crate::report::DirectionReport;
use crate::{clock, IoError};

/// Two radios, made here and gone with this process, and the medium between them.
pub struct HwsimPlan {
    /// Name and address of the access point's radio, then of the client's.
    pub radios: [(String, Address); 2],
    /// What is between them; its time is [`clock::now`].
    pub air: Air,
}

/// What the medium says of itself.
#[derive(Clone)]
pub struct HwsimReport {
    /// From the client to the access point.
    pub forward: DirectionReport,
    /// From the access point to the client.
    pub reverse: DirectionReport,
    /// What each radio did on the medium, the access point first.
    pub stations: Vec<StationCounters>,
    /// Frames at a rate that the standard does not have.
    pub unpriced: u64,
    /// Frames without data and reports that the kernel did not want, such as those for a radio that
    /// is not on yet.
    pub refused: u64,
    /// Messages that could not be read, with the first one's fault.
    pub malformed: (u64, Option<String>),
}

/// Messages taken from the kernel before what is due is looked at again.
const DRAIN: usize = 64;
/// Bytes sent to the kernel at a time.
const FLUSH_BYTES: usize = 32 << 10;

/// The client's radio.
const CLIENT: StationId = 1;

/// Numbers of messages to the kernel, by which its complaints are distinguished.
mod number {
    /// A frame with data for radio 0; 1 more for radio 1.
    pub const DATA: u32 = 1_000_000;
    /// Everything else.
    pub const OTHER: u32 = 1_000_002;
}

impl HwsimPlan {
    /// Makes the radios and becomes their medium.
    pub fn open(self) -> Result<HwsimDriver, IoError> {
        let mut socket = Genl::open(FAMILY, "modprobe mac80211_hwsim")?;
        for (name, address) in &self.radios {
            let what = format!("cannot make the radio {name}");
            socket.request(&what, |writer, family, sequence| {
                put_new_radio(writer, family, sequence, name, address);
            })?;
        }
        socket.request(
            "cannot become the medium of the radios in this namespace",
            put_register,
        )?;
        let [(_, access_point), (_, client)] = self.radios;
        Ok(HwsimDriver {
            air: self.air,
            socket,
            inbox: Inbox {
                radios: [access_point, client],
                ..Inbox::default()
            },
            writer: Writer::default(),
            lateness: [Delays::default(), Delays::default()],
        })
    }
}

/// The radios, what they have sent, and the medium.
pub struct HwsimDriver {
    air: Air,
    socket: Genl,
    inbox: Inbox,
    writer: Writer,
    lateness: [Delays; 2],
}

/// What the kernel has reported, and what is reported back to it.
#[derive(Default)]
struct Inbox {
    radios: [Address; 2],
    /// By the name of a frame on the medium
    known: Vec<Known>,
    free: Vec<u64>,
    frequency_mhz: u32,
    overruns: u64,
    send_errors: [u64; 2],
    refused: u64,
    malformed: (u64, Option<String>),
}

#[derive(Clone, Copy)]
struct Known {
    cookie: u64,
    flags: u32,
    rates: [TxRate; CHAIN_LENGTH],
}

impl LinkDriver for HwsimDriver {
    type Report = HwsimReport;

    fn turn(&mut self) -> Result<Turn, IoError> {
        let taken = self.take()?;
        let sent = self.hand_on()?;
        Ok(Turn { taken, sent })
    }

    fn next_due(&self) -> Option<Instant> {
        self.air.next_due()
    }

    fn sleep(&self, up: Option<Instant>, wake: &Wake) {
        self.socket.wait_or(up, wake);
    }

    fn report(&mut self) -> HwsimReport {
        let medium = self.air.medium();
        let direction = |sender: u16| DirectionReport {
            counters: self.air.counters(sender),
            capture_dropped: self.inbox.overruns,
            send_errors: self.inbox.send_errors[usize::from(sender)],
            oversized: 0,
            checksum_missing: 0,
            kinds: None,
            lateness: self.lateness[usize::from(sender)].clone(),
        };
        HwsimReport {
            forward: direction(1),
            reverse: direction(0),
            stations: (0..=1)
                .filter_map(|one| medium.counters(one).copied())
                .collect(),
            unpriced: self.air.unpriced(0) + self.air.unpriced(1),
            refused: self.inbox.refused,
            malformed: self.inbox.malformed.clone(),
        }
    }
}

impl HwsimDriver {
    /// Takes what the kernel has sent; returns how many messages.
    fn take(&mut self) -> Result<usize, IoError> {
        for taken in 0..DRAIN {
            let now = clock::now();
            let Self { socket, inbox, .. } = self;
            match socket.receive()? {
                Received::Nothing => return Ok(taken),
                Received::Overrun => inbox.overruns += 1,
                Received::Datagram(bytes) => {
                    for message in messages(bytes) {
                        match message.and_then(|message| inbox.read(&message)) {
                            Ok(Some((sender, sent))) => self.air.offer(now, sender, sent),
                            Ok(None) => {}
                            Err(fault) => inbox.malformed(&fault),
                        }
                    }
                }
            }
        }
        Ok(DRAIN)
    }

    /// Hands on what is due; returns how many frames and reports.
    fn hand_on(&mut self) -> Result<usize, IoError> {
        let now = clock::now();
        let mut sent = 0;
        let family = self.socket.family();
        while let Some(event) = self.air.poll(now) {
            sent += 1;
            match event {
                Event::Heard {
                    due,
                    sender,
                    frame,
                    rate_bit_s,
                } => {
                    let to = 1 - usize::from(sender);
                    let data = Header::parse(&frame).is_some_and(|header| header.is_data());
                    let sequence = match to {
                        0 if data => number::DATA,
                        1 if data => number::DATA + 1,
                        _ => number::OTHER,
                    };
                    let heard = Heard {
                        radio: self.inbox.radios[to],
                        frame: &frame,
                        rate_bit_s,
                        frequency_mhz: self.inbox.frequency_mhz,
                    };
                    put_frame(&mut self.writer, family, sequence, &heard);
                    self.lateness[usize::from(sender)].add(now - due);
                }
                Event::Done {
                    sender,
                    name,
                    used,
                    acknowledged,
                    ..
                } => {
                    let place = usize::try_from(name).unwrap_or(usize::MAX);
                    let Some(known) = self.inbox.known.get(place).copied() else {
                        continue;
                    };
                    self.inbox.free.push(name);
                    let status = Status {
                        radio: self.inbox.radios[usize::from(sender)],
                        flags: known.flags,
                        cookie: known.cookie,
                        rates: done(&known.rates, used),
                        acknowledged,
                    };
                    put_status(&mut self.writer, family, number::OTHER, &status);
                }
            }
            if self.writer.bytes().len() > FLUSH_BYTES {
                self.flush()?;
            }
        }
        self.flush()?;
        Ok(sent)
    }

    fn flush(&mut self) -> Result<(), IoError> {
        if !self.writer.bytes().is_empty() {
            self.socket
                .send(self.writer.bytes())
                .map_err(|error| IoError::new("cannot hand frames to the radios", error))?;
            self.writer.clear();
        }
        Ok(())
    }
}

impl Inbox {
    /// Reads a message; `None` if it brings no frame for the medium.
    fn read(&mut self, message: &Message<'_>) -> Result<Option<(StationId, Sent)>, Malformed> {
        if message.kind == ERROR {
            self.complaint(message.sequence, message.result()?);
            return Ok(None);
        }
        let (command, attributes) = message.generic()?;
        if command != FRAME {
            return Ok(None);
        }
        let frame = outgoing(attributes)?;
        let Some(sender) = self.radios.iter().position(|one| *one == frame.radio) else {
            self.refused += 1; // a radio of somebody else
            return Ok(None);
        };
        self.frequency_mhz = frame.frequency_mhz;
        let known = Known {
            cookie: frame.cookie,
            flags: frame.flags,
            rates: frame.rates,
        };
        let rates = frame.rates.iter().take_while(|rate| rate.index >= 0);
        let sent = Sent {
            frame: frame.frame.to_vec(),
            name: remember(&mut self.known, &mut self.free, known),
            rates: rates
                .map(|rate| {
                    let priced = rate.rate(frame.frequency_mhz)?;
                    Some((priced, rate.count.max(1), rate.reserve(), rate.protect()))
                })
                .collect(),
            no_ack: frame.no_ack(),
        };
        let sender = if sender == 0 { ACCESS_POINT } else { CLIENT };
        Ok(Some((sender, sent)))
    }

    /// The kernel's answer to a frame or report of ours.
    fn complaint(&mut self, sequence: u32, result: i32) {
        if result >= 0 {
            return;
        }
        match sequence.checked_sub(number::DATA) {
            Some(to @ (0 | 1)) => self.send_errors[1 - to as usize] += 1,
            _ => self.refused += 1,
        }
    }

    fn malformed(&mut self, fault: &Malformed) {
        self.malformed.0 += 1;
        self.malformed.1.get_or_insert_with(|| fault.to_string());
    }
}

fn remember(known: &mut Vec<Known>, free: &mut Vec<u64>, one: Known) -> u64 {
    if let Some(name) = free.pop() {
        if let Some(place) = usize::try_from(name).ok().and_then(|at| known.get_mut(at)) {
            *place = one;
            return name;
        }
    }
    known.push(one);
    known.len() as u64 - 1
}

/// Rates with the attempts that were made; the list ends with the last that was used.
fn done(rates: &[TxRate; CHAIN_LENGTH], used: [u8; CHAIN_LENGTH]) -> [TxRate; CHAIN_LENGTH] {
    std::array::from_fn(|i| match used[i] {
        0 => NO_RATE,
        count => TxRate { count, ..rates[i] },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_hears_of_the_rates_that_were_used() {
        let rate = |index, count| TxRate {
            index,
            count,
            flags: 8,
        };
        let asked = [rate(7, 3), rate(5, 2), rate(0, 4), NO_RATE];
        let reported = done(&asked, [3, 1, 0, 0]);
        assert_eq!(reported, [rate(7, 3), rate(5, 1), NO_RATE, NO_RATE]);
        assert_eq!(done(&asked, [0; 4]), [NO_RATE; 4]);
    }

    #[test]
    fn names_are_used_again() {
        let (mut known, mut free) = (Vec::new(), Vec::new());
        let one = |cookie| Known {
            cookie,
            flags: 0,
            rates: [NO_RATE; 4],
        };
        assert_eq!(remember(&mut known, &mut free, one(1)), 0);
        assert_eq!(remember(&mut known, &mut free, one(2)), 1);
        free.push(0);
        assert_eq!(remember(&mut known, &mut free, one(3)), 0);
        assert_eq!((known[0].cookie, known.len()), (3, 2));
    }
}
