//! What one access to the medium sends: the next receiver's frames, aggregated or fragmented.

use std::ops::Range;

use super::air::Ppdu;
use super::bss::Bss;
use super::frame::{Receiver, StationId};
use super::mac::{
    ACK_BYTES, AMSDU_HEADER_BYTES, BLOCK_ACK_REQUEST_BYTES, CTS_BYTES, DELIMITER_BYTES, RTS_BYTES,
};
use super::phy::{Class, Mode, PPDU_MAX_NS};
use super::queue::{State, NONE};
use super::setup::{Aggregation, Protection, Setup};

/// One station's share in an exchange.
#[derive(Clone, Debug)]
#[allow(clippy::struct_excessive_bools)] // each is a fact of its own
pub(super) struct Part {
    pub contender: u32,
    pub flow: u32,
    pub kind: Kind,
    pub mode_index: usize,
    pub mode: Mode,
    /// The MPDUs, in the exchange's list of first frames
    pub leaders: Range<usize>,
    /// Length of the first PSDU with data
    pub psdu_bytes: u32,
    pub aggregated: bool,
    /// RTS and CTS before it
    pub reserve: bool,
    /// A CTS to oneself before it
    pub protect: bool,
    /// Later exchange of a TXOP, whose NAV protects it
    pub continues: bool,
    pub failure: Option<Failure>,
    pub resume_ns: u64,
}

/// Where an exchange broke off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Failure {
    /// RTS without CTS
    Reservation,
    /// Data without acknowledgement
    Data,
}

/// What a part is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Data {
        to: StationId,
    },
    /// Data to all
    Group,
    /// Block ack request
    Request {
        to: StationId,
    },
    Beacon {
        bytes: u32,
    },
}

impl Part {
    /// The frame that answers it.
    pub(super) fn answer(&self, setup: &Setup) -> (Ppdu, u32) {
        if self.aggregated || matches!(self.kind, Kind::Request { .. }) {
            (Ppdu::BlockAck, setup.block_ack_bytes())
        } else {
            (Ppdu::Ack, ACK_BYTES)
        }
    }

    /// Whether it is the first frame of its TXOP in a modulation that needs protection.
    pub(super) fn needs_protection(&self) -> bool {
        self.mode.class != Class::Dsss && !self.continues
    }
}

impl Bss {
    /// Put together what the contender sends next; `budget_ns` is what is left of its TXOP. The first
    /// frames of its MPDUs are appended to `leaders`.
    pub(super) fn compose(
        &mut self,
        contender_index: u32,
        budget_ns: Option<u64>,
        leaders: &mut Vec<u32>,
        now_ns: u64,
    ) -> Part {
        let contender = self.access.get(contender_index);
        let mut part = Part {
            contender: contender_index,
            flow: contender.ring.front().copied().unwrap_or(NONE),
            kind: Kind::Group,
            mode_index: 0,
            mode: self.setup.group.mode,
            leaders: leaders.len()..leaders.len(),
            psdu_bytes: 0,
            aggregated: false,
            reserve: false,
            protect: false,
            continues: budget_ns.is_some(),
            failure: None,
            resume_ns: 0,
        };
        if let (true, Some(beacon)) = (contender.beacon_waits, self.setup.beacon) {
            part.kind = Kind::Beacon {
                bytes: beacon.bytes,
            };
            return part;
        }
        match self.queues.flow(part.flow).receiver {
            Receiver::Group => self.compose_group(&mut part, leaders),
            Receiver::Station(to) => {
                self.compose_unicast(&mut part, to, budget_ns, leaders, now_ns);
            }
        }
        part
    }

    fn compose_group(&self, part: &mut Part, leaders: &mut Vec<u32>) {
        let head = self.queues.head(part.flow);
        let entry = &self.queues.slab[head];
        part.psdu_bytes = self.setup.mpdu_extra_bytes + entry.body_bytes;
        if let Some(chain) = entry.chain {
            let first = chain.at(0);
            part.mode_index = usize::from(first.rate);
            part.mode = self.setup.modes[part.mode_index].data.mode;
            part.protect = first.protect && part.needs_protection();
        } else {
            part.protect =
                self.setup.protection == Protection::CtsToSelf && part.needs_protection();
        }
        leaders.push(head);
        part.leaders.end += 1;
    }

    fn compose_unicast(
        &mut self,
        part: &mut Part,
        to: StationId,
        budget_ns: Option<u64>,
        leaders: &mut Vec<u32>,
        now_ns: u64,
    ) {
        let flow = self.queues.flow(part.flow);
        let head = (!flow.is_empty()).then(|| self.queues.slab[flow.head]);
        let chosen = head.and_then(|entry| Some(entry.chain?.at(entry.attempts)));
        part.mode_index = if let Some(chosen) = chosen {
            usize::from(chosen.rate)
        } else if self.setup.chosen {
            flow.mode_index
        } else {
            // an attempt is one with or without RTS; each fragment has its own
            let failed = head.map_or(0, |entry| entry.short_retries + entry.long_retries);
            self.rates.choose(part.flow, failed, now_ns)
        };
        let flow = self.queues.flow_mut(part.flow);
        flow.mode_index = part.mode_index;
        if flow.request {
            part.kind = Kind::Request { to };
            part.mode = self.setup.modes[part.mode_index].response.mode;
            part.psdu_bytes = BLOCK_ACK_REQUEST_BYTES;
            return;
        }
        part.kind = Kind::Data { to };
        part.mode = self.setup.modes[part.mode_index].data.mode;
        self.gather(part, budget_ns, leaders);
        let first = leaders[part.leaders.start];
        if part.leaders.len() == 1 {
            let (fragments, fragment_bytes) = self.fragments(first);
            if fragments > 1 {
                part.psdu_bytes = self.setup.mpdu_extra_bytes + fragment_bytes;
            }
        }
        let counted = if self.setup.rts_by_mpdu {
            self.mpdu_bytes(first)
        } else {
            part.psdu_bytes
        };
        (part.reserve, part.protect) = match chosen {
            Some(chosen) => (
                chosen.reserve && !part.continues,
                chosen.protect && part.needs_protection(),
            ),
            None => (
                !part.continues
                    && (counted > self.setup.rts_threshold_bytes
                        || self.setup.protection == Protection::RtsCts && part.needs_protection()),
                self.setup.protection == Protection::CtsToSelf && part.needs_protection(),
            ),
        };
    }

    /// Number of fragments of an MSDU, and the frame body of all but the last (10.4).
    pub(super) fn fragments(&self, leader: u32) -> (u8, u32) {
        let slab = &self.queues.slab;
        let body_bytes = slab[leader].body_bytes;
        let threshold = self.setup.fragmentation_threshold_bytes;
        let amsdu = slab[leader].next != NONE && slab[slab[leader].next].joined;
        if self.setup.mpdu_extra_bytes + body_bytes <= threshold || amsdu || self.setup.block_ack()
        {
            return (1, body_bytes);
        }
        // an even number of bytes; the threshold is at least 256, so at most 12 fragments
        let fragment_bytes = (threshold - self.setup.mpdu_extra_bytes) & !1;
        let number = body_bytes.div_ceil(fragment_bytes);
        (
            u8::try_from(number).expect("at most 16 fragments"),
            fragment_bytes,
        )
    }

    /// How long the part and its answer take.
    pub(super) fn duration_ns(&self, part: &Part, leaders: &[u32]) -> u64 {
        let sifs_ns = self.setup.timing.sifs_ns;
        let mode = &self.setup.modes[part.mode_index];
        let reservation = mode.reservation.mode;
        let reserve_ns = if part.reserve {
            reservation.airtime_ns(RTS_BYTES) + reservation.airtime_ns(CTS_BYTES) + 2 * sifs_ns
        } else {
            0
        };
        let answer_ns = match part.kind {
            Kind::Group | Kind::Beacon { .. } => 0,
            _ => sifs_ns + mode.response.mode.airtime_ns(part.answer(&self.setup).1),
        };
        let pieces = match part.kind {
            Kind::Data { .. } if part.leaders.len() == 1 => {
                let leader = leaders[part.leaders.start];
                u64::from(self.fragments(leader).0 - self.queues.slab[leader].fragments)
            }
            _ => 1,
        };
        let piece_ns = part.mode.airtime_ns(part.psdu_bytes) + answer_ns;
        reserve_ns + pieces * piece_ns + (pieces - 1) * sifs_ns
    }

    /// Gather the MPDUs of a part: the first one always, more while they fit.
    fn gather(&mut self, part: &mut Part, budget_ns: Option<u64>, leaders: &mut Vec<u32>) {
        let aggregation = self
            .setup
            .aggregation
            .filter(|_| part.mode.class >= Class::Ht);
        let joining = aggregation.filter(|a| a.amsdu_bytes > 0);
        let mut index = self.queues.head(part.flow);
        let mut psdu = Psdu::new(aggregation.map_or(0, |a| spacing_bytes(&a, &part.mode)));
        let limit = aggregation.map_or(0, |a| self.ampdu_limit(&a, part, index, budget_ns));
        for _ in 0..self.setup.block_ack_window() {
            if index == NONE {
                break;
            }
            let leader = index;
            if let Some(aggregation) = joining.filter(|_| !self.queues.slab[leader].tried) {
                self.form_amsdu(leader, &aggregation, &part.mode);
            }
            index = self.queues.after_mpdu(leader);
            let state = self.queues.slab[leader].state;
            if matches!(state, State::Acknowledged | State::Dropped) {
                continue;
            }
            if let Some(&first) = leaders.get(part.leaders.start) {
                if !self.may_join(first, leader) {
                    break;
                }
            }
            if !psdu.add(self.mpdu_bytes(leader), limit) {
                break;
            }
            self.queues.slab[leader].tried = true;
            leaders.push(leader);
            part.leaders.end += 1;
            let most = aggregation
                .filter(|a| a.ampdu_bytes > 0 && self.queues.slab[leader].aggregates)
                .map_or(1, |a| usize::from(a.ampdu_frames));
            if part.leaders.len() >= most {
                break;
            }
        }
        part.aggregated = part.leaders.len() > 1;
        part.psdu_bytes = psdu.bytes(part.mode.class);
    }

    /// Length of an MPDU.
    pub(super) fn mpdu_bytes(&self, leader: u32) -> u32 {
        self.setup.mpdu_extra_bytes + self.queues.slab[leader].body_bytes
    }

    /// Whether a frame may stand in one A-MPDU with the first: a PPDU has but one rate.
    fn may_join(&self, first: u32, leader: u32) -> bool {
        let [first, entry] = [first, leader].map(|index| &self.queues.slab[index]);
        entry.aggregates && entry.chain == first.chain
    }

    /// Largest A-MPDU of a part.
    fn ampdu_limit(&self, a: &Aggregation, part: &Part, first: u32, budget_ns: Option<u64>) -> u32 {
        let contender = self.access.get(part.contender);
        let txop_ns = match (budget_ns, contender.parameters.txop_limit_ns) {
            (Some(budget_ns), _) => budget_ns,
            (None, 0) => u64::MAX,
            (None, limit_ns) => limit_ns,
        };
        let mode = &self.setup.modes[part.mode_index];
        let answer_ns =
            self.setup.timing.sifs_ns + mode.response.mode.airtime_ns(self.setup.block_ack_bytes());
        let sifs_ns = self.setup.timing.sifs_ns;
        let reserve_ns = if !part.continues && self.may_reserve(first) {
            mode.reservation.mode.airtime_ns(RTS_BYTES)
                + mode.reservation.mode.airtime_ns(CTS_BYTES)
                + 2 * sifs_ns
        } else {
            0
        };
        let ppdu_ns = txop_ns
            .saturating_sub(answer_ns + reserve_ns)
            .min(PPDU_MAX_NS);
        a.ampdu_bytes.min(part.mode.psdu_within_ns(ppdu_ns))
    }

    /// Whether an A-MPDU that begins with this frame may need RTS and CTS.
    fn may_reserve(&self, first: u32) -> bool {
        let mpdu_bytes = self.mpdu_bytes(first);
        self.setup.protection != Protection::None
            || if self.setup.rts_by_mpdu {
                mpdu_bytes > self.setup.rts_threshold_bytes
            } else {
                self.setup
                    .aggregation
                    .is_some_and(|a| a.ampdu_bytes > self.setup.rts_threshold_bytes)
            }
    }

    /// Join MSDUs that have not been on air into one A-MSDU behind its first (9.3.2.2.2).
    fn form_amsdu(&mut self, leader: u32, aggregation: &Aggregation, mode: &Mode) {
        let slab = &mut self.queues.slab;
        let extra = self.setup.mpdu_extra_bytes + self.setup.msdu_extra_bytes;
        let mpdu_limit = if aggregation.ampdu_bytes > 0 {
            aggregation
                .mpdu_in_ampdu_bytes
                .min(aggregation.ampdu_bytes - DELIMITER_BYTES)
        } else {
            u32::MAX
        };
        let limit = aggregation
            .amsdu_bytes
            .min(mpdu_limit.saturating_sub(extra))
            .min(
                mode.psdu_within_ns(PPDU_MAX_NS)
                    .saturating_sub(extra + DELIMITER_BYTES),
            );
        let mut length = AMSDU_HEADER_BYTES + slab[leader].msdu_bytes;
        let mut subframes = 1;
        let mut index = slab[leader].next;
        while index != NONE && !slab[index].tried {
            let longer = length.next_multiple_of(4) + AMSDU_HEADER_BYTES + slab[index].msdu_bytes;
            let fits = longer <= limit;
            slab[index].joined = fits;
            if !fits {
                break;
            }
            length = longer;
            subframes += 1;
            index = slab[index].next;
        }
        let entry = &mut slab[leader];
        let bare = if subframes == 1 {
            entry.msdu_bytes
        } else {
            length
        };
        entry.body_bytes = bare + self.setup.msdu_extra_bytes;
    }
}

/// Bytes between the starts of two MPDUs at least (10.12.3).
fn spacing_bytes(aggregation: &Aggregation, mode: &Mode) -> u32 {
    let bits_ns = aggregation.spacing_ns * mode.rate_bit_s;
    u32::try_from(bits_ns.div_ceil(8_000_000_000)).unwrap_or(u32::MAX)
}

/// The PSDU of a part while its MPDUs are gathered.
struct Psdu {
    /// Bytes between the starts of two MPDUs at least
    spacing_bytes: u32,
    mpdus: u32,
    /// Of the one MPDU, as long as it is one
    mpdu_bytes: u32,
    /// All subframes, without the padding of the last
    total: u32,
    /// The last subframe without padding
    last: u32,
}

impl Psdu {
    fn new(spacing_bytes: u32) -> Self {
        Self {
            spacing_bytes,
            mpdus: 0,
            mpdu_bytes: 0,
            total: 0,
            last: 0,
        }
    }

    /// Add an MPDU, the first in any case; false if it is too long for the A-MPDU.
    fn add(&mut self, mpdu_bytes: u32, limit: u32) -> bool {
        let subframe = DELIMITER_BYTES + mpdu_bytes;
        let mut total = subframe;
        if self.mpdus > 0 {
            // the last subframe is padded, and stretched to the spacing by delimiters of four bytes
            let longest = self.last.max(self.spacing_bytes).next_multiple_of(4);
            total += self.total - self.last + longest;
            if total > limit {
                return false;
            }
        }
        self.mpdus += 1;
        self.mpdu_bytes = mpdu_bytes;
        self.total = total;
        self.last = subframe;
        true
    }

    fn bytes(&self, class: Class) -> u32 {
        match class {
            // 9.7.1: VHT and HE send a single MPDU in an A-MPDU too
            Class::Vht | Class::He => self.total.next_multiple_of(4),
            _ if self.mpdus == 1 => self.mpdu_bytes,
            _ => self.total,
        }
    }
}
