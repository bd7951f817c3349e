//! The subcommand `wlan-medium`: two simulated radios of the kernel, and the medium between them.

use serde::Deserialize;
use serde_json::{json, Value};
use tm_io::clock;
use tm_io::emulator::Threads;
use tm_io::hwsim::{HwsimPlan, HwsimReport};
use tm_io::report::DirectionReport;
use tm_link::radio::{Address, Air};
use tm_wire::Instant;

use crate::between::{MediumConfig, MEDIUM};
use crate::counters::stations;
use crate::emulator::{follow, BothWays};
use crate::{config, Failure};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Configuration {
    protocol: u32,
    #[serde(default)]
    parent_pid: Option<u32>,
    access_point: Radio,
    client: Radio,
    medium: MediumConfig,
    seed: u64,
    realtime_priority: Option<u8>,
    cpu: Option<usize>,
    #[serde(default = "config::yes")]
    spin: bool,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Radio {
    /// Name of the wireless device.
    name: String,
    /// Its address.
    address: String,
}

/// Runs it.
pub fn main(path: &str) -> Result<(), Failure> {
    let config: Configuration = config::read(path)?;
    let threads = Threads {
        realtime_priority: config::priority(config.realtime_priority)?,
        cpu: config::cpu("cpu", config.cpu)?,
        asleep: !config.spin,
    };
    let parent_pid = config.parent_pid;
    let plan = checked(config, clock::now())?;
    follow(parent_pid, threads, || Ok([plan.open()?]))
}

/// Checks a configuration.
pub fn check(text: &[u8]) -> Result<(), Failure> {
    checked(config::parse(text).map_err(Failure::Config)?, Instant(0))?;
    Ok(())
}

/// The radios and a silent medium that begins at `start`.
fn checked(config: Configuration, start: Instant) -> Result<HwsimPlan, Failure> {
    config::protocol(config.protocol)?;
    let MediumConfig::Wlan(medium) = config.medium;
    Ok(HwsimPlan {
        radios: [
            radio("access_point", config.access_point)?,
            radio("client", config.client)?,
        ],
        air: Air::new(&medium, MEDIUM, config.seed, start)?,
    })
}

impl BothWays for [HwsimReport; 1] {
    fn both_ways(&self) -> [&DirectionReport; 2] {
        [&self[0].forward, &self[0].reverse]
    }

    fn beside(&self) -> Value {
        let [report] = self;
        let (malformed, first_fault) = &report.malformed;
        json!({
            "stations": stations(&report.stations),
            "unpriced": report.unpriced,
            "refused": report.refused,
            "malformed": malformed,
            "first_fault": first_fault,
        })
    }
}

/// Name and address of a radio.
fn radio(place: &str, radio: Radio) -> Result<(String, Address), Failure> {
    config::within(&format!("{place}.name: length"), radio.name.len(), 1, 15)?;
    let fine = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    if !radio.name.chars().all(fine) {
        return config::wrong(format!(
            "{place}.name is {:?}, must be letters, digits, - and _",
            radio.name
        ));
    }
    match address(&radio.address) {
        Some(address) if address[0] & 3 == 2 => Ok((radio.name, address)),
        _ => config::wrong(format!(
            "{place}.address is {:?}, must be that of one station and locally administered, such \
             as 02:00:00:00:00:01",
            radio.address
        )),
    }
}

fn address(text: &str) -> Option<Address> {
    let mut address = [0; 6];
    let mut parts = text.split(':');
    for byte in &mut address {
        let part = parts.next().filter(|part| part.len() == 2)?;
        *byte = u8::from_str_radix(part, 16).ok()?;
    }
    parts.next().is_none().then_some(address)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_six_bytes_of_two_digits() {
        assert_eq!(address("02:0a:ff:00:00:01"), Some([2, 10, 255, 0, 0, 1]));
        for wrong in [
            "",
            "02:0a:ff:00:00",
            "02:0a:ff:00:00:01:02",
            "2:a:f:0:0:1",
            "zz:0a:ff:00:00:01",
        ] {
            assert_eq!(address(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn a_radio_that_cannot_be_is_refused_with_place_value_and_limit() {
        let refused = |name: &str, address: &str| {
            let radio_of = Radio {
                name: name.to_owned(),
                address: address.to_owned(),
            };
            match radio("client", radio_of) {
                Err(Failure::Config(words)) => words,
                _ => String::new(),
            }
        };
        assert_eq!(
            refused("", "02:00:00:00:00:01"),
            "client.name: length is 0, must be 1 to 15"
        );
        assert_eq!(
            refused("a b", "02:00:00:00:00:01"),
            "client.name is \"a b\", must be letters, digits, - and _"
        );
        for wrong in ["00:00:00:00:00:01", "03:00:00:00:00:01"] {
            assert!(
                refused("tm0", wrong).starts_with("client.address is"),
                "{wrong}"
            );
        }
        assert_eq!(refused("tm0", "02:00:00:00:00:01"), "");
    }
}
