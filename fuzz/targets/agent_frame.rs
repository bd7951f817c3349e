//! Any stream as frames of the machine's control port, in pieces of any size.
#![no_main]

use libfuzzer_sys::fuzz_target;
use tm_agent::frame::Decoder;

fuzz_target!(|data: &[u8]| {
    let Some((first, rest)) = data.split_first() else {
        return;
    };
    let mut decoder = Decoder::default();
    for piece in rest.chunks(usize::from(*first).max(1)) {
        decoder.push(piece);
        while let Ok(Some(frame)) = decoder.next_frame() {
            let mut again = Vec::new();
            assert!(frame.encode(&mut again).is_ok());
            let _ = tm_agent::proto::parse(&frame.header);
        }
    }
});
