//! The subcommand `link`: a wire or a WLAN between two interfaces.

use serde::Deserialize;
use serde_json::{json, Value};
use tm_io::clock;
use tm_io::emulator::Threads;
use tm_io::packet::RING_FRAMES;
use tm_io::report::DirectionReport;
use tm_io::wired::WiredPlan;
use tm_io::wlan::{WlanPlan, WlanReport};
use tm_link::wlan::Duplex;
use tm_link::DirectionConfig;

use crate::between::{with_trace, Between, MediumConfig, MEDIUM};
use crate::config;
use crate::counters::stations;
use crate::emulator::{follow, BothWays};
use crate::Failure;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct LinkConfig {
    protocol: u32,
    #[serde(default)]
    parent_pid: Option<u32>,
    a: End,
    b: End,
    #[serde(default)]
    a_to_b: Option<DirectionConfig>,
    #[serde(default)]
    b_to_a: Option<DirectionConfig>,
    /// In place of the two directions: what both share.
    #[serde(default)]
    medium: Option<MediumConfig>,
    seed: u64,
    #[serde(default = "usual_ring")]
    ring_frames: usize,
    realtime_priority: Option<u8>,
    cpu: Option<usize>,
    #[serde(default = "config::yes")]
    spin: bool,
}

fn usual_ring() -> usize {
    RING_FRAMES
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct End {
    interface: String,
}

/// Runs it.
pub fn main(path: &str) -> Result<(), Failure> {
    let config: LinkConfig = config::read(path)?;
    let threads = Threads {
        realtime_priority: config::priority(config.realtime_priority)?,
        cpu: config::cpu("cpu", config.cpu)?,
        asleep: !config.spin,
    };
    let (parent_pid, seed) = (config.parent_pid, config.seed);
    let ring_frames = config.ring_frames;
    let (between, a, b) = checked(config)?;
    match between {
        Between::Wire(ways) => {
            let [a_to_b, b_to_a] = *ways;
            let plan = WiredPlan {
                a_to_b: with_trace("a_to_b", a_to_b)?,
                b_to_a: with_trace("b_to_a", b_to_a)?,
                a,
                b,
                seed,
                ring_frames,
            };
            follow(parent_pid, threads, || Ok(plan.open()?))
        }
        Between::Wlan(medium) => {
            let duplex = Duplex::new(&medium, MEDIUM, seed, clock::now())?;
            let plan = WlanPlan { a, b, duplex };
            follow(parent_pid, threads, || Ok([plan.open()?]))
        }
    }
}

/// Checks a configuration; traces are taken for right.
pub fn check(text: &[u8]) -> Result<(), Failure> {
    checked(config::parse(text).map_err(Failure::Config)?)?;
    Ok(())
}

/// What is between which interfaces; everything but traces has been examined.
fn checked(config: LinkConfig) -> Result<(Between, String, String), Failure> {
    config::protocol(config.protocol)?;
    for (place, end) in [("a.interface", &config.a), ("b.interface", &config.b)] {
        config::within(&format!("{place}: length"), end.interface.len(), 1, 15)?;
    }
    config::within("ring_frames", config.ring_frames, 64, 65536)?;
    let between = Between::check(config.a_to_b, config.b_to_a, config.medium)?;
    Ok((between, config.a.interface, config.b.interface))
}

impl BothWays for [DirectionReport; 2] {
    fn both_ways(&self) -> [&DirectionReport; 2] {
        self.each_ref()
    }
}

impl BothWays for [WlanReport; 1] {
    fn both_ways(&self) -> [&DirectionReport; 2] {
        [&self[0].forward, &self[0].reverse]
    }

    fn beside(&self) -> Value {
        json!({"stations": stations(&self[0].stations)})
    }
}
