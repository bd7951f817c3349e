//! A basic service set: its stations with their queues, what they have learnt, what they did.

use super::access::Access;
use super::air::{Airtime, Log, Ppdu};
use super::chosen::Choice;
use super::counters::StationCounters;
use super::errors::Rated;
use super::frame::{Frame, StationId, Verdict, ACCESS_POINT};
use super::phy::Mode;
use super::queue::{Flow, Queues};
use super::rate::Rates;
use super::setup::{QueueLimit, Setup};
use crate::random::Random;

/// The stations and what is fixed for all of them. Nothing here knows what is on air.
#[derive(Debug)]
pub(super) struct Bss {
    pub setup: Setup,
    pub stations: Vec<Station>,
    pub access: Access,
    pub queues: Queues,
    pub rates: Rates,
    pub log: Log,
}

/// A station's own state.
#[derive(Debug)]
pub(super) struct Station {
    pub counters: StationCounters,
    errors: Random,
}

/// What came of an offer.
pub(super) enum Offer {
    /// It waits behind others, or was dropped
    Done(Verdict),
    /// Its access function had nothing to send before
    First(u32),
}

impl Bss {
    pub(super) fn new(setup: Setup, seed: u64) -> Self {
        let access = Access::new(&setup, seed);
        let mut queues = Queues::new();
        for contender in access.all() {
            let flow = |receiver| Flow::new(contender.station, receiver);
            queues.flows.extend(contender.reach.receivers().map(flow));
        }
        let station = |station: StationId| Station {
            counters: StationCounters::default(),
            errors: Random::stream(seed, &format!("wlan/{station}/errors")),
        };
        let modes = setup.modes.iter().map(|mode| mode.data.mode);
        Self {
            stations: (0..=setup.stations).map(station).collect(),
            access,
            queues,
            rates: Rates::new(setup.rate_control, modes, seed),
            log: Log::default(),
            setup,
        }
    }

    /// Put a frame into its station's queue.
    pub(super) fn enqueue(
        &mut self,
        station: StationId,
        frame: Frame,
        choice: Option<Choice>,
    ) -> Offer {
        if usize::from(station) >= self.stations.len() {
            return Offer::Done(Verdict::Refused);
        }
        let (contender_index, position) = self.route(station, &frame, choice.as_ref());
        let sender = &mut self.stations[usize::from(station)];
        sender.counters.offered += 1;
        sender.counters.offered_bytes += u64::from(frame.msdu_bytes);
        let contender = self.access.get_mut(contender_index);
        let Some(position) = position else {
            sender.counters.queue_dropped += 1;
            return Offer::Done(Verdict::Refused);
        };
        let full = match self.setup.queue {
            QueueLimit::Packets(limit) => contender.queued_frames >= limit,
            QueueLimit::Bytes(limit) => {
                contender.queued_bytes + u64::from(frame.msdu_bytes) > limit
            }
        };
        if full {
            sender.counters.queue_dropped += 1;
            return Offer::Done(Verdict::QueueFull);
        }
        sender.counters.in_flight += 1;
        contender.queued_frames += 1;
        contender.queued_bytes += u64::from(frame.msdu_bytes);
        let idle_before = !contender.has_work();
        let flow = contender.first_flow + position;
        if !self.queues.flow(flow).has_work() {
            contender.ring.push_back(flow);
        }
        let body_bytes = frame.msdu_bytes + self.setup.msdu_extra_bytes;
        let place = self.queues.push(flow, &frame, body_bytes);
        if let Some(choice) = choice {
            let entry = &mut self.queues.slab[place];
            entry.chain = Some(choice.chain);
            entry.aggregates = choice.aggregates;
        }
        if idle_before {
            Offer::First(contender_index)
        } else {
            Offer::Done(Verdict::Queued)
        }
    }

    /// The access function of a frame, and its flow there; `None`: it cannot be sent.
    fn route(
        &self,
        station: StationId,
        frame: &Frame,
        choice: Option<&Choice>,
    ) -> (u32, Option<u32>) {
        let category = if self.setup.qos {
            frame.category as u32
        } else {
            0
        };
        let beacons = self
            .access
            .of_beacons()
            .filter(|_| station == ACCESS_POINT && choice.is_some_and(|choice| choice.beacon));
        let contender = beacons.unwrap_or_else(|| self.access.of_station(station, category));
        let sendable = self.setup.chosen == choice.is_some()
            && (1..=self.setup.frame_max_bytes).contains(&frame.msdu_bytes);
        let reach = self.access.get(contender).reach;
        let position = reach.position(frame.receiver).filter(|_| sendable);
        (contender, position)
    }

    pub(super) fn counters(&mut self, station: StationId) -> &mut StationCounters {
        &mut self.stations[usize::from(station)].counters
    }

    /// Whether a PPDU of a sender gets lost, beside collisions.
    pub(super) fn loses(&mut self, sender: StationId, rated: &Rated, bytes: u32) -> bool {
        rated.loses(bytes, &mut self.stations[usize::from(sender)].errors)
    }

    /// Put a PPDU on air and return its end.
    pub(super) fn on_air(
        &mut self,
        station: StationId,
        kind: Ppdu,
        start_ns: u64,
        mode: Mode,
        bytes: u32,
    ) -> u64 {
        let end_ns = start_ns + mode.airtime_ns(bytes);
        self.counters(station).airtime_ns += end_ns - start_ns;
        self.log.add(Airtime {
            start_ns,
            end_ns,
            station,
            kind,
            collided: false,
        });
        end_ns
    }
}
