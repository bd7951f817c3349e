//! Laws that hold whatever the mix of stations, rates, errors and traffic.

mod wlan_support;

use std::collections::HashMap;

use proptest::prelude::*;
use tm_link::wlan::{
    AggregationConfig, Airtime, BandConfig, BeaconConfig, Category, Config, EifsConfig,
    ErrorConfig, Fate, Frame, Medium, Outcome, PhyConfig, ProtectionConfig, QueueConfig,
    RateConfig, Receiver, RtsCounts, SecurityConfig, StationId, Verdict, ACCESS_POINT,
};
use wlan_support::{medium, plain, EDCA, SECOND};

const SIFS_MIN_NS: u64 = 10_000;

/// A frame and when it is offered, after the one before.
#[derive(Clone, Debug)]
struct Offer {
    gap_ns: u64,
    station: StationId,
    frame: Frame,
}

fn legacy() -> impl Strategy<Value = Config> {
    let b = (
        any::<bool>(),
        prop::sample::select(vec![1_000_000, 2_000_000, 5_500_000, 11_000_000]),
    )
        .prop_map(|(short_preamble, rate)| {
            plain(
                PhyConfig::B { short_preamble },
                rate,
                &[1_000_000, 2_000_000],
            )
        });
    let a = prop::sample::select(vec![6_000_000, 24_000_000, 54_000_000])
        .prop_map(|rate| plain(PhyConfig::A {}, rate, &[6_000_000, 12_000_000]));
    let g = (
        any::<bool>(),
        prop::sample::select(vec![
            ProtectionConfig::None,
            ProtectionConfig::CtsToSelf,
            ProtectionConfig::RtsCts,
        ]),
        any::<bool>(),
    )
        .prop_map(|(short_slot, protection, minstrel)| {
            let phy = PhyConfig::G {
                short_slot,
                short_preamble: true,
            };
            let rate = if minstrel {
                RateConfig::Minstrel { max_streams: 1 }
            } else {
                RateConfig::Fixed {
                    rate_bit_s: 36_000_000,
                }
            };
            Config {
                rate,
                protection,
                ..plain(phy, 0, &[1_000_000, 11_000_000, 6_000_000])
            }
        });
    let security = prop::sample::select(vec![
        SecurityConfig::None,
        SecurityConfig::Wep,
        SecurityConfig::Tkip,
        SecurityConfig::Ccmp,
    ]);
    (
        prop_oneof![b, a, g],
        256_u32..2_400,
        any::<bool>(),
        security,
    )
        .prop_map(
            |(config, fragmentation_threshold_bytes, qos, security)| Config {
                fragmentation_threshold_bytes,
                qos: qos.then_some(EDCA),
                security,
                ..config
            },
        )
}

fn aggregating() -> impl Strategy<Value = Config> {
    let aggregation = (
        prop::sample::select(vec![0, 8_191, 65_535]),
        1_u16..=64,
        prop::sample::select(vec![0, 3_839, 7_935]),
        prop::sample::select(vec![0, 500, 16_000]),
    )
        .prop_map(
            |(ampdu_max_bytes, ampdu_max_frames, amsdu_max_bytes, mpdu_spacing_ns)| {
                AggregationConfig {
                    ampdu_max_bytes,
                    ampdu_max_frames,
                    amsdu_max_bytes,
                    mpdu_spacing_ns,
                }
            },
        );
    let n = (0_u8..32, any::<bool>(), any::<bool>(), any::<bool>()).prop_map(
        |(mcs, wide, short_guard, minstrel)| {
            let phy = PhyConfig::N {
                band: BandConfig::Ghz2,
                short_slot: true,
                short_preamble: false,
                width_mhz: if wide { 40 } else { 20 },
                guard_interval_ns: if short_guard { 400 } else { 800 },
                greenfield: false,
            };
            let rate = if minstrel {
                RateConfig::Minstrel { max_streams: 2 }
            } else {
                RateConfig::Mcs {
                    mcs,
                    streams: mcs / 8 + 1,
                }
            };
            Config {
                rate,
                ..plain(phy, 0, &[1_000_000, 6_000_000, 24_000_000])
            }
        },
    );
    let ac = (0_u8..10, 1_u8..=4).prop_filter_map("invalid MCS", |(mcs, streams)| {
        let phy = PhyConfig::Ac {
            width_mhz: 80,
            guard_interval_ns: 800,
        };
        let rate = RateConfig::Mcs { mcs, streams };
        let config = Config {
            rate,
            ..plain(phy, 0, &[6_000_000])
        };
        config.setup("").is_ok().then_some(config)
    });
    let guards = prop::sample::select(vec![800, 1_600, 3_200]);
    let ax = (0_u8..12, 1_u8..=4, guards).prop_map(|(mcs, streams, guard_interval_ns)| {
        let phy = PhyConfig::Ax {
            width_mhz: 80,
            guard_interval_ns,
        };
        let rate = RateConfig::Mcs { mcs, streams };
        Config {
            rate,
            ..plain(phy, 0, &[6_000_000])
        }
    });
    (prop_oneof![n, ac, ax], aggregation).prop_map(|(config, aggregation)| {
        // block ack agreements of 802.11ax are four times as long
        let longer = if matches!(config.phy, PhyConfig::Ax { .. }) {
            4
        } else {
            1
        };
        Config {
            qos: Some(EDCA),
            aggregation: Some(AggregationConfig {
                ampdu_max_frames: longer * aggregation.ampdu_max_frames,
                ..aggregation
            }),
            ..config
        }
    })
}

fn config() -> impl Strategy<Value = Config> {
    let errors = prop_oneof![
        Just(ErrorConfig::None {}),
        (0.0..=1.0).prop_map(|probability| ErrorConfig::Fixed { probability }),
        (-5.0..40.0).prop_map(|snr_db| ErrorConfig::Snr { snr_db }),
    ];
    let queue = prop_oneof![
        (1_u64..40).prop_map(|limit| QueueConfig::Packets { limit }),
        (2_304_u64..40_000).prop_map(|limit| QueueConfig::Bytes { limit }),
    ];
    let eifs = prop::sample::select(vec![
        EifsConfig::LowestRate,
        EifsConfig::Dynamic,
        EifsConfig::None,
    ]);
    (
        prop_oneof![legacy(), aggregating()],
        1_u16..6,
        errors,
        queue,
        (1_u16..9, 1_u16..6),
        prop_oneof![Just(1_u32 << 20), 0_u32..3_000],
        (eifs, any::<bool>(), any::<bool>()),
    )
        .prop_map(
            |(config, stations, errors, queue, retry, rts, (eifs, beacons, by_mpdu))| Config {
                stations,
                errors,
                queue,
                short_retry_limit: retry.0,
                long_retry_limit: retry.1,
                rts_threshold_bytes: rts,
                rts_counts: if by_mpdu {
                    RtsCounts::Mpdu
                } else {
                    RtsCounts::Psdu
                },
                eifs,
                beacon: beacons.then_some(BeaconConfig {
                    interval_tu: 20,
                    bytes: 150,
                }),
                ..config
            },
        )
}

fn offers() -> impl Strategy<Value = Vec<Offer>> {
    let offer = (
        prop_oneof![Just(0_u64), 0_u64..40_000, 0_u64..5_000_000],
        0_u16..7,
        prop_oneof![Just(0_u16), 0_u16..8],
        prop_oneof![1_u32..200, 1_u32..=2_400],
        0_usize..4,
    )
        .prop_map(|(gap_ns, station, to, msdu_bytes, category)| {
            let receiver = if station == ACCESS_POINT && to == 0 {
                Receiver::Group
            } else {
                Receiver::Station(to)
            };
            let category = Category::ALL[category];
            Offer {
                gap_ns,
                station,
                frame: Frame {
                    token: 0,
                    msdu_bytes,
                    receiver,
                    category,
                },
            }
        });
    prop::collection::vec(offer, 1..150)
}

/// What was offered and what came of it.
struct Run {
    medium: Medium,
    queued: Vec<(u64, StationId, Frame)>,
    outcomes: Vec<Outcome>,
    log: Vec<Airtime>,
}

/// Offer everything, polling every `step_ns` (0: when something is due), and wait for the end.
fn run(config: &Config, offers: &[Offer], seed: u64, step_ns: u64) -> Run {
    let mut medium = medium(config, seed);
    medium.keep_log(usize::MAX);
    let mut run = Run {
        medium,
        queued: vec![],
        outcomes: vec![],
        log: vec![],
    };
    let mut now_ns = 0;
    for (token, offer) in (0..).zip(offers) {
        let until_ns = now_ns + offer.gap_ns;
        run.pass(now_ns, until_ns, step_ns);
        now_ns = until_ns;
        let frame = Frame {
            token,
            ..offer.frame
        };
        let before = run.medium.counters(offer.station).copied();
        let verdict = run.medium.offer(now_ns, offer.station, frame);
        if verdict == Verdict::Queued {
            run.queued.push((token, offer.station, frame));
        } else if let Some(before) = before {
            let after = run.medium.counters(offer.station).unwrap();
            assert_eq!(after.queue_dropped, before.queue_dropped + 1);
        }
    }
    let end_ns = now_ns + 600 * SECOND;
    while run.in_flight() > 0 {
        let until_ns = now_ns + SECOND / 100;
        assert!(until_ns < end_ns, "{} frames never end", run.in_flight());
        run.pass(now_ns, until_ns, step_ns);
        now_ns = until_ns;
    }
    run.log = run.medium.take_log();
    run
}

impl Run {
    fn pass(&mut self, mut now_ns: u64, until_ns: u64, step_ns: u64) {
        while now_ns < until_ns {
            now_ns = if step_ns == 0 {
                self.medium
                    .next_due()
                    .map_or(until_ns, |due_ns| due_ns.max(now_ns))
                    .min(until_ns)
            } else {
                (now_ns + step_ns).min(until_ns)
            };
            while let Some(outcome) = self.medium.poll(now_ns) {
                assert!(outcome.time_ns <= now_ns, "reported before it happens");
                self.outcomes.push(outcome);
            }
            assert!(self.medium.next_due() != Some(now_ns), "due but not done");
            self.conserve();
        }
    }

    /// offered = delivered + given up + queue drops + in flight, for each station, at any time.
    fn conserve(&self) {
        for station in 0..=self.medium.stations() {
            let c = self.medium.counters(station).unwrap();
            let ended = |fate| {
                self.outcomes
                    .iter()
                    .filter(|o| o.sender == station && o.fate == fate)
                    .count() as u64
            };
            assert_eq!(c.delivered, ended(Fate::Delivered));
            assert_eq!(c.retry_dropped, ended(Fate::RetryLimit));
            assert_eq!(
                c.offered,
                c.delivered + c.retry_dropped + c.queue_dropped + c.in_flight,
                "station {station}: {c:?}"
            );
        }
    }

    fn in_flight(&self) -> u64 {
        (0..=self.medium.stations())
            .map(|station| self.medium.counters(station).unwrap().in_flight)
            .sum()
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn every_frame_ends_once_and_in_order(config in config(), offers in offers(), seed: u64) {
        let run = run(&config, &offers, seed, 0);
        let mut fates = HashMap::new();
        for outcome in &run.outcomes {
            prop_assert!(fates.insert(outcome.token, outcome.fate).is_none(), "two ends");
        }
        prop_assert_eq!(run.outcomes.len(), run.queued.len());
        for (token, station, frame) in &run.queued {
            prop_assert!(fates.contains_key(token));
            let outcome = run.outcomes.iter().find(|o| o.token == *token).unwrap();
            prop_assert_eq!(outcome.sender, *station);
            prop_assert_eq!(outcome.receiver, frame.receiver);
            prop_assert_eq!(outcome.msdu_bytes, frame.msdu_bytes);
        }
        for pair in run.outcomes.windows(2) {
            prop_assert!(pair[0].time_ns <= pair[1].time_ns, "time runs backwards");
        }
        // what is delivered keeps its order, from each sender to each receiver in each category
        let category: HashMap<_, _> =
            run.queued.iter().map(|(token, _, frame)| (*token, frame.category)).collect();
        let mut last = HashMap::new();
        for outcome in run.outcomes.iter().filter(|o| o.fate == Fate::Delivered) {
            let category = if config.qos.is_some() { category[&outcome.token] } else { Category::BestEffort };
            let before = last.insert((outcome.sender, outcome.receiver, category), outcome.token);
            prop_assert!(before < Some(outcome.token), "overtaken");
        }
        // nothing is lost without a cause
        if config.errors == (ErrorConfig::None {}) && config.stations == 1
            && offers.iter().all(|o| o.station == 1)
            && config.qos.is_none() && config.beacon.is_none()
        {
            prop_assert!(run.outcomes.iter().all(|o| o.fate == Fate::Delivered));
        }
    }

    #[test]
    fn the_medium_carries_one_transmission_at_a_time(
        config in config(), offers in offers(), seed: u64,
    ) {
        let run = run(&config, &offers, seed, 0);
        let mut log = run.log.clone();
        log.sort_by_key(|airtime| (airtime.start_ns, airtime.end_ns));
        for airtime in &log {
            prop_assert!(airtime.start_ns < airtime.end_ns);
        }
        // (end, collided) of what is on air the longest
        let mut busy: Option<Airtime> = None;
        for airtime in log {
            if let Some(before) = busy {
                if airtime.start_ns < before.end_ns {
                    prop_assert!(airtime.collided && before.collided, "{before:?} {airtime:?}");
                    prop_assert!(airtime.station != before.station, "{before:?} {airtime:?}");
                } else if !(airtime.collided && before.collided) {
                    let gap_ns = airtime.start_ns - before.end_ns;
                    prop_assert!(gap_ns >= SIFS_MIN_NS, "{before:?} {airtime:?}");
                }
            }
            if busy.map(|before| before.end_ns) < Some(airtime.end_ns) {
                busy = Some(airtime);
            }
        }
        // a station's airtime is what the log says
        for station in 0..=config.stations {
            let logged: u64 = run
                .log
                .iter()
                .filter(|airtime| airtime.station == station)
                .map(|airtime| airtime.end_ns - airtime.start_ns)
                .sum();
            prop_assert_eq!(run.medium.counters(station).unwrap().airtime_ns, logged);
        }
    }

    #[test]
    fn the_outcome_depends_on_the_seed_and_not_on_how_often_one_asks(
        config in config(), offers in offers(), seed: u64, step_ns in 50_000_u64..20_000_000,
    ) {
        let exact = run(&config, &offers, seed, 0);
        let again = run(&config, &offers, seed, 0);
        let coarse = run(&config, &offers, seed, step_ns);
        prop_assert_eq!(&exact.outcomes, &again.outcomes);
        prop_assert_eq!(&exact.log, &again.log);
        prop_assert_eq!(&exact.outcomes, &coarse.outcomes);
    }
}
