//! `tunnelmark-engine`: sends, reflects and carries test packets. The contract is `docs/engine.md`.

mod between;
mod config;
mod counters;
#[cfg(not(feature = "portable"))]
mod emulator;
mod events;
mod flow;
#[cfg(not(feature = "portable"))]
mod hwsim;
#[cfg(not(feature = "portable"))]
mod link;
#[cfg_attr(feature = "portable", path = "not_linux.rs")]
mod linux;
mod reflect;
#[cfg(not(feature = "portable"))]
mod rr;
mod send;
mod sim;
mod sim_asked;
mod sim_clients;
mod sim_tcp;
mod sim_traffic;

use std::io::Write;
use std::process::ExitCode;

use tm_io::process;

const USAGE: &str =
    "usage: tunnelmark-engine send|reflect|ask|answer|link|wlan-medium|sim CONFIG | version

  send CONFIG      send test packets and measure what comes back
  reflect CONFIG   reply to test packets whose tag verifies
  ask CONFIG       send requests over UDP or TCP and time the responses
  answer CONFIG    respond to them
  link CONFIG      emulate a link between two interfaces
  wlan-medium CONFIG
                   make two simulated radios (mac80211_hwsim) and be the medium between them
  sim CONFIG       send and reflect through a model of tunnels and a link, in virtual time
  version          print the version and the protocol

ask, answer, link and wlan-medium need Linux.

CONFIG is a JSON file, or - for standard input. Events are JSON, one per line, on standard
output. Exit status: 0 done, 2 the configuration is wrong, 1 anything else.

example: tunnelmark-engine reflect - < reflect.json";

/// What ended a subcommand before its summary.
#[derive(Debug)]
pub enum Failure {
    /// The configuration is wrong.
    Config(String),
    /// Anything else.
    Run(String),
}

impl From<tm_io::IoError> for Failure {
    fn from(error: tm_io::IoError) -> Self {
        Self::Run(error.to_string())
    }
}

/// Checks a configuration without acting on it: what is wrong with it, if anything is.
///
/// Files that it names are not looked at.
pub fn check(command: &str, text: &[u8]) -> Result<(), String> {
    let found = match command {
        "send" => send::check(text),
        "reflect" => reflect::check(text),
        "sim" => sim::check(text),
        _ => linux::check(command, text).unwrap_or_else(|| {
            let message = format!("{command:?} is not a subcommand");
            Err(Failure::Config(message))
        }),
    };
    found.map_err(|failure| match failure {
        Failure::Config(message) | Failure::Run(message) => message,
    })
}

/// What a thread says that fails for a reason nobody thought of; the program ends with it.
fn last_words(panic: &impl std::fmt::Display) -> String {
    let text = panic.to_string();
    let words: Vec<_> = text.split_whitespace().collect();
    format!("defect of the engine: {}", words.join(" "))
}

/// Runs the program with these arguments.
#[must_use]
pub fn main(words: &[String]) -> ExitCode {
    std::panic::set_hook(Box::new(|panic| events::error(&last_words(panic))));
    process::all_descriptors();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let result = match words[..] {
        ["send", path] => send::main(path),
        ["reflect", path] => reflect::main(path),
        ["sim", path] => sim::main(path),
        ["version"] => {
            events::version();
            Ok(())
        }
        ["--help" | "-h" | "help"] => {
            let _ = writeln!(std::io::stdout(), "{USAGE}");
            Ok(())
        }
        _ => {
            let found = match words[..] {
                [command, path] => linux::main(command, path),
                _ => None,
            };
            let Some(result) = found else {
                let _ = writeln!(std::io::stderr(), "{USAGE}");
                return ExitCode::from(2);
            };
            result
        }
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(Failure::Config(message)) => {
            events::error(&message);
            ExitCode::from(2)
        }
        Err(Failure::Run(message)) => {
            events::error(&message);
            ExitCode::from(1)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_words_are_one_line() {
        assert_eq!(
            last_words(&"Panicked at\nsrc/lib.rs:1:\n  oops\n"),
            "defect of the engine: Panicked at src/lib.rs:1: oops"
        );
    }

    #[test]
    fn connections_are_examined_without_acting_on_them() {
        let text = include_str!("../../../fuzz/seeds/configuration/sim.json");
        assert_eq!(check("sim", text.as_bytes()), Ok(()));
        let wrong = text.replace("\"window_bytes\": 65536", "\"window_bytes\": 1447");
        assert_eq!(
            check("sim", wrong.as_bytes()).unwrap_err(),
            "tcp[1].window_bytes is 1447, must be 1448 to 1073741824"
        );
        let wrong = text.replace("\"ip_header_bytes\": 20", "\"ip_header_bytes\": 19");
        assert_eq!(
            check("sim", wrong.as_bytes()).unwrap_err(),
            "paths[1].tunnel.tcp.ip_header_bytes is 19, must be 20 to 60"
        );
        let wrong = text.replace("\"due_ns\": 1000000", "\"due_ns\": -1");
        assert_eq!(
            check("sim", wrong.as_bytes()).unwrap_err(),
            "clients[0].stages[0].exchanges[1].due_ns is -1, must be 0 to 86400000000000"
        );
        let wrong = text.replace("\"held\": true", "\"request_due_ns\": [0, 1]");
        assert_eq!(
            check("sim", wrong.as_bytes()).unwrap_err(),
            "clients[0].stages[0].exchanges[0].request_due_ns: 2 times for 1 pieces"
        );
    }

    #[cfg(not(feature = "portable"))]
    #[test]
    fn media_are_examined_without_acting_on_them() {
        let link = include_str!("../../../fuzz/seeds/configuration/link-wlan.json");
        let radios = include_str!("../../../fuzz/seeds/configuration/wlan-medium.json");
        for (command, text) in [("link", link), ("wlan-medium", radios)] {
            assert_eq!(check(command, text.as_bytes()), Ok(()));
            let wrong = text.replace("\"short_retry_limit\": 7", "\"short_retry_limit\": 0");
            assert_eq!(
                check(command, wrong.as_bytes()).unwrap_err(),
                "medium.short_retry_limit is 0, must be 1 to 255"
            );
        }
    }
}
