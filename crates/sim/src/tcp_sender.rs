//! The end of a TCP connection that sends the data: what is under way, lost, and sent again.
//!
//! Numbers count segments, whatever their lengths. An application has more of them to send always, or
//! as many as it has written so far.
//! Losses are found by selective acknowledgements (RFC 6675), here by the order of transmissions as
//! in RFC 9002 section 6.1.1: so a retransmission that is lost is found as well, as RFC 8985 does.

use std::collections::VecDeque;

use tm_wire::{Duration, Instant};

use crate::tcp_congestion::{Congestion, Window};
use crate::tcp_receiver::Acknowledgement;
use crate::tcp_rtt::Rtt;
use crate::tcp_segment::Established;

/// RFC 6675 section 2, `DupThresh`: transmissions behind one that arrive before it is lost.
const REORDERING: u64 = 3;
/// Linux waits no longer than this (`TCP_RTO_MAX`).
const LONGEST_TIMEOUT: Duration = Duration::from_secs(120);

/// What a sender counted, in segments.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SenderCounters {
    /// Sent for the first time.
    pub sent: u64,
    /// Sent again.
    pub retransmits: u64,
    /// Times that the retransmission timer expired.
    pub timeouts: u64,
    /// Phases of loss in which nothing had been lost.
    pub undone: u64,
}

/// The state of this end.
pub struct Sender {
    window: Window,
    /// The first segment that is not acknowledged.
    first: u64,
    /// Those from there on that were sent.
    sent: VecDeque<Sent>,
    /// How many the receiver takes.
    most: u64,
    /// How many the application has written.
    written: u64,
    /// Segments that are taken for being on their way.
    in_flight: u64,
    /// Segments that wait to be sent again, none of them before `lost_from`.
    lost: u64,
    lost_from: u64,
    /// Number of the next transmission.
    number: u64,
    /// One more than the latest transmission that is known to have arrived.
    arrived: u64,
    phase: Phase,
    /// RFC 6675 section 5, step 4.3: the first retransmission of a recovery waits for nothing.
    at_once: bool,
    /// When the phase began and the window before it, until it is known that it began rightly.
    before: Option<(Instant, Window)>,
    /// The congestion window, and not the receiver's, is what holds segments back.
    limited: bool,
    usage: Usage,
    rtt: Rtt,
    timer: Option<Instant>,
    expirations: u32,
    counters: SenderCounters,
}

/// How much of the window was used while the application had nothing more to send: what Linux keeps
/// in `max_packets_out` and `cwnd_usage_seq`.
#[derive(Default)]
struct Usage {
    most: u64,
    until: u64,
}

/// A segment that was sent.
struct Sent {
    at: Instant,
    number: u64,
    again: bool,
    sacked: bool,
    lost: bool,
}

/// Until which segment is acknowledged no further loss makes the window smaller.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Phase {
    Open,
    Recovery(u64),
    Timeout(u64),
}

impl Sender {
    /// One that may send at once, after a handshake.
    pub fn new(congestion: Congestion, most: u64, from: Established) -> Self {
        let mut one = Self {
            window: Window::new(congestion, from.lossy),
            ..Self::standing(congestion, most)
        };
        if let Some(first) = from.rtt {
            one.rtt.sample(first);
        }
        one
    }

    /// One whose connection stands, and over which nothing was sent.
    pub fn standing(congestion: Congestion, most: u64) -> Self {
        Self {
            window: Window::new(congestion, false),
            first: 0,
            sent: VecDeque::new(),
            most: most.max(1),
            written: u64::MAX,
            in_flight: 0,
            lost: 0,
            lost_from: 0,
            number: 0,
            arrived: 0,
            phase: Phase::Open,
            at_once: false,
            before: None,
            limited: false,
            usage: Usage::default(),
            rtt: Rtt::default(),
            timer: None,
            expirations: 0,
            counters: SenderCounters::default(),
        }
    }

    /// What it counted.
    pub fn counters(&self) -> SenderCounters {
        self.counters
    }

    /// The smoothed RTT; None before the first sample.
    pub fn smoothed_rtt(&self) -> Option<Duration> {
        self.rtt.smoothed
    }

    /// The first segment that is not acknowledged.
    pub fn first(&self) -> u64 {
        self.first
    }

    /// The first segment that was never sent.
    pub fn unsent(&self) -> u64 {
        self.first + self.sent.len() as u64
    }

    /// The application has written so many segments, all together.
    pub fn wrote(&mut self, segments: u64) {
        self.written = segments;
    }

    /// The congestion window in segments.
    pub fn window_segments(&self) -> u64 {
        self.window.segments()
    }

    /// Whether the congestion window has room for a segment.
    pub fn has_room(&self) -> bool {
        self.in_flight < self.window.segments()
    }

    /// When the retransmission timer expires.
    pub fn timer(&self) -> Option<Instant> {
        self.timer
    }

    /// The segment to send at `now`; None: none may leave.
    pub fn next(&mut self, now: Instant) -> Option<u64> {
        let at_once = std::mem::take(&mut self.at_once) && self.lost > 0;
        if !at_once && self.in_flight >= self.window.segments() {
            self.limited = true;
            return None;
        }
        let segment = if self.lost > 0 {
            self.next_lost(now)?
        } else if self.unsent() >= self.written {
            self.all_is_sent();
            return None;
        } else if (self.sent.len() as u64) < self.most {
            self.sent.push_back(Sent {
                at: now,
                number: self.number,
                again: false,
                sacked: false,
                lost: false,
            });
            self.counters.sent += 1;
            self.first + self.sent.len() as u64 - 1
        } else {
            self.limited = false;
            return None;
        };
        self.number += 1;
        self.in_flight += 1;
        // RFC 6298 section 5.1.
        self.timer.get_or_insert(now + self.timeout());
        Some(segment)
    }

    /// Takes an acknowledgement at `now`.
    pub fn acknowledged(&mut self, now: Instant, said: &Acknowledgement) {
        let latest = self.arrived;
        let mut sample = None;
        let (before, mut fresh) = (self.first, 0);
        while self.first < said.next {
            let Some(one) = self.sent.pop_front() else {
                break;
            };
            self.first += 1;
            if !one.sacked {
                fresh += 1;
                let latest = said.echo >= one.at;
                self.came(now, &one, latest, &mut sample);
            }
        }
        for (from, to) in &said.blocks {
            for segment in (*from).max(self.first)..(*to).max(self.first) {
                let Some(place) = self.place(segment) else {
                    break;
                };
                if !self.sent[place].sacked {
                    let one = std::mem::replace(&mut self.sent[place], Sent::SACKED);
                    // RFC 8985 section 6.2, step 2: sooner only an earlier transmission arrives.
                    let latest = now - one.at >= self.rtt.least;
                    self.came(now, &one, latest, &mut sample);
                }
            }
        }
        if self.first > before {
            // RFC 7323 section 4: also of what was sent again, but only of new data.
            sample = Some(now - said.echo);
        }
        if let Some(sample) = sample {
            self.rtt.sample(sample);
            let next = self.first + self.sent.len() as u64;
            self.window.measured(now, sample, self.first, next);
        }
        if self.first > before {
            // RFC 6298 section 5.3.
            self.expirations = 0;
            self.timer = (!self.sent.is_empty()).then(|| now + self.timeout());
            self.doubt(said.echo);
        }
        let found = self.arrived > latest && self.find_losses();
        if found && self.phase == Phase::Open {
            self.recover(now);
        }
        let ended = match self.phase {
            Phase::Open => false,
            Phase::Recovery(until) | Phase::Timeout(until) => self.first >= until,
        };
        // Linux: in slow start a window of which more than half was used opens as well.
        let half = self.window.starts_slowly() && self.window.segments() < 2 * self.usage.most;
        let opens = (self.limited || half) && !matches!(self.phase, Phase::Recovery(_));
        if opens && fresh > 0 {
            self.window.acknowledged(now, fresh, self.rtt.least);
        }
        if ended {
            self.phase = Phase::Open;
            // What was sent in the phase and is known to be lost begins another, as in Linux.
            if self.sent.iter().any(|one| one.lost || one.again) {
                self.recover(now);
                self.before = None;
            }
        }
    }

    /// A loss makes the window smaller, once for all of the flight.
    fn recover(&mut self, now: Instant) {
        self.before = Some((now, self.window.clone()));
        self.window.lost();
        self.phase = Phase::Recovery(self.first + self.sent.len() as u64);
        self.at_once = true;
    }

    /// The application has no more: what held segments back holds until a flight of them is
    /// acknowledged, or a larger one leaves (`tcp_cwnd_validate` of Linux).
    fn all_is_sent(&mut self) {
        let out = self.sent.len() as u64;
        if self.first >= self.usage.until || (!self.limited && out > self.usage.most) {
            self.limited = false;
            self.usage = Usage {
                most: out,
                until: self.first + out,
            };
        }
    }

    /// Looks at the retransmission timer at `now`.
    pub fn expire(&mut self, now: Instant) {
        if self.timer.is_none_or(|timer| timer > now) {
            return;
        }
        // RFC 6298 section 5.4 to 5.6, and RFC 6675 section 5.1: all but what is known to be there
        // is sent again.
        let flight = self.sent.len() as u64;
        if self.expirations == 0 {
            self.before = Some((now, self.window.clone()));
        }
        self.window.timed_out(self.expirations > 0);
        self.counters.timeouts += 1;
        self.expirations += 1;
        self.phase = Phase::Timeout(self.first + flight);
        self.in_flight = 0;
        self.lost = 0;
        self.lost_from = self.first;
        for one in self.sent.iter_mut().filter(|one| !one.sacked) {
            one.lost = true;
            self.lost += 1;
        }
        self.timer = Some(now + self.timeout());
    }

    /// Takes back what a phase of loss did where new data is acknowledged that was not sent again in
    /// it (RFC 3522 section 3.2 and RFC 4015): the first acknowledgement of the phase tells.
    fn doubt(&mut self, echo: Instant) {
        let Some((began, window)) = self.before.take() else {
            return;
        };
        if echo >= began {
            return;
        }
        self.window = window;
        self.phase = Phase::Open;
        self.at_once = false;
        self.counters.undone += 1;
        for one in self.sent.iter_mut().filter(|one| one.lost) {
            one.lost = false;
            self.in_flight += 1;
        }
        self.lost = 0;
    }

    /// The first lost segment, which is sent again.
    fn next_lost(&mut self, now: Instant) -> Option<u64> {
        let from = self.place(self.lost_from.max(self.first)).unwrap_or(0);
        let place = from + self.sent.range(from..).position(|one| one.lost)?;
        let one = &mut self.sent[place];
        (one.at, one.number, one.again, one.lost) = (now, self.number, true, false);
        self.lost -= 1;
        self.lost_from = self.first + place as u64 + 1;
        self.counters.retransmits += 1;
        Some(self.lost_from - 1)
    }

    /// A segment is known to have arrived, by its `latest` transmission or an earlier one.
    fn came(&mut self, now: Instant, one: &Sent, latest: bool, sample: &mut Option<Duration>) {
        if one.lost {
            self.lost -= 1;
        } else {
            self.in_flight -= 1;
        }
        if !one.again || latest {
            self.arrived = self.arrived.max(one.number + 1);
        }
        // RFC 6298 section 3, Karn's algorithm: what counts where no new data is acknowledged.
        if !one.again {
            sample.get_or_insert(now - one.at);
        }
    }

    /// Marks what is lost by what was sent behind it and has arrived; whether there is any.
    fn find_losses(&mut self) -> bool {
        let mut found = false;
        for (segment, one) in (self.first..).zip(&mut self.sent) {
            if !one.sacked && !one.lost && one.number + REORDERING < self.arrived {
                one.lost = true;
                self.in_flight -= 1;
                self.lost += 1;
                self.lost_from = self.lost_from.min(segment);
                found = true;
            } else if !one.again && one.number >= self.arrived {
                // All behind it were sent later.
                break;
            }
        }
        found
    }

    fn place(&self, segment: u64) -> Option<usize> {
        let place = usize::try_from(segment.checked_sub(self.first)?).ok()?;
        (place < self.sent.len()).then_some(place)
    }

    fn timeout(&self) -> Duration {
        let factor = 1_i64 << self.expirations.min(16);
        let timeout = self.rtt.timeout().saturating_mul(factor);
        timeout.min(LONGEST_TIMEOUT)
    }
}

impl Sent {
    const SACKED: Self = Self {
        at: Instant(0),
        number: 0,
        again: false,
        sacked: true,
        lost: false,
    };
}

#[cfg(test)]
#[path = "tcp_sender_tests.rs"]
mod tests;
