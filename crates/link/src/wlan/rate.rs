//! The rate of a frame: fixed, or chosen from what got through.

use super::phy::Mode;
use super::random::Random;
use super::setup::Setup;

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
/// of a hundred frames that many try another rate;
const SAMPLES_PERCENT: f64 = 0.1;
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
    pub(super) fn new(setup: &Setup, seed: u64) -> Self {
        let frame_s = |mode: &Mode| mode.airtime_ns(FRAME_BYTES) as f64 * 1e-9;
        Self {
            control: setup.rate_control,
            ideal: setup
                .modes
                .iter()
                .map(|mode| 1.0 / frame_s(&mode.data.mode))
                .collect(),
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
            0 if self.random.chance(SAMPLES_PERCENT) => self.sample(flow),
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
