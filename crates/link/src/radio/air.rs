//! Two radios on one medium: an access point's and a client's.

use std::collections::VecDeque;

use tm_wire::{Duration, Instant};

use super::header::{Header, Kind};
use super::Address;
use crate::error::{place_in, ConfigError};
use crate::wlan::{
    Chain, Choice, Config, Fate, Frame, Medium, Rate, Receiver, StationId, Try, Verdict,
    ACCESS_POINT, CHAIN_LENGTH,
};
use crate::Counters;

/// Most frames of a radio on the medium at a time. hwsim keeps at most 100 and then throws the
/// oldest away without a word, so that a frame beyond this is dropped here, and counted.
pub const PENDING_MAX: usize = 96;

/// Most addresses of a radio that are remembered.
const ADDRESSES_MAX: usize = 64;
const FCS_BYTES: u32 = 4;

/// A frame that a radio sends.
#[derive(Clone, Debug)]
pub struct Sent {
    /// 802.11 without FCS
    pub frame: Vec<u8>,
    /// The caller's name for it
    pub name: u64,
    /// Rates in order with attempts, RTS/CTS, CTS to oneself; `None` where the medium has no such
    /// rate
    pub rates: Vec<Option<(Rate, u8, bool, bool)>>,
    /// Nobody is to acknowledge it
    pub no_ack: bool,
}

/// Something that comes about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// A radio hears a frame.
    Heard {
        /// When
        due: Instant,
        /// Which radio sent it
        sender: StationId,
        /// The frame
        frame: Vec<u8>,
        /// Nominal rate of its first attempt
        rate_bit_s: u64,
    },
    /// The sender learns what became of a frame.
    Done {
        /// When
        due: Instant,
        /// Which radio sent it
        sender: StationId,
        /// The frame's name
        name: u64,
        /// Attempts made at each rate
        used: [u8; CHAIN_LENGTH],
        /// It was acknowledged
        acknowledged: bool,
    },
}

/// The medium between an access point's radio (0) and a client's (1).
pub struct Air {
    medium: Medium,
    /// Zero of the medium's own time.
    start: Instant,
    held: Vec<Held>,
    free: Vec<u64>,
    events: VecDeque<Event>,
    ends: [End; 2],
}

#[derive(Default)]
struct End {
    counters: Counters,
    pending: usize,
    unpriced: u64,
    addresses: Vec<Address>,
}

/// A frame on the medium: gone when it has had both its ends.
struct Held {
    name: u64,
    frame: Option<Vec<u8>>,
    chain: Chain,
    ended: bool,
    reported: bool,
}

impl Air {
    /// A silent medium; `path` is where the configuration stands, for errors.
    pub fn new(
        config: &Config,
        path: &str,
        seed: u64,
        start: Instant,
    ) -> Result<Self, ConfigError> {
        if config.stations != 1 || config.background.is_some() {
            let words = format!("is {}, must be 1: there are two radios", config.stations);
            return Err(ConfigError::conflict(place_in(path, "stations"), words));
        }
        let setup = config.setup_chosen(path)?;
        Ok(Self {
            medium: Medium::new(setup, seed),
            start,
            held: Vec::new(),
            free: Vec::new(),
            events: VecDeque::new(),
            ends: [End::default(), End::default()],
        })
    }

    /// Take a frame that a radio sends at `now`. A [`Event::Done`] always follows.
    ///
    /// # Panics
    ///
    /// If the sender is neither 0 nor 1.
    pub fn offer(&mut self, now: Instant, sender: StationId, sent: Sent) {
        let medium_ns = self.medium_ns(now);
        let octets = u32::try_from(sent.frame.len()).unwrap_or(u32::MAX - FCS_BYTES) + FCS_BYTES;
        let end = &mut self.ends[usize::from(sender)];
        end.counters.offered += 1;
        end.counters.offered_bytes += u64::from(octets);
        let Some((header, chain)) = self.examine(sender, &sent) else {
            self.refuse(now, sender, sent.name);
            return;
        };
        if self.ends[usize::from(sender)].pending >= PENDING_MAX {
            self.refuse(now, sender, sent.name);
            return;
        }
        let to_known = !header.is_group() && !sent.no_ack && self.knows(1 - sender, &header);
        let token = self.free.pop().unwrap_or(self.held.len() as u64);
        let frame = Frame {
            token,
            msdu_bytes: octets,
            receiver: if to_known {
                Receiver::Station(1 - sender)
            } else {
                // sent once, and nobody answers: to all, or to somebody who is not there
                Receiver::Group
            },
            category: header.category(),
        };
        let choice = Choice {
            chain,
            aggregates: matches!(header.kind, Kind::QosData { .. }),
            beacon: header.kind == Kind::Beacon && sender == ACCESS_POINT,
        };
        if self.medium.offer_chosen(medium_ns, sender, frame, choice) != Verdict::Queued {
            self.free.push(token);
            if place(token) == self.held.len() {
                self.held.push(Held::nothing(chain));
            }
            self.refuse(now, sender, sent.name);
            return;
        }
        let held = Held {
            name: sent.name,
            frame: Some(sent.frame),
            chain,
            ended: false,
            reported: false,
        };
        match self.held.get_mut(place(token)) {
            Some(free) => *free = held,
            None => self.held.push(held),
        }
        let end = &mut self.ends[usize::from(sender)];
        end.pending += 1;
        end.counters.in_flight += 1;
    }

    /// The next thing that has come about by `now`; ask until there is none.
    pub fn poll(&mut self, now: Instant) -> Option<Event> {
        let medium_ns = self.medium_ns(now);
        while self.events.is_empty() {
            // what is heard comes before what its sender learns of it
            if let Some(outcome) = self.medium.poll(medium_ns) {
                let due = self.instant(outcome.time_ns);
                let held = &mut self.held[place(outcome.token)];
                held.ended = true;
                let frame = held.frame.take().unwrap_or_default();
                let first = held.chain.at(0).rate;
                let counters = &mut self.ends[usize::from(outcome.sender)].counters;
                counters.in_flight -= 1;
                if outcome.fate == Fate::Delivered {
                    counters.delivered += 1;
                    counters.delivered_bytes += u64::from(outcome.msdu_bytes);
                    let rate_bit_s = self.medium.setup().rate_bit_s(first);
                    self.events.push_back(Event::Heard {
                        due,
                        sender: outcome.sender,
                        frame,
                        rate_bit_s,
                    });
                } else {
                    counters.lost += 1;
                }
                self.settle(outcome.token);
            } else if let Some(report) = self.medium.poll_report(medium_ns) {
                let due = self.instant(report.time_ns);
                let held = &mut self.held[place(report.token)];
                held.reported = true;
                self.events.push_back(Event::Done {
                    due,
                    sender: report.sender,
                    name: held.name,
                    used: held.chain.used(report.attempts),
                    acknowledged: report.acknowledged,
                });
                self.ends[usize::from(report.sender)].pending -= 1;
                self.settle(report.token);
            } else {
                break;
            }
        }
        self.events.pop_front()
    }

    /// When something happens next; `None` while nothing is under way.
    #[must_use]
    pub fn next_due(&self) -> Option<Instant> {
        if let Some(Event::Heard { due, .. } | Event::Done { due, .. }) = self.events.front() {
            return Some(*due);
        }
        let due_ns = self.medium.next_due();
        due_ns.map(|medium_ns| self.instant(medium_ns))
    }

    /// Counters of a radio as a sender; always offered = delivered + queue dropped + lost + in
    /// flight. Bytes are those of MPDUs with FCS.
    #[must_use]
    pub fn counters(&self, sender: StationId) -> Counters {
        self.ends[usize::from(sender)].counters
    }

    /// Frames that were dropped since their rate is none of the medium's.
    #[must_use]
    pub fn unpriced(&self, sender: StationId) -> u64 {
        self.ends[usize::from(sender)].unpriced
    }

    /// The medium, for what it counts of each station.
    #[must_use]
    pub fn medium(&self) -> &Medium {
        &self.medium
    }

    /// Header and chain of a frame; `None` if it cannot be sent.
    fn examine(&mut self, sender: StationId, sent: &Sent) -> Option<(Header, Chain)> {
        let setup = self.medium.setup();
        let tries: Option<Vec<Try>> = sent
            .rates
            .iter()
            .map(|one| {
                let (rate, attempts, reserve, protect) = (*one)?;
                Some(Try {
                    rate: setup.rate_index(rate)?,
                    attempts,
                    reserve,
                    protect,
                })
            })
            .collect();
        let end = &mut self.ends[usize::from(sender)];
        let Some(chain) = tries.and_then(|tries| Chain::new(&tries)) else {
            end.unpriced += 1;
            return None;
        };
        let header = Header::parse(&sent.frame)?;
        if !end.addresses.contains(&header.sender) && end.addresses.len() < ADDRESSES_MAX {
            end.addresses.push(header.sender);
        }
        Some((header, chain))
    }

    fn knows(&self, radio: StationId, header: &Header) -> bool {
        self.ends[usize::from(radio)]
            .addresses
            .contains(&header.receiver)
    }

    fn refuse(&mut self, now: Instant, sender: StationId, name: u64) {
        self.ends[usize::from(sender)].counters.queue_dropped += 1;
        self.events.push_back(Event::Done {
            due: now,
            sender,
            name,
            used: [0; CHAIN_LENGTH],
            acknowledged: false,
        });
    }

    fn settle(&mut self, token: u64) {
        let held = &self.held[place(token)];
        if held.ended && held.reported {
            self.free.push(token);
        }
    }

    fn medium_ns(&self, at: Instant) -> u64 {
        u64::try_from(at.saturating_since(self.start).0).unwrap_or(0)
    }

    fn instant(&self, medium_ns: u64) -> Instant {
        let since = Duration(i64::try_from(medium_ns).unwrap_or(i64::MAX));
        self.start.saturating_add(since)
    }
}

impl Held {
    /// The place of a frame that was refused.
    fn nothing(chain: Chain) -> Self {
        Self {
            name: 0,
            frame: None,
            chain,
            ended: true,
            reported: true,
        }
    }
}

fn place(token: u64) -> usize {
    usize::try_from(token).expect("a place in the store")
}
