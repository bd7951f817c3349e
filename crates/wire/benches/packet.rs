//! Test packets per second that are written, and that are checked and read.
//!
//! `cargo bench -p tm-wire`.

use std::hint::black_box;

use criterion::{Criterion, Throughput};
use tm_wire::{emit, parse, Direction, Header, Key, PacketTime};

fn main() {
    let mut criterion = Criterion::default().configure_from_args();
    packets(&mut criterion);
    criterion.final_summary();
}

fn packets(criterion: &mut Criterion) {
    let key = Key::Secret([7; 16]);
    let header = Header {
        session: 7,
        seq: 1,
        time: PacketTime(1),
    };
    let mut group = criterion.benchmark_group("wire");
    group.throughput(Throughput::Elements(1));
    let mut packet = [0_u8; 64];
    group.bench_function("emit", |bencher| {
        bencher.iter(|| emit(black_box(&mut packet), &header, Direction::TestPacket, &key));
    });
    emit(&mut packet, &header, Direction::TestPacket, &key);
    group.bench_function("parse", |bencher| {
        bencher.iter(|| {
            parse(black_box(&packet), Direction::TestPacket, |_| {
                Some((7, key))
            })
        });
    });
    packet[63] ^= 1;
    packet[20] ^= 1;
    group.bench_function("parse, refused", |bencher| {
        bencher.iter(|| {
            parse(black_box(&packet), Direction::TestPacket, |_| {
                Some((7, key))
            })
        });
    });
    group.finish();
}
