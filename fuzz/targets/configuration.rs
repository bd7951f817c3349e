//! Any text as the configuration of a subcommand: refused with a message or accepted, no more.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    for command in [
        "send",
        "reflect",
        "ask",
        "answer",
        "link",
        "wlan-medium",
        "sim",
    ] {
        if let Err(message) = tunnelmark_engine::check(command, data) {
            assert!(!message.is_empty());
        }
    }
});
