//! Frame exchanges: what one access to the medium sends, what arrives, what answers.

use super::air::{Airtime, Ppdu};
use super::compose::{Kind, Part};
use super::mac::{BLOCK_ACK_REQUEST_BYTES, CTS_BYTES, RTS_BYTES};
use super::medium::{Medium, StationId};
use super::phy::Mode;
use super::queue::{State, NONE};
use super::setup::Eifs;

/// The exchange that is on air.
#[derive(Debug, Default)]
pub(super) struct Exchange {
    /// Contenders that start within one slot, with their start
    pub starters: Vec<(u32, u64)>,
    /// Contenders that had to leave the medium to a more urgent one of their own station
    pub internal: Vec<u32>,
    pub parts: Vec<Part>,
    /// First frames of the MPDUs of all parts
    pub leaders: Vec<u32>,
    /// When the medium is idle again
    pub end_ns: u64,
    pub txop_start_ns: u64,
}

/// Where an exchange broke off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Failure {
    /// RTS without CTS
    Reservation,
    /// Data without acknowledgement
    Data,
}

impl Exchange {
    pub(super) fn clear(&mut self) {
        self.starters.clear();
        self.internal.clear();
        self.parts.clear();
        self.leaders.clear();
    }
}

impl Medium {
    /// One station alone transmits: carry the exchange out up to its end.
    pub(super) fn transmit(&mut self, contender: u32, start_ns: u64) {
        let part = self.compose(contender, None);
        self.send(part, start_ns);
    }

    pub(super) fn send(&mut self, mut part: Part, start_ns: u64) {
        let sender = self.contenders[part.contender as usize].station;
        self.stations[usize::from(sender)].counters.attempts += 1;
        part.failure = match part.kind {
            Kind::Beacon { bytes } => {
                let end_ns = self.on_air(sender, Ppdu::Beacon, start_ns, part.mode, bytes);
                self.end_at(end_ns);
                None
            }
            Kind::Group => {
                let at_ns = self.protect_by_cts(&part, sender, start_ns);
                self.send_group(&part, sender, at_ns);
                None
            }
            Kind::Request { to } => self.send_request(&part, sender, to, start_ns),
            Kind::Data { to } => match self.reserve(&part, sender, to, start_ns) {
                Ok(at_ns) if part.aggregated => self.send_aggregate(&part, sender, to, at_ns),
                Ok(at_ns) => self.send_fragments(&part, sender, to, at_ns),
                Err(failure) => Some(failure),
            },
        };
        self.exchange.parts.push(part);
    }

    /// Several stations start within one slot: nothing of it arrives (no capture effect).
    pub(super) fn collide(&mut self) {
        let mut end_ns = 0;
        let mut last = self.setup.group.mode;
        for i in 0..self.exchange.starters.len() {
            let (contender, start_ns) = self.exchange.starters[i];
            let mut part = self.compose(contender, None);
            let sender = self.contenders[contender as usize].station;
            let counters = &mut self.stations[usize::from(sender)].counters;
            counters.attempts += 1;
            counters.collisions += 1;
            let own_end_ns = self.send_in_vain(&part, sender, start_ns);
            if own_end_ns > end_ns {
                end_ns = own_end_ns;
                last = if part.reserve {
                    self.reservation(&part)
                } else {
                    part.mode
                };
            }
            part.failure = Some(if part.reserve {
                Failure::Reservation
            } else {
                Failure::Data
            });
            // Ack and CTS timeout (10.3.2.11, 10.3.2.9); a frame without answer has none
            part.resume_ns = match part.kind {
                Kind::Data { .. } | Kind::Request { .. } => self.timeout_ns(&part, own_end_ns),
                Kind::Group | Kind::Beacon { .. } => own_end_ns,
            };
            self.exchange.parts.push(part);
        }
        self.end_at(end_ns);
        self.hold_all(end_ns + self.setup.eifs_extra_ns(&last));
        for i in 0..self.exchange.parts.len() {
            let part = &self.exchange.parts[i];
            let (contender, resume_ns) = (part.contender, part.resume_ns);
            let station = self.contenders[contender as usize].station;
            let resume_ns = if self.setup.eifs == Eifs::None {
                end_ns
            } else {
                resume_ns.max(end_ns)
            };
            self.hold_station(station, resume_ns);
        }
    }

    /// Put a colliding part on air and return the end of what is sent before its failure shows.
    fn send_in_vain(&mut self, part: &Part, sender: StationId, start_ns: u64) -> u64 {
        let first = self.log.len();
        let end_ns = if part.reserve {
            self.on_air(
                sender,
                Ppdu::Rts,
                start_ns,
                self.reservation(part),
                RTS_BYTES,
            )
        } else {
            let at_ns = self.protect_by_cts(part, sender, start_ns);
            let (kind, bytes) = match part.kind {
                Kind::Beacon { bytes } => (Ppdu::Beacon, bytes),
                Kind::Request { .. } => (Ppdu::BlockAckRequest, BLOCK_ACK_REQUEST_BYTES),
                Kind::Data { .. } if part.aggregated => (Ppdu::Ampdu, part.psdu_bytes),
                Kind::Data { .. } | Kind::Group => (Ppdu::Data, part.psdu_bytes),
            };
            self.on_air(sender, kind, at_ns, part.mode, bytes)
        };
        self.log.mark_collided(first);
        end_ns
    }

    /// RTS and CTS, or a CTS to oneself, where the part needs them; the start of the data.
    fn reserve(
        &mut self,
        part: &Part,
        sender: StationId,
        to: StationId,
        start_ns: u64,
    ) -> Result<u64, Failure> {
        if !part.reserve {
            return Ok(self.protect_by_cts(part, sender, start_ns));
        }
        let (sifs_ns, slot_ns) = (self.setup.timing.sifs_ns, self.setup.timing.slot_ns);
        let rated = self.setup.modes[part.mode_index].reservation;
        let rts_end_ns = self.on_air(sender, Ppdu::Rts, start_ns, rated.mode, RTS_BYTES);
        if self.lost(sender, |random| rated.loses(RTS_BYTES, random)) {
            self.end_at(rts_end_ns);
            // 10.3.2.4: others may reset a NAV set by an RTS that nothing followed
            let reset_ns = 2 * sifs_ns
                + rated.mode.airtime_ns(CTS_BYTES)
                + rated.mode.rx_start_delay_ns
                + 2 * slot_ns;
            self.hold_all(rts_end_ns + reset_ns);
            self.busy_until_ns = rts_end_ns + reset_ns;
            self.hold_station(to, rts_end_ns + self.setup.eifs_extra_ns(&rated.mode));
            self.hold_station(sender, self.timeout_ns(part, rts_end_ns));
            return Err(Failure::Reservation);
        }
        let cts_end_ns = self.on_air(to, Ppdu::Cts, rts_end_ns + sifs_ns, rated.mode, CTS_BYTES);
        if self.lost(sender, |random| rated.loses(CTS_BYTES, random)) {
            self.end_at(cts_end_ns);
            // the others have heard the CTS and keep their NAV to the end that was announced
            let data_ns = part.mode.airtime_ns(part.psdu_bytes);
            let answer_ns = self.answer_ns(part);
            let nav_ns = cts_end_ns + sifs_ns + data_ns + sifs_ns + answer_ns;
            self.hold_all(nav_ns);
            self.busy_until_ns = nav_ns;
            self.hold_station(sender, cts_end_ns + self.setup.eifs_extra_ns(&rated.mode));
            return Err(Failure::Reservation);
        }
        Ok(cts_end_ns + sifs_ns)
    }

    /// 10.27.2: a CTS to oneself before a frame that stations without OFDM cannot hear.
    fn protect_by_cts(&mut self, part: &Part, sender: StationId, start_ns: u64) -> u64 {
        if !part.protect {
            return start_ns;
        }
        let mode = self.reservation(part);
        let end_ns = self.on_air(sender, Ppdu::Cts, start_ns, mode, CTS_BYTES);
        end_ns + self.setup.timing.sifs_ns
    }

    fn send_group(&mut self, part: &Part, sender: StationId, at_ns: u64) {
        let end_ns = self.on_air(sender, Ppdu::Data, at_ns, part.mode, part.psdu_bytes);
        self.end_at(end_ns);
        let rated = self.setup.group;
        self.stations[usize::from(sender)].counters.mpdus += 1;
        if !self.lost(sender, |random| rated.loses(part.psdu_bytes, random)) {
            let head = self.flows[part.flow as usize].head;
            self.slab[head].state = State::Received;
            self.deliver(part.flow, end_ns);
        }
    }

    /// `BlockAckReq` and `BlockAck` (10.25.6.7, 10.25.6.5).
    fn send_request(
        &mut self,
        part: &Part,
        sender: StationId,
        to: StationId,
        at_ns: u64,
    ) -> Option<Failure> {
        let rated = self.setup.modes[part.mode_index].response;
        let bytes = BLOCK_ACK_REQUEST_BYTES;
        let end_ns = self.on_air(sender, Ppdu::BlockAckRequest, at_ns, part.mode, bytes);
        if self.lost(sender, |random| rated.loses(bytes, random)) {
            self.nothing_arrived(part, sender, to, end_ns);
            return Some(Failure::Data);
        }
        self.deliver(part.flow, end_ns);
        self.answer(part, sender, to, end_ns)
    }

    /// One MPDU, or the fragments of one, each with its Ack (10.3.2.11, 10.4).
    fn send_fragments(
        &mut self,
        part: &Part,
        sender: StationId,
        to: StationId,
        mut at_ns: u64,
    ) -> Option<Failure> {
        let leader = self.exchange.leaders[part.leaders.start];
        let rated = self.setup.modes[part.mode_index].data;
        let (fragments, fragment_bytes) = self.fragments(leader);
        loop {
            let number = self.slab[leader].fragments;
            let last = number + 1 == fragments;
            let bytes = if fragments == 1 {
                part.psdu_bytes
            } else if last {
                let before = u32::from(number) * fragment_bytes;
                self.setup.mpdu_extra_bytes + self.slab[leader].body_bytes - before
            } else {
                self.setup.mpdu_extra_bytes + fragment_bytes
            };
            let end_ns = self.on_air(sender, Ppdu::Data, at_ns, part.mode, bytes);
            self.stations[usize::from(sender)].counters.mpdus += 1;
            if self.lost(sender, |random| rated.loses(bytes, random)) {
                self.nothing_arrived(part, sender, to, end_ns);
                return Some(Failure::Data);
            }
            if last {
                self.receive(leader);
                self.deliver(part.flow, end_ns);
            }
            let failure = self.answer(part, sender, to, end_ns);
            if failure.is_some() {
                return failure;
            }
            if last {
                return None;
            }
            let entry = &mut self.slab[leader];
            entry.fragments += 1;
            // 10.3.4.4: the retry counts are those of the MPDU, so each fragment has its own
            (entry.short_retries, entry.long_retries) = (0, 0);
            at_ns = self.exchange.end_ns + self.setup.timing.sifs_ns;
        }
    }

    /// An A-MPDU and its `BlockAck` (10.12, 10.25.6).
    fn send_aggregate(
        &mut self,
        part: &Part,
        sender: StationId,
        to: StationId,
        at_ns: u64,
    ) -> Option<Failure> {
        let rated = self.setup.modes[part.mode_index].data;
        let end_ns = self.on_air(sender, Ppdu::Ampdu, at_ns, part.mode, part.psdu_bytes);
        let mut arrived = false;
        for i in part.leaders.clone() {
            let leader = self.exchange.leaders[i];
            let bytes = self.setup.mpdu_extra_bytes + self.slab[leader].body_bytes;
            if !self.lost(sender, |random| rated.loses(bytes, random)) {
                self.receive(leader);
                arrived = true;
            }
        }
        let mpdus = part.leaders.len() as u64;
        self.stations[usize::from(sender)].counters.mpdus += mpdus;
        if !arrived {
            self.nothing_arrived(part, sender, to, end_ns);
            return Some(Failure::Data);
        }
        self.deliver(part.flow, end_ns);
        self.answer(part, sender, to, end_ns)
    }

    /// The receiver answers a SIFS after `end_ns`; the medium is idle after that.
    fn answer(
        &mut self,
        part: &Part,
        sender: StationId,
        to: StationId,
        end_ns: u64,
    ) -> Option<Failure> {
        let rated = self.setup.modes[part.mode_index].response;
        let (kind, bytes) = part.answer();
        let at_ns = end_ns + self.setup.timing.sifs_ns;
        let answer_end_ns = self.on_air(to, kind, at_ns, rated.mode, bytes);
        self.end_at(answer_end_ns);
        if self.lost(sender, |random| rated.loses(bytes, random)) {
            // 10.3.2.11: the timeout waits for the end of a frame that has begun; then EIFS
            self.hold_station(
                sender,
                answer_end_ns + self.setup.eifs_extra_ns(&rated.mode),
            );
            return Some(Failure::Data);
        }
        None
    }

    /// No answer comes. The receiver waits for EIFS, others for the end announced in the frame.
    fn nothing_arrived(&mut self, part: &Part, sender: StationId, to: StationId, end_ns: u64) {
        self.end_at(end_ns);
        let nav_ns = end_ns + self.setup.timing.sifs_ns + self.answer_ns(part);
        self.hold_all(nav_ns);
        self.busy_until_ns = nav_ns;
        self.hold_station(to, end_ns + self.setup.eifs_extra_ns(&part.mode));
        self.hold_station(sender, self.timeout_ns(part, end_ns));
    }

    /// The exchange ends with an idle medium that everybody has followed.
    fn end_at(&mut self, end_ns: u64) {
        self.exchange.end_ns = end_ns;
        self.busy_until_ns = end_ns;
        self.hold_all(end_ns);
    }

    fn answer_ns(&self, part: &Part) -> u64 {
        self.setup.modes[part.mode_index]
            .response
            .mode
            .airtime_ns(part.answer().1)
    }

    /// `AckTimeout` and `CTSTimeout`: SIFS, a slot, and the delay up to PHY-RXSTART.
    fn timeout_ns(&self, part: &Part, end_ns: u64) -> u64 {
        let mode = if part.reserve {
            self.reservation(part)
        } else {
            part.mode
        };
        let timing = &self.setup.timing;
        end_ns + timing.sifs_ns + timing.slot_ns + mode.rx_start_delay_ns
    }

    fn reservation(&self, part: &Part) -> Mode {
        self.setup.modes[part.mode_index].reservation.mode
    }

    /// The MPDU of this frame arrives, with all MSDUs in it.
    fn receive(&mut self, leader: u32) {
        let mut index = leader;
        loop {
            let entry = &mut self.slab[index];
            if entry.state == State::Waiting {
                entry.state = State::Received;
            }
            index = entry.next;
            if index == NONE || !self.slab[index].joined {
                break;
            }
        }
    }

    fn lost(
        &mut self,
        sender: StationId,
        draw: impl FnOnce(&mut super::random::Random) -> bool,
    ) -> bool {
        draw(&mut self.stations[usize::from(sender)].errors)
    }

    /// Put a PPDU on air and return its end.
    fn on_air(
        &mut self,
        station: StationId,
        kind: Ppdu,
        start_ns: u64,
        mode: Mode,
        bytes: u32,
    ) -> u64 {
        let end_ns = start_ns + mode.airtime_ns(bytes);
        self.stations[usize::from(station)].counters.airtime_ns += end_ns - start_ns;
        self.log.add(Airtime {
            start_ns,
            end_ns,
            station,
            kind,
            collided: false,
        });
        end_ns
    }
}
