//! `tunnelmark-engine`: sends, reflects and carries test packets. The contract is `docs/engine.md`.

mod config;
mod events;
mod flow;
mod following;
mod link;
mod link_wlan;
mod medium;
mod reflect;
mod rr;
mod send;

use std::process::ExitCode;

const USAGE: &str =
    "usage: tunnelmark-engine send|reflect|ask|answer|link|wlan-medium CONFIG | version

  send CONFIG      send test packets and measure what comes back
  reflect CONFIG   answer test packets whose tag verifies
  ask CONFIG       send requests over UDP or TCP and time the answers
  answer CONFIG    answer them
  link CONFIG      emulate a link between two interfaces
  wlan-medium CONFIG
                   make two simulated radios (mac80211_hwsim) and be the medium between them
  version          print the version and the protocol

CONFIG is a JSON file, or - for standard input. Events come as JSON, one a line, on standard
output. Exit status: 0 done, 2 the configuration is wrong, 1 anything else.

example: tunnelmark-engine reflect - < reflect.json";

/// What ended a subcommand before its summary.
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
        "ask" => rr::check_ask(text),
        "answer" => rr::check_answer(text),
        "link" => link::check(text),
        _ => Err(Failure::Config(format!("{command:?} is no subcommand"))),
    };
    found.map_err(|failure| match failure {
        Failure::Config(message) | Failure::Run(message) => message,
    })
}

/// Runs the program with these arguments.
#[must_use]
pub fn main(words: &[String]) -> ExitCode {
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let result = match words[..] {
        ["send", path] => send::main(path),
        ["reflect", path] => reflect::main(path),
        ["ask", path] => rr::ask_main(path),
        ["answer", path] => rr::answer_main(path),
        ["link", path] => link::main(path),
        ["wlan-medium", path] => medium::main(path),
        ["version"] => {
            events::version();
            Ok(())
        }
        ["--help" | "-h" | "help"] => {
            println!("{USAGE}");
            Ok(())
        }
        _ => {
            eprintln!("{USAGE}");
            return ExitCode::from(2);
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
