//! Frames whose sender chooses the rates: real radios, of which the medium knows nothing beforehand.

use super::checker::Checker;
use super::config::{BandConfig, Config, PhyConfig, ProtectionConfig};
use super::frame::StationId;
use super::phy::{Band, Class, Mode, DSSS_RATES, OFDM_RATES};
use super::rate::RateControl;
use super::setup::{DataMode, Protection, Setup};

use crate::error::ConfigError;

/// Rates that a sender may give a frame, one after the other.
pub const CHAIN_LENGTH: usize = 4;
/// Longest MPDU with FCS: a frame body of 2304 bytes and the largest header and trailer around it
/// (9.2.3).
pub const MPDU_MAX_BYTES: u32 = 2_352;

/// A rate as a sender names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Rate {
    /// 802.11b, g, a
    Legacy {
        /// Data rate
        rate_bit_s: u64,
        /// Of a DSSS frame
        short_preamble: bool,
    },
    /// 802.11n
    Ht {
        /// 0–31
        mcs: u8,
        /// 40 MHz instead of 20
        wide: bool,
        /// Guard interval of 400 ns
        short_guard: bool,
        /// Preamble without legacy part
        greenfield: bool,
    },
}

/// One rate of a chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Try {
    /// From [`Setup::rate_index`]
    pub rate: u16,
    /// Attempts at it, at least one
    pub attempts: u8,
    /// RTS and CTS before it
    pub reserve: bool,
    /// A CTS frame to oneself before it
    pub protect: bool,
}

/// What a sender has chosen for a frame: its rates in order. The frame is given up after the last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Chain {
    tries: [Try; CHAIN_LENGTH],
    length: u8,
}

impl Chain {
    /// At most [`CHAIN_LENGTH`] rates; `None` if there is none, or one without an attempt.
    #[must_use]
    pub fn new(tries: &[Try]) -> Option<Self> {
        let first = *tries.first()?;
        if tries.len() > CHAIN_LENGTH || tries.iter().any(|one| one.attempts == 0) {
            return None;
        }
        let mut all = [first; CHAIN_LENGTH];
        all[..tries.len()].copy_from_slice(tries);
        let length = u8::try_from(tries.len()).expect("at most four");
        Some(Self { tries: all, length })
    }

    /// The rates.
    #[must_use]
    pub fn tries(&self) -> &[Try] {
        &self.tries[..usize::from(self.length)]
    }

    /// Attempts until the frame is given up.
    #[must_use]
    pub fn attempts(&self) -> u16 {
        self.tries().iter().map(|one| u16::from(one.attempts)).sum()
    }

    /// What the attempt with this number, from 0, uses; beyond the end the last.
    #[must_use]
    pub fn at(&self, attempt: u16) -> Try {
        let mut before = 0;
        for one in self.tries() {
            before += u16::from(one.attempts);
            if attempt < before {
                return *one;
            }
        }
        self.tries[usize::from(self.length) - 1]
    }

    /// How many of so many attempts were made at each rate.
    #[must_use]
    pub fn used(&self, attempts: u16) -> [u8; CHAIN_LENGTH] {
        let mut left = attempts;
        let mut used = [0; CHAIN_LENGTH];
        for (count, one) in used.iter_mut().zip(self.tries()) {
            let taken = left.min(u16::from(one.attempts));
            *count = u8::try_from(taken).expect("at most as many as there are");
            left -= taken;
        }
        used
    }
}

/// How a sender wants a frame to be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Choice {
    /// Its rates; the first alone counts where nobody acknowledges
    pub chain: Chain,
    /// Whether it may share an A-MPDU with others that have the same chain
    pub aggregates: bool,
    /// A beacon, which goes before everything else of the access point
    pub beacon: bool,
}

/// The end of a frame as its sender learns it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Report {
    /// When
    pub time_ns: u64,
    /// The caller's name for the frame
    pub token: u64,
    /// Who sent it
    pub sender: StationId,
    /// Attempts made
    pub attempts: u16,
    /// Whether the last one was acknowledged
    pub acknowledged: bool,
}

impl Config {
    /// Like [`Config::setup`], for frames that bring their rates with them.
    ///
    /// `rate`, the retry limits, both thresholds, `security`, `four_addresses`, `beacon` and
    /// `background` have no meaning here: the senders see to all that. Lengths are those of MPDUs
    /// with FCS.
    pub fn setup_chosen(&self, path: &str) -> Result<Setup, ConfigError> {
        let mut setup = self.setup(path)?;
        let checker = Checker { config: self, path };
        let wrong = |key: &str, reason: &str| checker.error(key, reason);
        if matches!(self.phy, PhyConfig::Ac { .. } | PhyConfig::Ax { .. }) {
            return wrong(
                "phy.standard",
                "is 802.11ac or ax, radios may be 802.11a, b, g or n",
            );
        }
        if self.protection == ProtectionConfig::RtsCts {
            return wrong(
                "protection",
                "is rts_cts, but radios choose that for each frame",
            );
        }
        if self.aggregation.is_some_and(|a| a.amsdu_max_bytes > 0) {
            return wrong(
                "aggregation.amsdu_max_bytes",
                "is set, but radios join MSDUs themselves",
            );
        }
        let errors = checker.errors()?;
        let basic = checker.basic_rates()?;
        let protection = basic
            .iter()
            .filter(|mode| mode.class == Class::Dsss)
            .max_by_key(|mode| mode.rate_bit_s)
            .copied();
        setup.modes.clear();
        setup.places = vec![NO_PLACE; PLACES];
        for (place, index) in setup.places.iter_mut().enumerate() {
            let Some(mode) = rate_at(place).and_then(|rate| self.mode(rate)) else {
                continue;
            };
            *index = u16::try_from(setup.modes.len()).expect("a few hundred");
            setup
                .modes
                .push(DataMode::new(mode, &basic, protection, errors));
        }
        setup.chosen = true;
        setup.rate_control = RateControl::Fixed;
        setup.protection = Protection::None;
        setup.mpdu_extra_bytes = 0;
        setup.msdu_extra_bytes = 0;
        setup.frame_max_bytes = MPDU_MAX_BYTES;
        setup.fragmentation_threshold_bytes = u32::MAX;
        setup.rts_threshold_bytes = u32::MAX;
        setup.beacon = None;
        Ok(setup)
    }

    /// The rate in this physical layer.
    fn mode(&self, rate: Rate) -> Option<Mode> {
        let (band, dsss, ofdm) = match self.phy {
            PhyConfig::B { .. } => (Band::Ghz2, true, false),
            PhyConfig::G { .. }
            | PhyConfig::N {
                band: BandConfig::Ghz2,
                ..
            } => (Band::Ghz2, true, true),
            _ => (Band::Ghz5, false, true),
        };
        match rate {
            Rate::Legacy {
                rate_bit_s,
                short_preamble,
            } => Mode::dsss(rate_bit_s, short_preamble)
                .filter(|_| dsss)
                .or_else(|| Mode::ofdm(rate_bit_s, band).filter(|_| ofdm)),
            Rate::Ht {
                mcs,
                wide,
                short_guard,
                greenfield,
            } => match self.phy {
                PhyConfig::N {
                    width_mhz,
                    guard_interval_ns,
                    greenfield: green,
                    ..
                } if (!wide || width_mhz == 40)
                    && (!short_guard || guard_interval_ns == 400)
                    && (!greenfield || green) =>
                {
                    Mode::ht(
                        mcs,
                        if wide { 40 } else { 20 },
                        short_guard,
                        greenfield,
                        band,
                    )
                }
                _ => None,
            },
        }
    }
}

impl Setup {
    /// Nominal rate that stands at an index.
    ///
    /// # Panics
    ///
    /// If there is no such index.
    #[must_use]
    pub fn rate_bit_s(&self, index: u16) -> u64 {
        self.modes[usize::from(index)].data.mode.rate_bit_s
    }

    /// Where a rate stands; `None` if this physical layer has no such rate.
    #[must_use]
    pub fn rate_index(&self, rate: Rate) -> Option<u16> {
        let index = *self.places.get(place_of(rate)?)?;
        (index != NO_PLACE).then_some(index)
    }
}

const NO_PLACE: u16 = u16::MAX;
const DSSS_PLACES: usize = 2 * DSSS_RATES.len();
const LEGACY_PLACES: usize = DSSS_PLACES + OFDM_RATES.len();
const PLACES: usize = LEGACY_PLACES + 32 * 8;

fn place_of(rate: Rate) -> Option<usize> {
    match rate {
        Rate::Legacy {
            rate_bit_s,
            short_preamble,
        } => {
            let dsss = DSSS_RATES.iter().position(|&one| one == rate_bit_s);
            let ofdm = || OFDM_RATES.iter().position(|&one| one == rate_bit_s);
            dsss.map(|number| 2 * number + usize::from(short_preamble))
                .or_else(|| ofdm().map(|number| DSSS_PLACES + number))
        }
        Rate::Ht {
            mcs,
            wide,
            short_guard,
            greenfield,
        } => {
            let kind =
                4 * usize::from(wide) + 2 * usize::from(short_guard) + usize::from(greenfield);
            (mcs < 32).then(|| LEGACY_PLACES + 8 * usize::from(mcs) + kind)
        }
    }
}

fn rate_at(place: usize) -> Option<Rate> {
    if place < DSSS_PLACES {
        return Some(Rate::Legacy {
            rate_bit_s: DSSS_RATES[place / 2],
            short_preamble: place % 2 == 1,
        });
    }
    if place < LEGACY_PLACES {
        return Some(Rate::Legacy {
            rate_bit_s: OFDM_RATES[place - DSSS_PLACES],
            short_preamble: false,
        });
    }
    let number = place - LEGACY_PLACES;
    Some(Rate::Ht {
        mcs: u8::try_from(number / 8).ok()?,
        wide: number & 4 != 0,
        short_guard: number & 2 != 0,
        greenfield: number & 1 != 0,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(rate: u16, attempts: u8) -> Try {
        Try {
            rate,
            attempts,
            reserve: false,
            protect: false,
        }
    }

    #[test]
    fn every_place_is_the_place_of_its_rate() {
        for place in 0..PLACES {
            assert_eq!(rate_at(place).and_then(place_of), Some(place));
        }
        let no_rate = Rate::Legacy {
            rate_bit_s: 7,
            short_preamble: false,
        };
        assert_eq!(place_of(no_rate), None);
        let no_mcs = Rate::Ht {
            mcs: 32,
            wide: false,
            short_guard: false,
            greenfield: false,
        };
        assert_eq!(place_of(no_mcs), None);
    }

    #[test]
    fn a_chain_goes_through_its_rates_in_order() {
        let chain = Chain::new(&[one(7, 2), one(5, 1), one(0, 3)]).unwrap();
        assert_eq!(chain.attempts(), 6);
        let rates: Vec<_> = (0..8).map(|attempt| chain.at(attempt).rate).collect();
        assert_eq!(rates, [7, 7, 5, 0, 0, 0, 0, 0]);
        assert_eq!(chain.used(0), [0, 0, 0, 0]);
        assert_eq!(chain.used(2), [2, 0, 0, 0]);
        assert_eq!(chain.used(4), [2, 1, 1, 0]);
        assert_eq!(chain.used(9), [2, 1, 3, 0]);
    }

    #[test]
    fn a_chain_has_one_to_four_rates_with_attempts() {
        assert_eq!(Chain::new(&[]), None);
        assert_eq!(Chain::new(&[one(1, 0)]), None);
        assert_eq!(Chain::new(&[one(1, 1); 5]), None);
        assert_eq!(Chain::new(&[one(1, 255); 4]).unwrap().attempts(), 1_020);
    }
}
