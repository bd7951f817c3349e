//! The subcommands `ask` and `answer`: transactions, one at a time on each socket.

use serde::Deserialize;
use serde_json::json;
use tm_io::process::Stop;
use tm_io::rr::{request, RequestPlan, Target, Transport, HEADER_BYTES};
use tm_io::rr_respond::{respond, ResponsePlan};
use tm_probe::Delays;

use crate::config;
use crate::events::{self, Reader};
use crate::Failure;

const MOST_SOCKETS: usize = 1024;
const LARGEST_DATAGRAM_BYTES: usize = 65_507;
const LARGEST_MESSAGE_BYTES: usize = 1 << 20;

#[derive(Deserialize, Clone, Copy)]
#[serde(rename_all = "lowercase")]
enum Carried {
    Udp,
    Tcp,
    Connect,
}

/// What both ends must have alike.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Message {
    transport: Carried,
    session: u64,
    request_bytes: usize,
    response_bytes: usize,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct AnswerConfig {
    protocol: u32,
    #[serde(default)]
    parent_pid: Option<u32>,
    message: Message,
    listen: Vec<String>,
    realtime_priority: Option<u8>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct AskConfig {
    protocol: u32,
    #[serde(default)]
    parent_pid: Option<u32>,
    message: Message,
    flows: Vec<TargetConfig>,
    outstanding: usize,
    duration_ns: i64,
    timeout_ns: i64,
    realtime_priority: Option<u8>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct TargetConfig {
    target: String,
    source: Option<String>,
}

/// Runs `answer`.
pub fn answer_main(path: &str) -> Result<(), Failure> {
    let config: AnswerConfig = config::read(path)?;
    let plan = answer_plan(&config)?;
    let stop = Stop::listen(config.parent_pid)?;
    let reader = Reader::of(&stop)?;
    let counts = respond(&plan, &stop, |listen| {
        let listen: Vec<_> = listen.iter().map(ToString::to_string).collect();
        reader.tell(&json!({"event": "ready", "listen": listen}));
    })?;
    reader.finish(&json!({
        "event": "summary", "answered": counts.answered, "rejected": counts.rejected,
    }))
}

/// Runs `ask`.
pub fn ask_main(path: &str) -> Result<(), Failure> {
    let config: AskConfig = config::read(path)?;
    let plan = ask_plan(&config)?;
    let stop = Stop::listen(config.parent_pid)?;
    let reader = Reader::of(&stop)?;
    let (flows, span) = request(&plan, &stop, |answered| {
        reader.tell(&json!({"event": "progress", "answered": answered}));
    })?;
    if let Some(error) = flows.iter().find_map(|flow| flow.error.clone()) {
        return Err(Failure::Run(error));
    }
    let mut together = Delays::default();
    for flow in &flows {
        together.merge(&flow.delays);
    }
    let flows: Vec<_> = flows
        .iter()
        .map(|flow| {
            json!({
                "begun": flow.begun, "answered": flow.answered, "lost": flow.lost,
                "late": flow.late, "latency_ns": events::delays(&flow.delays),
            })
        })
        .collect();
    reader.finish(&json!({
        "event": "summary", "span_ns": span.0, "latency_ns": events::delays(&together),
        "flows": flows,
    }))
}

/// Checks a configuration of `answer`.
pub fn check_answer(text: &[u8]) -> Result<(), Failure> {
    let config: AnswerConfig = config::parse(text).map_err(Failure::Config)?;
    answer_plan(&config).map(|_| ())
}

/// Checks a configuration of `ask`.
pub fn check_ask(text: &[u8]) -> Result<(), Failure> {
    let config: AskConfig = config::parse(text).map_err(Failure::Config)?;
    ask_plan(&config).map(|_| ())
}

fn answer_plan(config: &AnswerConfig) -> Result<ResponsePlan, Failure> {
    config::protocol(config.protocol)?;
    config::within("listen: number of addresses", config.listen.len(), 1, 256)?;
    let message = checked(&config.message)?;
    let listen = config.listen.iter().enumerate();
    Ok(ResponsePlan {
        transport: transport(message.transport),
        listen: listen
            .map(|(index, text)| config::address(&format!("listen[{index}]"), text))
            .collect::<Result<_, _>>()?,
        request_bytes: message.request_bytes,
        response_bytes: message.response_bytes,
        session: message.session,
        priority: config::priority(config.realtime_priority)?,
    })
}

fn ask_plan(config: &AskConfig) -> Result<RequestPlan, Failure> {
    config::protocol(config.protocol)?;
    let message = checked(&config.message)?;
    config::within("flows: number of flows", config.flows.len(), 1, 256)?;
    config::within("outstanding", config.outstanding, 1, MOST_SOCKETS)?;
    config::within(
        "flows times outstanding",
        config.flows.len() * config.outstanding,
        1,
        MOST_SOCKETS,
    )?;
    config::within(
        "timeout_ns",
        config.timeout_ns,
        1_000_000,
        config::LONGEST_NS,
    )?;
    let flows = config.flows.iter().enumerate();
    Ok(RequestPlan {
        transport: transport(message.transport),
        flows: flows
            .map(|(index, flow)| {
                Ok(Target {
                    target: config::address(&format!("flows[{index}].target"), &flow.target)?,
                    source: flow
                        .source
                        .as_ref()
                        .map(|text| config::address(&format!("flows[{index}].source"), text))
                        .transpose()?,
                })
            })
            .collect::<Result<_, Failure>>()?,
        outstanding: config.outstanding,
        request_bytes: message.request_bytes,
        response_bytes: message.response_bytes,
        session: message.session,
        duration: config::duration("duration_ns", config.duration_ns)?,
        timeout: config::duration("timeout_ns", config.timeout_ns)?,
        priority: config::priority(config.realtime_priority)?,
    })
}

fn checked(message: &Message) -> Result<&Message, Failure> {
    let most = match message.transport {
        Carried::Udp => LARGEST_DATAGRAM_BYTES,
        Carried::Tcp | Carried::Connect => LARGEST_MESSAGE_BYTES,
    };
    for (place, bytes) in [
        ("message.request_bytes", message.request_bytes),
        ("message.response_bytes", message.response_bytes),
    ] {
        config::within(place, bytes, HEADER_BYTES, most)?;
    }
    Ok(message)
}

fn transport(carried: Carried) -> Transport {
    match carried {
        Carried::Udp => Transport::Udp,
        Carried::Tcp => Transport::Tcp,
        Carried::Connect => Transport::Connect,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ASK: &str = r#"{"protocol": 2, "message": {"transport": "tcp", "session": 1,
        "request_bytes": 32, "response_bytes": 32}, "flows": [{"target": "127.0.0.1:1"}],
        "outstanding": 1, "duration_ns": 1000, "timeout_ns": 1000000}"#;

    fn refused(old: &str, new: &str) -> String {
        let text = ASK.replace(old, new);
        match check_ask(text.as_bytes()) {
            Err(Failure::Config(message)) => message,
            _ => panic!("{text} was accepted"),
        }
    }

    #[test]
    fn a_right_configuration_is_accepted() {
        assert!(check_ask(ASK.as_bytes()).is_ok());
        let answer = r#"{"protocol": 2, "message": {"transport": "udp", "session": 1,
            "request_bytes": 32, "response_bytes": 65507}, "listen": ["127.0.0.1:0"]}"#;
        assert!(check_answer(answer.as_bytes()).is_ok());
    }

    #[test]
    fn a_wrong_one_is_refused_with_place_and_limits() {
        assert!(refused("\"request_bytes\": 32", "\"request_bytes\": 15")
            .contains("message.request_bytes is 15, must be 16 to 1048576"));
        assert!(refused("\"tcp\"", "\"sctp\"").contains("message.transport"));
        assert!(refused("127.0.0.1:1", "localhost").contains("flows[0].target"));
        assert!(refused("\"outstanding\": 1", "\"outstanding\": 2000").contains("outstanding"));
        assert!(refused("\"timeout_ns\": 1000000", "\"timeout_ns\": 1").contains("timeout_ns"));
        assert!(refused("\"protocol\": 2", "\"protocol\": 9").contains("protocol is 9"));
        assert!(refused("\"outstanding\"", "\"colour\": 1, \"outstanding\"").contains("colour"));
    }
}
