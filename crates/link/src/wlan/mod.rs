//! IEEE 802.11 airtime as a state machine: one shared half-duplex medium, any number of stations.
//!
//! [`Medium`] takes the time as an argument, so it runs with real packets in real time and, jumping
//! from event to event, in virtual time. It knows nothing of the packets but their lengths.
//!
//! Clauses are those of IEEE Std 802.11-2020 unless another edition is named.

mod access;
mod air;
mod bss;
mod check;
mod checker;
mod chosen;
mod compose;
mod conclude;
mod config;
mod counters;
mod duplex;
mod errors;
mod exchange;
mod frame;
mod mac;
mod medium;
mod phy;
mod queue;
mod rate;
mod rates;
mod setup;
mod snr;

pub use air::{Airtime, Ppdu};
pub use chosen::{Chain, Choice, Rate, Report, Try, CHAIN_LENGTH, MPDU_MAX_BYTES};
pub use config::{
    AggregationConfig, BackgroundConfig, BandConfig, BeaconConfig, CategoriesConfig, Config,
    EdcaConfig, EifsConfig, ErrorConfig, PhyConfig, ProtectionConfig, QosConfig, QueueConfig,
    RateConfig, RtsCounts, SecurityConfig,
};
pub use counters::StationCounters;
pub use duplex::{Duplex, Way};
pub use errors::ErrorModel;
pub use frame::{Fate, Frame, Outcome, Receiver, StationId, Verdict, ACCESS_POINT};
pub use mac::{Category, Edca, Security, Timing, MSDU_MAX_BYTES, SNAP_BYTES, TU_NS};
pub use medium::Medium;
pub use phy::{Band, Class, Mode, Modulation, DSSS_RATES, OFDM_RATES, PPDU_MAX_NS};
pub use rate::RateControl;
pub use setup::{Eifs, Protection, QueueLimit, Setup};
pub use snr::log_bit_survival;
