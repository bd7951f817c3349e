//! A WLAN in the place of a wire.

mod wlan_support;

use proptest::prelude::*;
use tm_link::wlan::{BackgroundConfig, Config, Duplex, ErrorConfig, QosConfig, QueueConfig, Way};
use tm_wire::{Duration, Instant};
use wlan_support::{assert_close, b, n, SECOND};

/// A monotonic clock that has run for eleven days.
const START: Instant = Instant(1_000_000_000_000_000);

fn duplex(config: &Config) -> Duplex<Vec<u8>> {
    Duplex::new(config, "medium", 1, START).unwrap()
}

/// An IPv4 frame of that many bytes without FCS.
fn ethernet(bytes: usize) -> Vec<u8> {
    let mut frame = vec![2; bytes.max(14)];
    frame[12..14].copy_from_slice(&[8, 0]);
    frame
}

/// Always a frame in each of these ways; Mbit/s of IP in each.
fn saturate(duplex: &mut Duplex<Vec<u8>>, ways: &[Way], ip_bytes: usize) -> [f64; 2] {
    for way in ways {
        for _ in 0..70 {
            duplex.offer(START, *way, ethernet(ip_bytes + 14));
        }
    }
    let end = START + Duration(10 * i64::try_from(SECOND).unwrap());
    let mut bits = [0; 2];
    while let Some(due) = duplex.next_due().filter(|due| *due < end) {
        while let Some((way, arrival)) = duplex.poll(due) {
            bits[way as usize] += arrival.frame.len() - 14;
            duplex.offer(due, way, arrival.frame);
        }
    }
    bits.map(|bytes| bytes as f64 * 8.0 / 10e6)
}

#[test]
fn one_way_carries_what_the_theory_says() {
    // MSDU of 1500 bytes; 28 instead of 34 bytes of header: 4 µs of 1982 less
    let [forward, reverse] = saturate(&mut duplex(&b(&[1_000_000])), &[Way::AToB], 1_492);
    assert_close("802.11b", forward * 1_500.0 / 1_492.0, 6.056, 0.005);
    assert!(reverse.abs() < f64::EPSILON);
}

#[test]
fn both_ways_share_the_medium() {
    let [forward, reverse] = saturate(
        &mut duplex(&b(&[1_000_000])),
        &[Way::AToB, Way::BToA],
        1_492,
    );
    assert_close("forward to reverse", forward / reverse, 1.0, 0.05);
    assert!(
        forward + reverse < 6.6 && forward + reverse > 5.9,
        "{forward} {reverse}"
    );
}

#[test]
fn background_stations_take_their_share() {
    let background = Some(BackgroundConfig { msdu_bytes: 1_500 });
    let config = Config {
        stations: 4,
        background,
        ..b(&[1_000_000])
    };
    let [forward, _] = saturate(&mut duplex(&config), &[Way::AToB], 1_492);
    assert_close("a quarter", forward, 6.4 / 4.0, 0.06);
    // though asked only every 20 ms
    let mut coarse = duplex(&config);
    let mut now = START;
    for _ in 0..250 {
        now += Duration::from_millis(20);
        assert!(coarse.poll(now).is_none());
    }
    let delivered: u64 = (2..=4)
        .map(|s| coarse.medium().counters(s).unwrap().delivered)
        .sum();
    assert_close(
        "still saturated",
        delivered as f64 * 12_000.0 / 5e6,
        6.5,
        0.04,
    );
}

#[test]
fn an_unloaded_frame_takes_its_time_on_air() {
    let mut duplex = duplex(&b(&[1_000_000]));
    let now = START + Duration::from_millis(5);
    assert!(duplex.offer(now, Way::BToA, ethernet(1_514)));
    let due = loop {
        let next = duplex.next_due().unwrap();
        if let Some((_, arrival)) = duplex.poll(next) {
            break arrival.due;
        }
    };
    // MSDU 1508, MPDU 1542 bytes
    assert_eq!(due - now, Duration((192 + 1_122) * 1_000));
    assert_eq!(duplex.counters(Way::BToA).delivered_bytes, 1_514);
}

proptest! {
    #[test]
    fn frames_are_conserved_in_each_way(
        offers in prop::collection::vec((0_i64..3_000_000, any::<bool>(), 0_usize..2_500), 1..200),
        probability in 0.0..0.9,
        aggregate: bool,
        limit in 1_u64..50,
    ) {
        let base = if aggregate { n(7, 20) } else { b(&[1_000_000]) };
        let config = Config {
            errors: ErrorConfig::Fixed { probability },
            queue: QueueConfig::Packets { limit },
            qos: Some(QosConfig::default()),
            ..base
        };
        let mut duplex = duplex(&config);
        let mut now = START;
        let mut arrived = [(0_u64, 0_u64); 2];
        let mut pass = |duplex: &mut Duplex<Vec<u8>>, now: Instant| {
            while let Some((way, arrival)) = duplex.poll(now) {
                assert!(arrival.due <= now);
                let sum = &mut arrived[way as usize];
                *sum = (sum.0 + 1, sum.1 + arrival.frame.len() as u64);
            }
            for way in [Way::AToB, Way::BToA] {
                let c = duplex.counters(way);
                assert_eq!((c.delivered, c.delivered_bytes), arrived[way as usize]);
                assert_eq!(c.offered, c.delivered + c.queue_dropped + c.lost + c.in_flight);
            }
        };
        for (gap_ns, forward, bytes) in offers {
            now += Duration(gap_ns);
            pass(&mut duplex, now);
            let way = if forward { Way::AToB } else { Way::BToA };
            duplex.offer(now, way, vec![u8::try_from(bytes % 251).unwrap(); bytes]);
        }
        pass(&mut duplex, now + Duration::from_secs(100));
        for way in [Way::AToB, Way::BToA] {
            prop_assert_eq!(duplex.counters(way).in_flight, 0);
        }
    }
}
