//! Examines the rates of a configuration and makes them modes of the physical layer.

use super::checker::Checker;
use super::config::{BandConfig, PhyConfig, RateConfig};
use super::phy::{Band, Mode, DSSS_RATES, OFDM_RATES};
use super::rate::RateControl;
use crate::error::ConfigError;

impl Checker<'_> {
    pub(super) fn modes(&self) -> Result<(Vec<Mode>, RateControl), ConfigError> {
        match self.config.rate {
            RateConfig::Fixed { .. } if self.is_ht() => self.error(
                "rate.type",
                "is fixed, must be mcs or minstrel in 802.11n, ac and ax",
            ),
            RateConfig::Fixed { rate_bit_s } => {
                self.one_of("rate.rate_bit_s", &rate_bit_s, &self.legacy_rates())?;
                let mode = self
                    .legacy_mode(rate_bit_s)
                    .expect("every rate of the list");
                Ok((vec![mode], RateControl::Fixed))
            }
            RateConfig::Mcs { mcs, streams } => {
                Ok((vec![self.mcs_mode(mcs, streams)?], RateControl::Fixed))
            }
            RateConfig::Minstrel { max_streams } => {
                let most = if self.is_ht() { 4 } else { 1 };
                self.range("rate.max_streams", max_streams, 1, most)?;
                Ok((self.all_modes(max_streams), RateControl::Minstrel))
            }
        }
    }

    fn mcs_mode(&self, mcs: u8, streams: u8) -> Result<Mode, ConfigError> {
        let refused = |limit: &str| {
            let words = format!("is {mcs} with {streams} streams{limit}");
            ConfigError::conflict(self.place("rate.mcs"), words)
        };
        match self.config.phy {
            PhyConfig::N { .. } => {
                self.range("rate.mcs", mcs, 0, 31)?;
                if mcs / 8 + 1 != streams {
                    return Err(refused(&format!(
                        ", but in 802.11n this MCS has {} (19.5)",
                        mcs / 8 + 1
                    )));
                }
                Ok(self.ht_mode(mcs).expect("checked"))
            }
            PhyConfig::Ac {
                width_mhz,
                guard_interval_ns,
            } => {
                self.range("rate.mcs", mcs, 0, 9)?;
                self.range("rate.streams", streams, 1, 4)?;
                Mode::vht(mcs, streams, width_mhz, guard_interval_ns == 400).ok_or_else(|| {
                    refused(&format!(
                        " at {width_mhz} MHz, which 802.11ac excludes (21.5)"
                    ))
                })
            }
            PhyConfig::Ax {
                width_mhz,
                guard_interval_ns,
            } => {
                self.range("rate.mcs", mcs, 0, 11)?;
                self.range("rate.streams", streams, 1, 4)?;
                Ok(Mode::he(mcs, streams, width_mhz, guard_interval_ns).expect("checked"))
            }
            _ => self.error(
                "rate.type",
                "is mcs, must be fixed or minstrel in 802.11a, b and g",
            ),
        }
    }

    fn ht_mode(&self, mcs: u8) -> Option<Mode> {
        match self.config.phy {
            PhyConfig::N {
                width_mhz,
                guard_interval_ns,
                greenfield,
                ..
            } => Mode::ht(
                mcs,
                width_mhz,
                guard_interval_ns == 400,
                greenfield,
                self.band(),
            ),
            _ => None,
        }
    }

    /// Every rate the physical layer has, slowest first.
    fn all_modes(&self, max_streams: u8) -> Vec<Mode> {
        let mut modes: Vec<_> = match self.config.phy {
            PhyConfig::N { .. } => (0..max_streams * 8)
                .filter_map(|mcs| self.ht_mode(mcs))
                .collect(),
            PhyConfig::Ac {
                width_mhz,
                guard_interval_ns,
            } => (1..=max_streams)
                .flat_map(|streams| (0..10).map(move |mcs| (mcs, streams)))
                .filter_map(|(mcs, streams)| {
                    Mode::vht(mcs, streams, width_mhz, guard_interval_ns == 400)
                })
                .collect(),
            PhyConfig::Ax {
                width_mhz,
                guard_interval_ns,
            } => (1..=max_streams)
                .flat_map(|streams| (0..12).map(move |mcs| (mcs, streams)))
                .filter_map(|(mcs, streams)| Mode::he(mcs, streams, width_mhz, guard_interval_ns))
                .collect(),
            _ => self
                .legacy_rates()
                .into_iter()
                .filter_map(|rate| self.legacy_mode(rate))
                .collect(),
        };
        modes.sort_by_key(|mode| mode.airtime_ns(1_500));
        modes.reverse();
        modes
    }

    fn legacy_mode(&self, rate_bit_s: u64) -> Option<Mode> {
        self.short_preamble()
            .and_then(|short| Mode::dsss(rate_bit_s, short))
            .or_else(|| Mode::ofdm(rate_bit_s, self.band()).filter(|_| self.has_ofdm()))
    }

    fn legacy_rates(&self) -> Vec<u64> {
        DSSS_RATES
            .into_iter()
            .filter(|_| self.short_preamble().is_some())
            .chain(OFDM_RATES.into_iter().filter(|_| self.has_ofdm()))
            .collect()
    }

    pub(super) fn basic_rates(&self) -> Result<Vec<Mode>, ConfigError> {
        let rates = &self.config.basic_rates_bit_s;
        self.range("basic_rates_bit_s length", rates.len(), 1, 12)?;
        let mut modes = Vec::with_capacity(rates.len());
        for (i, rate) in rates.iter().enumerate() {
            let key = format!("basic_rates_bit_s[{i}]");
            match self.legacy_mode(*rate) {
                Some(mode) => modes.push(mode),
                None => self.one_of(&key, rate, &self.legacy_rates())?,
            }
            if rates[..i].contains(rate) {
                return self.error(&key, format!("is {rate}, which is listed twice"));
            }
        }
        Ok(modes)
    }

    fn band(&self) -> Band {
        match self.config.phy {
            PhyConfig::B { .. }
            | PhyConfig::G { .. }
            | PhyConfig::N {
                band: BandConfig::Ghz2,
                ..
            } => Band::Ghz2,
            _ => Band::Ghz5,
        }
    }

    /// Whether DSSS frames have the short preamble; `None` where there are no DSSS frames.
    pub(super) fn short_preamble(&self) -> Option<bool> {
        match self.config.phy {
            PhyConfig::B { short_preamble }
            | PhyConfig::G { short_preamble, .. }
            | PhyConfig::N {
                short_preamble,
                band: BandConfig::Ghz2,
                ..
            } => Some(short_preamble),
            _ => None,
        }
    }

    /// Whether it is 802.11n or later.
    pub(super) fn is_ht(&self) -> bool {
        matches!(
            self.config.phy,
            PhyConfig::N { .. } | PhyConfig::Ac { .. } | PhyConfig::Ax { .. }
        )
    }

    pub(super) fn has_ofdm(&self) -> bool {
        !matches!(self.config.phy, PhyConfig::B { .. })
    }
}
