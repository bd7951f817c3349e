//! How many frame exchanges a minute of one core simulates in virtual time.
//!
//! `cargo bench -p tm-link --bench wlan`; the goal for one saturated 802.11b sender is 30 million.

use std::time::{Duration, Instant};

#[path = "../tests/wlan_support/mod.rs"]
mod wlan_support;

use tm_link::wlan::{Config, Frame, Medium};
use wlan_support::{b, frame, medium, n};

fn main() {
    measure("802.11b 11 Mbit/s, one sender", &b(&[1_000_000]), 1, 1_500);
    let ten = Config {
        stations: 10,
        ..b(&[1_000_000])
    };
    measure("802.11b 11 Mbit/s, ten senders", &ten, 10, 1_500);
    measure("802.11n MCS 7, one sender (MPDUs)", &n(7, 20), 1, 1_508);
}

/// Offer a frame for each that ends, for two seconds of real time.
fn measure(what: &str, config: &Config, senders: u16, msdu_bytes: u32) {
    let mut medium = medium(config, 1);
    let mut token = 0;
    for sender in 1..=senders {
        for _ in 0..70 {
            medium.offer(0, sender, frame(token, msdu_bytes));
            token += 1;
        }
    }
    run(&mut medium, 100_000, &mut token);
    let start = now();
    let mut frames = 0;
    while now() - start < Duration::from_secs(2) {
        frames += run(&mut medium, 100_000, &mut token);
    }
    let per_minute = frames as f64 / (now() - start).as_secs_f64() * 60.0;
    println!("{what}: {:.0} million frames a minute", per_minute / 1e6);
}

fn run(medium: &mut Medium, frames: u64, token: &mut u64) -> u64 {
    let mut done = 0;
    while done < frames {
        let due_ns = medium.next_due().expect("there are always frames");
        while let Some(outcome) = medium.poll(due_ns) {
            let again = Frame {
                token: *token,
                ..frame(0, outcome.msdu_bytes)
            };
            medium.offer(due_ns, outcome.sender, again);
            *token += 1;
            done += 1;
        }
    }
    done
}

#[allow(clippy::disallowed_methods)] // a benchmark measures real time
fn now() -> Instant {
    Instant::now()
}
