//! What may be added to what, and that the limits of 64 bits hold.

use proptest::prelude::*;
use tm_wire::{Duration, Instant, RemoteInstant, UnixTime};

/// Far enough from the limits that no sum of three overflows.
fn nanos() -> std::ops::Range<i64> {
    -(1 << 60)..1 << 60
}

proptest! {
    #[test]
    fn a_point_plus_what_lies_between_is_the_other_point(one in nanos(), other in nanos()) {
        let (one, other) = (Instant(one), Instant(other));
        prop_assert_eq!(one + (other - one), other);
        prop_assert_eq!(other - (other - one), one);
        let mut moved = one;
        moved += other - one;
        prop_assert_eq!(moved, other);
        prop_assert_eq!(one.saturating_since(other), one - other);
        prop_assert_eq!(one < other, other - one > Duration::ZERO);
    }

    #[test]
    fn the_way_there_and_back_is_free_of_the_offset_of_the_other_clock(
        sent in nanos(), there in 0_i64..1 << 40, back in 0_i64..1 << 40, offset in -(1_i64 << 40)..1 << 40,
    ) {
        let sent = Instant(sent);
        let returned = sent + Duration(there) + Duration(back);
        let remote = RemoteInstant(sent.0 + there + offset);
        prop_assert_eq!(remote.since(sent), Duration(there + offset));
        prop_assert_eq!(remote.until(returned), Duration(back - offset));
        prop_assert_eq!(remote.since(sent) + remote.until(returned), returned - sent);
    }

    #[test]
    fn the_wall_clock_is_its_offset_ahead(at in nanos(), offset in nanos()) {
        let (at, offset) = (Instant(at), Duration(offset));
        let wall = UnixTime::of(at, offset);
        prop_assert_eq!(wall.ahead_of(at), offset);
        prop_assert_eq!(wall.instant(offset), at);
        prop_assert_eq!(wall.remote(offset).since(at), Duration::ZERO);
    }

    #[test]
    fn durations_add_up(parts in proptest::collection::vec(-(1_i64 << 50)..1 << 50, 0..20)) {
        let sum: Duration = parts.iter().map(|ns| Duration(*ns)).sum();
        prop_assert_eq!(sum.0, parts.iter().sum::<i64>());
    }
}

#[test]
fn at_the_limits_nothing_wraps() {
    assert_eq!(Instant::MAX.saturating_add(Duration(1)), Instant::MAX);
    assert_eq!(Instant::MIN.saturating_add(Duration(-1)), Instant::MIN);
    assert_eq!(Instant(0).saturating_since(Instant::MIN), Duration::MAX);
    assert_eq!(Duration::MAX.saturating_mul(2), Duration::MAX);
    assert_eq!(Duration::MAX.saturating_add(Duration(1)), Duration::MAX);
}

#[test]
fn units_are_what_their_names_say() {
    assert_eq!(Duration::from_millis(20), Duration(20_000_000));
    assert_eq!(Duration::from_secs(-3), Duration(-3_000_000_000));
    assert_eq!(Duration(-5).abs(), Duration(5));
    assert_eq!(Duration(-7) / 2, Duration(-3));
}
