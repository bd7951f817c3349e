//! Any datagram as messages of the kernel's simulated radios.
#![no_main]

use libfuzzer_sys::fuzz_target;
use tm_link::radio::hwsim::outgoing;
use tm_link::radio::netlink::{attributes, messages};

fuzz_target!(|data: &[u8]| {
    for message in messages(data).flatten() {
        if let Ok((_, body)) = message.generic() {
            let _ = attributes(body).flatten().count();
            let _ = outgoing(body);
        }
        let _ = message.result();
    }
});
