//! Any datagram: parsed without a panic, and accepted only if it is what we would have written.
#![no_main]

use libfuzzer_sys::fuzz_target;
use tm_wire::{emit, parse, unpack_reply_time, Direction, Instant, Key, Named};

const KEY: Key = Key::Secret(*b"0123456789abcdef");

fuzz_target!(|data: &[u8]| {
    for direction in [Direction::TestPacket, Direction::Reply] {
        if let Ok(header) = parse(data, direction, |named| Some((whole(named), KEY))) {
            let mut again = data.to_vec();
            emit(&mut again, &header, direction, &KEY);
            assert_eq!(again, data);
            let _ = unpack_reply_time(header.time, Instant(0));
        }
    }
});

fn whole(named: Named) -> u32 {
    match named {
        Named::Whole(number) => number,
        Named::Short(number) => u32::from(number),
    }
}
