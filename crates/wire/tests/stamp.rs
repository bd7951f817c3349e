//! STAMP packets against RFC 8762: round trips, and octets written down by hand from its figures.

use proptest::prelude::*;
use tm_wire::stamp::{
    emit_answer, emit_question, parse_answer, parse_question, Answer, Question, Timestamp,
    AUTHENTICATED_BYTES, PLAIN_BYTES,
};
use tm_wire::{Nanos, Reject};

const KEY: &[u8] = b"0123456789abcdef0123456789abcdef";

fn keys() -> impl Strategy<Value = Option<&'static [u8]>> {
    prop_oneof![Just(None), Just(Some(KEY))]
}

fn question() -> impl Strategy<Value = Question> {
    (any::<u32>(), any::<u64>(), any::<u16>(), any::<u16>()).prop_map(|(seq, sent, error, ssid)| {
        Question {
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
        question in question(), seq: u32, times: (u64, u64), error: u16, ttl: u8,
        key in keys(), padding in 0_usize..100,
    ) {
        let least = if key.is_some() { AUTHENTICATED_BYTES } else { PLAIN_BYTES };
        let mut packet = vec![0xa5; least + padding];
        emit_question(&mut packet, &question, key);
        prop_assert_eq!(parse_question(&packet, key), Ok(question));
        let answer = Answer {
            seq, answered: Timestamp(times.0), error, received: Timestamp(times.1), question, ttl,
        };
        emit_answer(&mut packet, &answer, key);
        prop_assert_eq!(parse_answer(&packet, key), Ok(answer));
        prop_assert!(packet[least..].iter().all(|byte| *byte == 0xa5), "padding was touched");
    }

    #[test]
    fn any_flipped_bit_of_an_authenticated_packet_is_rejected(
        question in question(), bit in 0..AUTHENTICATED_BYTES * 8,
    ) {
        let mut packet = [0; AUTHENTICATED_BYTES];
        emit_question(&mut packet, &question, Some(KEY));
        packet[bit / 8] ^= 1 << (bit % 8);
        prop_assert_eq!(parse_question(&packet, Some(KEY)), Err(Reject::Tag));
    }

    #[test]
    fn any_bytes_are_survived(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        for key in [None, Some(KEY)] {
            let least = if key.is_some() { AUTHENTICATED_BYTES } else { PLAIN_BYTES };
            let short = bytes.len() < least;
            prop_assert_eq!(parse_answer(&bytes, key) == Err(Reject::Size), short);
            prop_assert_eq!(parse_question(&bytes, key) == Err(Reject::Size), short);
        }
    }

    #[test]
    fn a_time_comes_back_in_its_era(ns in 0_i64..8_000_000_000_000_000_000, off in -1_000_000_000_i64..1_000_000_000) {
        let near = Nanos(ns.saturating_add(off));
        prop_assert_eq!(Timestamp::from_realtime(Nanos(ns)).to_realtime(near), Nanos(ns));
    }
}

#[test]
fn an_unauthenticated_question_is_figure_2() {
    let mut packet = [0xff; PLAIN_BYTES];
    let question = Question {
        seq: 0x0102_0304,
        sent: Timestamp(0x1112_1314_1516_1718),
        error: 0x2122,
        ssid: 0x3132,
    };
    emit_question(&mut packet, &question, None);
    let mut wanted = [0; PLAIN_BYTES];
    wanted[..16].copy_from_slice(&[
        1, 2, 3, 4, 0x11, 0x12, 0x13, 0x14, 0x15, 0x16, 0x17, 0x18, 0x21, 0x22, 0x31, 0x32,
    ]);
    assert_eq!(packet, wanted);
}

#[test]
fn an_unauthenticated_answer_is_figure_4() {
    let answer = Answer {
        seq: 1,
        answered: Timestamp(2),
        error: 3,
        received: Timestamp(4),
        question: Question {
            seq: 5,
            sent: Timestamp(6),
            error: 7,
            ssid: 9,
        },
        ttl: 8,
    };
    let mut packet = [0xff; PLAIN_BYTES];
    emit_answer(&mut packet, &answer, None);
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
    emit_answer(&mut packet, &answer, Some(KEY));
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
    let half = Nanos(500_000_000);
    assert_eq!(
        Timestamp::from_realtime(half),
        Timestamp((2_208_988_800 << 32) | (1 << 31))
    );
}
