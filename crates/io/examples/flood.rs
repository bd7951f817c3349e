//! `flood INTERFACE FRAME_BYTES FRAMES_PER_SECOND SECONDS`: frames that nobody takes, for benches.
//!
//! They go to an Ethernet address that no host has, so a receiver drops them at once and the cost
//! that is measured is the emulator's. Prints how many left and how many the kernel refused.

use tm_io::clock;
use tm_io::packet::{Transmitter, BATCH};
use tm_wire::Duration;

fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [interface, bytes, rate, seconds] = words.as_slice() else {
        eprintln!("usage: flood INTERFACE FRAME_BYTES FRAMES_PER_SECOND SECONDS");
        std::process::exit(2);
    };
    let number = |word: &String| {
        word.parse::<u32>()
            .unwrap_or_else(|_| std::process::exit(2))
    };
    let (bytes, rate, seconds) = (number(bytes), number(rate).max(1), number(seconds));
    let transmitter = Transmitter::open(interface).unwrap_or_else(|error| {
        eprintln!("{error}");
        std::process::exit(1);
    });
    let mut frame = vec![0_u8; bytes.max(60) as usize];
    frame[..6].copy_from_slice(&[2, 0, 0, 0, 0, 9]);
    frame[6..12].copy_from_slice(&[2, 0, 0, 0, 0, 1]);
    frame[12..14].copy_from_slice(&[8, 0]);
    let frames = vec![frame; BATCH / 2];
    let total = u64::from(rate) * u64::from(seconds);
    let start = clock::now();
    let (mut sent, mut refused) = (0_u64, 0_u64);
    while sent < total {
        let due = i64::try_from(sent * 1_000_000_000 / u64::from(rate)).unwrap_or(0);
        clock::sleep_until(start + Duration(due));
        let left = usize::try_from(total - sent).unwrap_or(usize::MAX);
        let batch = &frames[..frames.len().min(left)];
        refused += transmitter.send(batch);
        sent += batch.len() as u64;
    }
    let ns = (clock::now() - start).0;
    println!("{{\"sent\":{sent},\"refused\":{refused},\"ns\":{ns}}}");
}
