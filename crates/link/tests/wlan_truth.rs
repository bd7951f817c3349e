//! Throughput against published figures, in virtual time.

mod wlan_support;

use tm_link::wlan::{Config, EifsConfig};
use wlan_support::{a, assert_close, ax, b, frame, g, medium, n, saturate, saturate_with, SECOND};

const SIZES: [u32; 7] = [64, 128, 256, 512, 1024, 1500, 2304];

/// One station that always has a frame, against the theoretical maximum throughput of J. Jun,
/// P. Peddabachagari and M. Sichitiu, "Theoretical maximum throughput of IEEE 802.11 and its
/// applications", NCA 2003: DIFS, half the smallest contention window, the frame with 34 bytes of
/// MAC header and FCS, SIFS, Ack.
fn single_sender(what: &str, config: &Config, expected: [f64; 7]) {
    for (bytes, mbit_s) in SIZES.into_iter().zip(expected) {
        let mut medium = medium(config, 1);
        let got = saturate(&mut medium, &[(1, frame(0, bytes))], 20 * SECOND);
        assert_close(&format!("{what}, {bytes} bytes"), got, mbit_s, 0.005);
    }
}

#[test]
fn single_sender_802_11b_with_ack_at_1_mbit_s() {
    let config = b(&[1_000_000]);
    single_sender(
        "802.11b",
        &config,
        [0.546, 1.041, 1.902, 3.243, 5.009, 6.056, 7.182],
    );
}

#[test]
fn single_sender_802_11b_with_ack_at_2_mbit_s() {
    let config = b(&[1_000_000, 2_000_000]);
    single_sender(
        "802.11b",
        &config,
        [0.581, 1.104, 2.006, 3.393, 5.187, 6.232, 7.342],
    );
}

#[test]
fn single_sender_802_11a_and_g_without_protection() {
    let expected = [2.82, 5.29, 9.78, 16.42, 25.17, 30.50, 35.90];
    single_sender("802.11a", &a(), expected);
    single_sender("802.11g", &g(true), expected);
}

/// G. Bianchi's model (JSAC 18(3), 2000) with the refinements of Bianchi and Tinnirello (IEEE
/// Commun. Lett. 9(8), 2005), as published with the ns-3 example `wifi-bianchi`: 1500 bytes of
/// payload in an MPDU of 1536 bytes (802.11b) or 1534 bytes (802.11a), no retry limit.
fn saturation(what: &str, config: &Config, msdu_bytes: u32, expected: [(u16, f64); 4]) {
    for (stations, mbit_s) in expected {
        let config = Config {
            stations,
            short_retry_limit: 255,
            ..config.clone()
        };
        let mut medium = medium(&config, 1);
        let senders: Vec<_> = (1..=stations).map(|s| (s, frame(0, msdu_bytes))).collect();
        let got = saturate(&mut medium, &senders, 100 * SECOND);
        let payload = got * 1500.0 / f64::from(msdu_bytes);
        assert_close(
            &format!("{what}, {stations} stations"),
            payload,
            mbit_s,
            0.015,
        );
    }
}

#[test]
fn saturation_802_11b_difs_column() {
    let config = Config {
        eifs: EifsConfig::None,
        four_addresses: false,
        ..b(&[1_000_000, 2_000_000])
    };
    let expected = [(5, 6.4734), (10, 6.1774), (20, 5.7819), (50, 5.1745)];
    saturation("802.11b", &config, 1508, expected);
}

#[test]
fn saturation_802_11a_eifs_column() {
    let expected = [(5, 29.2861), (10, 27.3763), (20, 25.3325), (50, 22.4162)];
    // the model's collision time has the Ack at 24 Mbit/s, as dynamic EIFS has
    saturation(
        "802.11a",
        &Config {
            eifs: EifsConfig::Dynamic,
            ..a()
        },
        1500,
        expected,
    );
}

/// ns-3 example `wifi-ht-network`: UDP with 1472 bytes of payload, so 1500 bytes of IP and 1508 of
/// MSDU, in A-MPDUs of at most 65535 bytes and 5.484 ms, best effort.
#[test]
fn aggregation_802_11n_ht20() {
    let expected = [5.81, 11.83, 17.79, 23.80, 35.73, 47.62, 53.61, 59.55];
    for (mcs, mbit_s) in (0..).zip(expected) {
        let mut medium = medium(&n(mcs, 20), 1);
        let got = saturate(&mut medium, &[(1, frame(0, 1508))], 20 * SECOND);
        assert_close(&format!("MCS {mcs}"), got * 1472.0 / 1508.0, mbit_s, 0.02);
    }
}

/// 802.11ax by arithmetic: MPDUs of 1538 bytes in subframes of 1544, as many as 5.484 ms, the limit and
/// the window allow; AIFS 43 µs, 7.5 slots of 9, the PPDU, SIFS 16, the `BlockAck` at a basic rate, of 32
/// bytes up to 64 MPDUs and of 56 beyond.
#[test]
fn aggregation_802_11ax() {
    // 117 bit a symbol of 13.6 µs: 3 MPDUs in 317 symbols, `BlockAck` 100 µs at 6 Mbit/s
    let slow = 3.0 * 12_064.0 / (43.0 + 67.5 + 43.2 + 317.0 * 13.6 + 16.0 + 100.0);
    // 8166 bit: 64 MPDUs in 97 symbols, `BlockAck` 32 µs at 24 Mbit/s; 256 in 388, 40 µs
    let short = 64.0 * 12_064.0 / (43.0 + 67.5 + 43.2 + 97.0 * 13.6 + 16.0 + 32.0);
    let long = 256.0 * 12_064.0 / (43.0 + 67.5 + 43.2 + 388.0 * 13.6 + 16.0 + 40.0);
    // the same in symbols of 16 µs: 224 MPDUs in 339 of the 339 that 5.484 ms have room for
    let wide = 224.0 * 12_064.0 / (43.0 + 67.5 + 52.0 + 339.0 * 16.0 + 16.0 + 40.0);
    for (config, mbit_s) in [
        (ax(0, 20, 800, 256), slow),
        (ax(11, 80, 800, 64), short),
        (ax(11, 80, 800, 256), long),
        (ax(11, 80, 3_200, 256), wide),
    ] {
        let mut medium = medium(&config, 1);
        let got = saturate_with(&mut medium, &[(1, frame(0, 1508))], 300, 20 * SECOND);
        assert_close(
            &format!("{:?} {:?}", config.phy, config.rate),
            got,
            mbit_s,
            0.005,
        );
    }
}
