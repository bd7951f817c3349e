//! The configuration of a WLAN as it comes in from outside; `check` refuses what cannot be.

use serde::Deserialize;

/// A basic service set.
#[derive(Clone, Debug, Deserialize, PartialEq)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// Physical layer
    pub phy: PhyConfig,
    /// Rate of unicast data
    pub rate: RateConfig,
    /// BSS basic rate set: what answers and group addressed frames may use
    pub basic_rates_bit_s: Vec<u64>,
    /// Protection of OFDM frames where stations without OFDM are to be expected
    pub protection: ProtectionConfig,
    /// RTS and CTS for what is longer, bytes with MAC header and FCS: dot11RTSThreshold
    pub rts_threshold_bytes: u32,
    /// What that threshold looks at: the whole PSDU (10.3.1) or each MPDU, as Linux drivers do
    pub rts_counts: RtsCounts,
    /// Longest MPDU that is not fragmented: dot11FragmentationThreshold
    pub fragmentation_threshold_bytes: u32,
    /// Attempts without RTS, or of the RTS: dot11ShortRetryLimit
    pub short_retry_limit: u16,
    /// Attempts after an RTS: dot11LongRetryLimit
    pub long_retry_limit: u16,
    /// Drop-tail limit of a station's queue, in each access category
    pub queue: QueueConfig,
    /// Access categories; null: the distributed coordination function alone
    pub qos: Option<QosConfig>,
    /// Aggregation; null: none
    pub aggregation: Option<AggregationConfig>,
    /// Link security, for its bytes
    pub security: SecurityConfig,
    /// MAC headers with four addresses (wireless distribution) instead of three
    pub four_addresses: bool,
    /// Frame errors beside collisions
    pub errors: ErrorConfig,
    /// Beacons of the access point; null: none
    pub beacon: Option<BeaconConfig>,
    /// How long to hold back after what could not be received
    pub eifs: EifsConfig,
    /// Stations beside the access point
    pub stations: u16,
    /// Traffic of the stations 2 and up, where a link is made of the medium; null: none
    pub background: Option<BackgroundConfig>,
}

/// Physical layer.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(tag = "standard", deny_unknown_fields)]
pub enum PhyConfig {
    /// HR/DSSS, clause 16
    #[serde(rename = "802.11b")]
    B {
        /// Preamble of 96 µs instead of 192 µs
        short_preamble: bool,
    },
    /// OFDM, clause 17, 5 GHz band
    #[serde(rename = "802.11a")]
    A {},
    /// ERP, clause 18, 2.4 GHz band
    #[serde(rename = "802.11g")]
    G {
        /// Slots of 9 µs instead of 20 µs
        short_slot: bool,
        /// Of DSSS frames
        short_preamble: bool,
    },
    /// HT, clause 19
    #[serde(rename = "802.11n")]
    N {
        /// "2.4 GHz" or "5 GHz"
        band: BandConfig,
        /// Slots of 9 µs instead of 20 µs, in the 2.4 GHz band
        short_slot: bool,
        /// Of DSSS frames, in the 2.4 GHz band
        short_preamble: bool,
        /// 20 or 40
        width_mhz: u16,
        /// 800 or 400
        guard_interval_ns: u16,
        /// Preamble without legacy part
        greenfield: bool,
    },
    /// VHT, clause 21, 5 GHz band
    #[serde(rename = "802.11ac")]
    Ac {
        /// 20, 40 or 80
        width_mhz: u16,
        /// 800 or 400
        guard_interval_ns: u16,
    },
    /// HE of a single user, clause 27, 5 GHz band
    #[serde(rename = "802.11ax")]
    Ax {
        /// 20, 40 or 80
        width_mhz: u16,
        /// 800, 1600 or 3200
        guard_interval_ns: u16,
    },
}

/// Frequency band.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
pub enum BandConfig {
    /// 2.4 GHz
    #[serde(rename = "2.4 GHz")]
    Ghz2,
    /// 5 GHz
    #[serde(rename = "5 GHz")]
    Ghz5,
}

/// Rate of unicast data.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(tag = "type", rename_all = "snake_case", deny_unknown_fields)]
pub enum RateConfig {
    /// 802.11b, a, g
    Fixed {
        /// Data rate
        rate_bit_s: u64,
    },
    /// 802.11n, ac, ax
    Mcs {
        /// 0–31 (802.11n, streams included), 0–9 (802.11ac), 0–11 (802.11ax)
        mcs: u8,
        /// Spatial streams, 1–4
        streams: u8,
    },
    /// By what gets through, among all rates of the physical layer
    Minstrel {
        /// Most spatial streams to use; 1 in 802.11b, a, g
        max_streams: u8,
    },
}

/// See [`super::Protection`].
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
pub enum ProtectionConfig {
    /// None
    None,
    /// CTS-to-self
    CtsToSelf,
    /// RTS and CTS
    RtsCts,
}

/// See [`super::Eifs`].
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
pub enum EifsConfig {
    /// By the lowest mandatory rate
    LowestRate,
    /// By the PPDU
    Dynamic,
    /// DIFS only
    None,
}

/// What the RTS threshold looks at.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
pub enum RtsCounts {
    /// The PSDU, an A-MPDU as a whole
    Psdu,
    /// Each MPDU
    Mpdu,
}

/// See [`super::QueueLimit`].
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(tag = "type", rename_all = "snake_case", deny_unknown_fields)]
pub enum QueueConfig {
    /// Frames
    Packets {
        /// 1 to 1 000 000
        limit: u64,
    },
    /// Bytes of MSDUs
    Bytes {
        /// From one longest MSDU to 1 GiB
        limit: u64,
    },
}

/// Access categories. What stations use an access point announces; what it uses itself is its own
/// affair (9.4.2.28), so both are set apart.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(deny_unknown_fields)]
pub struct QosConfig {
    /// Of the stations; null takes [`super::Edca::of_station`]
    pub stations: CategoriesConfig,
    /// Of the access point; null takes [`super::Edca::of_access_point`]
    pub access_point: CategoriesConfig,
}

/// Each access category; null takes its default.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(deny_unknown_fields)]
pub struct CategoriesConfig {
    /// `AC_BK`
    pub background: Option<EdcaConfig>,
    /// `AC_BE`
    pub best_effort: Option<EdcaConfig>,
    /// `AC_VI`
    pub video: Option<EdcaConfig>,
    /// `AC_VO`
    pub voice: Option<EdcaConfig>,
}

/// Parameters of an access category (9.4.2.28).
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(deny_unknown_fields)]
pub struct EdcaConfig {
    /// 1–15
    pub aifsn: u8,
    /// A power of two less one, at most 32767
    pub cw_min: u32,
    /// A power of two less one, at most 32767
    pub cw_max: u32,
    /// A multiple of 32 µs, at most 65535 of them; 0: one frame exchange
    pub txop_limit_ns: u64,
}

/// Aggregation.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(deny_unknown_fields)]
pub struct AggregationConfig {
    /// Maximum A-MPDU length, 0: none. A power of two less one from 8191, to 65535 (802.11n) or
    /// 1048575 (802.11ac) or 4194303 (802.11ax)
    pub ampdu_max_bytes: u32,
    /// Maximum MPDUs in an A-MPDU, 1–64, in 802.11ax to 256
    pub ampdu_max_frames: u16,
    /// Maximum A-MSDU length, 0: none; 3839 or 7935, in 802.11ac and ax also 11398
    pub amsdu_max_bytes: u32,
    /// Minimum MPDU start spacing: 0, 250, 500, 1000, 2000, 4000, 8000 or 16000
    pub mpdu_spacing_ns: u64,
}

/// See [`super::Security`].
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
pub enum SecurityConfig {
    /// Open
    None,
    /// WEP
    Wep,
    /// TKIP
    Tkip,
    /// CCMP
    Ccmp,
    /// GCMP
    Gcmp,
}

/// See [`super::ErrorModel`].
#[derive(Clone, Copy, Debug, Deserialize, PartialEq)]
#[serde(tag = "type", rename_all = "snake_case", deny_unknown_fields)]
pub enum ErrorConfig {
    /// Never
    None {},
    /// Each MPDU with data
    Fixed {
        /// 0–1
        probability: f64,
    },
    /// By rate and length
    Snr {
        /// −20 to 80
        snr_db: f64,
    },
}

/// Stations that always have a frame for the access point, best effort.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(deny_unknown_fields)]
pub struct BackgroundConfig {
    /// Length of their MSDUs, 1–2304
    pub msdu_bytes: u32,
}

/// Beacons.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(deny_unknown_fields)]
pub struct BeaconConfig {
    /// In time units of 1024 µs, 1–65535
    pub interval_tu: u16,
    /// Length of the frame with MAC header and FCS, 60–2320
    pub bytes: u32,
}
