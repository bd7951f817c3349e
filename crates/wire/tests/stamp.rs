//! STAMP packets against RFC 8762: round trips, and octets written down by hand from its figures.

use proptest::prelude::*;
use tm_wire::stamp::{
    emit_reply, emit_test_packet, parse_reply, parse_test_packet, ErrorEstimate, Reply, TestPacket,
    Timestamp, AUTHENTICATED_BYTES, LONGEST_RESIDENCE_S, PLAIN_BYTES, TWAMP_LIGHT_BYTES,
};
use tm_wire::{Reject, UnixTime};

const KEY: &[u8] = b"0123456789abcdef0123456789abcdef";

fn keys() -> impl Strategy<Value = Option<&'static [u8]>> {
    prop_oneof![Just(None), Just(Some(KEY))]
}

fn test_packet() -> impl Strategy<Value = TestPacket> {
    (any::<u32>(), any::<u64>(), any::<u16>(), any::<u16>()).prop_map(|(seq, sent, error, ssid)| {
        TestPacket {
            seq,
            sent: Timestamp(sent),
            error,
            ssid,
        }
    })
}

proptest! {
    #[test]
    fn what_is_emitted_is_parsed(
        test_packet in test_packet(), seq: u32, times: (u64, u64), error: u16, ttl: u8,
        key in keys(), padding in 0_usize..100,
    ) {
        let least = if key.is_some() { AUTHENTICATED_BYTES } else { PLAIN_BYTES };
        let mut packet = vec![0xa5; least + padding];
        emit_test_packet(&mut packet, &test_packet, key);
        prop_assert_eq!(parse_test_packet(&packet, key), Ok(test_packet));
        let reply = Reply {
            seq, sent: Timestamp(times.0), error, received: Timestamp(times.1), test_packet, ttl,
        };
        emit_reply(&mut packet, &reply, key);
        prop_assert_eq!(parse_reply(&packet, key), Ok(reply));
        prop_assert!(packet[least..].iter().all(|byte| *byte == 0xa5), "padding was touched");
    }

    #[test]
    fn any_flipped_bit_of_an_authenticated_packet_is_rejected(
        test_packet in test_packet(), bit in 0..AUTHENTICATED_BYTES * 8,
    ) {
        let mut packet = [0; AUTHENTICATED_BYTES];
        emit_test_packet(&mut packet, &test_packet, Some(KEY));
        packet[bit / 8] ^= 1 << (bit % 8);
        prop_assert_eq!(parse_test_packet(&packet, Some(KEY)), Err(Reject::Tag));
    }

    #[test]
    fn a_reply_is_no_test_packet(
        test_packet in test_packet(), seq: u32, at in 1_u64.., residence in 0..=LONGEST_RESIDENCE_S << 32,
        key in keys(), padding in 0_usize..100,
    ) {
        let least = if key.is_some() { AUTHENTICATED_BYTES } else { PLAIN_BYTES };
        let mut packet = vec![0xa5; least + padding];
        let (received, sent) = (Timestamp(at), Timestamp(at.wrapping_add(residence)));
        emit_reply(&mut packet, &Reply { seq, sent, error: 1, received, test_packet, ttl: 64 }, key);
        prop_assert_eq!(parse_test_packet(&packet, key), Err(Reject::Direction));
    }

    #[test]
    fn a_test_packet_of_twamp_light_is_answered_within_its_own_size(
        test_packet in test_packet(), seq: u32, times: (u64, u64), bytes in TWAMP_LIGHT_BYTES..PLAIN_BYTES,
    ) {
        let mut whole = [0; PLAIN_BYTES];
        emit_test_packet(&mut whole, &test_packet, None);
        let mut packet = whole[..bytes].to_vec();
        prop_assert_eq!(parse_test_packet(&packet, None), Ok(test_packet));
        let reply = Reply {
            seq, sent: Timestamp(times.0), error: 1, received: Timestamp(times.1), test_packet, ttl: 9,
        };
        emit_reply(&mut packet, &reply, None);
        emit_reply(&mut whole, &reply, None);
        prop_assert_eq!(&packet[..], &whole[..bytes]);
    }

    #[test]
    fn an_error_is_reported_rounded_up_by_a_128th_at_most(error_ns: u64, synchronized: bool) {
        let estimate = ErrorEstimate { synchronized, error_ns };
        let reported = ErrorEstimate::from_wire(estimate.to_wire()).unwrap();
        prop_assert_eq!(reported.synchronized, synchronized);
        // A nanosecond is lost in reading, which rounds down.
        prop_assert!(reported.error_ns.saturating_add(1) >= error_ns, "{} of {}", reported.error_ns, error_ns);
        let most = error_ns.saturating_add(error_ns / 100).saturating_add(2);
        prop_assert!(reported.error_ns <= most, "{} of {}", reported.error_ns, error_ns);
    }

    #[test]
    fn any_bytes_are_survived(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        for (key, test_packet, reply) in [
            (None, TWAMP_LIGHT_BYTES, PLAIN_BYTES),
            (Some(KEY), AUTHENTICATED_BYTES, AUTHENTICATED_BYTES),
        ] {
            let size = Err(Reject::Size);
            prop_assert_eq!(parse_reply(&bytes, key).map(|_| ()) == size, bytes.len() < reply);
            prop_assert_eq!(parse_test_packet(&bytes, key).map(|_| ()) == size, bytes.len() < test_packet);
        }
    }

    #[test]
    fn a_time_comes_back_in_its_era(ns in 0_i64..8_000_000_000_000_000_000, off in -1_000_000_000_i64..1_000_000_000) {
        let near = UnixTime(ns.saturating_add(off));
        prop_assert_eq!(Timestamp::from_realtime(UnixTime(ns)).to_realtime(near), UnixTime(ns));
    }
}

#[test]
fn an_unauthenticated_test_packet_is_figure_2() {
    let mut packet = [0xff; PLAIN_BYTES];
    let test_packet = TestPacket {
        seq: 0x0102_0304,
        sent: Timestamp(0x1112_1314_1516_1718),
        error: 0x2122,
        ssid: 0x3132,
    };
    emit_test_packet(&mut packet, &test_packet, None);
    let mut wanted = [0; PLAIN_BYTES];
    wanted[..16].copy_from_slice(&[
        1, 2, 3, 4, 0x11, 0x12, 0x13, 0x14, 0x15, 0x16, 0x17, 0x18, 0x21, 0x22, 0x31, 0x32,
    ]);
    assert_eq!(packet, wanted);
}

#[test]
fn an_unauthenticated_reply_is_figure_4() {
    let reply = Reply {
        seq: 1,
        sent: Timestamp(2),
        error: 3,
        received: Timestamp(4),
        test_packet: TestPacket {
            seq: 5,
            sent: Timestamp(6),
            error: 7,
            ssid: 9,
        },
        ttl: 8,
    };
    let mut packet = [0xff; PLAIN_BYTES];
    emit_reply(&mut packet, &reply, None);
    let mut wanted = [0; PLAIN_BYTES];
    for (last, value) in [
        (3, 1),
        (11, 2),
        (13, 3),
        (15, 9),
        (23, 4),
        (27, 5),
        (35, 6),
        (37, 7),
        (40, 8),
    ] {
        wanted[last] = value;
    }
    assert_eq!(packet, wanted);
    let mut packet = [0xff; AUTHENTICATED_BYTES];
    emit_reply(&mut packet, &reply, Some(KEY));
    let mut wanted = [0; AUTHENTICATED_BYTES - 16];
    for (last, value) in [
        (3, 1),
        (23, 2),
        (25, 3),
        (27, 9),
        (39, 4),
        (51, 5),
        (71, 6),
        (73, 7),
        (80, 8),
    ] {
        wanted[last] = value;
    }
    assert_eq!(packet[..96], wanted);
}

#[test]
fn ntp_s_own_example_of_a_time() {
    // 1 January 1970 is second 2 208 988 800 of era 0 (RFC 5905, figure 4).
    let half = UnixTime(500_000_000);
    assert_eq!(
        Timestamp::from_realtime(half),
        Timestamp((2_208_988_800 << 32) | (1 << 31))
    );
}

#[test]
fn the_fields_of_an_error_estimate_are_those_of_rfc_4656() {
    // S, Z, six bits of scale, eight of multiplier; a second is 2^32 units: 128 times 2^25.
    let second = ErrorEstimate {
        synchronized: true,
        error_ns: 1_000_000_000,
    };
    assert_eq!(second.to_wire(), 0x8000 | (25 << 8) | 128);
    let none = ErrorEstimate {
        synchronized: false,
        error_ns: 0,
    };
    assert_eq!(none.to_wire(), 1, "the multiplier is never 0");
    assert_eq!(ErrorEstimate::from_wire(0x0500), None);
}
