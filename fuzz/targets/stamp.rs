//! Any datagram as a STAMP packet of either kind, with and without a key.
#![no_main]

use libfuzzer_sys::fuzz_target;
use tm_wire::stamp::{
    emit_reply, emit_test_packet, least_bytes, parse_reply, parse_test_packet, Reply, Timestamp,
};
use tm_wire::UnixTime;

fuzz_target!(|data: &[u8]| {
    for key in [None, Some(&b"key"[..])] {
        if let Ok(test_packet) = parse_test_packet(data, key) {
            let mut again = data.to_vec();
            // One of TWAMP-Light is shorter than any that is made here.
            if data.len() >= least_bytes(key.is_some()) {
                emit_test_packet(&mut again, &test_packet, key);
                assert_eq!(parse_test_packet(&again, key), Ok(test_packet));
            }
            let time = Timestamp(1);
            let reply = Reply {
                seq: 0,
                sent: time,
                error: 1,
                received: time,
                test_packet,
                ttl: 0,
            };
            emit_reply(&mut again, &reply, key);
            assert!(
                parse_test_packet(&again, key).is_err(),
                "a reply is no test packet"
            );
        }
        if let Ok(reply) = parse_reply(data, key) {
            let mut again = data.to_vec();
            emit_reply(&mut again, &reply, key);
            assert_eq!(parse_reply(&again, key), Ok(reply));
            let _ = reply.received.to_realtime(UnixTime(0));
        }
    }
});
