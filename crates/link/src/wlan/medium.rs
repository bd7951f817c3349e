//! The shared medium: who may transmit when, and what became of it.

use std::collections::VecDeque;

use super::air::{Airtime, Log};
use super::chosen::{Choice, Report};
use super::contender::Contender;
use super::counters::StationCounters;
use super::exchange::Exchange;
use super::mac::{Category, Edca};
use super::queue::{Flow, Receiver, Slab};
use super::random::Random;
use super::rate::Rates;
use super::setup::{QueueLimit, Setup};

/// A station: 0 is the access point, 1 to n are the others.
pub type StationId = u16;
/// The access point.
pub const ACCESS_POINT: StationId = 0;

/// "Not planned".
pub(super) const NEVER: u64 = u64::MAX;

/// What the medium needs to know of a frame; its bytes stay with the caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame {
    /// The caller's name for it, given back in the outcome
    pub token: u64,
    /// Length of the MSDU: LLC and SNAP header and payload
    pub msdu_bytes: u32,
    /// A station other than the access point sends to the access point only
    pub receiver: Receiver,
    /// Access category; ignored in a BSS without `QoS`
    pub category: Category,
}

/// What became of an offer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// An outcome will follow
    Queued,
    /// The station's queue is full; no outcome will follow
    QueueFull,
    /// Longer than an MSDU may be, or no such receiver; counted as a queue drop
    Refused,
}

/// The end of a frame that was queued.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// When it came to that end
    pub time_ns: u64,
    /// The caller's name for the frame
    pub token: u64,
    /// Who sent it
    pub sender: StationId,
    /// To whom
    pub receiver: Receiver,
    /// Length of the MSDU
    pub msdu_bytes: u32,
    /// What end
    pub fate: Fate,
}

/// How a frame ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Fate {
    /// It left the receiver's MAC, in order
    Delivered,
    /// Given up at the retry limit; a group addressed frame has but one attempt
    RetryLimit,
}

/// A basic service set on one channel, all stations in reach of each other.
///
/// Call `offer` and `poll` with a time that does not run backwards; a smaller time counts as the
/// last one. `next_due` tells when `poll` can next have an outcome or has work to do.
#[derive(Debug)]
pub struct Medium {
    pub(super) setup: Setup,
    pub(super) now_ns: u64,
    pub(super) stations: Vec<Station>,
    pub(super) contenders: Vec<Contender>,
    pub(super) flows: Vec<Flow>,
    pub(super) slab: Slab,
    pub(super) rates: Rates,
    pub(super) outcomes: VecDeque<Outcome>,
    /// What senders learn of frames for which they chose the rates
    pub(super) reports: VecDeque<Report>,
    /// Earliest access of any contender, while nothing is on air
    pub(super) next_start_ns: u64,
    /// While an exchange is on air, and after a lost one as long as others hold back for it
    pub(super) busy_until_ns: u64,
    pub(super) on_air: bool,
    pub(super) exchange: Exchange,
    beacon_due_ns: u64,
    pub(super) log: Log,
}

/// A station's own state.
#[derive(Debug)]
pub(super) struct Station {
    pub counters: StationCounters,
    pub backoff: Random,
    pub errors: Random,
    first_contender: u32,
}

impl Medium {
    /// A silent medium at time 0. The same seed, offers and times give the same outcomes.
    #[must_use]
    pub fn new(setup: Setup, seed: u64) -> Self {
        let stations = setup.stations;
        let mut medium = Self {
            now_ns: 0,
            stations: Vec::new(),
            contenders: Vec::new(),
            flows: Vec::new(),
            slab: Slab::new(),
            rates: Rates::new(&setup, seed),
            outcomes: VecDeque::new(),
            reports: VecDeque::new(),
            next_start_ns: NEVER,
            busy_until_ns: 0,
            on_air: false,
            exchange: Exchange::default(),
            beacon_due_ns: setup.beacon.map_or(NEVER, |beacon| beacon.interval_ns),
            log: Log::default(),
            setup,
        };
        for station in 0..=stations {
            medium.add_station(station, seed);
        }
        medium
    }

    fn add_station(&mut self, station: StationId, seed: u64) {
        let setup = &self.setup;
        self.stations.push(Station {
            counters: StationCounters::default(),
            backoff: Random::stream(seed, &format!("wlan/{station}/backoff")),
            errors: Random::stream(seed, &format!("wlan/{station}/errors")),
            first_contender: index(self.contenders.len()),
        });
        for parameters in &setup.contenders {
            let aifs_ns = setup.timing.aifs_ns(parameters.aifsn);
            let first_flow = index(self.flows.len());
            if station == ACCESS_POINT {
                let receivers = (1..=setup.stations)
                    .map(Receiver::Station)
                    .chain([Receiver::Group]);
                self.flows.extend(receivers.map(|r| Flow::new(station, r)));
            } else {
                let receiver = Receiver::Station(ACCESS_POINT);
                self.flows.push(Flow::new(station, receiver));
                if setup.chosen {
                    self.flows.push(Flow::new(station, Receiver::Group));
                }
            }
            self.contenders.push(Contender::new(
                station,
                *parameters,
                setup.qos,
                aifs_ns,
                first_flow,
            ));
        }
        if station == ACCESS_POINT && (setup.beacon.is_some() || setup.chosen) {
            // 11.1.3.2: the next frame at the target time; access points use AIFSN 1, the least
            // that 9.4.2.28 allows them, and no backoff
            let parameters = Edca {
                aifsn: 1,
                cw_min: 0,
                cw_max: 0,
                txop_limit_ns: 0,
            };
            let aifs_ns = setup.timing.aifs_ns(1);
            let first_flow = index(self.flows.len());
            let mut beacons = Contender::new(station, parameters, setup.qos, aifs_ns, first_flow);
            beacons.beacon = !setup.chosen;
            if setup.chosen {
                self.flows.push(Flow::new(station, Receiver::Group));
            }
            self.contenders.push(beacons);
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

    fn enqueue(
        &mut self,
        now_ns: u64,
        station: StationId,
        frame: Frame,
        choice: Option<Choice>,
    ) -> Verdict {
        self.advance(now_ns);
        let chosen = self.setup.chosen;
        let beacon = choice.is_some_and(|choice| choice.beacon) && station == ACCESS_POINT;
        let Some(sender) = self.stations.get_mut(usize::from(station)) else {
            return Verdict::Refused;
        };
        sender.counters.offered += 1;
        sender.counters.offered_bytes += u64::from(frame.msdu_bytes);
        let categories = index(self.setup.contenders.len());
        let contender_index = sender.first_contender
            + if beacon {
                categories // behind those of the categories
            } else if self.setup.qos {
                frame.category as u32
            } else {
                0
            };
        let contender = &mut self.contenders[contender_index as usize];
        let position = match (station, frame.receiver) {
            _ if chosen != choice.is_some() => None,
            (ACCESS_POINT, Receiver::Group) if beacon => Some(0),
            (_, Receiver::Station(_)) if beacon => None,
            (1.., Receiver::Group) if chosen => Some(1),
            (ACCESS_POINT, Receiver::Group) => Some(u32::from(self.setup.stations)),
            (ACCESS_POINT, Receiver::Station(to)) if (1..=self.setup.stations).contains(&to) => {
                Some(u32::from(to) - 1)
            }
            (1.., Receiver::Station(ACCESS_POINT)) => Some(0),
            _ => None,
        };
        let fits = (1..=self.setup.frame_max_bytes).contains(&frame.msdu_bytes);
        let Some(position) = position.filter(|_| fits) else {
            sender.counters.queue_dropped += 1;
            return Verdict::Refused;
        };
        let full = match self.setup.queue {
            QueueLimit::Packets(limit) => contender.queued_frames >= limit,
            QueueLimit::Bytes(limit) => {
                contender.queued_bytes + u64::from(frame.msdu_bytes) > limit
            }
        };
        if full {
            sender.counters.queue_dropped += 1;
            return Verdict::QueueFull;
        }
        sender.counters.in_flight += 1;
        contender.queued_frames += 1;
        contender.queued_bytes += u64::from(frame.msdu_bytes);
        let idle_before = !contender.has_work();
        let flow_index = contender.first_flow + position;
        let flow = &mut self.flows[flow_index as usize];
        if flow.is_empty() && !flow.request {
            contender.ring.push_back(flow_index);
        }
        let body_bytes = frame.msdu_bytes + self.setup.msdu_extra_bytes;
        let place = flow.push(&mut self.slab, &frame, body_bytes);
        if let Some(choice) = choice {
            let entry = &mut self.slab[place];
            entry.chain = Some(choice.chain);
            entry.aggregates = choice.aggregates;
        }
        if idle_before {
            self.begin_contention(contender_index);
        }
        Verdict::Queued
    }

    /// The next outcome that has come about by `now_ns`; ask until there is none.
    pub fn poll(&mut self, now_ns: u64) -> Option<Outcome> {
        self.advance(now_ns);
        let outcome = *self
            .outcomes
            .front()
            .filter(|outcome| outcome.time_ns <= self.now_ns)?;
        self.outcomes.pop_front();
        let counters = &mut self.stations[usize::from(outcome.sender)].counters;
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
        self.reports
            .front()
            .filter(|report| report.time_ns <= self.now_ns)?;
        self.reports.pop_front()
    }

    /// The setup it was made with.
    #[must_use]
    pub fn setup(&self) -> &Setup {
        &self.setup
    }

    /// When `poll` has something to do; `None` if never without a further offer.
    #[must_use]
    pub fn next_due(&self) -> Option<u64> {
        // they come in order of time, so with one at hand there is nothing to do before it
        let outcome = self.outcomes.front().map(|outcome| outcome.time_ns);
        let report = self.reports.front().map(|report| report.time_ns);
        let told = [outcome, report].into_iter().flatten().min();
        let due_ns = told.unwrap_or_else(|| self.next_event_ns());
        (due_ns != NEVER).then_some(due_ns)
    }

    /// Counters of a station; `None` if there is no such station.
    #[must_use]
    pub fn counters(&self, station: StationId) -> Option<&StationCounters> {
        self.stations
            .get(usize::from(station))
            .map(|station| &station.counters)
    }

    /// Stations beside the access point.
    #[must_use]
    pub fn stations(&self) -> u16 {
        self.setup.stations
    }

    /// Keep a log of every PPDU from now on, at most `limit` long; take it with `take_log`.
    pub fn keep_log(&mut self, limit: usize) {
        self.log.keep(limit);
    }

    /// Everything on air since `keep_log` or the last call.
    pub fn take_log(&mut self) -> Vec<Airtime> {
        self.log.take()
    }

    fn next_event_ns(&self) -> u64 {
        let medium = if self.on_air {
            self.exchange.end_ns
        } else {
            // whoever starts within a slot of the first could not hear it yet (10.3.7)
            self.next_start_ns.saturating_add(self.setup.timing.slot_ns)
        };
        medium.min(self.beacon_due_ns)
    }

    fn advance(&mut self, now_ns: u64) {
        loop {
            let event_ns = self.next_event_ns();
            if event_ns > now_ns {
                break;
            }
            self.now_ns = event_ns;
            if event_ns == self.beacon_due_ns {
                self.beacon_is_due();
            } else if self.on_air {
                self.finish();
            } else {
                self.resolve(self.next_start_ns);
            }
        }
        self.now_ns = self.now_ns.max(now_ns);
    }

    fn beacon_is_due(&mut self) {
        let interval_ns = self.setup.beacon.map_or(NEVER, |beacon| beacon.interval_ns);
        self.beacon_due_ns = self.beacon_due_ns.saturating_add(interval_ns);
        let position = self
            .contenders
            .iter()
            .position(|contender| contender.beacon);
        let Some(position) = position else { return };
        if !self.contenders[position].beacon_waits {
            self.contenders[position].beacon_waits = true;
            self.begin_contention(index(position));
        }
    }

    /// A contender that had nothing to send has something now.
    fn begin_contention(&mut self, contender_index: u32) {
        let busy = self.on_air || self.now_ns < self.busy_until_ns;
        let contender = &mut self.contenders[contender_index as usize];
        contender.ready_ns = self.now_ns;
        if busy && contender.slots == 0 {
            // 10.3.4.2, 10.23.2.2 a): the medium is busy when the frame comes
            let random = &mut self.stations[usize::from(contender.station)].backoff;
            contender.slots = random.backoff(contender.cw);
        }
        if !self.on_air {
            let access_ns = contender.access_ns(self.setup.timing.slot_ns);
            self.next_start_ns = self.next_start_ns.min(access_ns);
        }
    }

    /// The first of the contenders starts at `start_ns`: find all that start with it.
    fn resolve(&mut self, start_ns: u64) {
        let slot_ns = self.setup.timing.slot_ns;
        let end_ns = start_ns + slot_ns;
        self.exchange.clear();
        for (i, station) in self.stations.iter().enumerate() {
            let first = station.first_contender as usize;
            let next = self
                .stations
                .get(i + 1)
                .map(|next| next.first_contender as usize);
            let own = &self.contenders[first..next.unwrap_or(self.contenders.len())];
            let access = |contender: &Contender| contender.access_ns(slot_ns);
            let Some(access_ns) = own.iter().map(access).min().filter(|&ns| ns < end_ns) else {
                continue;
            };
            // Contenders stand in the order of their urgency: the last one transmits, for the
            // others it is an internal collision (10.23.2.4).
            let mut starters = (first..)
                .zip(own)
                .filter(|(_, contender)| access(contender) == access_ns)
                .map(|(position, _)| index(position));
            let Some(mut starter) = starters.next() else {
                continue;
            };
            for more_urgent in starters {
                self.exchange
                    .internal
                    .push(std::mem::replace(&mut starter, more_urgent));
            }
            self.exchange.starters.push((starter, access_ns));
        }
        self.count_down(start_ns);
        self.on_air = true;
        self.next_start_ns = NEVER;
        if let [(contender, access_ns)] = self.exchange.starters[..] {
            self.exchange.txop_start_ns = access_ns;
            self.transmit(contender, access_ns);
        } else {
            self.collide();
        }
    }

    /// Slots that passed for everybody before a transmission at `start_ns`.
    fn count_down(&mut self, start_ns: u64) {
        let slot_ns = self.setup.timing.slot_ns;
        for contender in &mut self.contenders {
            if let Some(idle_ns) = start_ns.checked_sub(contender.resume_ns) {
                // 10.23.2.4: EDCA counts at the slot boundary on which AIFS ends, DCF at the end of
                // each idle slot (10.3.4.3)
                let slots = idle_ns / slot_ns + u64::from(contender.edca);
                let waited = contender.slots > 0;
                contender.slots = contender
                    .slots
                    .saturating_sub(u32::try_from(slots).unwrap_or(u32::MAX));
                if waited {
                    continue;
                }
            }
            if !contender.edca && contender.slots == 0 && contender.has_work() {
                // The medium went busy before DIFS was over (10.3.4.2). Those that start now draw
                // again afterwards.
                let random = &mut self.stations[usize::from(contender.station)].backoff;
                contender.slots = random.backoff(contender.cw);
            }
        }
    }

    /// Everybody goes on with its interframe space after `idle_ns`.
    pub(super) fn hold_all(&mut self, idle_ns: u64) {
        for contender in &mut self.contenders {
            contender.resume_ns = idle_ns + contender.aifs_ns;
            contender.ready_ns = 0;
        }
    }

    /// One station goes on with its interframe space after `idle_ns`.
    pub(super) fn hold_station(&mut self, station: StationId, idle_ns: u64) {
        let first = self.stations[usize::from(station)].first_contender as usize;
        for contender in &mut self.contenders[first..] {
            if contender.station != station {
                break;
            }
            contender.resume_ns = idle_ns + contender.aifs_ns;
        }
    }

    /// The medium is idle: plan the next start.
    pub(super) fn plan(&mut self) {
        let slot_ns = self.setup.timing.slot_ns;
        self.on_air = false;
        self.next_start_ns = self
            .contenders
            .iter()
            .map(|c| c.access_ns(slot_ns))
            .min()
            .unwrap_or(NEVER);
    }
}

pub(super) fn index(length: usize) -> u32 {
    u32::try_from(length).expect("at most 2007 stations with 5 contenders and 2008 flows each")
}
