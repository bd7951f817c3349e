//! Channel access: what each function counts down, who may transmit first, who with it.

use std::collections::VecDeque;

use super::frame::{Receiver, StationId, ACCESS_POINT};
use super::mac::{Edca, Timing};
use super::setup::Setup;
use crate::random::Random;

/// "Not planned".
pub(super) const NEVER: u64 = u64::MAX;

/// One station's channel access function of one category (10.3.4, 10.23.2), with its queue.
#[derive(Debug)]
pub(super) struct Contender {
    pub station: StationId,
    pub parameters: Edca,
    edca: bool,
    aifs_ns: u64,
    cw: u32,
    /// Station short retry count, QSRC with EDCA
    retries: u16,
    /// Backoff slots left at `resume_ns`
    slots: u32,
    /// When the countdown goes on, if the medium stays idle
    resume_ns: u64,
    /// When the first frame came into an empty queue, 0 once it has contended
    ready_ns: u64,
    /// Flows with frames, next receiver first
    pub ring: VecDeque<u32>,
    pub reach: Reach,
    pub first_flow: u32,
    pub queued_frames: u32,
    pub queued_bytes: u64,
    /// A beacon of the medium's own waits
    pub beacon_waits: bool,
}

/// Whom a channel access function sends to, in the order of its flows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reach {
    /// So many stations, then all of them at once
    Stations(StationId),
    /// The access point
    AccessPoint,
    /// The access point, or all at once
    AccessPointAndAll,
    /// All at once
    All,
    /// Nobody: beacons of the medium's own are in no queue
    Nobody,
}

impl Reach {
    /// The receivers.
    pub(super) fn receivers(self) -> impl Iterator<Item = Receiver> {
        let (stations, access_point, all) = match self {
            Self::Stations(stations) => (stations, false, true),
            Self::AccessPoint => (0, true, false),
            Self::AccessPointAndAll => (0, true, true),
            Self::All => (0, false, true),
            Self::Nobody => (0, false, false),
        };
        let access_point = access_point.then_some(ACCESS_POINT);
        (1..=stations)
            .chain(access_point)
            .map(Receiver::Station)
            .chain(all.then_some(Receiver::Group))
    }

    /// Where the flow to a receiver stands.
    pub(super) fn position(self, receiver: Receiver) -> Option<u32> {
        match (self, receiver) {
            (Self::Stations(most), Receiver::Station(to)) if (1..=most).contains(&to) => {
                Some(u32::from(to) - 1)
            }
            (Self::Stations(stations), Receiver::Group) => Some(u32::from(stations)),
            (Self::AccessPoint | Self::AccessPointAndAll, Receiver::Station(ACCESS_POINT))
            | (Self::All, Receiver::Group) => Some(0),
            (Self::AccessPointAndAll, Receiver::Group) => Some(1),
            _ => None,
        }
    }
}

impl Contender {
    pub(super) fn has_work(&self) -> bool {
        self.beacon_waits || !self.ring.is_empty()
    }

    /// When it transmits if the medium stays idle.
    fn access_ns(&self, slot_ns: u64) -> u64 {
        if !self.has_work() {
            return NEVER;
        }
        let counted_ns = self.resume_ns + u64::from(self.slots) * slot_ns;
        match self.ready_ns.checked_sub(counted_ns) {
            None | Some(0) => counted_ns,
            // EDCA acts on slot boundaries only (10.23.2.4)
            Some(late_ns) if self.edca => counted_ns + late_ns.next_multiple_of(slot_ns),
            Some(_) => self.ready_ns,
        }
    }
}

/// All channel access functions, those of a station together, the less urgent first.
#[derive(Debug)]
pub(super) struct Access {
    timing: Timing,
    retry_limit: u16,
    contenders: Vec<Contender>,
    /// By station
    own: Vec<Own>,
    /// The access point's beacons have an access function of their own
    beacons: Option<u32>,
}

#[derive(Debug)]
struct Own {
    first: u32,
    backoff: Random,
}

/// Who starts within one slot.
#[derive(Debug, Default)]
pub(super) struct Starters {
    /// Access functions with their start
    pub on_air: Vec<(u32, u64)>,
    /// Those that had to leave the medium to a more urgent one of their own station
    pub internal: Vec<u32>,
}

impl Access {
    /// Every station with its access functions; nobody has a frame.
    pub(super) fn new(setup: &Setup, seed: u64) -> Self {
        let mut access = Self {
            timing: setup.timing,
            retry_limit: setup.short_retry_limit,
            contenders: Vec::new(),
            own: Vec::new(),
            beacons: None,
        };
        let mut flows = 0;
        for station in 0..=setup.stations {
            access.own.push(Own {
                first: index(access.contenders.len()),
                backoff: Random::stream(seed, &format!("wlan/{station}/backoff")),
            });
            let (parameters, reach) = if station == ACCESS_POINT {
                (&setup.access_point, Reach::Stations(setup.stations))
            } else if setup.chosen {
                // real radios put group addressed frames on air themselves
                (&setup.station, Reach::AccessPointAndAll)
            } else {
                (&setup.station, Reach::AccessPoint)
            };
            for one in parameters {
                flows = access.add(station, *one, setup.qos, reach, flows);
            }
            if station == ACCESS_POINT && (setup.beacon.is_some() || setup.chosen) {
                // 11.1.3.2: the next frame at the target time; access points use AIFSN 1, the least
                // that 9.4.2.28 allows them, and no backoff
                let at_once = Edca {
                    aifsn: 1,
                    cw_min: 0,
                    cw_max: 0,
                    txop_limit_ns: 0,
                };
                access.beacons = Some(index(access.contenders.len()));
                let reach = if setup.chosen {
                    Reach::All
                } else {
                    Reach::Nobody
                };
                flows = access.add(station, at_once, setup.qos, reach, flows);
            }
        }
        access
    }

    /// Add an access function; returns the number of flows with its own.
    fn add(
        &mut self,
        station: StationId,
        parameters: Edca,
        edca: bool,
        reach: Reach,
        flows: u32,
    ) -> u32 {
        let aifs_ns = self.timing.aifs_ns(parameters.aifsn);
        self.contenders.push(Contender {
            station,
            edca,
            aifs_ns,
            cw: parameters.cw_min,
            parameters,
            retries: 0,
            slots: 0,
            resume_ns: aifs_ns,
            ready_ns: 0,
            ring: VecDeque::new(),
            reach,
            first_flow: flows,
            queued_frames: 0,
            queued_bytes: 0,
            beacon_waits: false,
        });
        flows + index(reach.receivers().count())
    }

    pub(super) fn all(&self) -> &[Contender] {
        &self.contenders
    }

    pub(super) fn get(&self, contender: u32) -> &Contender {
        &self.contenders[contender as usize]
    }

    pub(super) fn get_mut(&mut self, contender: u32) -> &mut Contender {
        &mut self.contenders[contender as usize]
    }

    /// That of a station's category; without categories it has but one.
    pub(super) fn of_station(&self, station: StationId, category: u32) -> u32 {
        self.own[usize::from(station)].first + category
    }

    /// That of the beacons, if there is one.
    pub(super) fn of_beacons(&self) -> Option<u32> {
        self.beacons
    }

    /// A contender that had nothing to send has something now; `busy`: the medium is not idle.
    ///
    /// Returns when it would start if the medium stayed as it is.
    pub(super) fn begin(&mut self, contender: u32, now_ns: u64, busy: bool) -> u64 {
        let contender = &mut self.contenders[contender as usize];
        contender.ready_ns = now_ns;
        if busy && contender.slots == 0 {
            // 10.3.4.2, 10.23.2.2 a): the medium is busy when the frame comes
            let random = &mut self.own[usize::from(contender.station)].backoff;
            contender.slots = random.backoff(contender.cw);
        }
        contender.access_ns(self.timing.slot_ns)
    }

    /// Earliest start of any; `NEVER` if nobody has anything to send.
    pub(super) fn next_start_ns(&self) -> u64 {
        self.contenders
            .iter()
            .map(|contender| contender.access_ns(self.timing.slot_ns))
            .min()
            .unwrap_or(NEVER)
    }

    /// The first of them starts at `start_ns`: find all that start with it, and let the slots pass
    /// that passed for everybody.
    pub(super) fn start(&mut self, start_ns: u64, starters: &mut Starters) {
        let slot_ns = self.timing.slot_ns;
        let end_ns = start_ns + slot_ns;
        starters.on_air.clear();
        starters.internal.clear();
        for (i, own) in self.own.iter().enumerate() {
            let first = own.first as usize;
            let next = self.own.get(i + 1).map(|next| next.first as usize);
            let contenders = &self.contenders[first..next.unwrap_or(self.contenders.len())];
            let access = |contender: &Contender| contender.access_ns(slot_ns);
            let earliest = contenders.iter().map(access).min();
            let Some(access_ns) = earliest.filter(|&ns| ns < end_ns) else {
                continue;
            };
            // Contenders stand in the order of their urgency: the last one transmits, for the
            // others it is an internal collision (10.23.2.4).
            let mut together = (first..)
                .zip(contenders)
                .filter(|(_, contender)| access(contender) == access_ns)
                .map(|(position, _)| index(position));
            let Some(mut starter) = together.next() else {
                continue;
            };
            for more_urgent in together {
                let less_urgent = std::mem::replace(&mut starter, more_urgent);
                starters.internal.push(less_urgent);
            }
            starters.on_air.push((starter, access_ns));
        }
        self.count_down(start_ns);
    }

    /// Slots that passed for everybody before a transmission at `start_ns`.
    fn count_down(&mut self, start_ns: u64) {
        let slot_ns = self.timing.slot_ns;
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
                let random = &mut self.own[usize::from(contender.station)].backoff;
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
        let first = self.own[usize::from(station)].first as usize;
        for contender in &mut self.contenders[first..] {
            if contender.station != station {
                break;
            }
            contender.resume_ns = idle_ns + contender.aifs_ns;
        }
    }

    /// Widen the contention window after a failure (10.3.3, 10.23.2.2).
    pub(super) fn fail(&mut self, contender: u32, given_up: bool) {
        let limit = self.retry_limit;
        let one = &mut self.contenders[contender as usize];
        one.retries += 1;
        if given_up || one.retries >= limit {
            self.succeed(contender);
            return;
        }
        let shift = u32::from(one.retries).min(15);
        one.cw = (((one.parameters.cw_min + 1) << shift) - 1).min(one.parameters.cw_max);
    }

    /// Back to the smallest contention window.
    pub(super) fn succeed(&mut self, contender: u32) {
        let one = &mut self.contenders[contender as usize];
        one.retries = 0;
        one.cw = one.parameters.cw_min;
    }

    /// Every transmission is followed by a backoff, with or without a next frame (10.3.4.3).
    pub(super) fn draw_backoff(&mut self, contender: u32) {
        let one = &mut self.contenders[contender as usize];
        let random = &mut self.own[usize::from(one.station)].backoff;
        one.slots = random.backoff(one.cw);
    }
}

pub(super) fn index(length: usize) -> u32 {
    u32::try_from(length).expect("at most 2007 stations with 5 contenders and 2008 flows each")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flow_stands_where_its_receiver_does() {
        for reach in [
            Reach::Stations(3),
            Reach::AccessPoint,
            Reach::AccessPointAndAll,
            Reach::All,
            Reach::Nobody,
        ] {
            for (position, receiver) in (0..).zip(reach.receivers()) {
                assert_eq!(reach.position(receiver), Some(position), "{reach:?}");
            }
            assert_eq!(reach.position(Receiver::Station(9)), None, "{reach:?}");
        }
    }
}
