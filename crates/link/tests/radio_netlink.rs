//! The codec of the simulated radios: what is written is read again, and nothing that comes in makes
//! it panic.

use proptest::prelude::*;
use tm_link::radio::hwsim::{
    legacy_index, outgoing, put_frame, put_new_radio, put_register, put_status, Heard, Status,
    TxRate, FRAME, NO_RATE,
};
use tm_link::radio::netlink::{attributes, messages, Writer, REQUEST};
use tm_link::wlan::Rate;

const FAMILY: u16 = 29;
const RADIO: [u8; 6] = [0x42, 1, 2, 3, 4, 5];

/// A frame as the kernel reports it.
fn reported(frame: &[u8], rates: [u8; 8], flags: &[u8; 12]) -> Vec<u8> {
    let mut writer = Writer::default();
    writer
        .begin(FAMILY, REQUEST, 0, FRAME)
        .put(2, &RADIO)
        .put(3, frame)
        .put(4, &3_u32.to_ne_bytes())
        .put(7, &rates)
        .put(21, flags)
        .put(8, &77_u64.to_ne_bytes())
        .put(19, &2_437_u32.to_ne_bytes());
    writer.bytes().to_vec()
}

fn attributes_of(datagram: &[u8]) -> &[u8] {
    let message = messages(datagram).next().unwrap().unwrap();
    assert_eq!(message.kind, FAMILY);
    message.generic().unwrap().1
}

#[test]
fn a_frame_of_the_kernel_is_read() {
    let frame = [0x08; 40];
    let mut flags = [0; 12];
    flags[1..3].copy_from_slice(&0x88_u16.to_ne_bytes()); // MCS, short guard interval
    let datagram = reported(&frame, [15, 4, 3, 2, 0xff, 0, 0xff, 0], &flags);
    let read = outgoing(attributes_of(&datagram)).unwrap();
    assert_eq!(
        (read.radio, read.frame, read.cookie),
        (RADIO, &frame[..], 77)
    );
    assert!(read.no_ack());
    let expected = TxRate {
        index: 15,
        count: 4,
        flags: 0x88,
    };
    assert_eq!(read.rates[0], expected);
    assert_eq!(read.rates[2], NO_RATE);
    let ht = Rate::Ht {
        mcs: 15,
        wide: false,
        short_guard: true,
        greenfield: false,
    };
    assert_eq!(read.rates[0].rate(read.frequency_mhz), Some(ht));
    assert_eq!(read.rates[1].rate(2_437), Some(legacy(11_000_000)));
    // the same index in the other band
    assert_eq!(read.rates[1].rate(5_180), Some(legacy(18_000_000)));
    assert_eq!(read.rates[2].rate(2_437), None);
}

fn legacy(rate_bit_s: u64) -> Rate {
    Rate::Legacy {
        rate_bit_s,
        short_preamble: false,
    }
}

#[test]
fn rates_that_the_medium_does_not_know_are_no_rates() {
    let rate = |index, flags| TxRate {
        index,
        count: 1,
        flags,
    };
    assert_eq!(rate(12, 0).rate(2_437), None); // 802.11g has twelve
    assert_eq!(rate(8, 0).rate(5_180), None); // 802.11a has eight
    assert_eq!(rate(0, 1 << 8).rate(5_180), None); // VHT
    assert_eq!(rate(0, 1 << 6).rate(5_180), None); // duplicate
    assert_eq!(rate(-1, 0).rate(2_437), None);
}

#[test]
fn what_is_missing_or_too_long_is_named() {
    let words = |datagram: &[u8]| outgoing(attributes_of(datagram)).unwrap_err().to_string();
    let (rates, flags) = ([0; 8], [0; 12]);
    assert_eq!(
        words(&reported(&[0; 9], rates, &flags)),
        "frame: is 9 bytes long, must be 16 to 2304"
    );
    assert_eq!(
        words(&reported(&[0; 2_305], rates, &flags)),
        "frame: is 2305 bytes long, must be 16 to 2304"
    );
    let mut writer = Writer::default();
    writer.begin(FAMILY, REQUEST, 0, FRAME);
    assert_eq!(words(writer.bytes()), "frame: is not there");
    writer.clear();
    writer.begin(FAMILY, REQUEST, 0, FRAME).put(2, &[1, 2, 3]);
    assert_eq!(
        words(writer.bytes()),
        "transmitter: is 3 bytes long, must be 6"
    );
}

#[test]
fn messages_of_ours_stand_as_the_kernel_reads_them() {
    let mut writer = Writer::default();
    put_register(&mut writer, FAMILY, 4);
    put_new_radio(&mut writer, FAMILY, 5, "tmab0", &[2, 1, 2, 3, 4, 5]);
    let heard = Heard {
        radio: RADIO,
        frame: &[9; 31],
        rate_bit_s: 11_000_000,
        frequency_mhz: 2_437,
    };
    put_frame(&mut writer, FAMILY, 6, &heard);
    let status = Status {
        radio: RADIO,
        flags: 1,
        cookie: 77,
        rates: [
            TxRate {
                index: 3,
                count: 2,
                flags: 0,
            },
            NO_RATE,
            NO_RATE,
            NO_RATE,
        ],
        acknowledged: true,
    };
    put_status(&mut writer, FAMILY, 7, &status);
    let all: Vec<_> = messages(writer.bytes()).map(Result::unwrap).collect();
    let commands: Vec<_> = all.iter().map(|m| m.generic().unwrap().0).collect();
    assert_eq!(commands, [1, 4, 2, 3]);
    assert_eq!((all[0].sequence, all[1].sequence), (4, 5));
    let read = |number: usize| -> Vec<(u16, Vec<u8>)> {
        attributes(all[number].generic().unwrap().1)
            .map(|one| one.map(|(kind, value)| (kind, value.to_vec())).unwrap())
            .collect()
    };
    let radio = read(1);
    assert!(radio.contains(&(17, b"tmab0\0".to_vec())));
    assert!(radio.contains(&(16, vec![])) && radio.contains(&(18, vec![])));
    assert!(radio.contains(&(22, vec![2, 1, 2, 3, 4, 5])));
    assert!(read(2).contains(&(3, vec![9; 31])));
    let reported = read(3);
    assert!(reported.contains(&(4, 5_u32.to_ne_bytes().to_vec()))); // asked for, and acknowledged
    assert!(reported.contains(&(7, vec![3, 2, 0xff, 0, 0xff, 0, 0xff, 0])));
}

#[test]
fn the_receiver_is_reported_the_nearest_legacy_rate() {
    assert_eq!(legacy_index(11_000_000, 2_437), 3);
    assert_eq!(legacy_index(54_000_000, 2_437), 11);
    assert_eq!(legacy_index(54_000_000, 5_180), 7);
    assert_eq!(legacy_index(6_500_000, 2_437), 4);
    assert_eq!(legacy_index(65_000_000, 5_180), 7);
    assert_eq!(legacy_index(6_000_000, 5_180), 0);
}

proptest! {
    #[test]
    fn nothing_that_comes_in_makes_it_panic(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        for message in messages(&bytes).flatten() {
            let _ = message.result();
            if let Ok((_, attributes)) = message.generic() {
                let _ = outgoing(attributes);
            }
        }
        let _ = outgoing(&bytes);
    }

    #[test]
    fn a_message_that_is_cut_or_bent_is_read_or_refused(
        at in 0_usize..200, value in any::<u8>(), keep in 0_usize..200,
    ) {
        let mut datagram = reported(&[0x08; 50], [1, 1, 0xff, 0, 0xff, 0, 0xff, 0], &[0; 12]);
        let length = datagram.len();
        datagram[at % length] = value;
        datagram.truncate(keep % (length + 1));
        for message in messages(&datagram).flatten() {
            if let Ok((_, attributes)) = message.generic() {
                if let Ok(read) = outgoing(attributes) {
                    prop_assert!(read.frame.len() <= 2_304);
                }
            }
        }
    }

    #[test]
    fn attributes_are_read_as_they_were_put(
        put in prop::collection::vec((1_u16..0x3fff, prop::collection::vec(any::<u8>(), 0..60)), 0..20)
    ) {
        let mut writer = Writer::default();
        writer.begin(FAMILY, REQUEST, 9, 3);
        for (kind, value) in &put {
            writer.put(*kind, value);
        }
        let read: Vec<_> = attributes(attributes_of(writer.bytes()))
            .map(|one| one.map(|(kind, value)| (kind, value.to_vec())).unwrap())
            .collect();
        prop_assert_eq!(read, put);
    }
}
