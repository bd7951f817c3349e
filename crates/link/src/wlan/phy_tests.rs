//! Rates and times on air against the tables of the standard and the figures of ns-3.

use super::*;

#[test]
fn data_rates_are_those_of_the_tables() {
    let ht = |mcs, width, short| {
        Mode::ht(mcs, width, short, false, Band::Ghz5)
            .unwrap()
            .rate_bit_s
    };
    // Tables 19-27 to 19-34
    assert_eq!(ht(0, 20, false), 6_500_000);
    assert_eq!(ht(7, 20, false), 65_000_000);
    assert_eq!(ht(7, 20, true), 72_222_222);
    assert_eq!(ht(15, 40, false), 270_000_000);
    assert_eq!(ht(15, 40, true), 300_000_000);
    assert_eq!(ht(31, 20, false), 260_000_000);
    assert_eq!(ht(31, 40, true), 600_000_000);
    // Tables 21-30 to 21-57
    let vht =
        |mcs, streams, width, short| Mode::vht(mcs, streams, width, short).unwrap().rate_bit_s;
    assert_eq!(vht(9, 1, 80, false), 390_000_000);
    assert_eq!(vht(9, 1, 80, true), 433_333_333);
    assert_eq!(vht(9, 2, 80, true), 866_666_666);
    assert_eq!(vht(9, 4, 80, true), 1_733_333_333);
    assert_eq!(vht(9, 3, 20, false), 260_000_000);
    assert_eq!(vht(8, 1, 20, false), 78_000_000);
}

#[test]
fn combinations_the_standard_marks_invalid_are_refused() {
    // Tables 21-30, 21-31, 21-33: VHT-MCS 9 at 20 MHz only with three streams (of 1-4)
    for streams in [1, 2, 4] {
        assert_eq!(Mode::vht(9, streams, 20, false), None, "{streams} streams");
    }
    // Table 21-48: VHT-MCS 6 at 80 MHz not with three streams
    assert_eq!(Mode::vht(6, 3, 80, false), None);
    let valid = |width: u16| {
        (0..10)
            .flat_map(|mcs| (1..=4).map(move |streams| Mode::vht(mcs, streams, width, false)))
            .flatten()
            .count()
    };
    assert_eq!([valid(20), valid(40), valid(80)], [37, 40, 39]);
    assert_eq!(Mode::vht(10, 1, 80, false), None);
    assert_eq!(Mode::vht(0, 5, 80, false), None);
    assert_eq!(Mode::ht(32, 40, false, false, Band::Ghz5), None);
    assert_eq!(Mode::ht(0, 80, false, false, Band::Ghz5), None);
    assert_eq!(Mode::dsss(22_000_000, false), None);
    assert_eq!(Mode::ofdm(11_000_000, Band::Ghz2), None);
}

#[test]
fn airtime_of_known_frames() {
    let long = |rate| Mode::dsss(rate, false).unwrap();
    assert_eq!(long(1_000_000).airtime_ns(14), 304 * US);
    assert_eq!(long(2_000_000).airtime_ns(14), 248 * US);
    assert_eq!(long(11_000_000).airtime_ns(1536), 1_310 * US);
    assert_eq!(long(5_500_000).airtime_ns(1536), 2_427 * US);
    let short = Mode::dsss(11_000_000, true).unwrap();
    assert_eq!(short.airtime_ns(1536), (96 + 1_118) * US);
    assert_eq!(
        Mode::dsss(1_000_000, true).unwrap().airtime_ns(14),
        304 * US
    );
    let ofdm = |rate, band| Mode::ofdm(rate, band).unwrap();
    assert_eq!(ofdm(6_000_000, Band::Ghz5).airtime_ns(14), 44 * US);
    assert_eq!(ofdm(24_000_000, Band::Ghz5).airtime_ns(14), 28 * US);
    assert_eq!(ofdm(24_000_000, Band::Ghz2).airtime_ns(14), 34 * US);
    assert_eq!(ofdm(54_000_000, Band::Ghz5).airtime_ns(1534), 248 * US);
    // HT-mixed, one stream: 36 µs, then symbols of 260 bit
    let ht = Mode::ht(7, 20, false, false, Band::Ghz5).unwrap();
    assert_eq!(ht.airtime_ns(1538), (36 + 4 * 48) * US);
    // short guard interval: 48 × 3.6 = 172.8, rounded up to 4 µs
    let ht = Mode::ht(7, 20, true, false, Band::Ghz5).unwrap();
    assert_eq!(ht.airtime_ns(1538), (36 + 176) * US);
    let greenfield = Mode::ht(15, 20, false, true, Band::Ghz2).unwrap();
    assert_eq!(greenfield.airtime_ns(1538), (28 + 4 * 24 + 6) * US);
    let vht = Mode::vht(9, 2, 80, false).unwrap();
    assert_eq!(vht.airtime_ns(1538), (44 + 4 * 4) * US);
}

#[test]
fn the_largest_psdu_within_a_time_is_the_largest() {
    let mut modes = vec![];
    modes.extend(DSSS_RATES.map(|rate| Mode::dsss(rate, true).unwrap()));
    modes.extend(OFDM_RATES.map(|rate| Mode::ofdm(rate, Band::Ghz2).unwrap()));
    for guard_ns in HE_GUARDS_NS {
        modes.extend((0..12).filter_map(|mcs| Mode::he(mcs, 2, 80, guard_ns)));
    }
    for mcs in 0..32 {
        for short in [false, true] {
            modes.push(Mode::ht(mcs, 40, short, false, Band::Ghz2).unwrap());
        }
    }
    for mode in modes {
        for limit in [300, 517, 1_504, 3_008, 5_484].map(|us| us * US) {
            let bytes = mode.psdu_within_ns(limit);
            assert!(mode.airtime_ns(bytes) <= limit, "{mode:?} {limit} {bytes}");
            assert!(
                mode.airtime_ns(bytes + 1) > limit,
                "{mode:?} {limit} {bytes}"
            );
        }
    }
}

/// Data rates of a single user in Mbit/s by HE-MCS, for 0.8, 1.6 and 3.2 µs of guard interval (27.5 of
/// IEEE Std 802.11ax-2021), rounded to 0.1 Mbit/s.
const HE_20_MHZ: [[f64; 3]; 12] = [
    [8.6, 8.1, 7.3],
    [17.2, 16.3, 14.6],
    [25.8, 24.4, 21.9],
    [34.4, 32.5, 29.3],
    [51.6, 48.8, 43.9],
    [68.8, 65.0, 58.5],
    [77.4, 73.1, 65.8],
    [86.0, 81.3, 73.1],
    [103.2, 97.5, 87.8],
    [114.7, 108.3, 97.5],
    [129.0, 121.9, 109.7],
    [143.4, 135.4, 121.9],
];
const HE_80_MHZ: [[f64; 3]; 12] = [
    [36.0, 34.0, 30.6],
    [72.1, 68.1, 61.3],
    [108.1, 102.1, 91.9],
    [144.1, 136.1, 122.5],
    [216.2, 204.2, 183.8],
    [288.2, 272.2, 245.0],
    [324.3, 306.3, 275.6],
    [360.3, 340.3, 306.3],
    [432.4, 408.3, 367.5],
    [480.4, 453.7, 408.3],
    [540.4, 510.4, 459.4],
    [600.5, 567.1, 510.4],
];

#[test]
fn data_rates_of_he_are_those_of_the_tables() {
    for streams in 1..=4_u8 {
        for mcs in 0..12_u8 {
            for (column, guard_ns) in HE_GUARDS_NS.into_iter().enumerate() {
                let row = usize::from(mcs);
                let twenty = HE_20_MHZ[row][column];
                let tables = [
                    (20, twenty),
                    (40, 2.0 * twenty),
                    (80, HE_80_MHZ[row][column]),
                ];
                for (width_mhz, mbit_s) in tables {
                    let mode = Mode::he(mcs, streams, width_mhz, guard_ns).unwrap();
                    let expected = mbit_s * f64::from(streams);
                    let got = mode.rate_bit_s as f64 / 1e6;
                    assert!(
                        (got / expected - 1.0).abs() < 0.008,
                        "HE-MCS {mcs}, {streams} streams, {width_mhz} MHz, {guard_ns} ns: {got}, \
                         the table has {expected}"
                    );
                }
            }
        }
    }
    assert_eq!(Mode::he(12, 1, 20, 800), None);
    assert_eq!(Mode::he(0, 5, 20, 800), None);
    assert_eq!(Mode::he(0, 1, 160, 800), None);
    assert_eq!(Mode::he(0, 1, 20, 400), None);
}

/// ns-3, `src/wifi/test/tx-duration-test.cc` ("802.11ax SU durations", one stream): HE-MCS, width and
/// guard interval, then the time on air of 1536, 76 and 14 bytes in units of 100 ns.
const NS3_HE: [(u8, u16, u16, [u64; 3]); 18] = [
    (0, 20, 800, [14_856, 1_256, 712]),
    (0, 40, 800, [7_648, 848, 576]),
    (0, 80, 800, [3_976, 712, 576]),
    (0, 20, 1_600, [15_704, 1_304, 728]),
    (0, 40, 1_600, [8_072, 872, 584]),
    (0, 80, 1_600, [4_184, 728, 584]),
    (0, 20, 3_200, [17_400, 1_400, 760]),
    (0, 40, 3_200, [8_920, 920, 600]),
    (0, 80, 3_200, [4_600, 760, 600]),
    (11, 20, 800, [1_392, 576, 576]),
    (11, 40, 800, [984, 576, 576]),
    (11, 80, 800, [712, 576, 576]),
    (11, 20, 1_600, [1_448, 584, 584]),
    (11, 40, 1_600, [1_016, 584, 584]),
    (11, 80, 1_600, [728, 584, 584]),
    (11, 20, 3_200, [1_560, 600, 600]),
    (11, 40, 3_200, [1_080, 600, 600]),
    (11, 80, 3_200, [760, 600, 600]),
];

#[test]
fn airtime_of_he_is_that_of_ns_3() {
    for (mcs, width_mhz, guard_ns, expected) in NS3_HE {
        let mode = Mode::he(mcs, 1, width_mhz, guard_ns).unwrap();
        // ns-3 has 8 µs for an HE-LTF whatever the guard interval
        let training_ns = if guard_ns == 3_200 {
            16_000
        } else {
            6_400 + u64::from(guard_ns)
        };
        for (bytes, expected) in [1_536, 76, 14].into_iter().zip(expected) {
            let got = mode.airtime_ns(bytes) + 8_000 - training_ns;
            assert_eq!(
                got,
                expected * 100,
                "HE-MCS {mcs}, {width_mhz} MHz, {guard_ns} ns, {bytes}"
            );
        }
    }
}
