use super::*;
use crate::tcp_segment::Handshake;

/// After so many SYNs, of which the last was answered after `rtt_ms`.
fn established(tries: u32, rtt_ms: i64) -> Established {
    let mut handshake = Handshake::at(Instant(0));
    let mut now = Instant(0);
    for _ in 0..tries {
        now = handshake.timer.unwrap();
        assert!(handshake.due(now));
    }
    handshake.established(now + Duration(rtt_ms * MS))
}

const MS: i64 = 1_000_000;

fn sender(congestion: Congestion) -> Sender {
    Sender::new(congestion, 1_000, established(1, 20))
}

fn all(sender: &mut Sender, now: Instant) -> Vec<u64> {
    std::iter::from_fn(|| sender.next(now)).collect()
}

/// An acknowledgement of what was sent 20 ms before.
fn say(sender: &mut Sender, now: Instant, next: u64, blocks: &[(u64, u64)]) {
    echo(sender, now, next, blocks, now - Duration(20 * MS));
}

fn echo(sender: &mut Sender, now: Instant, next: u64, blocks: &[(u64, u64)], echo: Instant) {
    let said = Acknowledgement {
        next,
        blocks: blocks.to_vec(),
        echo,
    };
    sender.acknowledged(now, &said);
}

#[test]
fn a_timeout_is_taken_back_where_the_first_transmission_is_acknowledged() {
    let mut sender = sender(Congestion::Reno);
    all(&mut sender, Instant(0));
    sender.expire(Instant(220 * MS));
    assert_eq!(all(&mut sender, Instant(220 * MS)), [0]);
    echo(&mut sender, Instant(300 * MS), 2, &[], Instant(0));
    assert_eq!((sender.counters().undone, sender.lost), (1, 0));
    assert_eq!(sender.window_segments(), 12);
    // Eight are under way still: none of them is sent again.
    assert_eq!(all(&mut sender, Instant(300 * MS)), [10, 11, 12, 13]);
    assert!(sender.smoothed_rtt().unwrap() > Duration(50 * MS));
}

#[test]
fn a_recovery_is_taken_back_where_a_segment_was_only_late() {
    let mut sender = sender(Congestion::Cubic);
    all(&mut sender, Instant(0));
    say(&mut sender, Instant(20 * MS), 0, &[(1, 5)]);
    assert_eq!(all(&mut sender, Instant(20 * MS))[0], 0);
    assert_eq!(sender.window_segments(), 7);
    echo(&mut sender, Instant(25 * MS), 5, &[], Instant(0));
    assert_eq!((sender.counters().undone, sender.lost), (1, 0));
    assert!(sender.window_segments() >= 10);
    // What is lost indeed stays so.
    say(&mut sender, Instant(40 * MS), 5, &[(6, 10)]);
    let sent = all(&mut sender, Instant(40 * MS));
    assert_eq!(sent[0], 5);
    echo(&mut sender, Instant(60 * MS), 10, &[], Instant(40 * MS));
    assert_eq!(sender.counters().undone, 1);
}

#[test]
fn the_first_flight_is_ten_segments_and_each_acknowledged_one_brings_two() {
    let mut sender = sender(Congestion::Reno);
    assert_eq!(all(&mut sender, Instant(0)), (0..10).collect::<Vec<_>>());
    say(&mut sender, Instant(20 * MS), 2, &[]);
    assert_eq!(all(&mut sender, Instant(20 * MS)), [10, 11, 12, 13]);
    assert_eq!(sender.smoothed_rtt(), Some(Duration(20 * MS)));
    assert_eq!(sender.counters().sent, 14);
}

#[test]
fn a_loss_is_found_by_what_was_sent_three_later_and_halves_the_window_once() {
    let mut sender = sender(Congestion::Reno);
    all(&mut sender, Instant(0));
    say(&mut sender, Instant(20 * MS), 0, &[(1, 2)]);
    say(&mut sender, Instant(20 * MS), 0, &[(1, 3)]);
    assert_eq!(sender.lost, 0);
    say(&mut sender, Instant(20 * MS), 0, &[(1, 4)]);
    assert_eq!((sender.lost, sender.window_segments()), (1, 5));
    assert_eq!(
        all(&mut sender, Instant(20 * MS)),
        [0],
        "six are in flight all the same"
    );
    // Two more are lost: the window stays, and each goes out as the flight gets smaller.
    say(&mut sender, Instant(21 * MS), 0, &[(1, 4), (6, 10)]);
    assert_eq!((sender.lost, sender.window_segments()), (2, 5));
    let again = all(&mut sender, Instant(21 * MS));
    assert_eq!(again[..3], [4, 5, 10]);
    assert_eq!(sender.counters().retransmits, 3);
    say(&mut sender, Instant(41 * MS), 10, &[]);
    assert!(sender.phase == Phase::Open && sender.lost == 0);
    assert_eq!(sender.counters().timeouts, 0);
}

#[test]
fn a_loss_of_what_was_sent_in_a_recovery_begins_another() {
    let mut sender = sender(Congestion::Reno);
    all(&mut sender, Instant(0));
    say(&mut sender, Instant(20 * MS), 0, &[(1, 4)]);
    assert_eq!(all(&mut sender, Instant(20 * MS)), [0]);
    say(&mut sender, Instant(21 * MS), 0, &[(1, 10)]);
    assert_eq!(all(&mut sender, Instant(21 * MS)), [10, 11, 12, 13]);
    say(&mut sender, Instant(40 * MS), 10, &[(11, 14)]);
    assert_eq!((sender.lost, sender.window_segments()), (1, 2));
    assert_eq!(all(&mut sender, Instant(40 * MS))[0], 10);
}

#[test]
fn a_retransmission_that_is_lost_is_found_too() {
    let mut sender = sender(Congestion::Cubic);
    all(&mut sender, Instant(0));
    say(&mut sender, Instant(20 * MS), 0, &[(1, 10)]);
    let sent = all(&mut sender, Instant(20 * MS));
    assert_eq!(sent[..4], [0, 10, 11, 12]);
    say(&mut sender, Instant(40 * MS), 0, &[(1, 13)]);
    assert_eq!(all(&mut sender, Instant(40 * MS))[0], 0);
    assert_eq!(sender.counters().timeouts, 0);
}

#[test]
fn the_timer_waits_longer_each_time_and_all_is_sent_again_from_a_window_of_one() {
    let mut sender = sender(Congestion::Reno);
    all(&mut sender, Instant(0));
    let mut now = Instant(0);
    for expected_ns in [220 * MS, 440 * MS, 880 * MS] {
        let timer = sender.timer().unwrap();
        assert_eq!(timer - now, Duration(expected_ns));
        now = timer;
        sender.expire(now - Duration(1));
        sender.expire(now);
        assert_eq!(all(&mut sender, now), [0]);
    }
    assert_eq!(sender.counters().timeouts, 3);
    say(&mut sender, now + Duration(20 * MS), 1, &[]);
    assert_eq!(all(&mut sender, now + Duration(20 * MS)), [1, 2]);
}

#[test]
fn the_receivers_window_holds_back_and_does_not_open_the_other() {
    let mut sender = Sender::new(Congestion::Reno, 4, established(1, 20));
    assert_eq!(all(&mut sender, Instant(0)), [0, 1, 2, 3]);
    say(&mut sender, Instant(20 * MS), 4, &[]);
    assert_eq!(all(&mut sender, Instant(20 * MS)), [4, 5, 6, 7]);
    assert_eq!(sender.window_segments(), 10);
}

#[test]
fn a_handshake_that_lost_one_segment_leaves_the_window_and_no_rtt() {
    let mut sender = Sender::new(Congestion::Cubic, 100, established(2, 20));
    assert_eq!(all(&mut sender, Instant(0)), [0, 1, 2, 3, 4, 5, 6, 7, 8, 9]);
    assert_eq!(sender.timer(), Some(Instant(1_000 * MS)));
}

#[test]
fn a_handshake_that_lost_two_segments_begins_with_one_segment_and_a_second() {
    let mut sender = Sender::new(Congestion::Cubic, 100, established(3, 20));
    assert_eq!(all(&mut sender, Instant(0)), [0]);
    assert_eq!(sender.timer(), Some(Instant(1_000 * MS)));
}
