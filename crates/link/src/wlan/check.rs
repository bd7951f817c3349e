//! Examines a configuration: what the standard does not allow is refused with place, value, limit.

use super::checker::Checker;
use super::config::{
    BandConfig, CategoriesConfig, Config, EifsConfig, ErrorConfig, PhyConfig, ProtectionConfig,
    QueueConfig, RtsCounts, SecurityConfig,
};
use super::errors::{ErrorModel, Rated};
use super::mac::{
    Category, Edca, Security, Timing, BLOCK_ACK_WINDOW, HE_BLOCK_ACK_WINDOW, MSDU_MAX_BYTES, TU_NS,
};
use super::phy::{Band, Class, Mode, HE_GUARDS_NS, US};
use super::setup::{Aggregation, Beacon, DataMode, Eifs, Protection, QueueLimit, Setup};
use crate::error::ConfigError;

impl Config {
    /// Check everything and work the setup out; `path` is where this configuration stands.
    pub fn setup(&self, path: &str) -> Result<Setup, ConfigError> {
        let checker = Checker { config: self, path };
        checker.setup()
    }
}

impl Checker<'_> {
    fn setup(&self) -> Result<Setup, ConfigError> {
        let config = self.config;
        self.phy()?;
        self.limits()?;
        let basic = self.basic_rates()?;
        let errors = self.errors()?;
        let protection = self.protection(&basic)?;
        let (modes, rate_control) = self.modes()?;
        let modes: Vec<_> = modes
            .into_iter()
            .map(|mode| DataMode::new(mode, &basic, protection, errors))
            .collect();
        let lowest = *basic
            .iter()
            .min_by_key(|mode| mode.rate_bit_s)
            .expect("checked");
        let security = self.security()?;
        let qos = config.qos.is_some();
        let timing = self.timing();
        let [access_point, station] = self.contenders(&timing)?;
        Ok(Setup {
            stations: config.stations,
            timing,
            access_point,
            station,
            qos,
            modes,
            group: Rated::data(lowest, errors),
            rate_control,
            protection: match config.protection {
                ProtectionConfig::None => Protection::None,
                ProtectionConfig::CtsToSelf => Protection::CtsToSelf,
                ProtectionConfig::RtsCts => Protection::RtsCts,
            },
            rts_threshold_bytes: config.rts_threshold_bytes,
            rts_by_mpdu: config.rts_counts == RtsCounts::Mpdu,
            fragmentation_threshold_bytes: config.fragmentation_threshold_bytes,
            short_retry_limit: config.short_retry_limit,
            long_retry_limit: config.long_retry_limit,
            queue: match config.queue {
                QueueConfig::Packets { limit } => {
                    QueueLimit::Packets(u32::try_from(limit).expect("checked"))
                }
                QueueConfig::Bytes { limit } => QueueLimit::Bytes(limit),
            },
            // 9.3.2.1: frame control, duration, three or four addresses, sequence control, QoS
            // control, FCS
            mpdu_extra_bytes: if config.four_addresses { 30 } else { 24 }
                + if qos { 2 } else { 0 }
                + 4
                + security.mpdu_bytes(),
            msdu_extra_bytes: security.msdu_bytes(),
            aggregation: self.aggregation()?,
            beacon: config.beacon.map(|beacon| Beacon {
                interval_ns: u64::from(beacon.interval_tu) * TU_NS,
                bytes: beacon.bytes,
            }),
            eifs: match config.eifs {
                EifsConfig::LowestRate => Eifs::LowestRate,
                EifsConfig::Dynamic => Eifs::Dynamic,
                EifsConfig::None => Eifs::None,
            },
            frame_max_bytes: MSDU_MAX_BYTES,
            chosen: false,
            places: Vec::new(),
        })
    }

    fn phy(&self) -> Result<(), ConfigError> {
        match self.config.phy {
            PhyConfig::N {
                width_mhz,
                guard_interval_ns,
                band,
                short_slot,
                ..
            } => {
                self.one_of("phy.width_mhz", &width_mhz, &[20, 40])?;
                self.one_of("phy.guard_interval_ns", &guard_interval_ns, &[800, 400])?;
                if band == BandConfig::Ghz5 && !short_slot {
                    return self.error(
                        "phy.short_slot",
                        "is false, but slots in the 5 GHz band are 9 µs",
                    );
                }
            }
            PhyConfig::Ac {
                width_mhz,
                guard_interval_ns,
            } => {
                self.one_of("phy.width_mhz", &width_mhz, &[20, 40, 80])?;
                self.one_of("phy.guard_interval_ns", &guard_interval_ns, &[800, 400])?;
            }
            PhyConfig::Ax {
                width_mhz,
                guard_interval_ns,
            } => {
                self.one_of("phy.width_mhz", &width_mhz, &[20, 40, 80])?;
                self.one_of("phy.guard_interval_ns", &guard_interval_ns, &HE_GUARDS_NS)?;
            }
            PhyConfig::B { .. } | PhyConfig::A {} | PhyConfig::G { .. } => {}
        }
        Ok(())
    }

    fn limits(&self) -> Result<(), ConfigError> {
        let config = self.config;
        // dot11RTSThreshold: 0 to 65536; 1 048 576 covers every A-MPDU, so "off" can be said
        self.range(
            "rts_threshold_bytes",
            config.rts_threshold_bytes,
            0,
            1 << 20,
        )?;
        // dot11FragmentationThreshold (Annex C): 256 to 11500
        let fragmentation = config.fragmentation_threshold_bytes;
        self.range("fragmentation_threshold_bytes", fragmentation, 256, 11_500)?;
        // dot11ShortRetryLimit, dot11LongRetryLimit (Annex C): 1 to 255
        self.range("short_retry_limit", config.short_retry_limit, 1, 255)?;
        self.range("long_retry_limit", config.long_retry_limit, 1, 255)?;
        // 9.4.1.8: association identifiers 1 to 2007
        self.range("stations", config.stations, 1, 2007)?;
        if let Some(background) = config.background {
            self.range(
                "background.msdu_bytes",
                background.msdu_bytes,
                1,
                MSDU_MAX_BYTES,
            )?;
            if config.stations < 2 {
                return self.error(
                    "background",
                    "is set, but stations is 1, must be at least 2",
                );
            }
        }
        match config.queue {
            QueueConfig::Packets { limit } => self.range("queue.limit", limit, 1, 1_000_000)?,
            QueueConfig::Bytes { limit } => {
                self.range("queue.limit", limit, u64::from(MSDU_MAX_BYTES), 1 << 30)?;
            }
        }
        if let Some(beacon) = config.beacon {
            self.range("beacon.interval_tu", beacon.interval_tu, 1, u16::MAX)?;
            self.range("beacon.bytes", beacon.bytes, 60, 2_320)?;
        }
        Ok(())
    }

    pub(super) fn errors(&self) -> Result<ErrorModel, ConfigError> {
        Ok(match self.config.errors {
            ErrorConfig::None {} => ErrorModel::None,
            ErrorConfig::Fixed { probability } => {
                self.range("errors.probability", probability, 0.0, 1.0)?;
                ErrorModel::Fixed { probability }
            }
            ErrorConfig::Snr { snr_db } => {
                self.range("errors.snr_db", snr_db, -20.0, 80.0)?;
                ErrorModel::Snr { snr_db }
            }
        })
    }

    fn timing(&self) -> Timing {
        let dsss = || Mode::dsss(1_000_000, false).expect("a rate of clause 15");
        match self.config.phy {
            PhyConfig::B { .. } => Timing::dsss(&dsss()),
            PhyConfig::G { short_slot, .. }
            | PhyConfig::N {
                short_slot,
                band: BandConfig::Ghz2,
                ..
            } => Timing::erp(short_slot, &dsss()),
            _ => Timing::ofdm(&Mode::ofdm(6_000_000, Band::Ghz5).expect("a rate of clause 17")),
        }
    }

    /// Rate of the frames that protect: the highest basic DSSS rate (10.6.6.1).
    fn protection(&self, basic: &[Mode]) -> Result<Option<Mode>, ConfigError> {
        if self.config.protection == ProtectionConfig::None {
            return Ok(None);
        }
        if self.short_preamble().is_none() || !self.has_ofdm() {
            return self.error(
                "protection",
                "is set, but only OFDM in the 2.4 GHz band has stations to protect from",
            );
        }
        match basic
            .iter()
            .filter(|mode| mode.class == Class::Dsss)
            .max_by_key(|mode| mode.rate_bit_s)
        {
            Some(mode) => Ok(Some(*mode)),
            None => self.error(
                "protection",
                "is set, but basic_rates_bit_s has no rate of 802.11b that all stations can hear",
            ),
        }
    }

    fn security(&self) -> Result<Security, ConfigError> {
        Ok(match self.config.security {
            SecurityConfig::None => Security::None,
            // 12.6.3: HT stations give up TKIP between each other, and WEP is no choice of an RSNA
            SecurityConfig::Wep | SecurityConfig::Tkip if self.is_ht() => {
                return self.error(
                    "security",
                    "is wep or tkip, which 802.11n, ac and ax exclude",
                );
            }
            SecurityConfig::Wep => Security::Wep,
            SecurityConfig::Tkip => Security::Tkip,
            SecurityConfig::Ccmp => Security::Ccmp,
            SecurityConfig::Gcmp => Security::Gcmp,
        })
    }

    /// Channel access functions of the access point, then of each station.
    fn contenders(&self, timing: &Timing) -> Result<[Vec<Edca>; 2], ConfigError> {
        let Some(qos) = self.config.qos else {
            let dcf = vec![Edca::dcf(timing)];
            return Ok([dcf.clone(), dcf]);
        };
        let dsss = !self.has_ofdm();
        let access_point = self.categories("access_point", &qos.access_point, |category| {
            Edca::of_access_point(category)
        })?;
        let station = self.categories("stations", &qos.stations, |category| {
            Edca::of_station(category, timing, dsss)
        })?;
        Ok([access_point, station])
    }

    fn categories(
        &self,
        whose: &str,
        given: &CategoriesConfig,
        default_of: impl Fn(Category) -> Edca,
    ) -> Result<Vec<Edca>, ConfigError> {
        let given = [
            ("background", given.background),
            ("best_effort", given.best_effort),
            ("video", given.video),
            ("voice", given.voice),
        ];
        let mut contenders = Vec::with_capacity(given.len());
        for (category, (name, edca)) in Category::ALL.into_iter().zip(given) {
            let Some(edca) = edca else {
                contenders.push(default_of(category));
                continue;
            };
            let key = |field: &str| format!("qos.{whose}.{name}.{field}");
            // 9.4.2.28: access points may use 1, others 2
            self.range(&key("aifsn"), edca.aifsn, 1, 15)?;
            for (field, cw) in [("cw_min", edca.cw_min), ("cw_max", edca.cw_max)] {
                self.range(&key(field), cw, 0, 32_767)?;
                if !(cw + 1).is_power_of_two() {
                    return self.error(
                        &key(field),
                        format!("is {cw}, must be a power of two less one"),
                    );
                }
            }
            if edca.cw_min > edca.cw_max {
                return self.error(
                    &key("cw_min"),
                    format!(
                        "is {}, must be at most cw_max, {}",
                        edca.cw_min, edca.cw_max
                    ),
                );
            }
            let unit_ns = 32 * US;
            self.range(
                &key("txop_limit_ns"),
                edca.txop_limit_ns,
                0,
                65_535 * unit_ns,
            )?;
            if edca.txop_limit_ns % unit_ns != 0 {
                let value = edca.txop_limit_ns;
                return self.error(
                    &key("txop_limit_ns"),
                    format!("is {value}, must be a multiple of {unit_ns}"),
                );
            }
            contenders.push(Edca {
                aifsn: edca.aifsn,
                cw_min: edca.cw_min,
                cw_max: edca.cw_max,
                txop_limit_ns: edca.txop_limit_ns,
            });
        }
        Ok(contenders)
    }

    fn aggregation(&self) -> Result<Option<Aggregation>, ConfigError> {
        let Some(aggregation) = self.config.aggregation else {
            return Ok(None);
        };
        let long: &[u32] = &[0, 3_839, 7_935, 11_398];
        let (ampdu_max, amsdu_sizes, mpdu_in_ampdu, most) = match self.config.phy {
            // 9.4.2.55.3; Table 9-25: an MPDU in an HT A-MPDU has at most 4095 bytes
            PhyConfig::N { .. } => (65_535, &long[..3], 4_095, BLOCK_ACK_WINDOW),
            // 9.4.2.157.2: maximum MPDU lengths 3895, 7991, 11454
            PhyConfig::Ac { .. } => (1_048_575, long, 11_454, BLOCK_ACK_WINDOW),
            // 9.4.2.248.2 of 802.11ax: two doublings more; 10.25.2: buffers of up to 256 MPDUs
            PhyConfig::Ax { .. } => (4_194_303, long, 11_454, HE_BLOCK_ACK_WINDOW),
            _ => {
                return self.error(
                    "aggregation",
                    "is set, but only 802.11n, ac and ax aggregate",
                )
            }
        };
        if self.config.qos.is_none() {
            // 10.12, 10.25: QoS data frames only
            return self.error("aggregation", "is set, but needs qos");
        }
        let bytes = aggregation.ampdu_max_bytes;
        if bytes > 0 {
            self.range("aggregation.ampdu_max_bytes", bytes, 8_191, ampdu_max)?;
            if !(bytes + 1).is_power_of_two() {
                return self.error(
                    "aggregation.ampdu_max_bytes",
                    format!("is {bytes}, must be 0 or a power of two less one"),
                );
            }
        }
        let frames = aggregation.ampdu_max_frames;
        self.range("aggregation.ampdu_max_frames", frames, 1, most)?;
        self.one_of(
            "aggregation.amsdu_max_bytes",
            &aggregation.amsdu_max_bytes,
            amsdu_sizes,
        )?;
        self.one_of(
            "aggregation.mpdu_spacing_ns",
            &aggregation.mpdu_spacing_ns,
            &[0, 250, 500, 1_000, 2_000, 4_000, 8_000, 16_000],
        )?;
        Ok(Some(Aggregation {
            ampdu_bytes: bytes,
            ampdu_frames: frames,
            amsdu_bytes: aggregation.amsdu_max_bytes,
            mpdu_in_ampdu_bytes: mpdu_in_ampdu,
            spacing_ns: aggregation.mpdu_spacing_ns,
        }))
    }
}
