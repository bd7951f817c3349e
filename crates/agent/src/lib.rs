//! `tunnelmark-agent`: the first process of a Tunnelmark machine, and its only way in and out.
//!
//! The machine has no network and no login: programs are started, fed, watched and ended, and files
//! go in and out, by frames over one virtio-serial port. When the port closes, the machine switches
//! itself off, so none outlives the run that started it. On a host over SSH it serves standard input
//! and output instead (docs/hosts.md). docs/machines.md describes the protocol.

#![forbid(unsafe_code)]

mod child;
pub mod cpu;
pub mod error;
pub mod files;
pub mod frame;
mod init;
pub mod limits;
pub mod proto;
pub mod server;
mod stdio;
mod steadiness;

use std::process::ExitCode;

use error::AgentError;
use tm_wire::Duration;

const USAGE: &str = "usage: tunnelmark-agent init PORT | serve | stdio SILENCE_S | steadiness GAP_US COUNT | version";

/// Run the program: `arguments` without its own name.
pub fn main(arguments: impl Iterator<Item = String>) -> ExitCode {
    let arguments: Vec<String> = arguments.collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let done = match arguments[..] {
        ["init", port] => init::run(port),
        ["serve"] => init::serve_standard_input(),
        ["stdio", silence_s] => {
            bounded("stdio: silence in s", silence_s, 86_400).and_then(stdio::run)
        }
        ["steadiness", gap_us, count] => steadiness(gap_us, count),
        ["version"] => {
            println!(
                "tunnelmark-agent {} protocol {}",
                env!("CARGO_PKG_VERSION"),
                proto::PROTOCOL
            );
            Ok(())
        }
        _ => {
            eprintln!("tunnelmark-agent: {USAGE}");
            return ExitCode::from(2);
        }
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("tunnelmark-agent: {error}");
            ExitCode::FAILURE
        }
    }
}

fn steadiness(gap_us: &str, count: &str) -> Result<(), AgentError> {
    let gap_us: i64 = bounded("steadiness: gap in us", gap_us, 1_000_000)?;
    let gap = Duration(gap_us * 1000);
    let count = bounded("steadiness: count", count, 1_000_000)?;
    println!("{}", steadiness::measure(gap, count));
    Ok(())
}

/// A whole number from 1 to `most`.
fn bounded<T>(name: &'static str, text: &str, most: u32) -> Result<T, AgentError>
where
    T: TryFrom<u32>,
{
    text.parse()
        .ok()
        .filter(|number| (1..=most).contains(number))
        .and_then(|number| T::try_from(number).ok())
        .ok_or_else(|| AgentError::Argument {
            name,
            text: text.to_owned(),
            most,
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_on_the_command_line_is_within_its_limits() {
        let number = |text| bounded::<i64>("stdio: silence in s", text, 86_400);
        assert_eq!(number("1").unwrap(), 1);
        assert_eq!(number("86400").unwrap(), 86_400);
        for text in ["0", "86401", "-1", "1.5", "", "x"] {
            assert_eq!(
                number(text).unwrap_err().to_string(),
                format!("stdio: silence in s is {text:?}, must be 1 to 86400")
            );
        }
    }
}
