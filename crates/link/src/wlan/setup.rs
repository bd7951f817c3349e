//! A medium as the state machine wants it: every rate, size and space worked out beforehand.

use super::errors::{ErrorModel, Rated};
use super::mac::{
    Edca, Timing, BLOCK_ACK_BYTES, BLOCK_ACK_WINDOW, HE_BLOCK_ACK_BYTES, HE_BLOCK_ACK_WINDOW,
};
use super::phy::{Band, Class, Mode};
use super::rate::RateControl;

/// Everything that is fixed for the life of a medium; made by `Config::setup`.
#[derive(Clone, Debug)]
pub struct Setup {
    pub(super) stations: u16,
    pub(super) timing: Timing,
    /// Channel access functions of the access point: one without `QoS`, four with it, in the order
    /// of `Category::ALL`
    pub(super) access_point: Vec<Edca>,
    /// Those of each other station
    pub(super) station: Vec<Edca>,
    pub(super) qos: bool,
    /// Rates for data, slowest first, each with the rate of its Ack, CTS and `BlockAck`
    pub(super) modes: Vec<DataMode>,
    /// Rate of group addressed frames and beacons
    pub(super) group: Rated,
    pub(super) rate_control: RateControl,
    pub(super) protection: Protection,
    pub(super) rts_threshold_bytes: u32,
    /// The threshold looks at each MPDU, not at the whole PSDU
    pub(super) rts_by_mpdu: bool,
    pub(super) fragmentation_threshold_bytes: u32,
    pub(super) short_retry_limit: u16,
    pub(super) long_retry_limit: u16,
    pub(super) queue: QueueLimit,
    /// MAC header, FCS and link security of every MPDU
    pub(super) mpdu_extra_bytes: u32,
    /// Link security of every MSDU
    pub(super) msdu_extra_bytes: u32,
    pub(super) aggregation: Option<Aggregation>,
    pub(super) beacon: Option<Beacon>,
    pub(super) eifs: Eifs,
    /// Longest frame that can be offered
    pub(super) frame_max_bytes: u32,
    /// Frames bring their rates with them
    pub(super) chosen: bool,
    /// Rates as senders name them: where each stands in `modes`
    pub(super) places: Vec<u16>,
}

/// A rate for data with what answers it.
#[derive(Clone, Copy, Debug)]
pub(super) struct DataMode {
    pub data: Rated,
    /// Ack, `BlockAck` and its request
    pub response: Rated,
    /// RTS and CTS
    pub reservation: Rated,
}

/// How long stations hold back after what they could not receive (10.3.2.3.7).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Eifs {
    /// For an Ack at the lowest mandatory rate
    LowestRate,
    /// For the Ack that the PPDU is estimated to have: dot11DynamicEIFSActivated
    Dynamic,
    /// No longer than otherwise, and those that collided likewise: the collision time of Bianchi's
    /// model, for comparison with it
    None,
}

/// How OFDM frames are announced to stations that cannot hear OFDM (10.27.2, 10.27.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protection {
    /// Not at all
    None,
    /// A CTS frame to oneself before the frame
    CtsToSelf,
    /// RTS and CTS before every frame
    RtsCts,
}

/// Drop-tail limit of one station's queue in one access category. Frames stay in the queue until
/// they are acknowledged or given up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QueueLimit {
    /// Frames
    Packets(u32),
    /// Bytes of MSDUs
    Bytes(u64),
}

/// Aggregation of MPDUs and MSDUs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Aggregation {
    /// Maximum A-MPDU length; 0: none
    pub ampdu_bytes: u32,
    /// Maximum MPDUs in one A-MPDU
    pub ampdu_frames: u16,
    /// Maximum A-MSDU length; 0: none
    pub amsdu_bytes: u32,
    /// Largest MPDU in an A-MPDU (9.7.1, Table 9-25)
    pub mpdu_in_ampdu_bytes: u32,
    /// Minimum MPDU start spacing (9.4.2.55.3)
    pub spacing_ns: u64,
}

/// Beacon frames of the access point.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Beacon {
    pub interval_ns: u64,
    pub bytes: u32,
}

impl Setup {
    /// What EIFS has beyond DIFS after a PPDU of this mode that could not be received.
    pub(super) fn eifs_extra_ns(&self, mode: &Mode) -> u64 {
        match self.eifs {
            Eifs::LowestRate => self.timing.eifs_extra_ns,
            Eifs::Dynamic => self.timing.sifs_ns + mode.estimated_ack_ns(),
            Eifs::None => 0,
        }
    }

    /// MPDUs from the first that waits on which one exchange can carry, which is what one `BlockAck`
    /// covers. Both ends agree on that beforehand (10.25.2).
    pub(super) fn block_ack_window(&self) -> u16 {
        match self.aggregation {
            Some(a) if a.ampdu_frames > BLOCK_ACK_WINDOW => HE_BLOCK_ACK_WINDOW,
            _ => BLOCK_ACK_WINDOW,
        }
    }

    /// Length of a `BlockAck` frame with the bitmap for that.
    pub(super) fn block_ack_bytes(&self) -> u32 {
        if self.block_ack_window() > BLOCK_ACK_WINDOW {
            HE_BLOCK_ACK_BYTES
        } else {
            BLOCK_ACK_BYTES
        }
    }

    /// Whether unicast data is sent under block ack agreements.
    pub(super) fn block_ack(&self) -> bool {
        self.aggregation
            .is_some_and(|aggregation| aggregation.ampdu_bytes > 0)
    }
}

impl DataMode {
    /// Rate of the answer by 10.6.6.5: the highest basic rate of the same family that is not
    /// above the reference rate; if there is none, the highest such mandatory rate.
    ///
    /// RTS and CTS use that rate too, or `protection` where stations without OFDM must hear them.
    pub(super) fn new(
        mode: Mode,
        basic: &[Mode],
        protection: Option<Mode>,
        errors: ErrorModel,
    ) -> Self {
        let reference = mode.reference_rate_bit_s();
        let family = if mode.class == Class::Dsss {
            Class::Dsss
        } else {
            Class::Ofdm
        };
        let response = basic
            .iter()
            .filter(|b| b.class == family && b.rate_bit_s <= reference)
            .max_by_key(|b| b.rate_bit_s)
            .copied()
            .unwrap_or_else(|| mandatory(&mode, reference));
        let reservation = match protection {
            Some(protection) if family == Class::Ofdm => protection,
            _ => response,
        };
        Self {
            data: Rated::data(mode, errors),
            response: Rated::control(response, errors),
            reservation: Rated::control(reservation, errors),
        }
    }
}

/// Highest mandatory rate that is not above the reference: 1, 2 (15.4.4.6) or 6, 12, 24 (17.3.8.1).
fn mandatory(mode: &Mode, reference: u64) -> Mode {
    if mode.class == Class::Dsss {
        let rate = if reference >= 2_000_000 {
            2_000_000
        } else {
            1_000_000
        };
        return Mode::dsss(rate, mode.has_short_preamble()).expect("a rate of clause 15");
    }
    let rate = [24_000_000, 12_000_000]
        .into_iter()
        .find(|&rate| rate <= reference)
        .unwrap_or(6_000_000);
    let band = if mode.has_signal_extension() {
        Band::Ghz2
    } else {
        Band::Ghz5
    };
    Mode::ofdm(rate, band).expect("a rate of clause 17")
}
