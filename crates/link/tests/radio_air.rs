//! Radios on the medium: laws that hold whatever they send, and times worked out by hand.

mod wlan_support;

use std::collections::HashMap;

use proptest::prelude::*;
use tm_link::radio::{Air, Event, Sent, PENDING_MAX};
use tm_link::wlan::{
    AggregationConfig, BandConfig, Config, ErrorConfig, PhyConfig, QosConfig, Rate,
};
use tm_wire::{Duration, Instant};
use wlan_support::{b, g, plain, SECOND};

const AP: [u8; 6] = [0x02, 0, 0, 0, 0, 0xa0];
const CLIENT: [u8; 6] = [0x02, 0, 0, 0, 0, 0xc0];
const STRANGER: [u8; 6] = [0x02, 0, 0, 0, 0, 0xee];
const ALL: [u8; 6] = [0xff; 6];

type OneRate = Option<(Rate, u8, bool, bool)>;

fn legacy(rate_bit_s: u64) -> Rate {
    Rate::Legacy {
        rate_bit_s,
        short_preamble: false,
    }
}

fn ht(mcs: u8) -> Rate {
    Rate::Ht {
        mcs,
        wide: false,
        short_guard: false,
        greenfield: false,
    }
}

fn n() -> Config {
    let phy = PhyConfig::N {
        band: BandConfig::Ghz5,
        short_slot: true,
        short_preamble: false,
        width_mhz: 20,
        guard_interval_ns: 800,
        greenfield: false,
    };
    Config {
        rate: tm_link::wlan::RateConfig::Mcs { mcs: 7, streams: 1 },
        qos: Some(QosConfig::default()),
        aggregation: Some(AggregationConfig {
            ampdu_max_bytes: 65_535,
            ampdu_max_frames: 64,
            amsdu_max_bytes: 0,
            mpdu_spacing_ns: 0,
        }),
        ..plain(phy, 6_000_000, &[6_000_000, 12_000_000, 24_000_000])
    }
}

/// A frame of so many bytes without FCS; first byte of frame control and sender's view of priority.
fn frame(control: u8, to: [u8; 6], from: [u8; 6], bytes: usize) -> Vec<u8> {
    let mut frame = vec![control, 0, 0, 0];
    frame.extend(to);
    frame.extend(from);
    frame.extend([0; 10]);
    frame.resize(bytes.max(frame.len()), 0x55);
    frame
}

fn sent(name: u64, frame: Vec<u8>, rates: Vec<OneRate>) -> Sent {
    let no_ack = frame[4] & 1 == 1;
    Sent {
        frame,
        name,
        rates,
        no_ack,
    }
}

fn air(config: &Config) -> Air {
    Air::new(config, "medium", 1, Instant(0)).unwrap()
}

/// The access point says who it is, so that others can answer.
fn introduce(air: &mut Air, rate: u64) -> Instant {
    for (station, from) in [(0, AP), (1, CLIENT)] {
        let hello = frame(0x40, ALL, from, 30);
        air.offer(
            Instant(0),
            station,
            sent(0, hello, vec![Some((legacy(rate), 1, false, false))]),
        );
    }
    let at = Instant(10_000_000);
    while air.poll(at).is_some() {}
    at
}

/// Everything that comes about until `until`, in the order of its polling.
fn events(air: &mut Air, until: Instant) -> Vec<Event> {
    std::iter::from_fn(|| air.poll(until)).collect()
}

#[test]
fn a_frame_takes_the_time_of_the_rate_that_its_sender_chose() {
    for (rate, data_us) in [(1_000_000, 8_192), (2_000_000, 4_096), (11_000_000, 745)] {
        let mut air = air(&b(&[1_000_000, 2_000_000]));
        let start = introduce(&mut air, 1_000_000);
        let data = frame(0x08, AP, CLIENT, 1_020); // 1024 bytes with FCS
        air.offer(
            start,
            1,
            sent(7, data.clone(), vec![Some((legacy(rate), 7, false, false))]),
        );
        let events = events(&mut air, start + Duration::from_millis(100));
        // the medium was idle for long, so it goes at once: preamble and header 192 µs
        let heard = start + Duration((192 + data_us) * 1_000);
        // SIFS 10 µs and an Ack of 14 bytes at the basic rate below: 1 or 2 Mbit/s
        let ack_us = if rate == 1_000_000 { 304 } else { 248 };
        let expected = [
            Event::Heard {
                due: heard,
                sender: 1,
                frame: data,
                rate_bit_s: rate,
            },
            Event::Done {
                due: heard + Duration((10 + ack_us) * 1_000),
                sender: 1,
                name: 7,
                used: [1, 0, 0, 0],
                acknowledged: true,
            },
        ];
        assert_eq!(events, expected);
    }
}

#[test]
fn rts_and_cts_are_sent_where_the_sender_asks_for_them() {
    let took = |reserve, protect| {
        let mut air = air(&g(true));
        let start = introduce(&mut air, 6_000_000);
        let data = frame(0x08, AP, CLIENT, 1_020);
        let rates = vec![Some((legacy(54_000_000), 1, reserve, protect))];
        air.offer(start, 1, sent(1, data, rates));
        match events(&mut air, start + Duration::from_millis(100))[..] {
            [Event::Heard { due, .. }, _] => (due - start).0 / 1_000,
            ref other => panic!("{other:?}"),
        }
    };
    let bare = took(false, false);
    // an RTS of 20 bytes and a CTS of 14 at 24 Mbit/s take 28 + 6 µs each, and two SIFS of 10
    assert_eq!(took(true, false), bare + 2 * 34 + 20);
    // a CTS alone, and a SIFS
    assert_eq!(took(false, true), bare + 34 + 10);
}

#[test]
fn a_frame_that_never_arrives_goes_through_its_whole_chain() {
    let config = Config {
        errors: ErrorConfig::Fixed { probability: 1.0 },
        ..b(&[1_000_000, 2_000_000])
    };
    let mut air = air(&config);
    let start = introduce(&mut air, 1_000_000);
    let rates = [(11_000_000, 2), (5_500_000, 3), (1_000_000, 1)];
    let rates = rates.map(|(rate, count)| Some((legacy(rate), count, false, false)));
    let data = frame(0x08, AP, CLIENT, 200);
    air.offer(start, 1, sent(5, data, rates.to_vec()));
    let events = events(&mut air, start + Duration::from_secs(1));
    let [Event::Done {
        used, acknowledged, ..
    }] = events[..]
    else {
        panic!("{events:?}")
    };
    assert_eq!((used, acknowledged), ([2, 3, 1, 0], false));
    let counters = air.counters(1);
    assert_eq!((counters.lost, counters.in_flight), (2, 0)); // the introduction was lost too
}

#[test]
fn nobody_acknowledges_what_is_for_all_or_for_a_stranger() {
    let mut air = air(&b(&[1_000_000, 2_000_000]));
    let start = introduce(&mut air, 1_000_000);
    for to in [ALL, STRANGER] {
        let rates = vec![Some((legacy(1_000_000), 7, false, false))];
        air.offer(start, 0, sent(1, frame(0x08, to, AP, 100), rates));
    }
    let done: Vec<_> = events(&mut air, start + Duration::from_millis(100))
        .into_iter()
        .filter_map(|event| match event {
            Event::Done {
                used, acknowledged, ..
            } => Some((used, acknowledged)),
            Event::Heard { .. } => None,
        })
        .collect();
    assert_eq!(done, [([1, 0, 0, 0], false); 2]);
}

#[test]
fn a_rate_that_the_standard_lacks_is_refused_and_counted() {
    let mut air = air(&b(&[1_000_000, 2_000_000]));
    let wrong: [Vec<OneRate>; 4] = [
        vec![Some((legacy(54_000_000), 1, false, false))],
        vec![Some((ht(0), 1, false, false))],
        vec![None],
        vec![],
    ];
    for rates in wrong {
        air.offer(Instant(0), 1, sent(3, frame(0x08, AP, CLIENT, 100), rates));
        let events = events(&mut air, Instant(0));
        assert!(
            matches!(
                events[..],
                [Event::Done {
                    used: [0, 0, 0, 0],
                    acknowledged: false,
                    ..
                }]
            ),
            "{events:?}"
        );
    }
    assert_eq!((air.unpriced(1), air.counters(1).queue_dropped), (4, 4));
}

#[test]
fn at_most_so_many_frames_are_pending_as_the_kernel_keeps() {
    let mut air = air(&b(&[1_000_000, 2_000_000]));
    let start = introduce(&mut air, 1_000_000);
    let rates = vec![Some((legacy(11_000_000), 7, false, false))];
    for name in 0..200 {
        air.offer(
            start,
            1,
            sent(name, frame(0x08, AP, CLIENT, 100), rates.clone()),
        );
    }
    let counters = air.counters(1);
    let pending = PENDING_MAX as u64;
    assert_eq!(
        (counters.in_flight, counters.queue_dropped),
        (pending, 200 - pending)
    );
    let done = events(&mut air, start + Duration::from_secs(10));
    let done = done
        .iter()
        .filter(|event| matches!(event, Event::Done { .. }));
    assert_eq!(done.count(), 200);
}

#[test]
fn a_beacon_goes_before_what_waits() {
    let mut air = air(&b(&[1_000_000, 2_000_000]));
    let start = introduce(&mut air, 1_000_000);
    for name in 0..20 {
        let data = frame(0x08, CLIENT, AP, 1_000);
        air.offer(
            start,
            0,
            sent(name, data, vec![Some((legacy(1_000_000), 7, false, false))]),
        );
    }
    let beacon = frame(0x80, ALL, AP, 60);
    air.offer(
        start + Duration::from_millis(1),
        0,
        sent(99, beacon, vec![Some((legacy(1_000_000), 1, false, false))]),
    );
    let order: Vec<_> = events(&mut air, start + Duration::from_secs(10))
        .into_iter()
        .filter_map(|event| match event {
            Event::Done { name, .. } => Some(name),
            Event::Heard { .. } => None,
        })
        .collect();
    // the first data frame was on its way already
    assert_eq!(order[..3], [0, 99, 1]);
}

#[test]
fn frames_of_one_chain_share_an_aggregate() {
    let throughput = |aggregate: bool| {
        let mut config = n();
        if !aggregate {
            config.aggregation = None;
        }
        let mut air = air(&config);
        let start = introduce(&mut air, 6_000_000);
        let rates = vec![Some((ht(7), 7, false, false))];
        for name in 0..64 {
            air.offer(
                start,
                1,
                sent(name, frame(0x88, AP, CLIENT, 1_534), rates.clone()),
            );
        }
        let last = events(&mut air, start + Duration::from_secs(1))
            .into_iter()
            .filter_map(|event| match event {
                Event::Heard { due, .. } => Some(due),
                Event::Done { .. } => None,
            })
            .max()
            .unwrap();
        64.0 * 1_472.0 * 8.0 / ((last - start).0 as f64 / 1e9)
    };
    let (with, without) = (throughput(true), throughput(false));
    assert!(with > 55e6 && with < 65e6, "{with}");
    assert!(without < 40e6, "{without}");
}

#[test]
fn the_same_load_takes_as_long_as_on_the_modelled_link() {
    // 802.11b, 1500 bytes, saturated, Ack at 1 Mbit/s: 6.056 Mbit/s of MSDU (docs/wlan.md)
    let mut air = air(&b(&[1_000_000]));
    let start = introduce(&mut air, 1_000_000);
    let rates = vec![Some((legacy(11_000_000), 7, false, false))];
    let (mut heard, mut now) = (0_u64, start);
    let end = start + Duration::from_secs(10);
    for name in 0..50 {
        air.offer(
            now,
            1,
            sent(name, frame(0x08, AP, CLIENT, 1_530), rates.clone()),
        );
    }
    while now < end {
        now = air.next_due().unwrap();
        while let Some(event) = air.poll(now) {
            match event {
                Event::Heard { .. } => heard += 1,
                Event::Done { name, .. } => {
                    let again = frame(0x08, AP, CLIENT, 1_530);
                    air.offer(now, 1, sent(name, again, rates.clone()));
                }
            }
        }
    }
    let bit_s = heard as f64 * 1_500.0 * 8.0 / 10.0;
    assert!((bit_s / 6.056e6 - 1.0).abs() < 0.005, "{bit_s}");
}

#[test]
fn what_radios_cannot_do_is_refused_in_one_line() {
    let refused = |config: Config| {
        Air::new(&config, "medium", 1, Instant(0))
            .err()
            .unwrap()
            .to_string()
    };
    let two = Config { stations: 2, ..n() };
    assert_eq!(
        refused(two),
        "medium.stations is 2, must be 1: there are two radios"
    );
    let wide = Config {
        phy: PhyConfig::Ac {
            width_mhz: 80,
            guard_interval_ns: 800,
        },
        ..n()
    };
    assert_eq!(
        refused(wide),
        "medium.phy.standard is 802.11ac or ax, radios may be 802.11a, b, g or n"
    );
}

fn any_rates() -> impl Strategy<Value = Vec<OneRate>> {
    let rate = prop_oneof![
        prop::sample::select(vec![1_000_000, 11_000_000, 6_000_000, 54_000_000]).prop_map(legacy),
        (0_u8..10).prop_map(ht),
    ];
    let one = (rate, 0_u8..4, any::<bool>(), any::<bool>());
    prop::collection::vec(one.prop_map(Some), 0..5)
}

fn any_frame() -> impl Strategy<Value = (bool, Vec<u8>)> {
    let to = prop::sample::select(vec![AP, CLIENT, STRANGER, ALL]);
    let control = prop::sample::select(vec![0x08, 0x88, 0x80, 0x40, 0xb0, 0x84, 0x0c]);
    (any::<bool>(), to, control, 10_usize..2_304).prop_map(|(client, to, control, bytes)| {
        let from = if client { CLIENT } else { AP };
        let mut frame = frame(control, to, from, bytes);
        frame.truncate(bytes);
        (client, frame)
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// Every frame is reported just once, heard at most once, and all are accounted for.
    #[test]
    fn frames_are_conserved(
        offers in prop::collection::vec((0_i64..3_000_000, any_frame(), any_rates()), 1..300),
        config in prop::sample::select(vec![0, 1, 2]),
        lossy in prop::sample::select(vec![0.0, 0.3, 1.0]),
        seed in any::<u64>(),
    ) {
        let mut config = [b(&[1_000_000, 2_000_000]), g(true), n()][config].clone();
        config.errors = ErrorConfig::Fixed { probability: lossy };
        let mut air = Air::new(&config, "medium", seed, Instant(0)).unwrap();
        let mut now = Instant(0);
        let (mut done, mut heard) = (HashMap::new(), 0);
        let mut latest = Instant::MIN;
        let total = offers.len();
        let mut take = |event: Event| match event {
            Event::Heard { due, .. } => {
                heard += 1;
                due
            }
            Event::Done { due, name, used, acknowledged, .. } => {
                *done.entry(name).or_insert(0) += 1;
                assert!(!acknowledged || used.iter().any(|&count| count > 0));
                due
            }
        };
        for (name, (gap, (client, frame), rates)) in offers.into_iter().enumerate() {
            now += Duration(gap);
            while let Some(event) = air.poll(now) {
                take(event);
            }
            let no_ack = frame.get(4).is_some_and(|first| first & 1 == 1);
            let sent = Sent { frame, name: name as u64, rates, no_ack };
            air.offer(now, u16::from(client), sent);
            for sender in [0, 1] {
                let c = air.counters(sender);
                prop_assert_eq!(c.offered, c.delivered + c.queue_dropped + c.lost + c.in_flight);
                prop_assert!(c.in_flight <= PENDING_MAX as u64);
            }
        }
        let end = now + Duration(i64::try_from(600 * SECOND).unwrap());
        while let Some(event) = air.poll(end) {
            let due = take(event);
            prop_assert!(due <= end);
            latest = latest.max(due);
        }
        prop_assert_eq!(done.len(), total);
        prop_assert!(done.values().all(|&times| times == 1));
        let (a, c) = (air.counters(0), air.counters(1));
        prop_assert_eq!(a.in_flight + c.in_flight, 0);
        prop_assert_eq!(a.delivered + c.delivered, heard);
    }
}
