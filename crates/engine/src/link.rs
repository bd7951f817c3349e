//! The subcommand `link`: a wire or a WLAN between two interfaces.

use std::sync::Arc;

use serde::Deserialize;
use serde_json::{json, Value};
use tm_io::clock;
use tm_io::emulator::{DirectionReport, Threads};
use tm_io::packet::RING_FRAMES;
use tm_io::wired::WiredPlan;
use tm_io::wlan::{WlanPlan, WlanReport};
use tm_link::wlan::{Config, Duplex};
use tm_link::{DirectionConfig, Opportunities, LARGEST_TRACE_BYTES};

use crate::config;
use crate::emulator::{follow, stations, BothWays};
use crate::flow::read_bounded;
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
}

fn usual_ring() -> usize {
    RING_FRAMES
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct End {
    interface: String,
}

/// A medium that both directions share.
#[derive(Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum MediumConfig {
    /// IEEE 802.11.
    Wlan(Box<Config>),
}

/// What is between two ends.
pub enum Between {
    /// Forward and reverse.
    Wire(Box<[DirectionConfig; 2]>),
    /// What both share.
    Wlan(Box<Config>),
}

impl Between {
    /// Examines it, but for traces.
    pub fn check(
        a_to_b: Option<DirectionConfig>,
        b_to_a: Option<DirectionConfig>,
        medium: Option<MediumConfig>,
    ) -> Result<Self, Failure> {
        match (a_to_b, b_to_a, medium) {
            (Some(a_to_b), Some(b_to_a), None) => {
                a_to_b.check("a_to_b")?;
                b_to_a.check("b_to_a")?;
                Ok(Self::Wire(Box::new([a_to_b, b_to_a])))
            }
            (None, None, Some(MediumConfig::Wlan(medium))) => {
                medium.setup(MEDIUM)?;
                Ok(Self::Wlan(medium))
            }
            _ => config::wrong("a_to_b and b_to_a must both be set, or medium alone"),
        }
    }
}

/// Where a medium stands in a configuration.
pub const MEDIUM: &str = "medium";

/// Runs it.
pub fn main(path: &str) -> Result<(), Failure> {
    let config: LinkConfig = config::read(path)?;
    let threads = Threads {
        realtime_priority: config::priority(config.realtime_priority)?,
        cpu: config::cpu("cpu", config.cpu)?,
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

/// A direction with the opportunities of its trace.
pub fn with_trace(
    place: &str,
    config: DirectionConfig,
) -> Result<(DirectionConfig, Option<Arc<Opportunities>>), Failure> {
    let Some(trace) = &config.trace else {
        return Ok((config, None));
    };
    let at = format!("{place}.trace.path");
    let text = read_bounded(&at, &trace.path, LARGEST_TRACE_BYTES)?;
    let opportunities = Opportunities::parse(&text, trace.opportunity_bytes)
        .map_err(|error| Failure::Config(format!("{at}: {}: {error}", trace.path.display())))?;
    Ok((config, Some(Arc::new(opportunities))))
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
