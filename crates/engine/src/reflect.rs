//! The subcommand `reflect`.

use std::net::SocketAddr;
use std::path::PathBuf;

use serde::Deserialize;
use serde_json::{json, Value};
use tm_io::process::Stop;
use tm_io::reflect::{run, ReflectEvent, ReflectOutcome, ReflectPlan};
use tm_probe::{FlowTotal, Peer, ReflectCounters, SessionPlan, StampPlan};
use tm_wire::Duration;

use crate::config::{self, SessionConfig};
use crate::events::{self, Reader};
use crate::Failure;

/// Its configuration.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReflectConfig {
    protocol: u32,
    #[serde(default)]
    parent_pid: Option<u32>,
    listen: Vec<String>,
    #[serde(default)]
    listen_in: Vec<ListenInConfig>,
    sessions: Vec<SessionConfig>,
    #[serde(default)]
    stamp: Vec<StampConfig>,
    #[serde(default)]
    spin_ns: i64,
    #[serde(default)]
    coalesce_ns: i64,
    #[serde(default)]
    receive_time: config::ReceiveTimeConfig,
    #[serde(default = "config::yes")]
    answer: bool,
    records: Option<PathBuf>,
    realtime_priority: Option<u8>,
    cpu: Option<usize>,
    socket_buffer_bytes: usize,
    #[serde(default = "config::one")]
    shards: usize,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ListenInConfig {
    address: String,
    netns: PathBuf,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct StampConfig {
    flow: u16,
    listen: String,
    key: Option<String>,
    #[serde(default)]
    stateful: bool,
    #[serde(default)]
    peer: Option<String>,
    #[serde(default = "usual_rate")]
    most_packets_s: u32,
}

/// More than any loop of two reflectors needs, and less than harms: a measurement that is denser says
/// so.
fn usual_rate() -> u32 {
    10_000
}

/// Runs it.
pub fn main(path: &str) -> Result<(), Failure> {
    let config: ReflectConfig = config::read(path)?;
    let plan = plan(&config)?;
    let stop = Stop::listen(config.parent_pid)?;
    let reader = Reader::of(&stop)?;
    let outcome = run(&plan, &stop, |event| reader.tell(&reported(&event)))?;
    reader.finish(&summary(&outcome))
}

/// The event at the end.
pub fn summary(outcome: &ReflectOutcome) -> Value {
    let flows: Vec<_> = outcome.flows.iter().map(flow_summary).collect();
    json!({
        "event": "summary", "timestamps": events::timestamps(outcome.kernel_timestamps),
        "realtime": events::realtime(outcome.realtime), "rejected": outcome.rejected, "overrun": outcome.overrun,
        "residence_ns": events::delays(&outcome.residence), "flows": flows,
    })
}

fn flow_summary(flow: &FlowTotal) -> Value {
    let mut summary = counted(&flow.counters);
    summary["flow"] = json!(flow.flow);
    if let Some(senders) = &flow.senders {
        let senders = senders.iter().map(|(address, counters)| {
            let mut sender = counted(counters);
            sender["address"] = json!(address.to_string());
            sender["limited"] = json!(counters.limited);
            sender
        });
        summary["senders"] = senders.collect();
        summary["limited"] = json!(flow.counters.limited);
    }
    summary
}

fn counted(c: &ReflectCounters) -> Value {
    json!({
        "received": c.received, "bytes_received": c.bytes_received,
        "answered": c.answered, "duplicates": c.duplicates, "reordered": c.reordered,
        "send_errors": c.send_errors,
    })
}

/// Checks a configuration.
pub fn check(text: &[u8]) -> Result<(), Failure> {
    let config: ReflectConfig = config::parse(text).map_err(Failure::Config)?;
    plan(&config).map(|_| ())
}

fn reported(event: &ReflectEvent<'_>) -> Value {
    match event {
        ReflectEvent::Ready(listen) => {
            let listen: Vec<_> = listen.iter().map(ToString::to_string).collect();
            json!({"event": "ready", "listen": listen})
        }
        ReflectEvent::Progress(now, flows) => {
            let flows: Vec<_> = flows
                .iter()
                .map(|flow| {
                    let c = flow.counters;
                    json!({"flow": flow.flow, "received": c.received, "answered": c.answered})
                })
                .collect();
            json!({"event": "progress", "time_ns": now.0, "flows": flows})
        }
    }
}

/// Checks a configuration.
pub fn plan(config: &ReflectConfig) -> Result<ReflectPlan, Failure> {
    config::protocol(config.protocol)?;
    let least = usize::from(config.stamp.is_empty());
    let addresses = config.listen.len() + config.listen_in.len();
    for (place, count, most) in [
        ("listen: number of addresses", addresses, 256),
        ("sessions: number of sessions", config.sessions.len(), 4096),
    ] {
        config::within(place, count, least, most)?;
    }
    config::within("stamp: number of sessions", config.stamp.len(), 0, 256)?;
    let mut sessions: Vec<SessionPlan> = Vec::new();
    for (index, session) in config.sessions.iter().enumerate() {
        // The short header names a session by these.
        let lower = |number: u32| number & 0xffff;
        if let Some(other) = sessions
            .iter()
            .position(|other| lower(other.session) == lower(session.session))
        {
            return config::wrong(format!(
                "sessions[{index}].session is {}: its lower 16 bits are {}, as those of \
                 sessions[{other}]; they must differ",
                session.session,
                lower(session.session)
            ));
        }
        sessions.push(SessionPlan {
            flow: session.flow,
            session: session.session,
            key: config::key(&format!("sessions[{index}].key"), &session.key)?,
        });
    }
    if config.shards > 1 && !config.stamp.is_empty() {
        return config::wrong(format!(
            "shards is {}, must be 1 with stamp: a STAMP reflector numbers its senders",
            config.shards
        ));
    }
    let listen = config.listen.iter().enumerate().map(|(index, text)| {
        config::address(&format!("listen[{index}]"), text).map(|address| (address, None))
    });
    let elsewhere = config.listen_in.iter().enumerate().map(|(index, one)| {
        config::address(&format!("listen_in[{index}].address"), &one.address)
            .map(|address| (address, Some(one.netns.clone())))
    });
    Ok(ReflectPlan {
        listen: listen.chain(elsewhere).collect::<Result<_, _>>()?,
        sessions,
        stamp: config
            .stamp
            .iter()
            .enumerate()
            .map(|(index, stamp)| stamp_plan(index, stamp))
            .collect::<Result<_, _>>()?,
        answer: config.answer,
        spin: Duration(config::within(
            "spin_ns",
            config.spin_ns,
            0,
            LONGEST_SPIN_NS,
        )?),
        coalesce: config::coalesce(config.coalesce_ns)?,
        receive_time: config.receive_time.into(),
        records: config.records.clone(),
        realtime_priority: config::priority(config.realtime_priority)?,
        cpu: config::cpu("cpu", config.cpu)?,
        buffer_bytes: config::buffer(config.socket_buffer_bytes)?,
        shards: config::shards(config.shards, &[("cpu", config.cpu)])?,
    })
}

/// A reflector that is awake all the time takes a processor of its own; a second is ample.
const LONGEST_SPIN_NS: i64 = 1_000_000_000;

fn stamp_plan(index: usize, stamp: &StampConfig) -> Result<(SocketAddr, StampPlan), Failure> {
    let at = |key: &str| format!("stamp[{index}].{key}");
    let listen = config::address(&at("listen"), &stamp.listen)?;
    if listen.ip().is_unspecified() {
        return config::wrong(format!(
            "{} is {listen}, must be one address: a STAMP session is known by it",
            at("listen")
        ));
    }
    let plan = StampPlan {
        flow: stamp.flow,
        key: config::stamp_key(&at("key"), stamp.key.as_deref())?,
        stateful: stamp.stateful,
        peer: peer(&at("peer"), stamp.peer.as_deref())?,
        most_per_s: config::within(&at("most_packets_s"), stamp.most_packets_s, 1, 10_000_000)?,
    };
    Ok((listen, plan))
}

fn peer(place: &str, text: Option<&str>) -> Result<Peer, Failure> {
    let Some(text) = text else {
        return Ok(Peer::Anyone);
    };
    let host = text.parse().map(Peer::Host);
    host.or_else(|_| text.parse().map(Peer::Port)).or_else(|_| {
        config::wrong(format!(
            "{place} is {text:?}, must be an address such as 198.18.0.1, with a port or without"
        ))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stamp(key: &str, value: &Value) -> Result<(SocketAddr, StampPlan), String> {
        let mut stamp = json!({"flow": 1, "listen": "198.18.0.2:862", "key": null});
        stamp[key] = value.clone();
        let config = config::parse::<StampConfig>(stamp.to_string().as_bytes())?;
        stamp_plan(0, &config).map_err(|failure| match failure {
            Failure::Config(message) | Failure::Run(message) => message,
        })
    }

    #[test]
    fn a_peer_is_anyone_a_host_or_a_port_of_it() {
        let peer = |value| stamp("peer", &value).map(|(_, plan)| plan.peer);
        assert_eq!(peer(Value::Null), Ok(Peer::Anyone));
        let host = "198.18.0.1".parse().unwrap();
        assert_eq!(peer(json!("198.18.0.1")), Ok(Peer::Host(host)));
        let port = "[fd00::1]:862".parse().unwrap();
        assert_eq!(peer(json!("[fd00::1]:862")), Ok(Peer::Port(port)));
        let error = peer(json!("router")).unwrap_err();
        assert!(
            error.starts_with("stamp[0].peer is \"router\", must be"),
            "{error}"
        );
    }

    #[test]
    fn a_stamp_reflector_has_one_address_and_a_rate() {
        let error = |key, value| stamp(key, &value).err().unwrap();
        let all = error("listen", json!("0.0.0.0:862"));
        assert!(
            all.starts_with("stamp[0].listen is 0.0.0.0:862, must be one"),
            "{all}"
        );
        let none = error("most_packets_s", json!(0));
        assert_eq!(none, "stamp[0].most_packets_s is 0, must be 1 to 10000000");
        assert_eq!(stamp("key", &Value::Null).unwrap().1.most_per_s, 10_000);
    }
}
