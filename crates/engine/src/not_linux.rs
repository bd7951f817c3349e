//! Subcommands that only Linux has, where there is none.

use crate::Failure;

/// Refuses them; None: it is none of them.
pub fn main(command: &str, _path: &str) -> Option<Result<(), Failure>> {
    check(command, b"")
}

/// Refuses them; None: it is none of them.
pub fn check(command: &str, _text: &[u8]) -> Option<Result<(), Failure>> {
    let ours = ["ask", "answer", "link", "wlan-medium"].contains(&command);
    ours.then(|| Err(Failure::Run(format!("{command} needs Linux"))))
}
