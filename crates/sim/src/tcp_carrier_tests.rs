use super::*;
use proptest::prelude::*;
use tm_wire::Duration;

const MS: Duration = Duration::from_millis(1);

fn plan(segment_bytes: u32) -> TcpCarrierPlan {
    TcpCarrierPlan {
        ip_header_bytes: 20,
        segment_bytes,
        window_bytes: 3 << 20,
        congestion: Congestion::Cubic,
    }
}

/// Lengths of all that leaves now.
fn leaving(carrier: &mut TcpCarrier) -> Vec<u32> {
    std::iter::from_fn(|| carrier.pop())
        .map(|sent| sent.bytes)
        .collect()
}

#[test]
fn a_packet_that_finds_the_stream_idle_has_segments_of_its_own() {
    let mut carrier = TcpCarrier::new(plan(1_448));
    carrier.write(Instant(0), 0, 100, (1, 0));
    carrier.write(Instant(0), 0, 1_500, (2, 0));
    // 20 bytes of IP, 20 of TCP and 12 of timestamps.
    assert_eq!(leaving(&mut carrier), [152, 1_500, 104]);
}

#[test]
fn what_waits_for_the_window_shares_segments() {
    let mut carrier = TcpCarrier::new(plan(1_448));
    for number in 0..30 {
        carrier.write(Instant(0), 0, 1_000, (number, 0));
    }
    let first = leaving(&mut carrier);
    assert_eq!(first, [1_052; 10], "the initial window");
    let said = Acknowledgement {
        next: 2,
        blocks: Vec::new(),
        echo: Instant(0),
    };
    let now = Instant(0) + MS;
    carrier.take(now, 0, &Segment::Said(said).to_bytes());
    // Two for two that arrived, and two for the growth of the window.
    assert_eq!(leaving(&mut carrier), [1_500; 4]);
}

#[test]
fn the_buffer_is_that_of_linux_and_packets_behind_it_wait() {
    let mut carrier = TcpCarrier::new(plan(1_448));
    assert_eq!(
        carrier.ends[0].buffer_bytes, 46_080,
        "what ss calls tb of a new connection over Ethernet"
    );
    for number in 0..100 {
        carrier.write(Instant(0), 0, 1_000, (number, 0));
    }
    // Two thirds of it, and the message that goes beyond: 10 that left in segments of their own, 9
    // that will share 7, and 700 bytes for each segment.
    assert_eq!(carrier.waiting(0), 100 - 19);
    assert_eq!(leaving(&mut carrier).len(), 10);
}

#[test]
fn an_acknowledgement_goes_with_data_the_other_way() {
    let mut carrier = TcpCarrier::new(plan(1_448));
    carrier.write(Instant(0), 0, 100, (1, 0));
    let asked = carrier.pop().unwrap();
    let whole = carrier.take(Instant(0) + MS, 1, &asked.says);
    assert_eq!(whole, [(1, 0)]);
    assert!(carrier.pop().is_none(), "it is delayed");
    carrier.write(Instant(0) + MS, 1, 100, (2, 0));
    let answer = carrier.pop().unwrap();
    assert_eq!((answer.from, answer.bytes), (1, 152));
    carrier.take(Instant(0) + MS + MS, 0, &answer.says);
    assert_eq!(carrier.ends[0].sender.first(), 1);
}

proptest! {
    /// Whatever is lost, every packet comes once and in the order in which it was written.
    #[test]
    fn every_packet_comes_once_and_in_order(
        sizes in proptest::collection::vec((1_u32..4_000, 0_usize..2), 1..120),
        losses in proptest::collection::vec(proptest::bool::weighted(0.2), 1..400),
        segment_bytes in 16_u32..1_500,
    ) {
        let mut carrier = TcpCarrier::new(plan(segment_bytes));
        let mut now = Instant(0);
        let mut expected = [Vec::new(), Vec::new()];
        for (number, (bytes, end)) in (0..).zip(&sizes) {
            expected[*end].push((number, 0));
            carrier.write(now, *end, *bytes, (number, 0));
        }
        let mut lost = losses.iter().copied().chain(std::iter::repeat(false));
        let mut got = [Vec::new(), Vec::new()];
        // In flight for a millisecond.
        let mut under_way = VecDeque::new();
        for _ in 0..100_000 {
            while let Some(sent) = carrier.pop() {
                prop_assert!(sent.bytes <= segment_bytes + 52 || sent.bytes <= 80);
                if !lost.next().unwrap_or(false) {
                    under_way.push_back((now + MS, sent));
                }
            }
            if got.iter().map(Vec::len).sum::<usize>() == sizes.len() {
                break;
            }
            let next = under_way.front().map(|one: &(Instant, Sent)| one.0);
            let due = [next, carrier.next_due()].into_iter().flatten().min();
            prop_assert!(due.is_some(), "it stands still");
            now = now.max(due.unwrap());
            while under_way.front().is_some_and(|one| one.0 <= now) {
                let (_, sent) = under_way.pop_front().unwrap();
                got[sent.from].extend(carrier.take(now, 1 - sent.from, &sent.says));
            }
            carrier.turn(now);
        }
        prop_assert_eq!(got, expected);
    }
}
