//! Configurations: JSON from a file or standard input, bounded, unknown keys refused.

use std::io::Read;
use std::net::SocketAddr;

use serde::de::DeserializeOwned;
use serde::Deserialize;
use tm_io::process::LARGEST_CPU;
use tm_io::udp::ReceiveTime;
use tm_wire::{Duration, Key, LARGEST_PAYLOAD_BYTES, SHORT_HEADER_BYTES};

use crate::Failure;

/// Version of `docs/engine.md` that is spoken.
pub const PROTOCOL: u32 = 2;
/// Of every subcommand but `sim`, whose configuration has every packet length of every path.
const LARGEST_CONFIG_BYTES: u64 = 1 << 20;

/// When a packet has arrived.
#[derive(Clone, Copy, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ReceiveTimeConfig {
    /// When the kernel took it in.
    #[default]
    Kernel,
    /// When the engine had it.
    User,
}

impl From<ReceiveTimeConfig> for ReceiveTime {
    fn from(config: ReceiveTimeConfig) -> Self {
        match config {
            ReceiveTimeConfig::Kernel => Self::Kernel,
            ReceiveTimeConfig::User => Self::User,
        }
    }
}

/// Reads a configuration; an error names the place in the document.
pub fn read<T: DeserializeOwned>(path: &str) -> Result<T, Failure> {
    read_up_to(path, LARGEST_CONFIG_BYTES)
}

/// Reads a configuration of up to `most_bytes`.
pub fn read_up_to<T: DeserializeOwned>(path: &str, most_bytes: u64) -> Result<T, Failure> {
    let mut text = Vec::new();
    let read = if path == "-" {
        std::io::stdin()
            .lock()
            .take(most_bytes + 1)
            .read_to_end(&mut text)
    } else {
        std::fs::File::open(path).and_then(|file| file.take(most_bytes + 1).read_to_end(&mut text))
    };
    read.map_err(|error| Failure::Config(format!("{path}: {error}")))?;
    if text.len() as u64 > most_bytes {
        return wrong(format!("{path}: is longer than {most_bytes} bytes"));
    }
    parse(&text).map_err(|message| Failure::Config(format!("{path}: {message}")))
}

/// Parses a configuration.
pub fn parse<T: DeserializeOwned>(text: &[u8]) -> Result<T, String> {
    let mut source = serde_json::Deserializer::from_slice(text);
    let value = serde_path_to_error::deserialize(&mut source)
        .map_err(|error| format!("{}: {}", error.path(), error.inner()))?;
    source.end().map_err(|error| error.to_string())?;
    Ok(value)
}

/// A configuration error.
pub fn wrong<T>(message: impl Into<String>) -> Result<T, Failure> {
    Err(Failure::Config(message.into()))
}

/// Refuses a number outside its limits, naming place, value and limits.
pub fn within<T: PartialOrd + std::fmt::Display + Copy>(
    place: &str,
    value: T,
    least: T,
    most: T,
) -> Result<T, Failure> {
    if value < least || value > most {
        return wrong(format!("{place} is {value}, must be {least} to {most}"));
    }
    Ok(value)
}

/// Refuses a protocol that is not ours.
pub fn protocol(version: u32) -> Result<(), Failure> {
    if version == PROTOCOL {
        return Ok(());
    }
    wrong(format!(
        "protocol is {version}, this engine speaks {PROTOCOL}"
    ))
}

/// A session and its key, as every subcommand writes them.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SessionConfig {
    /// Number in events and records.
    pub flow: u16,
    /// Session on the wire.
    pub session: u32,
    /// 32 hexadecimal digits.
    pub key: String,
}

/// What a STAMP session needs beside its addresses.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StampKeyConfig {
    /// Hexadecimal digits of up to 64 bytes; null: unauthenticated.
    key: Option<String>,
}

impl StampKeyConfig {
    /// The key.
    pub fn key(&self, place: &str) -> Result<Option<Vec<u8>>, Failure> {
        stamp_key(place, self.key.as_deref())
    }
}

/// Parses the key of a STAMP session; the message never repeats it.
pub fn stamp_key(place: &str, text: Option<&str>) -> Result<Option<Vec<u8>>, Failure> {
    let Some(text) = text else { return Ok(None) };
    match hex(text) {
        Some(bytes) if (1..=64).contains(&bytes.len()) => Ok(Some(bytes)),
        _ => wrong(format!(
            "{place} has {} characters, must be 2 to 128 hexadecimal digits or null",
            text.chars().count()
        )),
    }
}

/// Parses a key; the message never repeats it.
pub fn key(place: &str, text: &str) -> Result<Key, Failure> {
    match hex(text).and_then(|bytes| <[u8; 16]>::try_from(bytes).ok()) {
        Some(bytes) => Ok(Key::Secret(bytes)),
        None => wrong(format!(
            "{place} has {} characters, must be 32 hexadecimal digits",
            text.chars().count()
        )),
    }
}

/// Bytes of a hexadecimal text; None if it is not one.
pub fn hex(text: &str) -> Option<Vec<u8>> {
    if !text.len().is_multiple_of(2) || !text.is_ascii() {
        return None;
    }
    (0..text.len())
        .step_by(2)
        .map(|at| u8::from_str_radix(&text[at..at + 2], 16).ok())
        .collect()
}

/// Parses an address with port.
pub fn address(place: &str, text: &str) -> Result<SocketAddr, Failure> {
    text.parse().or_else(|_| {
        wrong(format!(
            "{place} is {text:?}, must be an address with port such as 198.18.0.2:7700"
        ))
    })
}

/// A day: no duration of a run is longer.
pub const LONGEST_NS: i64 = 24 * 3_600_000_000_000;

/// Checks how long packets may be gathered.
pub fn coalesce(ns: i64) -> Result<Duration, Failure> {
    within("coalesce_ns", ns, 0, 10_000_000).map(Duration)
}

/// Checks a duration.
pub fn duration(place: &str, ns: i64) -> Result<Duration, Failure> {
    within(place, ns, 0, LONGEST_NS).map(Duration)
}

/// Checks a payload size.
pub fn payload(place: &str, bytes: usize) -> Result<usize, Failure> {
    within(place, bytes, SHORT_HEADER_BYTES, LARGEST_PAYLOAD_BYTES)
}

/// Checks a real-time priority.
pub fn priority(value: Option<u8>) -> Result<Option<u8>, Failure> {
    value
        .map(|value| within("realtime_priority", value, 1, 99))
        .transpose()
}

/// Checks the number of a processor; whether there is one is found out by who pins a thread to it.
pub fn cpu(place: &str, value: Option<usize>) -> Result<Option<usize>, Failure> {
    value
        .map(|value| within(place, value, 0, LARGEST_CPU))
        .transpose()
}

/// What a key that is left out stands for.
pub fn yes() -> bool {
    true
}

/// What a count that is left out stands for.
pub fn one() -> usize {
    1
}

/// Checks a number of shards; `cpus` are the processors that the threads of one would keep to.
pub fn shards(count: usize, cpus: &[(&str, Option<usize>)]) -> Result<usize, Failure> {
    within("shards", count, 1, MOST_SHARDS)?;
    for (place, cpu) in cpus {
        if let (Some(cpu), true) = (cpu, count > 1) {
            return wrong(format!(
                "{place} is {cpu}, must be null with {count} shards"
            ));
        }
    }
    Ok(count)
}

/// A shard has two threads in a sender; a computer with more cores has no use for more of them.
const MOST_SHARDS: usize = 64;

/// Checks a socket buffer.
pub fn buffer(bytes: usize) -> Result<usize, Failure> {
    within("socket_buffer_bytes", bytes, 4096, 1 << 30)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_names_the_place() {
        let text = br#"{"flow": 1, "session": 2, "key": "00", "colour": "red"}"#;
        let error = parse::<SessionConfig>(text).err().unwrap();
        assert!(error.contains("colour"), "{error}");
        let error = parse::<SessionConfig>(br#"{"flow": -1}"#).err().unwrap();
        assert!(error.starts_with("flow:"), "{error}");
    }

    #[test]
    fn a_wrong_key_is_not_repeated() {
        let secret = "00112233445566778899aabbccddeeg0";
        let Err(Failure::Config(message)) = key("key", secret) else {
            panic!("was accepted")
        };
        assert!(!message.contains(secret), "{message}");
    }

    #[test]
    fn what_follows_the_document_is_refused() {
        assert!(parse::<u32>(b"1 2").is_err());
    }
}
