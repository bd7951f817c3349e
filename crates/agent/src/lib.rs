//! `tunnelmark-agent`: the first process of a Tunnelmark machine, and its only way in and out.
//!
//! The machine has no network and no login: programs are started, fed, watched and ended, and files
//! go in and out, by frames over one virtio-serial port. When the port closes, the machine switches
//! itself off, so none outlives the run that started it. docs/machines.md describes the protocol.

#![forbid(unsafe_code)]

mod child;
pub mod cpu;
pub mod files;
pub mod frame;
mod init;
pub mod proto;
pub mod server;
mod steadiness;

use std::process::ExitCode;

const USAGE: &str = "usage: tunnelmark-agent init PORT | serve | steadiness GAP_US COUNT | version";

/// Run the program: `arguments` without its own name.
pub fn main(arguments: impl Iterator<Item = String>) -> ExitCode {
    let arguments: Vec<String> = arguments.collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let done = match arguments[..] {
        ["init", port] => init::run(port),
        ["serve"] => init::serve_standard_input(),
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

fn steadiness(gap_us: &str, count: &str) -> Result<(), String> {
    let gap_us = bounded("steadiness: gap in us", gap_us, 1_000_000)?;
    let count = bounded("steadiness: count", count, 1_000_000)?;
    let count = usize::try_from(count).map_err(|e| e.to_string())?;
    println!("{}", steadiness::measure(gap_us * 1000, count)?);
    Ok(())
}

fn bounded(what: &str, text: &str, limit: i64) -> Result<i64, String> {
    text.parse()
        .ok()
        .filter(|n| (1..=limit).contains(n))
        .ok_or_else(|| format!("{what} is {text:?}, the limits are 1 and {limit}"))
}
