//! The program; all of it is in the library, so that the fuzz targets reach its parsers.

use std::process::ExitCode;

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    tunnelmark_engine::main(&words)
}
