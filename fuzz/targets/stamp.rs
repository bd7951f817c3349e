//! Any datagram as a STAMP packet of either kind, with and without a key.
#![no_main]

use libfuzzer_sys::fuzz_target;
use tm_wire::stamp::{emit_answer, emit_question, parse_answer, parse_question};
use tm_wire::Nanos;

fuzz_target!(|data: &[u8]| {
    for key in [None, Some(&b"key"[..])] {
        if let Ok(question) = parse_question(data, key) {
            let mut again = data.to_vec();
            emit_question(&mut again, &question, key);
            assert_eq!(parse_question(&again, key), Ok(question));
        }
        if let Ok(answer) = parse_answer(data, key) {
            let mut again = data.to_vec();
            emit_answer(&mut again, &answer, key);
            assert_eq!(parse_answer(&again, key), Ok(answer));
            let _ = answer.received.to_realtime(Nanos(0));
        }
    }
});
