//! Frame exchanges: what one access to the medium sends, what arrives, what answers.

use super::access::Starters;
use super::air::Ppdu;
use super::bss::Bss;
use super::compose::{Failure, Kind, Part};
use super::frame::StationId;
use super::mac::{BLOCK_ACK_REQUEST_BYTES, CTS_BYTES, RTS_BYTES};
use super::phy::Mode;
use super::queue::State;
use super::setup::Eifs;

/// The exchange that is on air. It is carried out to its end when it begins: nothing that comes
/// later can change it.
#[derive(Debug, Default)]
pub(super) struct Exchange {
    pub starters: Starters,
    pub parts: Vec<Part>,
    /// First frames of the MPDUs of all parts
    pub leaders: Vec<u32>,
    /// When nobody is on air any more
    pub end_ns: u64,
    /// When those that hold back for what was announced may go on too
    pub busy_until_ns: u64,
    pub txop_start_ns: u64,
}

impl Exchange {
    /// The starters transmit: one alone up to the end of its exchange, several in vain.
    pub(super) fn begin(&mut self, bss: &mut Bss, now_ns: u64) {
        self.parts.clear();
        self.leaders.clear();
        if let [(contender, start_ns)] = self.starters.on_air[..] {
            self.txop_start_ns = start_ns;
            let part = bss.compose(contender, None, &mut self.leaders, now_ns);
            self.send(bss, part, start_ns);
        } else {
            self.collide(bss, now_ns);
        }
    }

    /// 10.23.2.8: another exchange of the same contender a SIFS later, if it fits into the TXOP
    /// limit; false if it does not.
    pub(super) fn go_on(&mut self, bss: &mut Bss, contender: u32, now_ns: u64) -> bool {
        let limit_ns = bss.access.get(contender).parameters.txop_limit_ns;
        let start_ns = self.end_ns + bss.setup.timing.sifs_ns;
        let Some(budget_ns) = (self.txop_start_ns + limit_ns).checked_sub(start_ns) else {
            return false;
        };
        self.parts.clear();
        self.leaders.clear();
        let part = bss.compose(contender, Some(budget_ns), &mut self.leaders, now_ns);
        if bss.duration_ns(&part, &self.leaders) > budget_ns {
            return false;
        }
        self.send(bss, part, start_ns);
        true
    }

    fn send(&mut self, bss: &mut Bss, mut part: Part, start_ns: u64) {
        let sender = bss.access.get(part.contender).station;
        bss.counters(sender).attempts += 1;
        part.failure = match part.kind {
            Kind::Beacon { bytes } => {
                let end_ns = bss.on_air(sender, Ppdu::Beacon, start_ns, part.mode, bytes);
                self.end_at(bss, end_ns);
                None
            }
            Kind::Group => {
                let at_ns = protect_by_cts(bss, &part, sender, start_ns);
                self.send_group(bss, &part, sender, at_ns);
                None
            }
            Kind::Request { to } => self.send_request(bss, &part, sender, to, start_ns),
            Kind::Data { to } => match self.reserve(bss, &part, sender, to, start_ns) {
                Ok(at_ns) if part.aggregated => self.send_aggregate(bss, &part, sender, to, at_ns),
                Ok(at_ns) => self.send_fragments(bss, &part, sender, to, at_ns),
                Err(failure) => Some(failure),
            },
        };
        self.parts.push(part);
    }

    /// Several stations start within one slot: nothing of it arrives (no capture effect).
    fn collide(&mut self, bss: &mut Bss, now_ns: u64) {
        let mut end_ns = 0;
        let mut last = bss.setup.group.mode;
        for &(contender, start_ns) in &self.starters.on_air {
            let mut part = bss.compose(contender, None, &mut self.leaders, now_ns);
            let sender = bss.access.get(contender).station;
            let counters = bss.counters(sender);
            counters.attempts += 1;
            counters.collisions += 1;
            let own_end_ns = send_in_vain(bss, &part, sender, start_ns);
            if own_end_ns > end_ns {
                end_ns = own_end_ns;
                last = if part.reserve {
                    reservation(bss, &part)
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
                Kind::Data { .. } | Kind::Request { .. } => timeout_ns(bss, &part, own_end_ns),
                Kind::Group | Kind::Beacon { .. } => own_end_ns,
            };
            self.parts.push(part);
        }
        self.end_at(bss, end_ns);
        bss.access.hold_all(end_ns + bss.setup.eifs_extra_ns(&last));
        for part in &self.parts {
            let station = bss.access.get(part.contender).station;
            let resume_ns = if bss.setup.eifs == Eifs::None {
                end_ns
            } else {
                part.resume_ns.max(end_ns)
            };
            bss.access.hold_station(station, resume_ns);
        }
    }

    /// RTS and CTS, or a CTS to oneself, where the part needs them; the start of the data.
    fn reserve(
        &mut self,
        bss: &mut Bss,
        part: &Part,
        sender: StationId,
        to: StationId,
        start_ns: u64,
    ) -> Result<u64, Failure> {
        if !part.reserve {
            return Ok(protect_by_cts(bss, part, sender, start_ns));
        }
        let (sifs_ns, slot_ns) = (bss.setup.timing.sifs_ns, bss.setup.timing.slot_ns);
        let rated = bss.setup.modes[part.mode_index].reservation;
        let extra_ns = bss.setup.eifs_extra_ns(&rated.mode);
        let rts_end_ns = bss.on_air(sender, Ppdu::Rts, start_ns, rated.mode, RTS_BYTES);
        if bss.loses(sender, &rated, RTS_BYTES) {
            // 10.3.2.4: others may reset a NAV set by an RTS that nothing followed
            let reset_ns = 2 * sifs_ns
                + rated.mode.airtime_ns(CTS_BYTES)
                + rated.mode.rx_start_delay_ns
                + 2 * slot_ns;
            self.end_with_nav(bss, rts_end_ns, rts_end_ns + reset_ns);
            bss.access.hold_station(to, rts_end_ns + extra_ns);
            let timeout_ns = timeout_ns(bss, part, rts_end_ns);
            bss.access.hold_station(sender, timeout_ns);
            return Err(Failure::Reservation);
        }
        let cts_end_ns = bss.on_air(to, Ppdu::Cts, rts_end_ns + sifs_ns, rated.mode, CTS_BYTES);
        if bss.loses(sender, &rated, CTS_BYTES) {
            // the others have heard the CTS and keep their NAV to the end that was announced
            let data_ns = part.mode.airtime_ns(part.psdu_bytes);
            let nav_ns = cts_end_ns + sifs_ns + data_ns + sifs_ns + answer_ns(bss, part);
            self.end_with_nav(bss, cts_end_ns, nav_ns);
            bss.access.hold_station(sender, cts_end_ns + extra_ns);
            return Err(Failure::Reservation);
        }
        Ok(cts_end_ns + sifs_ns)
    }

    fn send_group(&mut self, bss: &mut Bss, part: &Part, sender: StationId, at_ns: u64) {
        let end_ns = bss.on_air(sender, Ppdu::Data, at_ns, part.mode, part.psdu_bytes);
        self.end_at(bss, end_ns);
        let rated = bss.setup.group;
        bss.counters(sender).mpdus += 1;
        if !bss.loses(sender, &rated, part.psdu_bytes) {
            let head = bss.queues.head(part.flow);
            bss.queues.slab[head].state = State::Received;
            bss.queues.deliver(part.flow, end_ns);
        }
    }

    /// `BlockAckReq` and `BlockAck` (10.25.6.7, 10.25.6.5).
    fn send_request(
        &mut self,
        bss: &mut Bss,
        part: &Part,
        sender: StationId,
        to: StationId,
        at_ns: u64,
    ) -> Option<Failure> {
        let rated = bss.setup.modes[part.mode_index].response;
        let bytes = BLOCK_ACK_REQUEST_BYTES;
        let end_ns = bss.on_air(sender, Ppdu::BlockAckRequest, at_ns, part.mode, bytes);
        if bss.loses(sender, &rated, bytes) {
            self.nothing_arrived(bss, part, sender, to, end_ns);
            return Some(Failure::Data);
        }
        bss.queues.deliver(part.flow, end_ns);
        self.answer(bss, part, sender, to, end_ns)
    }

    /// One MPDU, or the fragments of one, each with its Ack (10.3.2.11, 10.4).
    fn send_fragments(
        &mut self,
        bss: &mut Bss,
        part: &Part,
        sender: StationId,
        to: StationId,
        mut at_ns: u64,
    ) -> Option<Failure> {
        let leader = self.leaders[part.leaders.start];
        let rated = bss.setup.modes[part.mode_index].data;
        let (fragments, fragment_bytes) = bss.fragments(leader);
        loop {
            let number = bss.queues.slab[leader].fragments;
            let last = number + 1 == fragments;
            let bytes = if fragments == 1 {
                part.psdu_bytes
            } else if last {
                let before = u32::from(number) * fragment_bytes;
                bss.setup.mpdu_extra_bytes + bss.queues.slab[leader].body_bytes - before
            } else {
                bss.setup.mpdu_extra_bytes + fragment_bytes
            };
            let end_ns = bss.on_air(sender, Ppdu::Data, at_ns, part.mode, bytes);
            bss.counters(sender).mpdus += 1;
            if bss.loses(sender, &rated, bytes) {
                self.nothing_arrived(bss, part, sender, to, end_ns);
                return Some(Failure::Data);
            }
            if last {
                bss.queues.receive(leader);
                bss.queues.deliver(part.flow, end_ns);
            }
            let failure = self.answer(bss, part, sender, to, end_ns);
            if failure.is_some() {
                return failure;
            }
            if last {
                return None;
            }
            let entry = &mut bss.queues.slab[leader];
            entry.fragments += 1;
            // 10.3.4.4: the retry counts are those of the MPDU, so each fragment has its own
            (entry.short_retries, entry.long_retries) = (0, 0);
            at_ns = self.end_ns + bss.setup.timing.sifs_ns;
        }
    }

    /// An A-MPDU and its `BlockAck` (10.12, 10.25.6).
    fn send_aggregate(
        &mut self,
        bss: &mut Bss,
        part: &Part,
        sender: StationId,
        to: StationId,
        at_ns: u64,
    ) -> Option<Failure> {
        let rated = bss.setup.modes[part.mode_index].data;
        let end_ns = bss.on_air(sender, Ppdu::Ampdu, at_ns, part.mode, part.psdu_bytes);
        let mut arrived = false;
        for i in part.leaders.clone() {
            let leader = self.leaders[i];
            let bytes = bss.mpdu_bytes(leader);
            if !bss.loses(sender, &rated, bytes) {
                bss.queues.receive(leader);
                arrived = true;
            }
        }
        let mpdus = part.leaders.len() as u64;
        bss.counters(sender).mpdus += mpdus;
        if !arrived {
            self.nothing_arrived(bss, part, sender, to, end_ns);
            return Some(Failure::Data);
        }
        bss.queues.deliver(part.flow, end_ns);
        self.answer(bss, part, sender, to, end_ns)
    }

    /// The receiver answers a SIFS after `end_ns`; the medium is idle after that.
    fn answer(
        &mut self,
        bss: &mut Bss,
        part: &Part,
        sender: StationId,
        to: StationId,
        end_ns: u64,
    ) -> Option<Failure> {
        let rated = bss.setup.modes[part.mode_index].response;
        let (kind, bytes) = part.answer(&bss.setup);
        let at_ns = end_ns + bss.setup.timing.sifs_ns;
        let answer_end_ns = bss.on_air(to, kind, at_ns, rated.mode, bytes);
        self.end_at(bss, answer_end_ns);
        if bss.loses(sender, &rated, bytes) {
            // 10.3.2.11: the timeout waits for the end of a frame that has begun; then EIFS
            let resume_ns = answer_end_ns + bss.setup.eifs_extra_ns(&rated.mode);
            bss.access.hold_station(sender, resume_ns);
            return Some(Failure::Data);
        }
        None
    }

    /// No answer comes. The receiver waits for EIFS, others for the end announced in the frame.
    fn nothing_arrived(
        &mut self,
        bss: &mut Bss,
        part: &Part,
        sender: StationId,
        to: StationId,
        end_ns: u64,
    ) {
        let nav_ns = end_ns + bss.setup.timing.sifs_ns + answer_ns(bss, part);
        self.end_with_nav(bss, end_ns, nav_ns);
        let extra_ns = bss.setup.eifs_extra_ns(&part.mode);
        bss.access.hold_station(to, end_ns + extra_ns);
        let timeout_ns = timeout_ns(bss, part, end_ns);
        bss.access.hold_station(sender, timeout_ns);
    }

    /// The exchange ends with an idle medium that everybody has followed.
    fn end_at(&mut self, bss: &mut Bss, end_ns: u64) {
        self.end_with_nav(bss, end_ns, end_ns);
    }

    /// The exchange ends, but everybody holds back for what was announced.
    fn end_with_nav(&mut self, bss: &mut Bss, end_ns: u64, nav_ns: u64) {
        self.end_ns = end_ns;
        self.busy_until_ns = nav_ns;
        bss.access.hold_all(nav_ns);
    }
}

/// Put a colliding part on air and return the end of what is sent before its failure shows.
fn send_in_vain(bss: &mut Bss, part: &Part, sender: StationId, start_ns: u64) -> u64 {
    let first = bss.log.len();
    let end_ns = if part.reserve {
        let mode = reservation(bss, part);
        bss.on_air(sender, Ppdu::Rts, start_ns, mode, RTS_BYTES)
    } else {
        let at_ns = protect_by_cts(bss, part, sender, start_ns);
        let (kind, bytes) = match part.kind {
            Kind::Beacon { bytes } => (Ppdu::Beacon, bytes),
            Kind::Request { .. } => (Ppdu::BlockAckRequest, BLOCK_ACK_REQUEST_BYTES),
            Kind::Data { .. } if part.aggregated => (Ppdu::Ampdu, part.psdu_bytes),
            Kind::Data { .. } | Kind::Group => (Ppdu::Data, part.psdu_bytes),
        };
        bss.on_air(sender, kind, at_ns, part.mode, bytes)
    };
    bss.log.mark_collided(first);
    end_ns
}

/// 10.27.2: a CTS to oneself before a frame that stations without OFDM cannot hear.
fn protect_by_cts(bss: &mut Bss, part: &Part, sender: StationId, start_ns: u64) -> u64 {
    if !part.protect {
        return start_ns;
    }
    let mode = reservation(bss, part);
    let end_ns = bss.on_air(sender, Ppdu::Cts, start_ns, mode, CTS_BYTES);
    end_ns + bss.setup.timing.sifs_ns
}

fn answer_ns(bss: &Bss, part: &Part) -> u64 {
    let response = &bss.setup.modes[part.mode_index].response;
    response.mode.airtime_ns(part.answer(&bss.setup).1)
}

/// `AckTimeout` and `CTSTimeout`: SIFS, a slot, and the delay up to PHY-RXSTART.
fn timeout_ns(bss: &Bss, part: &Part, end_ns: u64) -> u64 {
    let mode = if part.reserve {
        reservation(bss, part)
    } else {
        part.mode
    };
    let timing = &bss.setup.timing;
    end_ns + timing.sifs_ns + timing.slot_ns + mode.rx_start_delay_ns
}

fn reservation(bss: &Bss, part: &Part) -> Mode {
    bss.setup.modes[part.mode_index].reservation.mode
}
