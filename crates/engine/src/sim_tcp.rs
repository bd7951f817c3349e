//! The TCP connections of the subcommand `sim`.

use serde::Deserialize;
use serde_json::{json, Value};
use tm_sim::{Congestion, ConnectionOutcome, ConnectionPlan, ConnectionSecond, PathPlan};

use crate::{config, Failure};

/// How both ends of a connection send.
pub struct Ends {
    /// Place of the path.
    pub path: usize,
    /// Payload of a full segment.
    pub segment_bytes: u32,
    /// What the receiver takes.
    pub window_bytes: u64,
    /// Of the sender.
    pub congestion: CongestionName,
}

/// A connection as the configuration has it.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ConnectionConfig {
    way: WayName,
    path: usize,
    segment_bytes: u32,
    window_bytes: u64,
    congestion: CongestionName,
    /// How long data is sent.
    seconds: u32,
}

#[derive(Clone, Copy, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
enum WayName {
    Forward,
    Reverse,
}

#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CongestionName {
    Cubic,
    Reno,
}

const WAYS: [WayName; 2] = [WayName::Forward, WayName::Reverse];
/// Connections or clients of one simulation.
pub const MOST_CONNECTIONS: usize = 1024;
/// What headers of 52 bytes leave of the smallest MTU (RFC 791 section 3.2).
const LEAST_SEGMENT_BYTES: u32 = 16;
/// What they leave of the longest packet.
const LARGEST_SEGMENT_BYTES: u32 = 65_483;
/// RFC 7323 section 2.3.
const LARGEST_WINDOW_BYTES: u64 = 1 << 30;
const LONGEST_SECONDS: u32 = 4_200;

/// The plans of both ways, each in the order of the configuration.
pub fn plans(
    configs: &[ConnectionConfig],
    paths: &[PathPlan],
) -> Result<[Vec<ConnectionPlan>; 2], Failure> {
    config::within(
        "tcp: number of connections",
        configs.len(),
        0,
        MOST_CONNECTIONS,
    )?;
    let mut found = [Vec::new(), Vec::new()];
    for (index, config) in configs.iter().enumerate() {
        let plan = plan(&format!("tcp[{index}]"), config, paths)?;
        found[usize::from(config.way == WayName::Reverse)].push(plan);
    }
    Ok(found)
}

fn plan(
    at: &str,
    config: &ConnectionConfig,
    paths: &[PathPlan],
) -> Result<ConnectionPlan, Failure> {
    let ends = Ends {
        path: config.path,
        segment_bytes: config.segment_bytes,
        window_bytes: config.window_bytes,
        congestion: config.congestion,
    };
    let congestion = ends.check(at, paths.len())?;
    let seconds = config::within(&format!("{at}.seconds"), config.seconds, 1, LONGEST_SECONDS)?;
    let plan = ConnectionPlan {
        path: config.path,
        segment_bytes: config.segment_bytes,
        window_bytes: config.window_bytes,
        congestion,
        seconds,
    };
    known(at, config.path, plan.sizes(), paths)?;
    Ok(plan)
}

impl Ends {
    /// The congestion control; refuses what makes no sense.
    pub fn check(&self, at: &str, paths: usize) -> Result<Congestion, Failure> {
        config::within(&format!("{at}.path"), self.path, 0, paths - 1)?;
        let segment_bytes = config::within(
            &format!("{at}.segment_bytes"),
            self.segment_bytes,
            LEAST_SEGMENT_BYTES,
            LARGEST_SEGMENT_BYTES,
        )?;
        config::within(
            &format!("{at}.window_bytes"),
            self.window_bytes,
            u64::from(segment_bytes),
            LARGEST_WINDOW_BYTES,
        )?;
        Ok(match self.congestion {
            CongestionName::Cubic => Congestion::Cubic,
            CongestionName::Reno => Congestion::Reno,
        })
    }
}

/// Refuses a path that does not know one of the sizes.
pub fn known(at: &str, path: usize, sizes: Vec<u32>, paths: &[PathPlan]) -> Result<(), Failure> {
    let forms = &paths[path].forms;
    match sizes.into_iter().find(|size| forms.of(*size).is_none()) {
        None => Ok(()),
        Some(missing) => config::wrong(format!(
            "{at}: a payload of {missing} bytes, as long as one of its packets, is not among \
             paths[{path}].sizes"
        )),
    }
}

/// What became of the connections, those of the client first.
pub fn reported(ways: [Vec<ConnectionOutcome>; 2]) -> Value {
    let connections = WAYS.into_iter().zip(ways).flat_map(|(way, connections)| {
        let name = match way {
            WayName::Forward => "forward",
            WayName::Reverse => "reverse",
        };
        connections
            .into_iter()
            .map(move |one| connection(name, &one))
    });
    connections.collect()
}

fn connection(way: &str, outcome: &ConnectionOutcome) -> Value {
    let second = |one: &ConnectionSecond| {
        json!({
            "sent_bytes": one.sent_bytes, "delivered_bytes": one.delivered_bytes,
            "retransmits": one.retransmits, "rtt_ns": one.rtt.map(|rtt| rtt.0), "window_bytes": one.window_bytes,
        })
    };
    json!({
        "way": way, "opened": outcome.opened, "rest_ns": outcome.rest.map(|rest| rest.0), "timeouts": outcome.timeouts,
        "seconds": outcome.seconds.iter().map(second).collect::<Vec<_>>(),
    })
}
