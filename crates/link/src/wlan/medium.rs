//! The shared medium: what may happen next, and when.

use super::access::NEVER;
use super::air::Airtime;
use super::bss::{Bss, Offer};
use super::chosen::{Choice, Report};
use super::counters::StationCounters;
use super::exchange::Exchange;
use super::frame::{Fate, Frame, Outcome, StationId, Verdict};
use super::setup::Setup;

/// A basic service set on one channel, all stations in reach of each other.
///
/// Call `offer` and `poll` with a time that does not run backwards; a smaller time counts as the
/// last one. `next_due` tells when `poll` can next have an outcome or has work to do.
#[derive(Debug)]
pub struct Medium {
    now_ns: u64,
    state: State,
    bss: Bss,
    /// The last exchange that began
    exchange: Exchange,
    beacon_due_ns: u64,
}

/// What may happen next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Nobody is on air. Whoever can would start at `start_ns`, `NEVER` if nobody has a frame; until
    /// a slot after that others may still start with it, since they cannot hear it (10.3.7).
    Idle { start_ns: u64 },
    /// The exchange is on air until `end_ns`; a frame that comes waits for it.
    OnAir { end_ns: u64 },
}

impl Medium {
    /// A silent medium at time 0. The same seed, offers and times give the same outcomes.
    #[must_use]
    pub fn new(setup: Setup, seed: u64) -> Self {
        Self {
            now_ns: 0,
            state: State::Idle { start_ns: NEVER },
            beacon_due_ns: setup.beacon.map_or(NEVER, |beacon| beacon.interval_ns),
            bss: Bss::new(setup, seed),
            exchange: Exchange::default(),
        }
    }

    /// Hand a frame to a station for transmission.
    pub fn offer(&mut self, now_ns: u64, station: StationId, frame: Frame) -> Verdict {
        self.enqueue(now_ns, station, frame, None)
    }

    /// Hand on a frame whose sender has chosen its rates; the setup must be one for that
    /// ([`super::Config::setup_chosen`]). A [`Report`] follows beside the outcome.
    pub fn offer_chosen(
        &mut self,
        now_ns: u64,
        station: StationId,
        frame: Frame,
        choice: Choice,
    ) -> Verdict {
        self.enqueue(now_ns, station, frame, Some(choice))
    }

    /// The next outcome that has come about by `now_ns`; ask until there is none.
    pub fn poll(&mut self, now_ns: u64) -> Option<Outcome> {
        self.advance(now_ns);
        let outcome = self.bss.queues.next_outcome(self.now_ns)?;
        let counters = self.bss.counters(outcome.sender);
        counters.in_flight -= 1;
        match outcome.fate {
            Fate::Delivered => {
                counters.delivered += 1;
                counters.delivered_bytes += u64::from(outcome.msdu_bytes);
            }
            Fate::RetryLimit => counters.retry_dropped += 1,
        }
        Some(outcome)
    }

    /// The next report to a sender that has come about by `now_ns`; ask until there is none.
    pub fn poll_report(&mut self, now_ns: u64) -> Option<Report> {
        self.advance(now_ns);
        self.bss.queues.next_report(self.now_ns)
    }

    /// When `poll` has something to do; `None` if never without a further offer.
    #[must_use]
    pub fn next_due(&self) -> Option<u64> {
        // with something at hand to tell there is nothing to do before it
        let reported_ns = self.bss.queues.reported_ns();
        let due_ns = reported_ns.unwrap_or_else(|| self.next_event_ns());
        (due_ns != NEVER).then_some(due_ns)
    }

    /// The setup it was made with.
    #[must_use]
    pub fn setup(&self) -> &Setup {
        &self.bss.setup
    }

    /// Counters of a station; `None` if there is no such station.
    #[must_use]
    pub fn counters(&self, station: StationId) -> Option<&StationCounters> {
        let station = self.bss.stations.get(usize::from(station))?;
        Some(&station.counters)
    }

    /// Stations beside the access point.
    #[must_use]
    pub fn stations(&self) -> u16 {
        self.bss.setup.stations
    }

    /// Keep a log of every PPDU from now on, at most `limit` long; take it with `take_log`.
    pub fn keep_log(&mut self, limit: usize) {
        self.bss.log.keep(limit);
    }

    /// Everything on air since `keep_log` or the last call.
    pub fn take_log(&mut self) -> Vec<Airtime> {
        self.bss.log.take()
    }

    fn enqueue(
        &mut self,
        now_ns: u64,
        station: StationId,
        frame: Frame,
        choice: Option<Choice>,
    ) -> Verdict {
        self.advance(now_ns);
        match self.bss.enqueue(station, frame, choice) {
            Offer::Done(verdict) => verdict,
            Offer::First(contender) => {
                self.contend(contender);
                Verdict::Queued
            }
        }
    }

    /// A contender that had nothing to send has something now.
    fn contend(&mut self, contender: u32) {
        let on_air = matches!(self.state, State::OnAir { .. });
        let busy = on_air || self.now_ns < self.exchange.busy_until_ns;
        let access_ns = self.bss.access.begin(contender, self.now_ns, busy);
        if let State::Idle { start_ns } = &mut self.state {
            *start_ns = access_ns.min(*start_ns);
        }
    }

    fn next_event_ns(&self) -> u64 {
        let medium_ns = match self.state {
            State::Idle { start_ns } => start_ns.saturating_add(self.bss.setup.timing.slot_ns),
            State::OnAir { end_ns } => end_ns,
        };
        medium_ns.min(self.beacon_due_ns)
    }

    /// Let everything happen that does up to `now_ns`.
    fn advance(&mut self, now_ns: u64) {
        loop {
            let event_ns = self.next_event_ns();
            if event_ns > now_ns {
                break;
            }
            self.now_ns = event_ns;
            if event_ns == self.beacon_due_ns {
                self.beacon_is_due();
                continue;
            }
            self.state = match self.state {
                State::Idle { start_ns } => self.start(start_ns),
                State::OnAir { .. } => self.finish(),
            };
        }
        self.now_ns = self.now_ns.max(now_ns);
    }

    fn beacon_is_due(&mut self) {
        let interval_ns = self.bss.setup.beacon.map_or(NEVER, |one| one.interval_ns);
        self.beacon_due_ns = self.beacon_due_ns.saturating_add(interval_ns);
        let Some(contender) = self.bss.access.of_beacons() else {
            return;
        };
        let waits = &mut self.bss.access.get_mut(contender).beacon_waits;
        if !std::mem::replace(waits, true) {
            self.contend(contender);
        }
    }

    /// The first of the contenders starts, and whoever cannot hear it.
    fn start(&mut self, start_ns: u64) -> State {
        let exchange = &mut self.exchange;
        self.bss.access.start(start_ns, &mut exchange.starters);
        exchange.begin(&mut self.bss, self.now_ns);
        State::OnAir {
            end_ns: exchange.end_ns,
        }
    }

    /// The exchange is over: everybody learns what came of it, and its sender may go on.
    fn finish(&mut self) -> State {
        let (bss, exchange) = (&mut self.bss, &mut self.exchange);
        for part in &exchange.parts {
            let leaders = &exchange.leaders[part.leaders.clone()];
            bss.conclude(part, leaders, self.now_ns);
        }
        for contender in exchange.starters.internal.drain(..) {
            bss.lose_internally(contender, self.now_ns);
        }
        if let [part] = &exchange.parts[..] {
            let contender = bss.access.get(part.contender);
            let may = contender.parameters.txop_limit_ns > 0 && contender.has_work();
            let contender = part.contender;
            if part.failure.is_none() && may && exchange.go_on(bss, contender, self.now_ns) {
                return State::OnAir {
                    end_ns: exchange.end_ns,
                };
            }
        }
        State::Idle {
            start_ns: bss.access.next_start_ns(),
        }
    }
}
