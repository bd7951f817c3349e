//! The medium of two simulated radios of the kernel, in real time: one thread drives it.

use tm_link::radio::header::Header;
use tm_link::radio::hwsim::{
    outgoing, put_frame, put_new_radio, put_register, put_status, Heard, Status, TxRate, FAMILY,
    FRAME, NO_RATE,
};
use tm_link::radio::netlink::{messages, Writer, ERROR};
use tm_link::radio::{Address, Air, Event, Sent};
use tm_link::wlan::{StationCounters, ACCESS_POINT, CHAIN_LENGTH};
use tm_probe::Delays;
use tm_wire::Nanos;

use crate::alarm::Alarm;
use crate::genl::{Genl, Received};
use crate::medium::{MediumError, MediumEvent, MediumPlan};
use crate::process::{self, Priority, Stop};
use crate::relay::Report;
use crate::{clock, IoError};

/// Two radios, made here and gone with this process, and the medium between them.
pub struct RadiosPlan {
    /// Name and address of the access point's radio, then of the client's.
    pub radios: [(String, Address); 2],
    /// What is between them.
    pub medium: MediumPlan,
}

/// What the medium says of itself.
#[derive(Clone)]
pub struct RadiosReport {
    /// From the client to the access point.
    pub forward: Report,
    /// From the access point to the client.
    pub reverse: Report,
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

const SECOND: Nanos = Nanos(1_000_000_000);
const TICK: Nanos = Nanos(20_000_000);
/// Messages taken from the kernel before what is due is looked at again.
const DRAIN: usize = 64;
/// Bytes sent to the kernel at a time.
const FLUSH_BYTES: usize = 32 << 10;

/// Numbers of messages to the kernel, by which its complaints are told apart.
mod number {
    /// A frame with data for radio 0; 1 more for radio 1.
    pub const DATA: u32 = 1_000_000;
    /// Everything else.
    pub const OTHER: u32 = 1_000_002;
}

/// Runs until `stop`; `wanted` says that a report is asked for now. Returns the last report.
pub fn run(
    plan: &RadiosPlan,
    stop: &Stop,
    mut wanted: impl FnMut() -> bool,
    mut tell: impl FnMut(MediumEvent<RadiosReport>),
) -> Result<RadiosReport, MediumError> {
    let air = Air::new(
        &plan.medium.config,
        &plan.medium.path,
        plan.medium.seed,
        clock::now().0,
    )
    .map_err(MediumError::Config)?;
    let mut socket = Genl::open(FAMILY, "modprobe mac80211_hwsim")?;
    for (name, address) in &plan.radios {
        let what = format!("cannot make the radio {name}");
        socket.request(&what, |writer, family, sequence| {
            put_new_radio(writer, family, sequence, name, address);
        })?;
    }
    socket.request(
        "cannot become the medium of the radios in this namespace",
        put_register,
    )?;
    process::pin(plan.medium.cpu)?;
    process::steady();
    let mut priority = Priority::take(plan.medium.realtime_priority);
    let mut alarm = Alarm::default();
    let mut driver = Driver::new(plan, air, socket);
    tell(MediumEvent::Ready);
    let mut next = clock::now() + SECOND;
    while !stop.asked() {
        let taken = driver.take()?;
        let sent = driver.hand_on()?;
        let now = clock::now();
        if wanted() {
            tell(MediumEvent::Progress(Box::new(driver.report())));
        } else if now >= next {
            tell(MediumEvent::Progress(Box::new(driver.report())));
            next = now + SECOND;
        }
        priority.check();
        if sent > 0 {
            alarm.passed(now);
        } else if taken == 0 {
            let due = driver.air.next_due_ns().map(Nanos);
            alarm.wait_or(due, |up| driver.socket.wait(up, TICK));
        }
    }
    Ok(driver.report())
}

struct Driver {
    air: Air,
    socket: Genl,
    radios: [Address; 2],
    /// What the kernel is to be told again of frames on the medium.
    known: Vec<Known>,
    free: Vec<u64>,
    writer: Writer,
    frequency_mhz: u32,
    overruns: u64,
    send_errors: [u64; 2],
    refused: u64,
    malformed: (u64, Option<String>),
    lateness: [Delays; 2],
}

#[derive(Clone, Copy)]
struct Known {
    cookie: u64,
    flags: u32,
    rates: [TxRate; CHAIN_LENGTH],
}

impl Driver {
    fn new(plan: &RadiosPlan, air: Air, socket: Genl) -> Self {
        let [(_, access_point), (_, client)] = &plan.radios;
        Self {
            air,
            socket,
            radios: [*access_point, *client],
            known: Vec::new(),
            free: Vec::new(),
            writer: Writer::default(),
            frequency_mhz: 0,
            overruns: 0,
            send_errors: [0; 2],
            refused: 0,
            malformed: (0, None),
            lateness: [Delays::default(), Delays::default()],
        }
    }

    /// Takes what the kernel has sent; returns how many messages.
    fn take(&mut self) -> Result<usize, IoError> {
        for taken in 0..DRAIN {
            let now = clock::now();
            let datagram = match self.socket.receive()? {
                Received::Nothing => return Ok(taken),
                Received::Overrun => {
                    self.overruns += 1;
                    continue;
                }
                Received::Datagram(bytes) => bytes,
            };
            for message in messages(datagram) {
                let read = message.and_then(|message| {
                    if message.kind == ERROR {
                        let failed = message.result()? < 0;
                        match message.sequence.checked_sub(number::DATA) {
                            Some(to @ (0 | 1)) if failed => self.send_errors[1 - to as usize] += 1,
                            _ => self.refused += u64::from(failed),
                        }
                        return Ok(None);
                    }
                    let (command, attributes) = message.generic()?;
                    Ok((command == FRAME).then_some(attributes))
                });
                let frame = match read {
                    Ok(Some(attributes)) => outgoing(attributes),
                    Ok(None) => continue,
                    Err(error) => Err(error),
                };
                match frame {
                    Ok(frame) => {
                        let Some(sender) = self.radios.iter().position(|one| *one == frame.radio)
                        else {
                            self.refused += 1; // a radio of somebody else
                            continue;
                        };
                        self.frequency_mhz = frame.frequency_mhz;
                        let known = Known {
                            cookie: frame.cookie,
                            flags: frame.flags,
                            rates: frame.rates,
                        };
                        let name = remember(&mut self.known, &mut self.free, known);
                        let rates = frame
                            .rates
                            .iter()
                            .take_while(|rate| rate.index >= 0)
                            .map(|rate| {
                                let priced = rate.rate(frame.frequency_mhz)?;
                                Some((priced, rate.count.max(1), rate.reserve(), rate.protect()))
                            })
                            .collect();
                        let sent = Sent {
                            frame: frame.frame.to_vec(),
                            name,
                            rates,
                            no_ack: frame.no_ack(),
                        };
                        let sender = if sender == 0 { ACCESS_POINT } else { 1 };
                        self.air.offer(now.0, sender, sent);
                    }
                    Err(error) => {
                        self.malformed.0 += 1;
                        self.malformed.1.get_or_insert_with(|| error.to_string());
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
        while let Some(event) = self.air.poll(now.0) {
            sent += 1;
            match event {
                Event::Heard {
                    due_ns,
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
                        radio: self.radios[to],
                        frame: &frame,
                        rate_bit_s,
                        frequency_mhz: self.frequency_mhz,
                    };
                    put_frame(&mut self.writer, family, sequence, &heard);
                    self.lateness[usize::from(sender)].add(now - Nanos(due_ns));
                }
                Event::Done {
                    sender,
                    name,
                    used,
                    acknowledged,
                    ..
                } => {
                    let place = usize::try_from(name).unwrap_or(usize::MAX);
                    let Some(known) = self.known.get(place).copied() else {
                        continue;
                    };
                    self.free.push(name);
                    let status = Status {
                        radio: self.radios[usize::from(sender)],
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

    fn report(&self) -> RadiosReport {
        let medium = self.air.medium();
        let direction = |sender: u16| Report {
            counters: self.air.counters(sender),
            capture_dropped: self.overruns,
            send_errors: self.send_errors[usize::from(sender)],
            oversized: 0,
            checksum_missing: 0,
            kinds: None,
            lateness: self.lateness[usize::from(sender)].clone(),
        };
        RadiosReport {
            forward: direction(1),
            reverse: direction(0),
            stations: (0..=1)
                .filter_map(|one| medium.counters(one).copied())
                .collect(),
            unpriced: self.air.unpriced(0) + self.air.unpriced(1),
            refused: self.refused,
            malformed: self.malformed.clone(),
        }
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
    fn the_kernel_is_told_of_the_rates_that_were_used() {
        let rate = |index, count| TxRate {
            index,
            count,
            flags: 8,
        };
        let asked = [rate(7, 3), rate(5, 2), rate(0, 4), NO_RATE];
        let told = done(&asked, [3, 1, 0, 0]);
        assert_eq!(told, [rate(7, 3), rate(5, 1), NO_RATE, NO_RATE]);
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
