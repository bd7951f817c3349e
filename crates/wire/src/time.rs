//! Points in time and durations, by the clock that they are of.
//!
//! A point minus a point of the same clock is a duration, and a point plus a duration is a point.
//! Nothing else has a sum: points of two clocks meet only in [`RemoteInstant::since`] and where the
//! offset between the clocks is named ([`UnixTime`]).
//!
//! ```compile_fail
//! use tm_wire::Instant;
//! let _ = Instant(1) + Instant(2); // two points have no sum
//! ```
//!
//! ```compile_fail
//! use tm_wire::{Instant, RemoteInstant};
//! let _ = RemoteInstant(2) - Instant(1); // two clocks
//! ```
//!
//! ```
//! use tm_wire::{Duration, Instant};
//! assert_eq!(Instant(1) + Duration(2) - Instant(1), Duration(2));
//! ```

use core::iter::Sum;
use core::ops::{Add, AddAssign, Div, Sub};

/// A point in time in nanoseconds: `CLOCK_MONOTONIC` of this host, or virtual time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Instant(pub i64);

/// A duration in nanoseconds; negative where the later point was subtracted from the earlier.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Duration(pub i64);

/// A point in time in nanoseconds by the clock of another host, on the scale of this one's
/// [`Instant`]; the two clocks differ by an error that no packet tells.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RemoteInstant(pub i64);

/// A point in time in nanoseconds since 1970: `CLOCK_REALTIME` of this host or of another.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct UnixTime(pub i64);

impl Instant {
    /// Before every other.
    pub const MIN: Self = Self(i64::MIN);
    /// After every other.
    pub const MAX: Self = Self(i64::MAX);

    /// So much later, at most [`Instant::MAX`].
    #[must_use]
    pub const fn saturating_add(self, by: Duration) -> Self {
        Self(self.0.saturating_add(by.0))
    }

    /// How long after `earlier` this is, within what a duration holds.
    #[must_use]
    pub const fn saturating_since(self, earlier: Self) -> Duration {
        Duration(self.0.saturating_sub(earlier.0))
    }
}

impl Duration {
    /// No time.
    pub const ZERO: Self = Self(0);
    /// The longest there is.
    pub const MAX: Self = Self(i64::MAX);

    /// So many milliseconds.
    #[must_use]
    pub const fn from_millis(ms: i64) -> Self {
        Self(ms * 1_000_000)
    }

    /// So many seconds.
    #[must_use]
    pub const fn from_secs(s: i64) -> Self {
        Self(s * 1_000_000_000)
    }

    /// As long, without its sign.
    #[must_use]
    pub const fn abs(self) -> Self {
        Self(self.0.abs())
    }

    /// Both together, at most [`Duration::MAX`].
    #[must_use]
    pub const fn saturating_add(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }

    /// So many times as long, at most [`Duration::MAX`].
    #[must_use]
    pub const fn saturating_mul(self, times: i64) -> Self {
        Self(self.0.saturating_mul(times))
    }
}

impl RemoteInstant {
    /// From a point of this host's clock to one of the other's: a duration and the error between the
    /// clocks, which is why it has a name and no operator.
    #[must_use]
    pub fn since(self, local: Instant) -> Duration {
        Duration(self.0 - local.0)
    }

    /// From a point of the other host's clock to one of this host's, with the same error.
    #[must_use]
    pub fn until(self, local: Instant) -> Duration {
        Duration(local.0 - self.0)
    }
}

impl UnixTime {
    /// The point `at`, where this clock is `offset` ahead of that of [`Instant`].
    #[must_use]
    pub const fn of(at: Instant, offset: Duration) -> Self {
        Self(at.0 + offset.0)
    }

    /// How far this clock is ahead of that of [`Instant`], which shows `at` when this one shows this.
    #[must_use]
    pub const fn ahead_of(self, at: Instant) -> Duration {
        Duration(self.0 - at.0)
    }

    /// The point by the clock of [`Instant`], which this one is `offset` ahead of.
    #[must_use]
    pub const fn instant(self, offset: Duration) -> Instant {
        Instant(self.0 - offset.0)
    }

    /// The same for a point that another host reported.
    #[must_use]
    pub const fn remote(self, offset: Duration) -> RemoteInstant {
        RemoteInstant(self.0 - offset.0)
    }
}

impl Add<Duration> for Instant {
    type Output = Self;
    fn add(self, by: Duration) -> Self {
        Self(self.0 + by.0)
    }
}

impl AddAssign<Duration> for Instant {
    fn add_assign(&mut self, by: Duration) {
        self.0 += by.0;
    }
}

impl Sub<Duration> for Instant {
    type Output = Self;
    fn sub(self, by: Duration) -> Self {
        Self(self.0 - by.0)
    }
}

impl Sub for Instant {
    type Output = Duration;
    fn sub(self, earlier: Self) -> Duration {
        Duration(self.0 - earlier.0)
    }
}

impl Sub for RemoteInstant {
    type Output = Duration;
    fn sub(self, earlier: Self) -> Duration {
        Duration(self.0 - earlier.0)
    }
}

impl Sub for UnixTime {
    type Output = Duration;
    fn sub(self, earlier: Self) -> Duration {
        Duration(self.0 - earlier.0)
    }
}

impl Add for Duration {
    type Output = Self;
    fn add(self, other: Self) -> Self {
        Self(self.0 + other.0)
    }
}

impl AddAssign for Duration {
    fn add_assign(&mut self, other: Self) {
        self.0 += other.0;
    }
}

impl Sub for Duration {
    type Output = Self;
    fn sub(self, other: Self) -> Self {
        Self(self.0 - other.0)
    }
}

impl Div<i64> for Duration {
    type Output = Self;
    fn div(self, parts: i64) -> Self {
        Self(self.0 / parts)
    }
}

impl Sum for Duration {
    fn sum<I: Iterator<Item = Self>>(durations: I) -> Self {
        durations.fold(Self::ZERO, Self::add)
    }
}
