//! How much a TCP sender may have under way: Reno (RFC 5681) or CUBIC (RFC 9438), as Linux has them:
//! in whole segments, and what a loss leaves is a share of the window, not of the flight.

use tm_wire::{Duration, Instant};

/// RFC 6928 section 2.
const INITIAL_SEGMENTS: u64 = 10;
/// RFC 5681 section 3.1: where the handshake lost segments.
const INITIAL_AFTER_LOSS_SEGMENTS: u64 = 1;
/// RFC 5681 section 3.1, equation 4.
const LEAST_THRESHOLD_SEGMENTS: u64 = 2;
/// RFC 9438 section 5: the constant C, in segments per second cubed.
const CUBIC_C: f64 = 0.4;
/// RFC 9438 section 4.6: 0.7, in 1024ths.
const CUBIC_BETA: u64 = 717;
const WHOLE: u64 = 1024;
/// RFC 9438 section 4.3: the window that Reno would have grows by a segment for so many eighths of a
/// window, (1 + beta) / (3 (1 - beta)): in Linux above the window before the loss as well.
const FRIENDLY_EIGHTHS: u64 = 15;
/// Linux grows by a segment for so many at most while no plateau is known.
const UNKNOWN_EACH: u64 = 20;
/// Linux grows by a segment for so many at least: by half in a round trip.
const LEAST_EACH: u64 = 2;
/// Linux grows so little, in windows for a segment, where the curve is below the window.
const SLOW_WINDOWS: u64 = 100;
/// Linux keeps what it has worked out for so long while the window stays.
const KEPT: Duration = Duration::from_millis(32);

/// `HyStart` (Ha and Rhee 2011), which ends the first slow start: the window from which on, samples of
/// a round, limits of the rise of the RTT, and the gap that ends a train of acknowledgements.
const HYSTART_SEGMENTS: u64 = 16;
const ROUND_SAMPLES: u32 = 8;
const RISE: (Duration, Duration) = (Duration::from_millis(4), Duration::from_millis(16));
const TRAIN_GAP: Duration = Duration::from_millis(2);
/// What Linux allows a train for segments that were sent or taken together.
const TRAIN_CUSHION: Duration = Duration::from_millis(1);

/// Which algorithm.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Congestion {
    /// RFC 5681; losses by RFC 6675.
    Reno,
    /// RFC 9438 with fast convergence, and `HyStart`.
    Cubic,
}

/// The congestion window of a connection.
#[derive(Clone)]
pub struct Window {
    congestion: Congestion,
    segments: u64,
    /// Acknowledged since it grew last, in congestion avoidance.
    counted: u64,
    /// Where slow start ends.
    threshold: u64,
    cubic: Cubic,
    hystart: HyStart,
}

impl Window {
    /// The window of a new connection.
    pub fn new(congestion: Congestion, lossy: bool) -> Self {
        Self {
            congestion,
            segments: if lossy {
                INITIAL_AFTER_LOSS_SEGMENTS
            } else {
                INITIAL_SEGMENTS
            },
            counted: 0,
            threshold: u64::MAX,
            cubic: Cubic::default(),
            hystart: HyStart::default(),
        }
    }

    /// An RTT was measured at `now`, when all before `first` was acknowledged and all before `next`
    /// was sent.
    pub fn measured(&mut self, now: Instant, rtt: Duration, first: u64, next: u64) {
        if self.congestion == Congestion::Cubic
            && self.threshold == u64::MAX
            && self.hystart.measured(now, rtt, first, next)
            && self.segments >= HYSTART_SEGMENTS
        {
            self.threshold = self.segments;
        }
    }

    /// Segments that may be under way.
    pub fn segments(&self) -> u64 {
        self.segments
    }

    /// Whether the window grows by all that is acknowledged.
    pub fn starts_slowly(&self) -> bool {
        self.segments < self.threshold
    }

    /// So many segments were acknowledged at `now` while the window was full; `least` is the
    /// shortest RTT.
    pub fn acknowledged(&mut self, now: Instant, count: u64, least: Duration) {
        // RFC 3465: by what was acknowledged, however many acknowledgements said it.
        let slow = count.min(self.threshold.saturating_sub(self.segments));
        self.segments += slow;
        let count = count - slow;
        if count == 0 {
            return;
        }
        let each = match self.congestion {
            Congestion::Reno => self.segments,
            Congestion::Cubic => self.cubic.each(now, self.segments, count, least),
        };
        // What was counted while a segment took more is one segment at most.
        if self.counted >= each {
            self.counted = 0;
            self.segments += 1;
        }
        self.counted += count;
        self.segments += self.counted / each;
        self.counted %= each;
    }

    /// Segments were lost.
    pub fn lost(&mut self) {
        self.reduce();
        self.segments = self.threshold;
    }

    /// The retransmission timer expired; `again`: for segments for which it has expired before.
    pub fn timed_out(&mut self, again: bool) {
        // RFC 5681 section 3.1: the threshold is held where a retransmission is sent again.
        if !again {
            self.reduce();
            // RFC 9438 section 4.8: the plateau is where congestion avoidance begins.
            self.cubic = Cubic::default();
        }
        self.segments = 1;
    }

    fn reduce(&mut self) {
        let left = match self.congestion {
            Congestion::Reno => self.segments / 2,
            Congestion::Cubic => {
                self.cubic.lost(self.segments);
                self.segments * CUBIC_BETA / WHOLE
            }
        };
        self.threshold = left.max(LEAST_THRESHOLD_SEGMENTS);
        self.counted = 0;
    }
}

/// What `HyStart` remembers of a round of slow start: the flight of a window is one.
#[derive(Clone, Default)]
struct HyStart {
    /// Segment behind whose acknowledgement the next round begins.
    end: u64,
    began: Instant,
    /// The last acknowledgement of the train that the round began with.
    train: Instant,
    /// Shortest RTT of all rounds, and of this one.
    least: Option<Duration>,
    least_of_round: Option<Duration>,
    samples: u32,
}

impl HyStart {
    /// Takes an RTT: whether slow start is over.
    fn measured(&mut self, now: Instant, rtt: Duration, first: u64, next: u64) -> bool {
        if first > self.end {
            (self.end, self.began, self.train) = (next, now, now);
            (self.least_of_round, self.samples) = (None, 0);
        }
        let least = self.least.map_or(rtt, |least| least.min(rtt));
        let of_round = self.least_of_round.map_or(rtt, |least| least.min(rtt));
        (self.least, self.least_of_round) = (Some(least), Some(of_round));
        let mut over = false;
        if now - self.train <= TRAIN_GAP {
            self.train = now;
            // Half a round trip of segments without a gap is what the path holds one way.
            over = now - self.began > (least + TRAIN_CUSHION) / 2;
        }
        if self.samples < ROUND_SAMPLES {
            self.samples += 1;
            return over;
        }
        over || of_round > least + (least / 8).clamp(RISE.0, RISE.1)
    }
}

/// What CUBIC remembers.
#[derive(Clone, Default)]
struct Cubic {
    /// Window to which the curve returns; 0: none is known.
    plateau: u64,
    /// Since when congestion avoidance lasts.
    stage: Option<Stage>,
}

#[derive(Clone)]
struct Stage {
    start: Instant,
    plateau: u64,
    /// Time until the plateau, s.
    plateau_s: f64,
    /// Window that Reno would have, and what was acknowledged since it grew.
    friendly: u64,
    acknowledged: u64,
    /// What was worked out last, when, and for which window.
    each: u64,
    at: Instant,
    window: u64,
}

impl Cubic {
    fn lost(&mut self, window: u64) {
        // RFC 9438 section 4.7: a smaller window than the time before makes room for a new flow.
        self.plateau = if window < self.plateau {
            window * (WHOLE + CUBIC_BETA) / (2 * WHOLE)
        } else {
            window
        };
        self.stage = None;
    }

    /// How many segments have to be acknowledged for one more, now that `count` were.
    fn each(&mut self, now: Instant, window: u64, count: u64, least: Duration) -> u64 {
        let known = self.plateau > 0;
        let plateau = self.plateau.max(window);
        let stage = self.stage.get_or_insert_with(|| Stage {
            start: now,
            plateau,
            plateau_s: libm::cbrt((plateau - window) as f64 / CUBIC_C),
            friendly: window,
            acknowledged: 0,
            each: 0,
            at: now,
            window: 0,
        });
        stage.acknowledged += count;
        if stage.window == window && now - stage.at < KEPT {
            return stage.each;
        }
        (stage.at, stage.window) = (now, window);
        // Sections 4.2, 4.4 and 4.5: towards the curve one round trip on.
        let target = stage.curve(now + least);
        let mut each = match target.checked_sub(window) {
            None | Some(0) => window * SLOW_WINDOWS,
            Some(more) => window / more,
        };
        if !known {
            each = each.min(UNKNOWN_EACH);
        }
        // Section 4.3.
        let friendly_each = window * FRIENDLY_EIGHTHS / 8;
        stage.friendly += stage.acknowledged / friendly_each;
        stage.acknowledged %= friendly_each;
        if stage.friendly > window {
            each = each.min(window / (stage.friendly - window));
        }
        stage.each = each.max(LEAST_EACH);
        stage.each
    }
}

impl Stage {
    /// The window of the curve, rounded towards its plateau.
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // not negative, saturates
    fn curve(&self, at: Instant) -> u64 {
        let from_plateau_s = (at - self.start).0 as f64 / 1e9 - self.plateau_s;
        let off = CUBIC_C * from_plateau_s * from_plateau_s * from_plateau_s;
        if off < 0.0 {
            self.plateau.saturating_sub(-off as u64)
        } else {
            self.plateau + off as u64
        }
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
        window.lost();
        window
    }

    /// Acknowledges a whole window each round trip, until `ms` have passed.
    fn run(window: &mut Window, ms: i64, rtt_ms: i64) {
        let rtt = Duration::from_millis(rtt_ms);
        for round in 1..=ms / rtt_ms {
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
        window.lost();
        window.timed_out(false);
        assert_eq!(window.segments(), 1);
        // The threshold is 5: four segments of slow start, and one of five for the next.
        window.acknowledged(Instant(0), 5, MS);
        assert_eq!((window.segments(), window.counted), (5, 1));
        assert_eq!(Window::new(Congestion::Reno, true).segments(), 1);
    }

    #[test]
    fn reno_halves_on_loss_and_grows_by_a_segment_each_round_trip() {
        let mut window = after_loss(Congestion::Reno, 41);
        assert_eq!(window.segments(), 20);
        run(&mut window, 1_000, 100);
        assert_eq!(window.segments(), 30);
        window.acknowledged(Instant(0), 29, MS);
        window.lost();
        window.acknowledged(Instant(0), 14, MS);
        assert_eq!(window.segments(), 15, "what was counted is forgotten");
    }

    #[test]
    fn a_timer_that_expires_again_holds_the_threshold() {
        let mut window = after_loss(Congestion::Reno, 80);
        window.timed_out(false);
        window.timed_out(true);
        window.acknowledged(Instant(0), 19, MS);
        assert_eq!(window.segments(), 20);
    }

    #[test]
    fn cubic_keeps_seven_tenths_and_is_back_when_the_curve_says() {
        let mut window = after_loss(Congestion::Cubic, 1_000);
        assert_eq!(window.segments(), 700);
        // K = cbrt(300 / 0.4) = 9.09 s; the plateau is flat: a second earlier 0.3 segments less.
        run(&mut window, 9_000, 200);
        let plateau = window.segments();
        assert!((990..=1_001).contains(&plateau), "{plateau}");
        run(&mut window, 18_000, 200);
        assert!(window.segments() > plateau + 200, "{}", window.segments());
    }

    #[test]
    fn cubic_with_a_short_round_trip_grows_as_linux_lets_reno() {
        // 8 / 15 of a segment a round trip below the window before the loss and above it, where RFC
        // 9438 section 4.3 has 1.
        let mut window = after_loss(Congestion::Cubic, 20);
        run(&mut window, 2_000, 40);
        // 50 round trips from 14 on; what has been worked out is kept for 32 ms.
        let grown = 14 + 50 * 8 / FRIENDLY_EIGHTHS;
        assert!(
            window.segments().abs_diff(grown) <= 1,
            "{}",
            window.segments()
        );
    }

    /// A round of so many samples of one RTT, 3 ms apart.
    fn round(window: &mut Window, number: &mut u64, rtt_ms: i64) {
        let rtt = Duration::from_millis(rtt_ms);
        let first = *number + 1;
        *number += 20;
        for sample in 0..=ROUND_SAMPLES {
            let now = Instant(0) + MS.saturating_mul(3 * i64::from(sample));
            window.measured(now, rtt, first, *number);
        }
    }

    #[test]
    fn cubic_leaves_slow_start_where_the_round_trip_is_longer_than_the_shortest() {
        let (mut window, mut number) = (Window::new(Congestion::Cubic, false), 0);
        round(&mut window, &mut number, 40);
        round(&mut window, &mut number, 60);
        window.acknowledged(Instant(0), 10, MS);
        assert_eq!(window.segments(), 20, "a window of 10 is too small to tell");
        round(&mut window, &mut number, 45);
        assert_eq!(window.threshold, u64::MAX, "an eighth is 5 ms");
        round(&mut window, &mut number, 46);
        assert_eq!(window.threshold, 20);
    }

    #[test]
    fn cubic_leaves_slow_start_where_acknowledgements_come_close_for_half_a_round_trip() {
        for (gap_us, over) in [(1_000, true), (3_000, false)] {
            let mut window = Window::new(Congestion::Cubic, false);
            window.acknowledged(Instant(0), 30, MS);
            for number in 0..25 {
                let now = Instant(0) + Duration(gap_us * 1_000 * number);
                window.measured(now, Duration::from_millis(40), 1, 50);
            }
            assert_eq!(window.threshold == 40, over, "{gap_us}");
        }
    }

    #[test]
    fn reno_has_no_such_end_of_slow_start() {
        let (mut window, mut number) = (Window::new(Congestion::Reno, false), 0);
        window.acknowledged(Instant(0), 30, MS);
        for rtt_ms in [40, 60, 80] {
            round(&mut window, &mut number, rtt_ms);
        }
        assert_eq!(window.threshold, u64::MAX);
    }

    #[test]
    fn a_loss_below_the_last_window_lowers_the_plateau() {
        let mut window = after_loss(Congestion::Cubic, 100);
        assert_eq!(window.segments(), 70);
        window.lost();
        assert_eq!(window.cubic.plateau, 59, "70 x 0.85");
    }
}
