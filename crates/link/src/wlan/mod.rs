//! IEEE 802.11 airtime as a state machine: one shared half-duplex medium, any number of stations.
//!
//! [`Medium`] takes the time as an argument, so it runs with real packets in real time and, jumping
//! from event to event, in virtual time. It knows nothing of the packets but their lengths.
//!
//! Clauses are those of IEEE Std 802.11-2020 unless another edition is named.

mod air;
mod check;
mod chosen;
mod compose;
mod conclude;
mod config;
mod contender;
mod counters;
mod duplex;
mod errors;
mod exchange;
mod mac;
mod medium;
mod phy;
mod queue;
pub(crate) mod random;
mod rate;
mod rates;
mod setup;
mod snr;

pub use air::{Airtime, Ppdu};
pub use chosen::{Chain, Choice, Rate, Report, Try, CHAIN_LENGTH, MPDU_MAX_BYTES};
pub use config::{
    AggregationConfig, BackgroundConfig, BandConfig, BeaconConfig, Config, ConfigError, EdcaConfig,
    EifsConfig, ErrorConfig, PhyConfig, ProtectionConfig, QosConfig, QueueConfig, RateConfig,
    RtsCounts, SecurityConfig,
};
pub use counters::StationCounters;
pub use duplex::{Duplex, Way};
pub use errors::ErrorModel;
pub use mac::{Category, Edca, Security, Timing, MSDU_MAX_BYTES, SNAP_BYTES, TU_NS};
pub use medium::{Fate, Frame, Medium, Outcome, StationId, Verdict, ACCESS_POINT};
pub use phy::{Band, Class, Mode, Modulation, DSSS_RATES, OFDM_RATES, PPDU_MAX_NS};
pub use queue::Receiver;
pub use rate::RateControl;
pub use setup::{Eifs, Protection, QueueLimit, Setup};
pub use snr::log_bit_survival;
