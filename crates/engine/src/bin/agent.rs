//! `tunnelmark-agent` stands beside the engine so that one wheel carries both programs.

use std::process::ExitCode;

fn main() -> ExitCode {
    tm_agent::main(std::env::args().skip(1))
}
