//! The subcommand `reflect`.

use std::path::PathBuf;

use serde::Deserialize;
use serde_json::json;
use tm_io::process::Stop;
use tm_io::reflect::{run, ReflectEvent, ReflectPlan, SessionPlan, StampPlan};
use tm_wire::Nanos;

use crate::config::{self, SessionConfig};
use crate::{events, Failure};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ReflectConfig {
    protocol: u32,
    #[serde(default)]
    parent_pid: Option<u32>,
    listen: Vec<String>,
    sessions: Vec<SessionConfig>,
    #[serde(default)]
    stamp: Vec<StampConfig>,
    #[serde(default)]
    spin_ns: i64,
    #[serde(default)]
    coalesce_ns: i64,
    #[serde(default)]
    receive_time: config::ReceiveTimeConfig,
    #[serde(default = "yes")]
    answer: bool,
    records: Option<PathBuf>,
    realtime_priority: Option<u8>,
    cpu: Option<usize>,
    socket_buffer_bytes: usize,
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
}

fn yes() -> bool {
    true
}

/// Runs it.
pub fn main(path: &str) -> Result<(), Failure> {
    let config: ReflectConfig = config::read(path)?;
    let plan = plan(&config)?;
    let stop = Stop::listen(config.parent_pid)?;
    let outcome = run(&plan, &stop, |event| tell(&event))?;
    let flows: Vec<_> = outcome
        .flows
        .iter()
        .map(|flow| {
            let c = flow.counters;
            json!({
                "flow": flow.flow(), "received": c.received, "bytes_received": c.bytes_received,
                "answered": c.answered, "duplicates": c.duplicates, "reordered": c.reordered,
                "send_errors": c.send_errors,
            })
        })
        .collect();
    events::write(&json!({
        "event": "summary", "timestamps": events::timestamps(outcome.kernel_timestamps),
        "realtime": events::realtime(outcome.realtime), "rejected": outcome.rejected, "overrun": outcome.overrun,
        "residence_ns": events::delays(&outcome.residence), "flows": flows,
    }));
    Ok(())
}

/// Checks a configuration.
pub fn check(text: &[u8]) -> Result<(), Failure> {
    let config: ReflectConfig = config::parse(text).map_err(Failure::Config)?;
    plan(&config).map(|_| ())
}

fn tell(event: &ReflectEvent<'_>) {
    match event {
        ReflectEvent::Ready(listen) => {
            let listen: Vec<_> = listen.iter().map(ToString::to_string).collect();
            events::write(&json!({"event": "ready", "listen": listen}));
        }
        ReflectEvent::Progress(now, flows) => {
            let flows: Vec<_> = flows
                .iter()
                .map(|flow| {
                    let c = flow.counters;
                    json!({"flow": flow.flow(), "received": c.received, "answered": c.answered})
                })
                .collect();
            events::write(&json!({"event": "progress", "time_ns": now.0, "flows": flows}));
        }
    }
}

fn plan(config: &ReflectConfig) -> Result<ReflectPlan, Failure> {
    config::protocol(config.protocol)?;
    let least = usize::from(config.stamp.is_empty());
    for (place, count, most) in [
        ("listen: number of addresses", config.listen.len(), 256),
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
    let listen = config.listen.iter().enumerate();
    Ok(ReflectPlan {
        listen: listen
            .map(|(index, text)| config::address(&format!("listen[{index}]"), text))
            .collect::<Result<_, _>>()?,
        sessions,
        stamp: config
            .stamp
            .iter()
            .enumerate()
            .map(|(index, stamp)| stamp_plan(index, stamp))
            .collect::<Result<_, _>>()?,
        answer: config.answer,
        spin: Nanos(config::within(
            "spin_ns",
            config.spin_ns,
            0,
            LONGEST_SPIN_NS,
        )?),
        coalesce: config::coalesce(config.coalesce_ns)?,
        receive_time: config.receive_time.into(),
        records: config.records.clone(),
        realtime_priority: config::priority(config.realtime_priority)?,
        cpu: config.cpu,
        buffer_bytes: config::buffer(config.socket_buffer_bytes)?,
    })
}

/// A reflector that is awake all the time takes a processor of its own; a second is ample.
const LONGEST_SPIN_NS: i64 = 1_000_000_000;

fn stamp_plan(index: usize, stamp: &StampConfig) -> Result<StampPlan, Failure> {
    let at = |key: &str| format!("stamp[{index}].{key}");
    let peer = match &stamp.peer {
        None => None,
        Some(text) => Some(text.parse().or_else(|_| {
            config::wrong(format!(
                "{} is {text:?}, must be an address such as 198.18.0.1",
                at("peer")
            ))
        })?),
    };
    Ok(StampPlan {
        flow: stamp.flow,
        listen: config::address(&at("listen"), &stamp.listen)?,
        key: config::stamp_key(&at("key"), stamp.key.as_deref())?,
        stateful: stamp.stateful,
        peer,
    })
}
