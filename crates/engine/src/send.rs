//! The subcommand `send`.

use std::path::PathBuf;

use serde::Deserialize;
use serde_json::{json, Value};
use tm_io::process::Stop;
use tm_io::send::{run, FlowPlan, SendEvent, SendOutcome, SendPlan};
use tm_probe::{Missed, SenderFlow, Waiting};

use crate::config;
use crate::events::{self, Reader};
use crate::flow::{flow_plan, FlowConfig};
use crate::Failure;

/// Its configuration.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SendConfig {
    protocol: u32,
    #[serde(default)]
    parent_pid: Option<u32>,
    pub flows: Vec<FlowConfig>,
    seed: u64,
    drain_ns: i64,
    late_ns: i64,
    missed: MissedConfig,
    #[serde(default)]
    coalesce_ns: i64,
    #[serde(default)]
    receive_time: config::ReceiveTimeConfig,
    #[serde(default = "config::yes")]
    spin: bool,
    #[serde(default)]
    segment: bool,
    dont_fragment: bool,
    records: Option<PathBuf>,
    realtime_priority: Option<u8>,
    send_cpu: Option<usize>,
    receive_cpu: Option<usize>,
    socket_buffer_bytes: usize,
    #[serde(default = "config::one")]
    shards: usize,
}

#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
enum MissedConfig {
    Send,
    Skip,
}

/// Runs it.
pub fn main(path: &str) -> Result<(), Failure> {
    let config: SendConfig = config::read(path)?;
    let plan = plan(&config)?;
    let stop = Stop::listen(config.parent_pid)?;
    let reader = Reader::of(&stop)?;
    let outcome = run(&plan, &stop, |event| reader.tell(&reported(&plan, &event)))?;
    reader.finish(&summary(&plan, &outcome))
}

/// Checks a configuration; traces are taken for right.
pub fn check(text: &[u8]) -> Result<(), Failure> {
    let config: SendConfig = config::parse(text).map_err(Failure::Config)?;
    if config.flows.iter().any(FlowConfig::names_a_file) {
        return Ok(());
    }
    plan(&config).map(|_| ())
}

fn reported(plan: &SendPlan, event: &SendEvent<'_>) -> Value {
    match event {
        SendEvent::Ready(sources) => {
            let flows: Vec<_> = plan
                .flows
                .iter()
                .zip(sources.iter())
                .map(|(flow, source)| json!({"flow": flow.flow, "source": source.to_string()}))
                .collect();
            json!({"event": "ready", "flows": flows})
        }
        SendEvent::Progress(now, flows) => {
            let flows: Vec<_> = plan
                .flows
                .iter()
                .zip(flows.iter())
                .map(|(plan, flow)| {
                    json!({
                        "flow": plan.flow, "sent": flow.sent, "returned": flow.returned,
                        "rtt_last_ns": flow.last_rtt.map(|rtt| rtt.0),
                    })
                })
                .collect();
            json!({"event": "progress", "time_ns": now.0, "flows": flows})
        }
    }
}

/// The event at the end.
pub fn summary(plan: &SendPlan, outcome: &SendOutcome) -> Value {
    let flows: Vec<_> = plan
        .flows
        .iter()
        .zip(&outcome.flows)
        .map(|(plan, (flow, overrun))| flow_summary(plan.flow, flow, *overrun))
        .collect();
    json!({
        "event": "summary", "start_ns": outcome.start.0, "end_ns": outcome.end.0,
        "realtime": events::realtime(outcome.realtime), "awake_ns": outcome.awake.0,
        "timestamps": events::timestamps(outcome.kernel_timestamps), "flows": flows,
    })
}

fn flow_summary(number: u16, flow: &SenderFlow, overrun: Option<u32>) -> Value {
    let c = flow.counters;
    json!({
        "flow": number, "due": c.due, "sent": c.sent, "not_sent": c.not_sent,
        "send_errors": c.send_errors, "bytes_sent": c.bytes_sent, "returned": c.returned,
        "bytes_returned": c.bytes_returned, "duplicates": c.duplicates,
        "reordered": c.reordered, "late": c.late,
        "unrecorded": c.unrecorded, "residence_unknown": c.residence_unknown, "rejected": c.rejected, "overrun": overrun,
        "remote_received": flow.remote_received(),
        "first_sent_ns": flow.sent_span.map(|(first, _)| first.0),
        "last_sent_ns": flow.sent_span.map(|(_, last)| last.0),
        "rtt_ns": events::delays(&flow.rtt),
        "owd_forward_ns": events::delays(&flow.owd_forward),
        "owd_reverse_ns": events::delays(&flow.owd_reverse),
        "lateness_ns": events::delays(&flow.lateness),
    })
}

/// Checks a configuration.
pub fn plan(config: &SendConfig) -> Result<SendPlan, Failure> {
    config::protocol(config.protocol)?;
    config::within("flows: number of flows", config.flows.len(), 1, 1024)?;
    let mut flows: Vec<FlowPlan> = Vec::new();
    for (index, flow) in config.flows.iter().enumerate() {
        if flows.iter().any(|other| other.flow == flow.flow) {
            return config::wrong(format!(
                "flows[{index}].flow is {}, which another flow has",
                flow.flow
            ));
        }
        flows.push(flow_plan(index, flow, config.seed)?);
    }
    Ok(SendPlan {
        flows,
        waiting: Waiting {
            late: config::duration("late_ns", config.late_ns)?,
            drain: config::duration("drain_ns", config.drain_ns)?,
        },
        missed: match config.missed {
            MissedConfig::Send => Missed::Send,
            MissedConfig::Skip => Missed::Skip,
        },
        coalesce: config::coalesce(config.coalesce_ns)?,
        receive_time: config.receive_time.into(),
        spin: config.spin,
        segment: config.segment,
        dont_fragment: config.dont_fragment,
        records: config.records.clone(),
        realtime_priority: config::priority(config.realtime_priority)?,
        send_cpu: config::cpu("send_cpu", config.send_cpu)?,
        receive_cpu: config::cpu("receive_cpu", config.receive_cpu)?,
        buffer_bytes: config::buffer(config.socket_buffer_bytes)?,
        shards: config::shards(
            config.shards,
            &[
                ("send_cpu", config.send_cpu),
                ("receive_cpu", config.receive_cpu),
            ],
        )?,
    })
}
