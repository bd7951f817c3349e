//! Packets per second of the sender's and the reflector's state machines, in virtual time.
//!
//! `cargo bench -p tm-probe`. One turn is what a packet costs beside its system calls.

use criterion::{Criterion, Throughput};
use tm_probe::{
    Missed, Pacer, ReceivedReply, ReflectorFlow, ReplyOutcome, Schedule, SenderFlow, Size, Stop,
};
use tm_wire::{Duration, Instant, RemoteInstant};

const PACKETS: u64 = 100_000;
const GAP_NS: i64 = 1_000;
const RTT_NS: i64 = 41_000_000;

fn main() {
    let mut criterion = Criterion::default().configure_from_args();
    flows(&mut criterion);
    criterion.final_summary();
}

fn flows(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("probe");
    group.throughput(Throughput::Elements(PACKETS));
    for (name, schedule) in [
        (
            "pacer, fixed gap",
            Schedule::Fixed {
                gap: Duration(GAP_NS),
            },
        ),
        (
            "pacer, poisson",
            Schedule::Poisson {
                mean_gap: Duration(GAP_NS),
            },
        ),
    ] {
        group.bench_function(name, |bencher| {
            bencher.iter(|| {
                let mut pacer = pacer(schedule.clone());
                let mut sent = 0;
                while let Some(due) = pacer.next_due() {
                    sent += u64::from(pacer.poll(due).is_some());
                }
                assert_eq!(sent, PACKETS);
            });
        });
    }
    group.bench_function("sender, each answered after 41 ms", |bencher| {
        bencher.iter(|| assert_eq!(send(), PACKETS));
    });
    group.bench_function("reflector", |bencher| {
        bencher.iter(|| {
            let mut flow = ReflectorFlow::new(0, 0);
            for seq in 0..u32::try_from(PACKETS).expect("fits") {
                let at = Instant(i64::from(seq) * GAP_NS);
                flow.on_packet(seq, at, ReplyOutcome::Sent(at), 64, false);
            }
            assert_eq!(flow.counters.received, PACKETS);
        });
    });
    group.finish();
}

fn pacer(schedule: Schedule) -> Pacer {
    let size = Size::Fixed(64);
    Pacer::new(
        Instant(0),
        schedule,
        size,
        Stop::Packets(PACKETS),
        Missed::Send,
        1,
    )
}

/// Send and reply to every packet; the records of those that are through are given out.
fn send() -> u64 {
    let mut flow = SenderFlow::new(0, Duration(1_000_000_000));
    let mut records = 0;
    let behind = RTT_NS / GAP_NS;
    let packets = i64::try_from(PACKETS).expect("fits");
    for turn in 0..packets + behind {
        let now = Instant(turn * GAP_NS);
        if turn < packets {
            flow.on_due(now, Some(now), 64);
        }
        if let Ok(seq) = u32::try_from(turn - behind) {
            let reply = ReceivedReply {
                seq,
                remote_rx: RemoteInstant(now.0 - RTT_NS / 2),
                residence: Some(Duration(1_000)),
                remote_seq: None,
            };
            flow.on_reply(&reply, now, false);
        }
        flow.expire(now, Duration(1_000_000_000), |_| records += 1);
    }
    flow.finish(|_| records += 1);
    records
}
