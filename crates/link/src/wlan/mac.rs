//! Sizes of MAC frames, interframe spaces and access categories.
//!
//! Clauses are those of IEEE Std 802.11-2020 unless another edition is named.

use super::phy::{Mode, US};

/// RTS frame (9.3.1.2), bytes with FCS.
pub const RTS_BYTES: u32 = 20;
/// CTS frame (9.3.1.3).
pub const CTS_BYTES: u32 = 14;
/// Ack frame (9.3.1.4).
pub const ACK_BYTES: u32 = 14;
/// Basic `BlockAckReq` frame, compressed bitmap (9.3.1.7).
pub const BLOCK_ACK_REQUEST_BYTES: u32 = 24;
/// `BlockAck` frame with the compressed 8-byte bitmap (9.3.1.8).
pub const BLOCK_ACK_BYTES: u32 = 32;
/// `BlockAck` frame with the compressed 32-byte bitmap (9.3.1.8 of 802.11ax).
pub const HE_BLOCK_ACK_BYTES: u32 = 56;
/// LLC and SNAP header that an Ethernet payload gets in an MSDU (RFC 1042).
pub const SNAP_BYTES: u32 = 8;
/// Largest MSDU (Table 9-25).
pub const MSDU_MAX_BYTES: u32 = 2304;
/// A-MPDU delimiter (9.7.1).
pub const DELIMITER_BYTES: u32 = 4;
/// A-MSDU subframe header (9.3.2.2.2).
pub const AMSDU_HEADER_BYTES: u32 = 14;
/// MPDUs a block ack with a compressed bitmap covers (9.3.1.8.2).
pub const BLOCK_ACK_WINDOW: u16 = 64;
/// MPDUs a block ack with the bitmap of 32 bytes covers (9.3.1.8.2 of 802.11ax).
pub const HE_BLOCK_ACK_WINDOW: u16 = 256;
/// One time unit (3.1): 1024 µs.
pub const TU_NS: u64 = 1_024 * US;

/// Link security; the sizes are what each adds to an unfragmented MPDU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Security {
    /// Open
    None,
    /// 12.3.2: IV 4, ICV 4
    Wep,
    /// 12.5.2: IV and extended IV 8, ICV 4 for each MPDU; Michael MIC 8 for each MSDU
    Tkip,
    /// 12.5.3: header 8, MIC 8
    Ccmp,
    /// 12.5.5: header 8, MIC 16
    Gcmp,
}

impl Security {
    /// Bytes added to each MPDU.
    #[must_use]
    pub fn mpdu_bytes(self) -> u32 {
        match self {
            Self::None => 0,
            Self::Wep => 8,
            Self::Tkip => 12,
            Self::Ccmp => 16,
            Self::Gcmp => 24,
        }
    }

    /// Bytes added to each MSDU before it is fragmented.
    #[must_use]
    pub fn msdu_bytes(self) -> u32 {
        if self == Self::Tkip {
            8
        } else {
            0
        }
    }
}

/// Interframe spaces and contention windows of a BSS.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timing {
    /// aSlotTime
    pub slot_ns: u64,
    /// aSIFSTime
    pub sifs_ns: u64,
    /// aCWmin
    pub cw_min: u32,
    /// aCWmax
    pub cw_max: u32,
    /// What EIFS has beyond DIFS: SIFS and an Ack at the lowest mandatory rate (10.3.2.3.7)
    pub eifs_extra_ns: u64,
}

impl Timing {
    /// DSSS and HR/DSSS (15.3.3, 16.3.3).
    #[must_use]
    pub fn dsss(lowest: &Mode) -> Self {
        Self::new(20, 10, 31, lowest)
    }

    /// ERP (Table 18-5): long slots where non-ERP stations are to be expected.
    ///
    /// aCWmin(1) = 15 holds for stations whose rates are not all of clause 15 or 16.
    #[must_use]
    pub fn erp(short_slot: bool, lowest: &Mode) -> Self {
        Self::new(if short_slot { 9 } else { 20 }, 10, 15, lowest)
    }

    /// OFDM with 20 MHz, HT, VHT and HE in the 5 GHz band (Table 17-21, Table 19-25, Table 21-28, Table
    /// 27-61).
    #[must_use]
    pub fn ofdm(lowest: &Mode) -> Self {
        Self::new(9, 16, 15, lowest)
    }

    fn new(slot_us: u64, sifs_us: u64, cw_min: u32, lowest: &Mode) -> Self {
        Self {
            slot_ns: slot_us * US,
            sifs_ns: sifs_us * US,
            cw_min,
            cw_max: 1023,
            eifs_extra_ns: sifs_us * US + lowest.airtime_ns(ACK_BYTES),
        }
    }

    /// AIFS (10.3.2.3.6); with `aifsn` 2 it is DIFS (10.3.2.3.5).
    #[must_use]
    pub fn aifs_ns(&self, aifsn: u8) -> u64 {
        self.sifs_ns + u64::from(aifsn) * self.slot_ns
    }
}

/// Access category, the higher the more urgent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Category {
    /// Background
    Background,
    /// Best effort; also everything where there is no `QoS`
    BestEffort,
    /// Video
    Video,
    /// Voice
    Voice,
}

impl Category {
    /// All categories in the order of their index.
    pub const ALL: [Self; 4] = [Self::Background, Self::BestEffort, Self::Video, Self::Voice];

    /// Category of an IP packet by its DSCP: the user priority is that of RFC 8325 section 4.3,
    /// the category that of Table 10-1.
    #[must_use]
    pub fn from_dscp(dscp: u8) -> Self {
        match dscp {
            // VOICE-ADMIT, EF; CS6 and CS7, network control, where they are trusted
            44 | 46 | 48 | 56 => Self::Voice,
            // CS3, AF3x, CS4, AF4x, CS5
            24 | 26 | 28 | 30 | 32 | 34 | 36 | 38 | 40 => Self::Video,
            // CS1 and LE (RFC 8622)
            1 | 8 => Self::Background,
            _ => Self::BestEffort,
        }
    }

    /// Category of an 802.1D user priority (Table 10-1).
    #[must_use]
    pub fn from_user_priority(priority: u8) -> Self {
        match priority & 7 {
            1 | 2 => Self::Background,
            4 | 5 => Self::Video,
            6 | 7 => Self::Voice,
            _ => Self::BestEffort,
        }
    }
}

/// How an access category contends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Edca {
    /// Arbitration interframe space number
    pub aifsn: u8,
    /// Smallest contention window
    pub cw_min: u32,
    /// Largest contention window
    pub cw_max: u32,
    /// TXOP limit; 0 is one frame exchange
    pub txop_limit_ns: u64,
}

impl Edca {
    /// The distributed coordination function: DIFS, one frame exchange (10.3).
    #[must_use]
    pub fn dcf(timing: &Timing) -> Self {
        Self {
            aifsn: 2,
            cw_min: timing.cw_min,
            cw_max: timing.cw_max,
            txop_limit_ns: 0,
        }
    }

    /// Of a station: defaults of IEEE Std 802.11-2016 Table 9-137, which Linux access points
    /// announce and WMM has. (802.11-2020 Table 9-155 has longer TXOP limits; set them where wanted.)
    #[must_use]
    pub fn of_station(category: Category, timing: &Timing, dsss: bool) -> Self {
        let (cw_min, cw_max) = (timing.cw_min, timing.cw_max);
        let (aifsn, cw_min, cw_max, txop_us) = match category {
            Category::Background => (7, cw_min, cw_max, 0),
            Category::BestEffort => (3, cw_min, cw_max, 0),
            Category::Video => (
                2,
                cw_min.div_ceil(2) - 1,
                cw_min,
                if dsss { 6_016 } else { 3_008 },
            ),
            Category::Voice => (
                2,
                cw_min.div_ceil(4) - 1,
                cw_min.div_ceil(2) - 1,
                if dsss { 3_264 } else { 1_504 },
            ),
        };
        Self {
            aifsn,
            cw_min,
            cw_max,
            txop_limit_ns: txop_us * US,
        }
    }

    /// Of the access point itself: the transmit queues of hostapd (`txq_bk` to `txq_vo` in
    /// `hostapd_config_defaults`, `src/ap/ap_config.c`), the same in every mode. Its bursts of 3.0 and
    /// 1.5 ms become 94 and 47 units of 32 µs in the kernel.
    #[must_use]
    pub fn of_access_point(category: Category) -> Self {
        let (aifsn, cw_min, cw_max, txop_units) = match category {
            Category::Background => (7, 15, 1_023, 0),
            Category::BestEffort => (3, 15, 63, 0),
            Category::Video => (1, 7, 15, 94),
            Category::Voice => (1, 3, 7, 47),
        };
        Self {
            aifsn,
            cw_min,
            cw_max,
            txop_limit_ns: txop_units * 32 * US,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::phy::Band;
    use super::*;

    #[test]
    fn interframe_spaces_are_those_of_the_standard() {
        let b = Timing::dsss(&Mode::dsss(1_000_000, false).unwrap());
        assert_eq!(b.aifs_ns(2), 50 * US);
        assert_eq!(b.aifs_ns(2) + b.eifs_extra_ns, 364 * US);
        let a = Timing::ofdm(&Mode::ofdm(6_000_000, Band::Ghz5).unwrap());
        assert_eq!(a.aifs_ns(2), 34 * US);
        assert_eq!(a.aifs_ns(2) + a.eifs_extra_ns, 94 * US);
        assert_eq!(a.aifs_ns(3), 43 * US);
        let g = Timing::erp(true, &Mode::dsss(1_000_000, false).unwrap());
        assert_eq!(g.aifs_ns(2), 28 * US);
        assert_eq!(
            Timing::erp(false, &Mode::dsss(1_000_000, false).unwrap()).aifs_ns(2),
            50 * US
        );
    }

    #[test]
    fn default_edca_parameters_are_those_of_table_9_137() {
        let a = Timing::ofdm(&Mode::ofdm(6_000_000, Band::Ghz5).unwrap());
        let row = |category| {
            let e = Edca::of_station(category, &a, false);
            (e.aifsn, e.cw_min, e.cw_max, e.txop_limit_ns / US)
        };
        assert_eq!(row(Category::Background), (7, 15, 1023, 0));
        assert_eq!(row(Category::BestEffort), (3, 15, 1023, 0));
        assert_eq!(row(Category::Video), (2, 7, 15, 3_008));
        assert_eq!(row(Category::Voice), (2, 3, 7, 1_504));
        let b = Timing::dsss(&Mode::dsss(1_000_000, false).unwrap());
        let voice = Edca::of_station(Category::Voice, &b, true);
        assert_eq!(
            (voice.cw_min, voice.cw_max, voice.txop_limit_ns),
            (7, 15, 3_264 * US)
        );
    }

    #[test]
    fn the_access_point_has_the_queues_of_hostapd() {
        let row = |category| {
            let e = Edca::of_access_point(category);
            (e.aifsn, e.cw_min, e.cw_max, e.txop_limit_ns / US)
        };
        assert_eq!(row(Category::Background), (7, 15, 1023, 0));
        assert_eq!(row(Category::BestEffort), (3, 15, 63, 0));
        assert_eq!(row(Category::Video), (1, 7, 15, 3_008));
        assert_eq!(row(Category::Voice), (1, 3, 7, 1_504));
    }

    #[test]
    fn dscp_maps_as_rfc_8325_recommends() {
        use Category::{Background, BestEffort, Video, Voice};
        for (dscp, category) in [
            (0, BestEffort),
            (46, Voice),
            (44, Voice),
            (48, Voice),
            (40, Video),
            (34, Video),
            (36, Video),
            (38, Video),
            (32, Video),
            (26, Video),
            (24, Video),
            (18, BestEffort),
            (16, BestEffort),
            (10, BestEffort),
            (8, Background),
            (1, Background),
        ] {
            assert_eq!(Category::from_dscp(dscp), category, "DSCP {dscp}");
        }
        assert_eq!(
            [0, 1, 2, 3, 4, 5, 6, 7].map(Category::from_user_priority),
            [BestEffort, Background, Background, BestEffort, Video, Video, Voice, Voice]
        );
    }
}
