//! The rate of a frame: fixed, or chosen from what got through.

use super::phy::Mode;
use crate::random::Random;

/// How a sender chooses its rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RateControl {
    /// The one rate of the setup
    Fixed,
    /// After Minstrel of Linux mac80211: D. Xia, J. Hart, Q. Fu, "Evaluation of the Minstrel rate
    /// adaptation algorithm in IEEE 802.11g WLANs", ICC 2013, whose figures are used here
    Minstrel,
}

/// Statistics are taken up ten times a second …
const INTERVAL_NS: u64 = 100_000_000;
/// … with this weight for the past;
const PAST: f64 = 0.75;
/// this share of the frames tries another rate;
const SAMPLES_SHARE: f64 = 0.1;
/// and a rate that succeeds less often counts as useless.
const USELESS: f64 = 0.1;
/// Length of the frame by which rates are compared, bytes.
const FRAME_BYTES: u32 = 1_200;

/// State of the rate control of all flows.
#[derive(Debug)]
pub(super) struct Rates {
    control: RateControl,
    /// Frames a second at each rate if all succeed
    ideal: Vec<f64>,
    /// By flow, then rate
    statistics: Vec<Statistics>,
    /// By flow
    choices: Vec<Choice>,
    random: Random,
}

#[derive(Clone, Copy, Debug, Default)]
struct Statistics {
    sent: u32,
    arrived: u32,
    /// Share that arrives; `None` until tried
    success: Option<f64>,
}

/// The retry chain of a flow.
#[derive(Clone, Copy, Debug, Default)]
struct Choice {
    best: usize,
    second: usize,
    surest: usize,
    next_update_ns: u64,
    sampled: usize,
}

impl Rates {
    /// Statistics of no flow yet; `modes` are the rates, slowest first.
    pub(super) fn new(control: RateControl, modes: impl Iterator<Item = Mode>, seed: u64) -> Self {
        let frame_s = |mode: Mode| mode.airtime_ns(FRAME_BYTES) as f64 * 1e-9;
        let ideal = modes.map(|mode| 1.0 / frame_s(mode)).collect();
        Self::with(control, ideal, seed)
    }

    fn with(control: RateControl, ideal: Vec<f64>, seed: u64) -> Self {
        Self {
            control,
            ideal,
            statistics: Vec::new(),
            choices: Vec::new(),
            random: Random::stream(seed, "wlan/rate"),
        }
    }

    /// Rate of a frame of this flow that has been sent `retries` times in vain.
    pub(super) fn choose(&mut self, flow: u32, retries: u16, now_ns: u64) -> usize {
        if self.control == RateControl::Fixed {
            return 0;
        }
        let flow = flow as usize;
        self.make_room(flow);
        if now_ns >= self.choices[flow].next_update_ns {
            self.update(flow, now_ns);
        }
        let choice = self.choices[flow];
        match retries {
            0 if self.random.chance(SAMPLES_SHARE) => self.sample(flow),
            0 | 1 => choice.best,
            2 | 3 => choice.second,
            4 | 5 => choice.surest,
            _ => 0,
        }
    }

    /// What became of the MPDUs sent at a rate.
    pub(super) fn feedback(&mut self, flow: u32, rate: usize, sent: u32, arrived: u32) {
        if self.control == RateControl::Fixed {
            return;
        }
        let position = flow as usize * self.ideal.len() + rate;
        self.statistics[position].sent += sent;
        self.statistics[position].arrived += arrived;
    }

    fn make_room(&mut self, flow: usize) {
        if flow >= self.choices.len() {
            self.choices.resize_with(flow + 1, Choice::default);
            self.statistics
                .resize_with((flow + 1) * self.ideal.len(), Statistics::default);
        }
    }

    /// Take up what was counted and order the rates by the frames they bring through.
    fn update(&mut self, flow: usize, now_ns: u64) {
        let rates = self.ideal.len();
        let own = &mut self.statistics[flow * rates..(flow + 1) * rates];
        for rate in own.iter_mut().filter(|rate| rate.sent > 0) {
            let now = f64::from(rate.arrived) / f64::from(rate.sent);
            rate.success = Some(
                rate.success
                    .map_or(now, |old| PAST * old + (1.0 - PAST) * now),
            );
            (rate.sent, rate.arrived) = (0, 0);
        }
        let success = |rate: usize| own[rate].success.unwrap_or(0.0);
        let throughput = |rate: usize| {
            if success(rate) < USELESS {
                0.0
            } else {
                success(rate) * self.ideal[rate]
            }
        };
        let choice = &mut self.choices[flow];
        let best_of = |value: &dyn Fn(usize) -> f64, except: Option<usize>| {
            // the last of equals is the slowest, which is the careful choice
            (0..rates)
                .rev()
                .filter(|rate| Some(*rate) != except)
                .max_by(|a, b| value(*a).total_cmp(&value(*b)))
                .unwrap_or(0)
        };
        choice.best = best_of(&throughput, None);
        choice.second = best_of(&throughput, Some(choice.best));
        // among those that nearly always succeed the fastest, else the surest
        choice.surest = best_of(
            &|rate| {
                if success(rate) > 0.95 {
                    1.0 + self.ideal[rate]
                } else {
                    success(rate)
                }
            },
            None,
        );
        choice.next_update_ns = now_ns + INTERVAL_NS;
    }

    /// The next rate in turn that could be better than the best.
    fn sample(&mut self, flow: usize) -> usize {
        let rates = self.ideal.len();
        let choice = &mut self.choices[flow];
        let best = self.statistics[flow * rates + choice.best]
            .success
            .unwrap_or(0.0)
            * self.ideal[choice.best];
        for _ in 0..rates {
            choice.sampled = (choice.sampled + 1) % rates;
            if choice.sampled != choice.best && self.ideal[choice.sampled] > best {
                return choice.sampled;
            }
        }
        choice.best
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Rates of 1, 5 and 9 frames a second, with what arrived of ten frames at each.
    fn reported(rates: &mut Rates, arrived: [u32; 3], now_ns: u64) -> Choice {
        rates.choose(0, 9, now_ns);
        for (rate, arrived) in arrived.into_iter().enumerate() {
            rates.feedback(0, rate, 10, arrived);
        }
        rates.choose(0, 9, now_ns + INTERVAL_NS);
        rates.choices[0]
    }

    fn rates() -> Rates {
        Rates::with(RateControl::Minstrel, vec![1.0, 5.0, 9.0], 1)
    }

    #[test]
    fn the_retry_chain_goes_from_the_best_to_the_slowest() {
        let choice = reported(&mut rates(), [10, 9, 6], 0);
        // 5.4 frames, 4.5 frames; only the slowest nearly always succeeds
        assert_eq!((choice.best, choice.second, choice.surest), (2, 1, 0));
        let mut rates = rates();
        reported(&mut rates, [10, 9, 6], 0);
        let chain = |rates: &mut Rates, retries| rates.choose(0, retries, INTERVAL_NS);
        let chosen: Vec<_> = (1..8).map(|retries| chain(&mut rates, retries)).collect();
        assert_eq!(chosen, [2, 1, 1, 0, 0, 0, 0]);
    }

    #[test]
    fn a_rate_that_hardly_ever_succeeds_is_useless() {
        // half a frame at the slowest, but 5 % of ten is none
        let mut rates = Rates::with(RateControl::Minstrel, vec![1.0, 5.0, 90.0], 1);
        rates.choose(0, 9, 0);
        for (rate, sent, arrived) in [(0, 10, 5), (1, 10, 0), (2, 100, 9)] {
            rates.feedback(0, rate, sent, arrived);
        }
        rates.choose(0, 9, INTERVAL_NS);
        assert_eq!(rates.choices[0].best, 0);
    }

    #[test]
    fn the_past_counts_three_times_the_present() {
        let mut rates = rates();
        reported(&mut rates, [10, 10, 10], 0);
        let choice = reported(&mut rates, [10, 10, 0], 2 * INTERVAL_NS);
        assert_eq!(choice.best, 2); // 0.75 × 9 is more than 5
        assert!((rates.statistics[2].success.unwrap() - 0.75).abs() < 1e-12);
        let choice = reported(&mut rates, [10, 10, 0], 4 * INTERVAL_NS);
        assert_eq!(choice.best, 2); // 0.5625 × 9 = 5.06
        let choice = reported(&mut rates, [10, 10, 0], 6 * INTERVAL_NS);
        assert_eq!(choice.best, 1);
    }

    #[test]
    fn a_tenth_of_the_frames_try_a_rate_that_could_be_better() {
        let mut rates = rates();
        reported(&mut rates, [10, 10, 0], 0);
        let mut counts = [0; 3];
        for _ in 0..10_000 {
            counts[rates.choose(0, 0, INTERVAL_NS)] += 1;
        }
        // standard deviation 30; the slowest cannot be better
        assert!(
            counts[0] == 0 && (850..1_150).contains(&counts[2]),
            "{counts:?}"
        );
    }

    #[test]
    fn flows_have_their_own_statistics() {
        let mut rates = rates();
        reported(&mut rates, [10, 0, 0], 0);
        rates.choose(3, 9, 0);
        for rate in 0..3 {
            rates.feedback(3, rate, 10, 10);
        }
        rates.choose(3, 9, INTERVAL_NS);
        assert_eq!((rates.choices[0].best, rates.choices[3].best), (0, 2));
    }
}
