//! One flow of `send`: its configuration, and the plan that comes of it.

use std::io::Read;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::Deserialize;
use tm_io::send::FlowPlan;
use tm_probe::{
    Content, Format, OutgoingFlow, Schedule, Share, Size, Stop as End, Trace, LARGEST_TRACE_BYTES,
};
use tm_wire::{Duration, LARGEST_PAYLOAD_BYTES};

use crate::config::{self, StampKeyConfig};
use crate::Failure;

/// A flow as the configuration has it.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FlowConfig {
    /// Number in events and records.
    pub flow: u16,
    /// With `key`: our own format.
    #[serde(default)]
    session: Option<u32>,
    #[serde(default)]
    key: Option<String>,
    /// In place of both: STAMP.
    #[serde(default)]
    stamp: Option<StampKeyConfig>,
    target: String,
    source: Option<String>,
    interface: Option<String>,
    #[serde(default)]
    netns: Option<PathBuf>,
    #[serde(default)]
    traffic_class: u8,
    start_offset_ns: i64,
    schedule: ScheduleConfig,
    stop: StopConfig,
    size: SizeConfig,
    content: ContentConfig,
}

impl FlowConfig {
    /// Whether a file must be read for it.
    pub fn names_a_file(&self) -> bool {
        matches!(self.schedule, ScheduleConfig::Trace { .. })
    }
}

#[derive(Deserialize)]
#[serde(tag = "type", rename_all = "snake_case", deny_unknown_fields)]
enum ScheduleConfig {
    Fixed {
        gap_ns: i64,
    },
    PacketRate {
        packets: u64,
        per_ns: i64,
    },
    BitRate {
        bit_s: u64,
    },
    Poisson {
        mean_gap_ns: i64,
    },
    OnOff {
        gap_ns: i64,
        on_min_ns: i64,
        on_max_ns: i64,
        off_min_ns: i64,
        off_max_ns: i64,
    },
    Trace {
        path: PathBuf,
        period_ns: Option<i64>,
    },
}

#[derive(Deserialize)]
#[serde(tag = "type", rename_all = "snake_case", deny_unknown_fields)]
enum StopConfig {
    Packets { packets: u64 },
    Duration { duration_ns: i64 },
}

#[derive(Deserialize)]
#[serde(tag = "type", rename_all = "snake_case", deny_unknown_fields)]
enum SizeConfig {
    Fixed { payload_bytes: usize },
    Uniform { min_bytes: usize, max_bytes: usize },
    Mix { shares: Vec<ShareConfig> },
    Trace {},
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ShareConfig {
    payload_bytes: usize,
    weight: u32,
}

#[derive(Deserialize)]
#[serde(tag = "type", rename_all = "snake_case", deny_unknown_fields)]
enum ContentConfig {
    Zero,
    Repeat { pattern: String },
    Random,
    Compressible { ratio: f64 },
}

const MOST_SHARES: usize = 64;
const LARGEST_WEIGHT: u32 = 1_000_000;

/// Checks a flow; `index` is its place in the list, `seed` the run's.
pub fn flow_plan(index: usize, flow: &FlowConfig, seed: u64) -> Result<FlowPlan, Failure> {
    let at = |key: &str| format!("flows[{index}].{key}");
    let target = config::address(&at("target"), &flow.target)?;
    let source = match &flow.source {
        Some(text) => config::address(&at("source"), text)?,
        None if target.is_ipv4() => SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0)),
        None => SocketAddr::from((Ipv6Addr::UNSPECIFIED, 0)),
    };
    if source.is_ipv4() != target.is_ipv4() {
        return config::wrong(format!(
            "{} is {source}, target is {target}: both must be IPv4 or IPv6",
            at("source")
        ));
    }
    if let Some(name) = &flow.interface {
        config::within(&at("interface: length"), name.len(), 1, 15)?;
    }
    let (format, own_seed) = format(index, flow)?;
    let schedule = schedule(&at("schedule"), &flow.schedule)?;
    let size = size(&at("size"), &flow.size)?;
    if size == Size::Trace && !matches!(schedule, Schedule::Trace { .. }) {
        return config::wrong(format!(
            "{} is trace, which needs the schedule trace",
            at("size.type")
        ));
    }
    let outgoing = OutgoingFlow {
        format,
        start_offset: config::duration(&at("start_offset_ns"), flow.start_offset_ns)?,
        schedule,
        end: stop(&at("stop"), &flow.stop)?,
        size,
        content: content(&at("content"), &flow.content)?,
        seed: seed ^ own_seed,
    };
    let (least, most) = outgoing.size_limits();
    let wanted = outgoing.format.least_bytes();
    if (least as usize) < wanted || most as usize > LARGEST_PAYLOAD_BYTES {
        return config::wrong(format!(
            "{}: payloads are {least} to {most} bytes, must be {wanted} to {LARGEST_PAYLOAD_BYTES}",
            at("size")
        ));
    }
    Ok(FlowPlan {
        flow: flow.flow,
        outgoing,
        target,
        source,
        interface: flow.interface.clone(),
        netns: flow.netns.clone(),
        traffic_class: flow.traffic_class,
    })
}

/// The format, and what tells the random streams of flows apart.
fn format(index: usize, flow: &FlowConfig) -> Result<(Format, u64), Failure> {
    match (&flow.session, &flow.key, &flow.stamp) {
        (Some(session), Some(key), None) => {
            let key = config::key(&format!("flows[{index}].key"), key)?;
            let session = *session;
            Ok((Format::Own { session, key }, u64::from(session)))
        }
        (None, None, Some(stamp)) => {
            let key = stamp.key(&format!("flows[{index}].stamp.key"))?;
            Ok((Format::Stamp { key }, u64::from(flow.flow)))
        }
        _ => config::wrong(format!(
            "flows[{index}] must have session and key, or stamp alone"
        )),
    }
}

fn schedule(place: &str, schedule: &ScheduleConfig) -> Result<Schedule, Failure> {
    let gap = |key: &str, ns: i64| {
        config::within(&format!("{place}.{key}"), ns, 1, config::LONGEST_NS).map(Duration)
    };
    Ok(match schedule {
        ScheduleConfig::Fixed { gap_ns } => Schedule::Fixed {
            gap: gap("gap_ns", *gap_ns)?,
        },
        ScheduleConfig::PacketRate { packets, per_ns } => Schedule::PacketRate {
            packets: config::within(&format!("{place}.packets"), *packets, 1, 1_000_000_000)?,
            per: gap("per_ns", *per_ns)?,
        },
        ScheduleConfig::BitRate { bit_s } => Schedule::BitRate {
            bit_s: config::within(&format!("{place}.bit_s"), *bit_s, 1, 1_000_000_000_000)?,
        },
        ScheduleConfig::Poisson { mean_gap_ns } => Schedule::Poisson {
            mean_gap: gap("mean_gap_ns", *mean_gap_ns)?,
        },
        ScheduleConfig::OnOff {
            gap_ns,
            on_min_ns,
            on_max_ns,
            off_min_ns,
            off_max_ns,
        } => {
            let between = |low: (&str, i64), high: (&str, i64)| -> Result<_, Failure> {
                let least = config::duration(&format!("{place}.{}", low.0), low.1)?;
                let most = config::duration(&format!("{place}.{}", high.0), high.1)?;
                if least > most {
                    return config::wrong(format!(
                        "{place}.{} is {}, must be at least {}, {}",
                        high.0, high.1, low.0, low.1
                    ));
                }
                Ok((least, most))
            };
            Schedule::OnOff {
                gap: gap("gap_ns", *gap_ns)?,
                on: between(("on_min_ns", *on_min_ns), ("on_max_ns", *on_max_ns))?,
                off: between(("off_min_ns", *off_min_ns), ("off_max_ns", *off_max_ns))?,
            }
        }
        ScheduleConfig::Trace { path, period_ns } => trace(place, path, *period_ns)?,
    })
}

fn trace(place: &str, path: &Path, period_ns: Option<i64>) -> Result<Schedule, Failure> {
    let text = read_bounded(&format!("{place}.path"), path, LARGEST_TRACE_BYTES)?;
    let trace = Trace::parse(&text)
        .map_err(|error| Failure::Config(format!("{place}.path: {}: {error}", path.display())))?;
    let period = period_ns
        .map(|ns| {
            let least = trace.end().0.max(1);
            config::within(&format!("{place}.period_ns"), ns, least, config::LONGEST_NS)
        })
        .transpose()?
        .map(Duration);
    let trace = Arc::new(trace);
    Ok(Schedule::Trace { trace, period })
}

/// Reads a file that a configuration names.
pub fn read_bounded(place: &str, path: &Path, most_bytes: u64) -> Result<Vec<u8>, Failure> {
    let mut bytes = Vec::new();
    std::fs::File::open(path)
        .and_then(|file| file.take(most_bytes + 1).read_to_end(&mut bytes))
        .map_err(|error| Failure::Config(format!("{place}: {}: {error}", path.display())))?;
    if bytes.len() as u64 > most_bytes {
        return config::wrong(format!(
            "{place}: {} is longer than {most_bytes} bytes",
            path.display()
        ));
    }
    Ok(bytes)
}

fn stop(place: &str, stop: &StopConfig) -> Result<End, Failure> {
    Ok(match stop {
        StopConfig::Packets { packets } => End::Packets(config::within(
            &format!("{place}.packets"),
            *packets,
            1,
            u64::from(u32::MAX),
        )?),
        StopConfig::Duration { duration_ns } => End::Duration(Duration(config::within(
            &format!("{place}.duration_ns"),
            *duration_ns,
            1,
            config::LONGEST_NS,
        )?)),
    })
}

fn size(place: &str, size: &SizeConfig) -> Result<Size, Failure> {
    let bytes = |key: &str, value: usize| -> Result<u32, Failure> {
        let value = config::payload(&format!("{place}.{key}"), value)?;
        Ok(u32::try_from(value).unwrap_or(u32::MAX))
    };
    Ok(match size {
        SizeConfig::Fixed { payload_bytes } => Size::Fixed(bytes("payload_bytes", *payload_bytes)?),
        SizeConfig::Uniform {
            min_bytes,
            max_bytes,
        } => {
            let least = bytes("min_bytes", *min_bytes)?;
            let most = bytes("max_bytes", *max_bytes)?;
            if least > most {
                return config::wrong(format!(
                    "{place}.max_bytes is {most}, must be at least min_bytes, {least}"
                ));
            }
            Size::Uniform(least, most)
        }
        SizeConfig::Mix { shares } => {
            let count = format!("{place}.shares: number of shares");
            config::within(&count, shares.len(), 1, MOST_SHARES)?;
            let mut found = Vec::new();
            for (index, share) in shares.iter().enumerate() {
                let at = |key: &str| format!("shares[{index}].{key}");
                found.push(Share {
                    bytes: bytes(&at("payload_bytes"), share.payload_bytes)?,
                    weight: config::within(
                        &format!("{place}.{}", at("weight")),
                        share.weight,
                        1,
                        LARGEST_WEIGHT,
                    )?,
                });
            }
            Size::Mix(found)
        }
        SizeConfig::Trace {} => Size::Trace,
    })
}

fn content(place: &str, content: &ContentConfig) -> Result<Content, Failure> {
    Ok(match content {
        ContentConfig::Zero => Content::Zero,
        ContentConfig::Random => Content::Random,
        ContentConfig::Repeat { pattern } => match config::hex(pattern) {
            Some(bytes) if (1..=4096).contains(&bytes.len()) => Content::Repeat(bytes),
            _ => {
                return config::wrong(format!(
                    "{place}.pattern must be 1 to 4096 bytes in hexadecimal digits"
                ))
            }
        },
        ContentConfig::Compressible { ratio } => {
            Content::Compressible(config::within(&format!("{place}.ratio"), *ratio, 0.0, 1.0)?)
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::parse;

    fn plan(changes: &[(&str, serde_json::Value)]) -> Result<FlowPlan, String> {
        let mut flow = serde_json::json!({
            "flow": 0, "session": 1, "key": "000102030405060708090a0b0c0d0e0f",
            "target": "198.18.0.2:7700", "source": null, "interface": null, "start_offset_ns": 0,
            "schedule": {"type": "fixed", "gap_ns": 1000}, "stop": {"type": "packets", "packets": 1},
            "size": {"type": "fixed", "payload_bytes": 64}, "content": {"type": "zero"},
        });
        for (key, value) in changes {
            flow[*key] = value.clone();
        }
        let config = parse::<FlowConfig>(flow.to_string().as_bytes())?;
        flow_plan(3, &config, 1).map_err(|failure| match failure {
            Failure::Config(message) | Failure::Run(message) => message,
        })
    }

    #[test]
    fn an_error_names_place_value_and_limit() {
        let on_off = serde_json::json!({"type": "on_off", "gap_ns": 1, "on_min_ns": 5, "on_max_ns": 4,
            "off_min_ns": 0, "off_max_ns": 0});
        let error = plan(&[("schedule", on_off)]).err().unwrap();
        assert_eq!(
            error,
            "flows[3].schedule.on_max_ns is 4, must be at least on_min_ns, 5"
        );
        let uniform = serde_json::json!({"type": "uniform", "min_bytes": 17, "max_bytes": 90});
        let error = plan(&[("size", uniform)]).err().unwrap();
        assert!(
            error.starts_with("flows[3].size.min_bytes is 17, must be 18 to"),
            "{error}"
        );
        let traced = serde_json::json!({"type": "trace"});
        let error = plan(&[("size", traced)]).err().unwrap();
        assert!(error.contains("needs the schedule trace"), "{error}");
    }

    #[test]
    fn stamp_wants_room_for_its_header() {
        let none = serde_json::Value::Null;
        let stamp = serde_json::json!({"key": "00ff"});
        let changes = [
            ("session", none.clone()),
            ("key", none),
            ("stamp", stamp.clone()),
        ];
        let error = plan(&changes).err().unwrap();
        assert!(error.contains("must be 112 to 65507"), "{error}");
        let error = plan(&[("stamp", stamp)]).err().unwrap();
        assert_eq!(error, "flows[3] must have session and key, or stamp alone");
    }

    #[test]
    fn a_trace_is_read_with_its_errors() {
        let directory = std::env::temp_dir();
        let path = directory.join(format!("tm-trace-{}", std::process::id()));
        std::fs::write(&path, "0 64\n5 17\n").unwrap();
        let schedule = serde_json::json!({"type": "trace", "path": path, "period_ns": null});
        let size = serde_json::json!({"type": "trace"});
        let error = plan(&[("schedule", schedule.clone()), ("size", size)]);
        let later = plan(&[(
            "schedule",
            serde_json::json!({"type": "trace", "path": path, "period_ns": 4}),
        )]);
        std::fs::remove_file(&path).unwrap();
        assert_eq!(
            error.err().unwrap(),
            "flows[3].size: payloads are 17 to 64 bytes, must be 18 to 65507"
        );
        assert!(later
            .err()
            .unwrap()
            .contains("period_ns is 4, must be 5 to"));
        assert!(plan(&[("schedule", schedule)])
            .err()
            .unwrap()
            .contains("tm-trace"));
    }
}
