//! Programs that ask over UDP: a request, the answer to it or none in time, and the next request.
//!
//! Neither program takes any time. The server answers whatever comes, as often as it comes.

use std::collections::VecDeque;

use tm_probe::{Delays, Stream};
use tm_wire::{Duration, Instant};

use crate::tcp::{Leaving, OPENING_NS};

/// A program that has one request under way at a time; request and answer are a datagram each.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequesterPlan {
    /// Place of its path.
    pub path: usize,
    /// Payload of a request.
    pub request_bytes: u32,
    /// Payload of an answer.
    pub response_bytes: u32,
    /// So long requests are begun.
    pub lasts: Duration,
    /// How long an answer is waited for.
    pub timeout: Duration,
}

/// What became of it.
#[derive(Clone, Default)]
pub struct RequesterOutcome {
    /// Requests that were answered, or given up when their time was over.
    pub begun: u64,
    /// Answers that came after their time.
    pub late: u64,
    /// Since when and until when it asked: until no request was begun any more, or until the last
    /// answer where one came after that. The wait for an answer that never came does not count.
    pub span: Option<(Instant, Instant)>,
    /// How long each took that was answered.
    pub delays: Delays,
}

/// Those of one host.
pub struct Requesters {
    all: Vec<Requester>,
    leaving: VecDeque<Leaving>,
}

struct Requester {
    plan: RequesterPlan,
    start: Instant,
    next: Next,
    number: u64,
    /// Requests that were given up, the last of them: an answer may still come.
    lost: VecDeque<u64>,
    outcome: RequesterOutcome,
}

/// What it does next.
#[derive(Clone, Copy)]
enum Next {
    Begin,
    /// Give up the request that left then.
    GiveUp(Instant),
    Nothing,
}

/// Lost requests whose answers are known as late ones, as in a lab.
const MOST_LOST: usize = 1024;

impl Requesters {
    /// Those that `plans` name, which begin after `start`.
    pub fn new(plans: &[RequesterPlan], seed: u64, way: usize, start: Instant) -> Self {
        let requester = |(place, plan): (usize, &RequesterPlan)| {
            let mut random = Stream::named(seed, &format!("requester/{way}/{place}/start"));
            let wait_ns = i64::try_from(random.between(0, OPENING_NS)).unwrap_or(0);
            Requester {
                plan: plan.clone(),
                start: start + Duration(wait_ns),
                next: Next::Begin,
                number: 0,
                lost: VecDeque::new(),
                outcome: RequesterOutcome::default(),
            }
        };
        Self {
            all: plans.iter().enumerate().map(requester).collect(),
            leaving: VecDeque::new(),
        }
    }

    /// When something is due; None: all are over.
    pub fn next_due(&self) -> Option<Instant> {
        self.all.iter().filter_map(Requester::next_due).min()
    }

    /// Does what is due at `now`.
    pub fn turn(&mut self, now: Instant) {
        for (place, one) in self.all.iter_mut().enumerate() {
            if one.next_due().is_some_and(|due| due <= now) {
                one.turn(now, place, &mut self.leaving);
            }
        }
    }

    /// Ends those that are not over; what they have under way does not count.
    pub fn stop(&mut self, now: Instant) {
        for one in &mut self.all {
            if matches!(one.next, Next::GiveUp(_)) {
                one.outcome.begun -= 1;
                one.asked_until(now.min(one.end()));
            }
            one.next = Next::Nothing;
        }
    }

    /// Takes what came to the server, or as an answer to the client.
    pub fn take(&mut self, now: Instant, place: usize, answer: bool, bytes: &[u8]) {
        let one = &mut self.all[place];
        if answer {
            one.take(now, place, bytes, &mut self.leaving);
        } else {
            self.leaving.push_back(Leaving {
                connection: place,
                answer: true,
                size: one.plan.response_bytes,
                bytes: bytes.to_vec(),
            });
        }
    }

    /// The next datagram that leaves; its connection is the place of its requester.
    pub fn pop(&mut self) -> Option<Leaving> {
        self.leaving.pop_front()
    }

    /// What it came to, in the order of the plans.
    pub fn finish(self) -> Vec<RequesterOutcome> {
        self.all.into_iter().map(|one| one.outcome).collect()
    }
}

impl Requester {
    fn next_due(&self) -> Option<Instant> {
        match self.next {
            Next::Begin => Some(self.start),
            Next::GiveUp(asked) => Some(asked + self.plan.timeout),
            Next::Nothing => None,
        }
    }

    fn turn(&mut self, now: Instant, place: usize, leaving: &mut VecDeque<Leaving>) {
        if matches!(self.next, Next::GiveUp(_)) {
            self.lost.truncate(MOST_LOST - 1);
            self.lost.push_front(self.number);
            self.asked_until(now.min(self.end()));
            self.number += 1;
        }
        self.ask(now, place, leaving);
    }

    fn take(&mut self, now: Instant, place: usize, bytes: &[u8], leaving: &mut VecDeque<Leaving>) {
        let Ok(number) = bytes.try_into().map(u64::from_le_bytes) else {
            return;
        };
        match self.next {
            Next::GiveUp(asked) if number == self.number => {
                self.outcome.delays.add(now - asked);
                self.asked_until(now);
                self.number += 1;
                self.ask(now, place, leaving);
            }
            _ => {
                if let Some(at) = self.lost.iter().position(|lost| *lost == number) {
                    self.lost.remove(at);
                    self.outcome.late += 1;
                }
            }
        }
    }

    /// No request is begun any more.
    fn end(&self) -> Instant {
        self.start + self.plan.lasts
    }

    fn asked_until(&mut self, until: Instant) {
        self.outcome.span = Some((self.start, until));
    }

    fn ask(&mut self, now: Instant, place: usize, leaving: &mut VecDeque<Leaving>) {
        if now >= self.end() {
            self.next = Next::Nothing;
            return;
        }
        self.next = Next::GiveUp(now);
        self.outcome.begun += 1;
        leaving.push_back(Leaving {
            connection: place,
            answer: false,
            size: self.plan.request_bytes,
            bytes: self.number.to_le_bytes().to_vec(),
        });
    }
}
