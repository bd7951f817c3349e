//! Rates of the 802.11 physical layers and the time a PPDU takes on air.
//!
//! Clauses are those of IEEE Std 802.11-2020, clause 27 that of IEEE Std 802.11ax-2021.

/// Microseconds to nanoseconds.
pub(crate) const US: u64 = 1_000;

/// aPPDUMaxTime of the HT, VHT and HE PHYs (Table 19-25, Table 21-28, Table 27-61): no PPDU is
/// longer.
pub const PPDU_MAX_NS: u64 = 5_484 * US;

/// Frequency band; in the 2.4 GHz band OFDM frames end with a signal extension.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Band {
    /// 2.4 GHz
    Ghz2,
    /// 5 GHz
    Ghz5,
}

/// Family of a PPDU, which decides its preamble and the rate of its response.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Class {
    /// DSSS and HR/DSSS, clauses 15 and 16
    Dsss,
    /// OFDM and ERP-OFDM, clauses 17 and 18
    Ofdm,
    /// High throughput, clause 19
    Ht,
    /// Very high throughput, clause 21
    Vht,
    /// High efficiency, clause 27
    He,
}

/// How bits become a signal; what the frame error model needs to know of a mode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Modulation {
    /// 1 Mbit/s, Barker code (15.4.4.5)
    Dbpsk,
    /// 2 Mbit/s, Barker code (15.4.4.5)
    Dqpsk,
    /// 5.5 Mbit/s, complementary code keying (16.3.6.6)
    Cck4,
    /// 11 Mbit/s, complementary code keying (16.3.6.6)
    Cck8,
    /// Coded OFDM (17.3.5): bits per subcarrier and code rate
    Ofdm {
        /// 1 BPSK, 2 QPSK, 4 16-QAM, 6 64-QAM, 8 256-QAM, 10 1024-QAM
        bits: u8,
        /// Rate of the convolutional code as numerator and denominator
        code: (u8, u8),
    },
}

/// One rate of one physical layer with everything that decides its time on air.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mode {
    /// Family
    pub class: Class,
    /// Modulation and code
    pub modulation: Modulation,
    /// Nominal data rate
    pub rate_bit_s: u64,
    /// Modulation and coding scheme: 0–31 (HT), 0–9 (VHT), 0–11 (HE), 0 otherwise
    pub mcs: u8,
    /// Spatial streams
    pub streams: u8,
    /// aRxPHYStartDelay: from the start of a PPDU to PHY-RXSTART.indication
    pub rx_start_delay_ns: u64,
    preamble_ns: u64,
    extension_ns: u64,
    coding: Coding,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Coding {
    /// Rate in units of 100 kbit/s, as in the SIGNAL field (15.2.3.4)
    Serial { hundred_kbit_s: u64 },
    /// OFDM symbols
    Symbols {
        bits: u64,
        extra_bits: u64,
        symbol_ns: u64,
        /// Their total is rounded up to this
        grid_ns: u64,
    },
}

/// Bits per subcarrier and code rate by MCS modulo 8, VHT-MCS 8 and 9, HE-MCS 10 and 11 (19.5, 21.5,
/// 27.5).
const SCHEMES: [(u8, (u8, u8)); 12] = [
    (1, (1, 2)),
    (2, (1, 2)),
    (2, (3, 4)),
    (4, (1, 2)),
    (4, (3, 4)),
    (6, (2, 3)),
    (6, (3, 4)),
    (6, (5, 6)),
    (8, (3, 4)),
    (8, (5, 6)),
    (10, (3, 4)),
    (10, (5, 6)),
];
/// Of which VHT has these.
const VHT_SCHEMES: usize = 10;
/// Symbols of OFDM, HT and VHT with the long guard interval and with the short one.
const LONG_SYMBOL_NS: u64 = 4_000;
const SHORT_SYMBOL_NS: u64 = 3_600;
/// Guard intervals of HE (27.3.11).
pub const HE_GUARDS_NS: [u16; 3] = [800, 1_600, 3_200];

/// Rates of clause 17 in Mbit/s with bits per subcarrier and code rate (Table 17-4).
const OFDM: [(u64, u8, (u8, u8)); 8] = [
    (6, 1, (1, 2)),
    (9, 1, (3, 4)),
    (12, 2, (1, 2)),
    (18, 2, (3, 4)),
    (24, 4, (1, 2)),
    (36, 4, (3, 4)),
    (48, 6, (2, 3)),
    (54, 6, (3, 4)),
];

/// Rates of clauses 15 and 16, in bit/s.
pub const DSSS_RATES: [u64; 4] = [1_000_000, 2_000_000, 5_500_000, 11_000_000];
/// Rates of clause 17, in bit/s.
pub const OFDM_RATES: [u64; 8] = [
    6_000_000, 9_000_000, 12_000_000, 18_000_000, 24_000_000, 36_000_000, 48_000_000, 54_000_000,
];

impl Mode {
    /// DSSS or HR/DSSS; `None` if the rate is none of theirs.
    ///
    /// A short preamble is never used at 1 Mbit/s (16.2.2.3).
    #[must_use]
    pub fn dsss(rate_bit_s: u64, short_preamble: bool) -> Option<Self> {
        let (modulation, hundred_kbit_s) = match rate_bit_s {
            1_000_000 => (Modulation::Dbpsk, 10),
            2_000_000 => (Modulation::Dqpsk, 20),
            5_500_000 => (Modulation::Cck4, 55),
            11_000_000 => (Modulation::Cck8, 110),
            _ => return None,
        };
        // 16.2.2.2: 144 bit preamble and 48 bit header at 1 Mbit/s;
        // 16.2.2.3: 72 bit at 1 Mbit/s and 48 bit at 2 Mbit/s.
        let preamble_ns = if short_preamble && rate_bit_s > 1_000_000 {
            96
        } else {
            192
        } * US;
        Some(Self {
            class: Class::Dsss,
            modulation,
            rate_bit_s,
            mcs: 0,
            streams: 1,
            rx_start_delay_ns: preamble_ns, // 16.3.3
            preamble_ns,
            extension_ns: 0,
            coding: Coding::Serial { hundred_kbit_s },
        })
    }

    /// OFDM (5 GHz) or ERP-OFDM (2.4 GHz) with 20 MHz; `None` if the rate is none of theirs.
    #[must_use]
    pub fn ofdm(rate_bit_s: u64, band: Band) -> Option<Self> {
        let (mbit_s, bits, code) = *OFDM
            .iter()
            .find(|(mbit_s, ..)| mbit_s * 1_000_000 == rate_bit_s)?;
        Some(Self {
            class: Class::Ofdm,
            modulation: Modulation::Ofdm { bits, code },
            rate_bit_s,
            mcs: 0,
            streams: 1,
            rx_start_delay_ns: 20 * US, // Table 17-21, Table 18-5
            preamble_ns: 20 * US,       // 17.3.2: training 16 µs, SIGNAL 4 µs
            extension_ns: signal_extension_ns(band),
            // 17.3.5: SERVICE 16 bit, tail 6 bit
            coding: Coding::Symbols {
                bits: mbit_s * 4,
                extra_bits: 22,
                symbol_ns: LONG_SYMBOL_NS,
                grid_ns: LONG_SYMBOL_NS,
            },
        })
    }

    /// HT with equal modulation, MCS 0–31; `None` if clause 19 has no such combination.
    #[must_use]
    pub fn ht(
        mcs: u8,
        width_mhz: u16,
        short_guard: bool,
        greenfield: bool,
        band: Band,
    ) -> Option<Self> {
        let subcarriers = match width_mhz {
            20 => 52, // Table 19-6
            40 => 108,
            _ => return None,
        };
        if mcs > 31 {
            return None;
        }
        let streams = mcs / 8 + 1;
        let (bits, code) = SCHEMES[usize::from(mcs % 8)];
        let symbol_bits = symbol_bits(subcarriers, streams, bits, code);
        // 19.5: a second encoder above 300 Mbit/s with the long guard interval
        let encoders = symbol_bits.div_ceil(1_200);
        // 19.4.3: HT-mixed has 20 µs of legacy training and SIGNAL, HT-SIG 8, HT-STF 4, then
        // the HT-LTFs; greenfield has HT-GF-STF 8, HT-LTF1 8, HT-SIG 8, then the other HT-LTFs.
        let training = training_fields(streams);
        let preamble = if greenfield {
            24 + 4 * (training - 1)
        } else {
            32 + 4 * training
        };
        Some(Self {
            class: Class::Ht,
            modulation: Modulation::Ofdm { bits, code },
            rate_bit_s: rate_bit_s(symbol_bits, symbol_ns(short_guard)),
            mcs,
            streams,
            rx_start_delay_ns: if greenfield { 24 } else { 28 } * US, // Table 19-25
            preamble_ns: preamble * US,
            extension_ns: signal_extension_ns(band),
            coding: Coding::Symbols {
                bits: symbol_bits,
                extra_bits: 16 + 6 * encoders,
                symbol_ns: symbol_ns(short_guard),
                // ⌈3.6 µs × symbols / 4 µs⌉ (equations (19-92), (21-106))
                grid_ns: LONG_SYMBOL_NS,
            },
        })
    }

    /// VHT-MCS 0–9 with 1–4 streams at 20, 40 or 80 MHz; `None` where 21.5 marks it invalid.
    #[must_use]
    pub fn vht(mcs: u8, streams: u8, width_mhz: u16, short_guard: bool) -> Option<Self> {
        let subcarriers = match width_mhz {
            20 => 52, // Table 21-5
            40 => 108,
            80 => 234,
            _ => return None,
        };
        let (bits, code) = *SCHEMES[..VHT_SCHEMES].get(usize::from(mcs))?;
        if !(1..=4).contains(&streams) {
            return None;
        }
        let coded_bits = subcarriers * u64::from(streams) * u64::from(bits);
        let symbol_bits = symbol_bits(subcarriers, streams, bits, code);
        // 21.5: one encoder for each 600 Mbit/s with the short guard interval
        let encoders = symbol_bits.div_ceil(2_160);
        // 21.5: a combination is left out where the punctured blocks of an encoder do not fill the
        // symbol
        let whole = coded_bits.is_multiple_of(encoders * u64::from(code.1))
            && symbol_bits.is_multiple_of(encoders * u64::from(code.0));
        if !whole {
            return None;
        }
        // 21.4.3: legacy training and L-SIG 20 µs, VHT-SIG-A 8, VHT-STF 4, VHT-LTFs, VHT-SIG-B 4
        let training = training_fields(streams);
        Some(Self {
            class: Class::Vht,
            modulation: Modulation::Ofdm { bits, code },
            rate_bit_s: rate_bit_s(symbol_bits, symbol_ns(short_guard)),
            mcs,
            streams,
            // Table 21-28: 36 µs + 4 µs for each VHT-LTF of the largest number supported + 4 µs
            rx_start_delay_ns: 56 * US,
            preamble_ns: (36 + 4 * training) * US,
            extension_ns: 0,
            coding: Coding::Symbols {
                bits: symbol_bits,
                extra_bits: 16 + 6 * encoders,
                symbol_ns: symbol_ns(short_guard),
                // ⌈3.6 µs × symbols / 4 µs⌉ (equations (19-92), (21-106))
                grid_ns: LONG_SYMBOL_NS,
            },
        })
    }

    /// HE-MCS 0–11 of a single user with 1–4 streams at 20, 40 or 80 MHz over the whole channel, a guard
    /// interval of 800, 1600 or 3200 ns; `None` if clause 27 has no such combination.
    ///
    /// No packet extension and no extra symbol of LDPC: what the receiver needs of both differs.
    #[must_use]
    pub fn he(mcs: u8, streams: u8, width_mhz: u16, guard_ns: u16) -> Option<Self> {
        let subcarriers = match width_mhz {
            20 => 234, // Table 27-16: RUs of 242, 484 and 996 tones
            40 => 468,
            80 => 980,
            _ => return None,
        };
        let (bits, code) = *SCHEMES.get(usize::from(mcs))?;
        if !(1..=4).contains(&streams) {
            return None;
        }
        // 27.3.10: HE-LTFs of 6.4 µs with the two shorter guard intervals (2x HE-LTF), of 12.8 µs
        // with the longest (4x HE-LTF)
        let training_ns = match guard_ns {
            800 | 1_600 => 6_400,
            3_200 => 12_800,
            _ => return None,
        } + u64::from(guard_ns);
        let symbol_bits = symbol_bits(subcarriers, streams, bits, code);
        let symbol_ns = 12_800 + u64::from(guard_ns);
        // 27.3.12.5: BCC, with its tail, up to HE-MCS 9 in an RU of 242 tones; beyond, LDPC
        let tail_bits = if width_mhz == 20 && mcs <= 9 { 6 } else { 0 };
        Some(Self {
            class: Class::He,
            modulation: Modulation::Ofdm { bits, code },
            rate_bit_s: rate_bit_s(symbol_bits, symbol_ns),
            mcs,
            streams,
            rx_start_delay_ns: 32 * US, // Table 27-61: of an HE SU PPDU
            // 27.4.3: legacy training and L-SIG 20 µs, RL-SIG 4, HE-SIG-A 8, HE-STF 4, HE-LTFs
            preamble_ns: 36 * US + training_fields(streams) * training_ns,
            extension_ns: 0,
            coding: Coding::Symbols {
                bits: symbol_bits,
                extra_bits: 16 + tail_bits,
                symbol_ns,
                grid_ns: 1,
            },
        })
    }

    /// Time on air of a PPDU that carries `psdu_bytes`, in nanoseconds.
    ///
    /// 16.3.4 (HR/DSSS), 17.4.3 (OFDM), 18.5.3 (ERP-OFDM), 19.4.3 (HT), 21.4.3 (VHT), 27.4.3 (HE):
    /// TXTIME.
    #[must_use]
    pub fn airtime_ns(&self, psdu_bytes: u32) -> u64 {
        let bits = u64::from(psdu_bytes) * 8;
        let data_ns = match self.coding {
            Coding::Serial { hundred_kbit_s } => (bits * 10).div_ceil(hundred_kbit_s) * US,
            Coding::Symbols {
                bits: per_symbol,
                extra_bits,
                symbol_ns,
                grid_ns,
            } => {
                let symbols = (bits + extra_bits).div_ceil(per_symbol);
                (symbols * symbol_ns).next_multiple_of(grid_ns)
            }
        };
        self.preamble_ns + data_ns + self.extension_ns
    }

    /// Largest PSDU whose time on air is at most `limit_ns`; 0 if none fits.
    #[must_use]
    pub fn psdu_within_ns(&self, limit_ns: u64) -> u32 {
        let Some(data_ns) = limit_ns.checked_sub(self.preamble_ns + self.extension_ns) else {
            return 0;
        };
        let bytes = match self.coding {
            Coding::Serial { hundred_kbit_s } => data_ns / US * hundred_kbit_s / 80,
            Coding::Symbols {
                bits,
                extra_bits,
                symbol_ns,
                grid_ns,
            } => {
                let symbols = data_ns / grid_ns * grid_ns / symbol_ns;
                (symbols * bits).saturating_sub(extra_bits) / 8
            }
        };
        u32::try_from(bytes).unwrap_or(u32::MAX)
    }

    /// Whether PPDUs end with a signal extension, as OFDM does in the 2.4 GHz band.
    #[must_use]
    pub fn has_signal_extension(&self) -> bool {
        self.extension_ns > 0
    }

    /// Whether a DSSS PPDU has the short preamble.
    #[must_use]
    pub fn has_short_preamble(&self) -> bool {
        self.class == Class::Dsss && self.preamble_ns < 192 * US
    }

    /// `EstimatedAckTxTime` of a PPDU (Table 10-5).
    #[must_use]
    pub fn estimated_ack_ns(&self) -> u64 {
        let us = match (self.class, self.modulation) {
            (_, Modulation::Dbpsk) => 304,
            (_, Modulation::Dqpsk | Modulation::Cck4 | Modulation::Cck8) => {
                if self.has_short_preamble() {
                    152
                } else {
                    248
                }
            }
            (Class::Ht | Class::Vht | Class::He, Modulation::Ofdm { bits: 1, .. }) => 68,
            (Class::Ht | Class::Vht | Class::He, Modulation::Ofdm { bits: 2, .. })
            | (_, Modulation::Ofdm { bits: 1, .. }) => 44,
            (Class::Ht | Class::Vht | Class::He, _) | (_, Modulation::Ofdm { bits: 2, .. }) => 32,
            _ => 28,
        };
        us * US
    }

    /// Rate of clause 17 that decides the rate of a control response (Table 10-10), in bit/s.
    #[must_use]
    pub fn reference_rate_bit_s(&self) -> u64 {
        match (self.class, self.modulation) {
            (Class::Dsss | Class::Ofdm, _)
            | (_, Modulation::Dbpsk | Modulation::Dqpsk | Modulation::Cck4 | Modulation::Cck8) => {
                self.rate_bit_s
            }
            (_, Modulation::Ofdm { bits, code }) => match (bits, code) {
                (1, (1, 2)) => 6_000_000,
                (1, _) => 9_000_000,
                (2, (1, 2)) => 12_000_000,
                (2, _) => 18_000_000,
                (4, (1, 2)) => 24_000_000,
                (4, _) => 36_000_000,
                (6, (1, 2) | (2, 3)) => 48_000_000,
                _ => 54_000_000,
            },
        }
    }
}

/// 18.3.2.4, 19.3.2, Table 19-25: aSignalExtension, 6 µs without transmission in the 2.4 GHz band.
fn signal_extension_ns(band: Band) -> u64 {
    match band {
        Band::Ghz2 => 6 * US,
        Band::Ghz5 => 0,
    }
}

/// Data bits per symbol, `N_DBPS`.
fn symbol_bits(subcarriers: u64, streams: u8, bits: u8, code: (u8, u8)) -> u64 {
    subcarriers * u64::from(streams) * u64::from(bits) * u64::from(code.0) / u64::from(code.1)
}

/// Long training fields by streams (Table 19-13, Table 21-13, 27.3.11.10).
fn training_fields(streams: u8) -> u64 {
    match streams {
        1 => 1,
        2 => 2,
        _ => 4,
    }
}

/// Nominal rate, rounded down to a bit/s.
fn rate_bit_s(symbol_bits: u64, symbol_ns: u64) -> u64 {
    symbol_bits * 1_000_000_000 / symbol_ns
}

fn symbol_ns(short_guard: bool) -> u64 {
    if short_guard {
        SHORT_SYMBOL_NS
    } else {
        LONG_SYMBOL_NS
    }
}

#[cfg(test)]
#[path = "phy_tests.rs"]
mod tests;
