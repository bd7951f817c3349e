//! Subcommands that only Linux has.

use crate::{hwsim, link, rr, Failure};

/// Runs one of them; None: it is none of them.
pub fn main(command: &str, path: &str) -> Option<Result<(), Failure>> {
    Some(match command {
        "ask" => rr::ask_main(path),
        "answer" => rr::answer_main(path),
        "link" => link::main(path),
        "wlan-medium" => hwsim::main(path),
        _ => return None,
    })
}

/// Checks a configuration of one of them; None: it is none of them.
pub fn check(command: &str, text: &[u8]) -> Option<Result<(), Failure>> {
    Some(match command {
        "ask" => rr::check_ask(text),
        "answer" => rr::check_answer(text),
        "link" => link::check(text),
        "wlan-medium" => hwsim::check(text),
        _ => return None,
    })
}
