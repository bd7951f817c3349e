//! How much a TCP sender may have under way: Reno (RFC 5681) or CUBIC (RFC 9438), in segments.

use tm_wire::{Duration, Instant};

/// RFC 6928 section 2.
const INITIAL_SEGMENTS: f64 = 10.0;
/// RFC 5681 section 3.1: where the SYN was lost.
const INITIAL_AFTER_LOSS_SEGMENTS: f64 = 1.0;
/// RFC 5681 section 3.1, equation 4.
const LEAST_THRESHOLD_SEGMENTS: f64 = 2.0;
/// RFC 9438 section 5: the constant C, in segments per second cubed.
const CUBIC_C: f64 = 0.4;
/// RFC 9438 section 4.6.
const CUBIC_BETA: f64 = 0.7;
/// RFC 9438 section 4.3: growth of the Reno-friendly window in segments per round trip.
const CUBIC_ALPHA: f64 = 3.0 * (1.0 - CUBIC_BETA) / (1.0 + CUBIC_BETA);

/// RFC 9406 section 4.3: samples of a round, limits of the rise that ends slow start, divisor of
/// the growth that follows, and for how many rounds.
const ROUND_SAMPLES: u32 = 8;
const RISE: (Duration, Duration) = (Duration::from_millis(4), Duration::from_millis(16));
const CONSERVATIVE_DIVISOR: f64 = 4.0;
const CONSERVATIVE_ROUNDS: u32 = 5;

/// Which algorithm.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Congestion {
    /// RFC 5681; losses by RFC 6675.
    Reno,
    /// RFC 9438 with fast convergence, and `HyStart++` (RFC 9406) where Linux has `HyStart`.
    Cubic,
}

/// The congestion window of a connection.
#[derive(Clone)]
pub struct Window {
    congestion: Congestion,
    segments: f64,
    /// Where slow start ends.
    threshold: f64,
    cubic: Cubic,
    rounds: Rounds,
}

impl Window {
    /// The window of a new connection.
    pub fn new(congestion: Congestion, syn_lost: bool) -> Self {
        Self {
            congestion,
            segments: if syn_lost {
                INITIAL_AFTER_LOSS_SEGMENTS
            } else {
                INITIAL_SEGMENTS
            },
            threshold: f64::INFINITY,
            cubic: Cubic::default(),
            rounds: Rounds::default(),
        }
    }

    /// An RTT was measured when all before `first` was acknowledged and all before `next` was sent.
    pub fn measured(&mut self, rtt: Duration, first: u64, next: u64) {
        // Section 4.2 of RFC 9406: only the first slow start, which does not know where to end.
        if self.congestion == Congestion::Cubic
            && self.threshold.is_infinite()
            && self.rounds.measured(rtt, first, next)
        {
            self.threshold = self.segments;
        }
    }

    /// Whole segments that may be under way.
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // at least 1, saturates
    pub fn segments(&self) -> u64 {
        self.segments as u64
    }

    /// Whether the window grows by all that is acknowledged.
    pub fn starts_slowly(&self) -> bool {
        self.segments < self.threshold
    }

    /// So many segments were acknowledged at `now` while the window was full.
    pub fn acknowledged(&mut self, now: Instant, count: u64, rtt: Duration) {
        let mut count = count as f64;
        if self.segments < self.threshold {
            // RFC 3465: by what was acknowledged, however many acknowledgements said it.
            let slow = count.min(self.threshold - self.segments);
            let conservative = self.rounds.baseline.is_some() && self.threshold.is_infinite();
            self.segments += slow
                / if conservative {
                    CONSERVATIVE_DIVISOR
                } else {
                    1.0
                };
            count -= slow;
        }
        if count > 0.0 {
            self.segments = match self.congestion {
                Congestion::Reno => self.segments + count / self.segments,
                Congestion::Cubic => self.cubic.grown(now, self.segments, count, rtt),
            };
        }
    }

    /// Segments were lost, of `flight` that had not been acknowledged.
    pub fn lost(&mut self, flight: u64) {
        self.reduce(flight);
        self.segments = self.threshold;
    }

    /// The retransmission timer expired; `again`: for segments for which it has expired before.
    pub fn timed_out(&mut self, flight: u64, again: bool) {
        // RFC 5681 section 3.1: the threshold is held where a retransmission is sent again.
        if !again {
            self.reduce(flight);
            self.cubic.forget();
        }
        self.segments = 1.0;
    }

    fn reduce(&mut self, flight: u64) {
        let window = self.segments.min(flight as f64);
        let share = match self.congestion {
            Congestion::Reno => 0.5,
            Congestion::Cubic => {
                self.cubic.lost(window);
                CUBIC_BETA
            }
        };
        self.threshold = (window * share).max(LEAST_THRESHOLD_SEGMENTS);
    }
}

/// What `HyStart++` remembers of the rounds of slow start: the flight of a window is one.
#[derive(Clone, Default)]
struct Rounds {
    /// Segment with whose acknowledgement the round ends.
    end: u64,
    least: Option<Duration>,
    least_before: Option<Duration>,
    samples: u32,
    /// Smallest RTT of the round in which it rose: since then growth is conservative.
    baseline: Option<Duration>,
    conservative: u32,
}

impl Rounds {
    /// Takes an RTT: whether slow start is over.
    fn measured(&mut self, rtt: Duration, first: u64, next: u64) -> bool {
        if first >= self.end {
            (self.least_before, self.least) = (self.least, None);
            (self.end, self.samples) = (next, 0);
            self.conservative += u32::from(self.baseline.is_some());
        }
        let least = self.least.map_or(rtt, |least| least.min(rtt));
        self.least = Some(least);
        self.samples += 1;
        if self.samples >= ROUND_SAMPLES {
            if let Some(baseline) = self.baseline {
                if least < baseline {
                    (self.baseline, self.conservative) = (None, 0);
                }
            } else if let Some(before) = self.least_before {
                if least >= before + (before / 8).clamp(RISE.0, RISE.1) {
                    self.baseline = Some(least);
                }
            }
        }
        self.conservative >= CONSERVATIVE_ROUNDS
    }
}

/// What CUBIC remembers.
#[derive(Clone, Default)]
struct Cubic {
    /// Window to which the curve returns.
    plateau: f64,
    /// Window before the last loss.
    before: f64,
    /// Since when congestion avoidance lasts.
    stage: Option<Stage>,
}

#[derive(Clone)]
struct Stage {
    start: Instant,
    /// Time until the plateau, s.
    plateau_s: f64,
    /// Window that Reno would have.
    friendly: f64,
}

impl Cubic {
    fn lost(&mut self, window: f64) {
        // RFC 9438 section 4.7: a smaller window than the time before makes room for a new flow.
        self.plateau = if window < self.plateau {
            window * (1.0 + CUBIC_BETA) / 2.0
        } else {
            window
        };
        self.before = window;
        self.stage = None;
    }

    /// RFC 9438 section 4.8: after a timeout the plateau is where congestion avoidance begins.
    fn forget(&mut self) {
        self.plateau = 0.0;
    }

    /// The window after `count` segments were acknowledged in congestion avoidance.
    fn grown(&mut self, now: Instant, window: f64, count: f64, rtt: Duration) -> f64 {
        let plateau = &mut self.plateau;
        let stage = self.stage.get_or_insert_with(|| {
            *plateau = plateau.max(window);
            Stage {
                start: now,
                plateau_s: libm::cbrt((*plateau - window) / CUBIC_C),
                friendly: window,
            }
        });
        let plateau = *plateau;
        let curve = |age: Duration| {
            let from_plateau_s = age.0 as f64 / 1e9 - stage.plateau_s;
            CUBIC_C * from_plateau_s * from_plateau_s * from_plateau_s + plateau
        };
        // Section 4.3: like Reno from the window before the loss on.
        let alpha = if stage.friendly >= self.before {
            1.0
        } else {
            CUBIC_ALPHA
        };
        stage.friendly += alpha * count / window;
        let age = now - stage.start;
        if curve(age) < stage.friendly {
            return window.max(stage.friendly);
        }
        // Sections 4.2, 4.4 and 4.5: towards the curve one round trip on, at most by half.
        let target = curve(age + rtt).clamp(window, 1.5 * window);
        window + (target - window) * count / window
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    /// A window of so many segments in congestion avoidance behind a loss.
    fn after_loss(congestion: Congestion, before: u64) -> Window {
        let mut window = Window::new(congestion, false);
        window.acknowledged(Instant(0), before - 10, Duration::from_millis(50));
        assert_eq!(window.segments(), before);
        window.lost(before);
        window
    }

    /// Acknowledges a whole window each round trip, until `seconds` have passed.
    fn run(window: &mut Window, seconds: i64, rtt_ms: i64) {
        let rtt = Duration::from_millis(rtt_ms);
        for round in 1..=seconds * 1_000 / rtt_ms {
            for _ in 0..window.segments() {
                window.acknowledged(Instant(0) + rtt.saturating_mul(round), 1, rtt);
            }
        }
    }

    #[test]
    fn slow_start_doubles_and_ends_at_the_threshold() {
        let mut window = Window::new(Congestion::Reno, false);
        assert_eq!(window.segments(), 10);
        window.acknowledged(Instant(0), 10, MS);
        assert_eq!(window.segments(), 20);
        window.lost(20);
        window.timed_out(10, false);
        assert_eq!(window.segments(), 1);
        // The threshold is 5: four segments of slow start, the fifth grows by a fifth.
        window.acknowledged(Instant(0), 5, MS);
        assert!((window.segments - 5.2).abs() < 1e-9, "{}", window.segments);
        assert_eq!(Window::new(Congestion::Reno, true).segments(), 1);
    }

    #[test]
    fn reno_halves_on_loss_and_grows_by_a_segment_each_round_trip() {
        let mut window = after_loss(Congestion::Reno, 40);
        assert_eq!(window.segments(), 20);
        run(&mut window, 1, 100);
        assert!((window.segments - 30.0).abs() < 0.5, "{}", window.segments);
    }

    #[test]
    fn a_timer_that_expires_again_holds_the_threshold() {
        let mut window = after_loss(Congestion::Reno, 80);
        window.timed_out(40, false);
        window.timed_out(1, true);
        window.acknowledged(Instant(0), 19, MS);
        assert_eq!(window.segments(), 20);
    }

    #[test]
    fn cubic_keeps_seven_tenths_and_is_back_when_the_curve_says() {
        let mut window = after_loss(Congestion::Cubic, 1_000);
        assert_eq!(window.segments(), 700);
        // K = cbrt(300 / 0.4) = 9.09 s; the plateau is flat: a second earlier 0.3 segments less.
        run(&mut window, 9, 200);
        assert!(
            (990.0..=1_001.0).contains(&window.segments),
            "{}",
            window.segments
        );
        let plateau = window.segments;
        run(&mut window, 18, 200);
        assert!(window.segments > plateau + 200.0, "{}", window.segments);
    }

    #[test]
    fn cubic_with_a_short_round_trip_grows_as_reno_would() {
        // Section 4.3: 0.53 segments a round trip up to the window before the loss.
        let mut window = after_loss(Congestion::Cubic, 20);
        run(&mut window, 1, 100);
        let expected = 14.0 + 10.0 * CUBIC_ALPHA;
        assert!(window.segments >= expected - 0.5, "{}", window.segments);
        let mut fast = after_loss(Congestion::Cubic, 20);
        run(&mut fast, 1, 10);
        // 100 round trips: 6 / 0.53 up to 20, a segment each from there on.
        let expected = 20.0 + 100.0 - 6.0 / CUBIC_ALPHA;
        assert!((fast.segments - expected).abs() < 3.0, "{}", fast.segments);
    }

    /// A round of so many samples of one RTT.
    fn round(window: &mut Window, number: &mut u64, rtt_ms: i64) {
        let rtt = Duration::from_millis(rtt_ms);
        let first = *number;
        *number += 20;
        for _ in 0..ROUND_SAMPLES {
            window.measured(rtt, first, *number);
        }
    }

    #[test]
    fn cubic_leaves_slow_start_where_the_round_trip_grows_longer() {
        let (mut window, mut number) = (Window::new(Congestion::Cubic, false), 0);
        round(&mut window, &mut number, 40);
        round(&mut window, &mut number, 44);
        window.acknowledged(Instant(0), 10, Duration::from_millis(40));
        assert_eq!(window.segments(), 20, "an eighth is 5 ms");
        round(&mut window, &mut number, 50);
        window.acknowledged(Instant(0), 20, Duration::from_millis(40));
        assert_eq!(window.segments(), 25, "a quarter of the growth");
        for _ in 0..CONSERVATIVE_ROUNDS {
            assert!(window.threshold.is_infinite());
            round(&mut window, &mut number, 60);
        }
        assert!((window.threshold - 25.0).abs() < 1e-9);
    }

    #[test]
    fn slow_start_goes_on_where_the_round_trip_was_longer_for_a_moment_and_with_reno() {
        for congestion in [Congestion::Cubic, Congestion::Reno] {
            let (mut window, mut number) = (Window::new(congestion, false), 0);
            for rtt_ms in [40, 60, 50, 50] {
                round(&mut window, &mut number, rtt_ms);
            }
            window.acknowledged(Instant(0), 10, Duration::from_millis(40));
            assert_eq!(window.segments(), 20);
        }
    }

    #[test]
    fn a_loss_below_the_last_window_lowers_the_plateau() {
        let mut window = after_loss(Congestion::Cubic, 100);
        window.lost(70);
        assert!((window.cubic.plateau - 70.0 * 0.85).abs() < 1e-9);
    }
}
