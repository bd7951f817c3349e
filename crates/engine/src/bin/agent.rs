//! `tunnelmark-agent` stands beside the engine so that one wheel carries both programs.

use std::process::ExitCode;

#[cfg(target_os = "linux")]
fn main() -> ExitCode {
    tm_agent::main(std::env::args().skip(1))
}

#[cfg(not(target_os = "linux"))]
fn main() -> ExitCode {
    use std::io::Write;

    let _ = writeln!(std::io::stderr(), "tunnelmark-agent: error: needs Linux");
    ExitCode::from(2)
}
