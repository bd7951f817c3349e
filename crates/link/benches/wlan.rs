//! How many frame exchanges a second of one core simulates.

fn main() {}
