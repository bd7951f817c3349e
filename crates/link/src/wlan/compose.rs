//! What one access to the medium sends: the next receiver's frames, aggregated or fragmented.

use std::ops::Range;

use super::air::Ppdu;
use super::exchange::Failure;
use super::mac::{
    ACK_BYTES, AMSDU_HEADER_BYTES, BLOCK_ACK_BYTES, BLOCK_ACK_REQUEST_BYTES, BLOCK_ACK_WINDOW,
    CTS_BYTES, DELIMITER_BYTES, RTS_BYTES,
};
use super::medium::{Medium, StationId};
use super::phy::{Class, Mode, PPDU_MAX_NS};
use super::queue::{Receiver, State, NONE};
use super::setup::{Aggregation, Protection};

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
    pub(super) fn answer(&self) -> (Ppdu, u32) {
        if self.aggregated || matches!(self.kind, Kind::Request { .. }) {
            (Ppdu::BlockAck, BLOCK_ACK_BYTES)
        } else {
            (Ppdu::Ack, ACK_BYTES)
        }
    }

    /// Whether it is the first frame of its TXOP in a modulation that needs protection.
    pub(super) fn needs_protection(&self) -> bool {
        self.mode.class != Class::Dsss && !self.continues
    }
}

impl Medium {
    /// Put together what the contender sends next; `budget_ns` is what is left of its TXOP.
    pub(super) fn compose(&mut self, contender_index: u32, budget_ns: Option<u64>) -> Part {
        let contender = &self.contenders[contender_index as usize];
        let leaders = self.exchange.leaders.len();
        let mut part = Part {
            contender: contender_index,
            flow: contender.ring.front().copied().unwrap_or(NONE),
            kind: Kind::Group,
            mode_index: 0,
            mode: self.setup.group.mode,
            leaders: leaders..leaders,
            psdu_bytes: 0,
            aggregated: false,
            reserve: false,
            protect: false,
            continues: budget_ns.is_some(),
            failure: None,
            resume_ns: 0,
        };
        if let (true, Some(beacon)) = (contender.beacon, self.setup.beacon) {
            part.kind = Kind::Beacon {
                bytes: beacon.bytes,
            };
            return part;
        }
        let flow = &self.flows[part.flow as usize];
        let Receiver::Station(to) = flow.receiver else {
            let head = flow.head;
            part.psdu_bytes = self.setup.mpdu_extra_bytes + self.slab[head].body_bytes;
            if let Some(chain) = self.slab[head].chain {
                let first = chain.at(0);
                part.mode_index = usize::from(first.rate);
                part.mode = self.setup.modes[part.mode_index].data.mode;
                part.protect = first.protect && part.needs_protection();
            } else {
                part.protect =
                    self.setup.protection == Protection::CtsToSelf && part.needs_protection();
            }
            self.exchange.leaders.push(head);
            part.leaders.end += 1;
            return part;
        };
        let head = (!flow.is_empty()).then(|| self.slab[flow.head]);
        let chosen = head.and_then(|entry| Some(entry.chain?.at(entry.attempts)));
        part.mode_index = if let Some(chosen) = chosen {
            usize::from(chosen.rate)
        } else if self.setup.chosen {
            flow.mode_index
        } else {
            let retries = head.map_or(0, |entry| entry.short_retries);
            self.rates.choose(part.flow, retries, self.now_ns)
        };
        let request = flow.request;
        self.flows[part.flow as usize].mode_index = part.mode_index;
        if request {
            part.kind = Kind::Request { to };
            part.mode = self.setup.modes[part.mode_index].response.mode;
            part.psdu_bytes = BLOCK_ACK_REQUEST_BYTES;
            return part;
        }
        part.kind = Kind::Data { to };
        part.mode = self.setup.modes[part.mode_index].data.mode;
        self.gather(&mut part, budget_ns);
        let first = self.exchange.leaders[part.leaders.start];
        if part.leaders.len() == 1 {
            let (fragments, fragment_bytes) = self.fragments(first);
            if fragments > 1 {
                part.psdu_bytes = self.setup.mpdu_extra_bytes + fragment_bytes;
            }
        }
        let counted = if self.setup.rts_by_mpdu {
            self.setup.mpdu_extra_bytes + self.slab[first].body_bytes
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
        part
    }

    /// Number of fragments of an MSDU, and the frame body of all but the last (10.4).
    pub(super) fn fragments(&self, leader: u32) -> (u8, u32) {
        let body_bytes = self.slab[leader].body_bytes;
        let threshold = self.setup.fragmentation_threshold_bytes;
        let amsdu = self.slab[leader].next != NONE && self.slab[self.slab[leader].next].joined;
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
    pub(super) fn duration_ns(&self, part: &Part) -> u64 {
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
            _ => sifs_ns + mode.response.mode.airtime_ns(part.answer().1),
        };
        let pieces = match part.kind {
            Kind::Data { .. } if part.leaders.len() == 1 => {
                let leader = self.exchange.leaders[part.leaders.start];
                u64::from(self.fragments(leader).0 - self.slab[leader].fragments)
            }
            _ => 1,
        };
        let piece_ns = part.mode.airtime_ns(part.psdu_bytes) + answer_ns;
        reserve_ns + pieces * piece_ns + (pieces - 1) * sifs_ns
    }

    /// Gather the MPDUs of a part: the first one always, more while they fit.
    fn gather(&mut self, part: &mut Part, budget_ns: Option<u64>) {
        let aggregation = self
            .setup
            .aggregation
            .filter(|_| part.mode.class >= Class::Ht);
        let mut index = self.flows[part.flow as usize].head;
        let mut covered = 0;
        let mut total = 0;
        let limit = aggregation.map_or(0, |a| self.ampdu_limit(&a, part, index, budget_ns));
        while index != NONE && covered < BLOCK_ACK_WINDOW {
            let leader = index;
            let joins = aggregation.filter(|a| a.amsdu_bytes > 0 && !self.slab[leader].tried);
            if let Some(aggregation) = joins {
                self.form_amsdu(leader, &aggregation, &part.mode);
            }
            index = self.after_mpdu(leader);
            covered += 1;
            if matches!(
                self.slab[leader].state,
                State::Acknowledged | State::Dropped
            ) {
                continue;
            }
            let mpdu_bytes = self.setup.mpdu_extra_bytes + self.slab[leader].body_bytes;
            let subframe_bytes = DELIMITER_BYTES + mpdu_bytes;
            let gathered = part.leaders.len();
            if gathered > 0 && !self.may_join(part, leader) {
                break;
            }
            if gathered == 0 {
                part.psdu_bytes = if part.mode.class == Class::Vht {
                    // 9.7.1: VHT sends a single MPDU in an A-MPDU too
                    subframe_bytes.next_multiple_of(4)
                } else {
                    mpdu_bytes
                };
                total = subframe_bytes;
            } else {
                let spacing_bytes = aggregation.map_or(0, |a| spacing_bytes(&a, &part.mode));
                let more = total.next_multiple_of(4).max(spacing_bytes_total(
                    total,
                    spacing_bytes,
                    self.last_subframe_bytes(part),
                )) + subframe_bytes;
                if more > limit {
                    break;
                }
                total = more;
                part.aggregated = true;
                part.psdu_bytes = if part.mode.class == Class::Vht {
                    total.next_multiple_of(4)
                } else {
                    total
                };
            }
            self.slab[leader].tried = true;
            self.exchange.leaders.push(leader);
            part.leaders.end += 1;
            let frames = aggregation
                .filter(|a| a.ampdu_bytes > 0 && self.slab[leader].aggregates)
                .map_or(1, |a| usize::from(a.ampdu_frames));
            if part.leaders.len() >= frames {
                break;
            }
        }
    }

    /// Whether a frame may stand in one A-MPDU with those gathered: a PPDU has but one rate.
    fn may_join(&self, part: &Part, leader: u32) -> bool {
        let first = &self.slab[self.exchange.leaders[part.leaders.start]];
        let entry = &self.slab[leader];
        entry.aggregates && entry.chain == first.chain
    }

    /// Largest A-MPDU of a part.
    fn ampdu_limit(&self, a: &Aggregation, part: &Part, first: u32, budget_ns: Option<u64>) -> u32 {
        let contender = &self.contenders[part.contender as usize];
        let txop_ns = match (budget_ns, contender.parameters.txop_limit_ns) {
            (Some(budget_ns), _) => budget_ns,
            (None, 0) => u64::MAX,
            (None, limit_ns) => limit_ns,
        };
        let mode = &self.setup.modes[part.mode_index];
        let answer_ns = self.setup.timing.sifs_ns + mode.response.mode.airtime_ns(BLOCK_ACK_BYTES);
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
        let mpdu_bytes = self.setup.mpdu_extra_bytes + self.slab[first].body_bytes;
        self.setup.protection != Protection::None
            || if self.setup.rts_by_mpdu {
                mpdu_bytes > self.setup.rts_threshold_bytes
            } else {
                self.setup
                    .aggregation
                    .is_some_and(|a| a.ampdu_bytes > self.setup.rts_threshold_bytes)
            }
    }

    /// Length of the last gathered subframe without padding.
    fn last_subframe_bytes(&self, part: &Part) -> u32 {
        let last = self.exchange.leaders[part.leaders.end - 1];
        DELIMITER_BYTES + self.setup.mpdu_extra_bytes + self.slab[last].body_bytes
    }

    /// Join MSDUs that have not been on air into one A-MSDU behind its first (9.3.2.2.2).
    fn form_amsdu(&mut self, leader: u32, aggregation: &Aggregation, mode: &Mode) {
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
        let mut length = AMSDU_HEADER_BYTES + self.slab[leader].msdu_bytes;
        let mut subframes = 1;
        let mut index = self.slab[leader].next;
        while index != NONE && !self.slab[index].tried {
            let longer =
                length.next_multiple_of(4) + AMSDU_HEADER_BYTES + self.slab[index].msdu_bytes;
            let fits = longer <= limit;
            self.slab[index].joined = fits;
            if !fits {
                break;
            }
            length = longer;
            subframes += 1;
            index = self.slab[index].next;
        }
        let entry = &mut self.slab[leader];
        let bare = if subframes == 1 {
            entry.msdu_bytes
        } else {
            length
        };
        entry.body_bytes = bare + self.setup.msdu_extra_bytes;
    }

    /// The frame behind an MPDU.
    pub(super) fn after_mpdu(&self, leader: u32) -> u32 {
        let mut index = self.slab[leader].next;
        while index != NONE && self.slab[index].joined {
            index = self.slab[index].next;
        }
        index
    }
}

/// Bytes between the starts of two MPDUs at least (10.12.3).
fn spacing_bytes(aggregation: &Aggregation, mode: &Mode) -> u32 {
    let bits_ns = aggregation.spacing_ns * mode.rate_bit_s;
    u32::try_from(bits_ns.div_ceil(8_000_000_000)).unwrap_or(u32::MAX)
}

/// Length with the last subframe stretched to the spacing by delimiters of four bytes.
fn spacing_bytes_total(total: u32, spacing_bytes: u32, last_bytes: u32) -> u32 {
    total - last_bytes
        + spacing_bytes
            .next_multiple_of(4)
            .max(last_bytes.next_multiple_of(4))
}
