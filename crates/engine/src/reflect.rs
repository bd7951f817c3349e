//! The subcommand `reflect`.

use std::path::PathBuf;

use serde::Deserialize;
use serde_json::json;
use tm_io::process::Stop;
use tm_io::reflect::{run, ReflectEvent, ReflectPlan, SessionPlan};

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
    #[serde(default = "yes")]
    answer: bool,
    records: Option<PathBuf>,
    realtime_priority: Option<u8>,
    cpu: Option<usize>,
    socket_buffer_bytes: usize,
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
    let flows: Vec<_> = plan
        .sessions
        .iter()
        .zip(&outcome.flows)
        .map(|(session, flow)| {
            let c = flow.counters;
            json!({
                "flow": session.flow, "received": c.received, "bytes_received": c.bytes_received,
                "answered": c.answered, "duplicates": c.duplicates, "reordered": c.reordered,
                "send_errors": c.send_errors,
            })
        })
        .collect();
    events::write(&json!({
        "event": "summary", "timestamps": events::timestamps(outcome.kernel_timestamps),
        "realtime": outcome.realtime, "rejected": outcome.rejected, "overrun": outcome.overrun,
        "flows": flows,
    }));
    Ok(())
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
    config::within("listen: number of addresses", config.listen.len(), 1, 256)?;
    config::within(
        "sessions: number of sessions",
        config.sessions.len(),
        1,
        4096,
    )?;
    let mut sessions: Vec<SessionPlan> = Vec::new();
    for (index, session) in config.sessions.iter().enumerate() {
        if sessions
            .iter()
            .any(|other| other.session == session.session)
        {
            return config::wrong(format!(
                "sessions[{index}].session is {}, which is there already",
                session.session
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
        answer: config.answer,
        records: config.records.clone(),
        realtime_priority: config::priority(config.realtime_priority)?,
        cpu: config.cpu,
        buffer_bytes: config::buffer(config.socket_buffer_bytes)?,
    })
}
