//! Programs that ask over TCP: connections that are opened, used for exchanges, and closed.
//!
//! A client takes its stages one after the other. In each it has so many connections at most, and each
//! of these takes the next exchange as soon as it has none, as a browser does. Neither program takes
//! any time.

use std::collections::{BTreeMap, VecDeque};

use tm_probe::Stream;
use tm_wire::{Duration, Instant};

use crate::client_plan::{ClientOutcome, ClientPlan, Exchanged, StagePlan};
use crate::tcp::{Leaving, OPENING_NS};
use crate::tcp_line::{parse, Line, Out, CLIENT, SERVER};
use crate::tcp_segment::Segment;
use crate::tcp_used::{Task, Used};

/// The clients of one host.
pub struct Clients {
    all: Vec<Client>,
    leaving: VecDeque<Leaving>,
}

impl Clients {
    /// Those that `plans` name, which begin after `start`.
    pub fn new(plans: &[ClientPlan], seed: u64, way: usize, start: Instant) -> Self {
        let client = |(place, plan): (usize, &ClientPlan)| {
            let mut random = Stream::named(seed, &format!("client/{way}/{place}/start"));
            let wait_ns = i64::try_from(random.between(0, OPENING_NS)).unwrap_or(0);
            Client::new(plan.clone(), start + Duration(wait_ns))
        };
        Self {
            all: plans.iter().enumerate().map(client).collect(),
            leaving: VecDeque::new(),
        }
    }

    /// When something is due; None: all are over.
    pub fn next_due(&self) -> Option<Instant> {
        self.all.iter().filter_map(Client::next_due).min()
    }

    /// Does what is due at `now`.
    pub fn turn(&mut self, now: Instant) {
        for (place, one) in self.all.iter_mut().enumerate() {
            if one.next_due().is_some_and(|due| due <= now) {
                one.turn(now, place, &mut self.leaving);
            }
        }
    }

    /// Ends those that are not over, in the middle of what they do.
    pub fn stop(&mut self) {
        for one in self.all.iter_mut().filter(|one| !one.over) {
            one.outcome.stopped = true;
            one.end();
        }
    }

    /// Takes what came to the server, or as an answer to the client.
    pub fn take(&mut self, now: Instant, place: usize, answer: bool, bytes: &[u8]) {
        if let Some((line, segment)) = parse(bytes) {
            let at = if answer { CLIENT } else { SERVER };
            let leaving = &mut self.leaving;
            let out = &mut Out {
                client: place,
                line,
                leaving,
            };
            self.all[place].take(now, at, &segment, out);
        }
    }

    /// The next segment that leaves; its connection is the place of its client.
    pub fn pop(&mut self) -> Option<Leaving> {
        self.leaving.pop_front()
    }

    /// What it came to, in the order of the plans.
    pub fn finish(self) -> Vec<ClientOutcome> {
        self.all.into_iter().map(|one| one.outcome).collect()
    }
}

struct Client {
    plan: ClientPlan,
    start: Instant,
    stage: usize,
    /// The stage begins then; None: it is under way.
    waits: Option<Instant>,
    /// Exchanges of the stage that were begun, and since when they count.
    begun: usize,
    since: Instant,
    lines: BTreeMap<u32, Used>,
    next_line: u32,
    heard: Instant,
    over: bool,
    outcome: ClientOutcome,
}

impl Client {
    fn new(plan: ClientPlan, start: Instant) -> Self {
        let first = plan.stages.first().map(|stage| start + stage.wait);
        Self {
            plan,
            start,
            stage: 0,
            waits: first,
            begun: 0,
            since: start,
            lines: BTreeMap::new(),
            next_line: 0,
            heard: start,
            over: first.is_none(),
            outcome: ClientOutcome::default(),
        }
    }

    fn next_due(&self) -> Option<Instant> {
        if self.over {
            return None;
        }
        let limit = self.start + self.plan.limit;
        let next = self.waits.unwrap_or_else(|| {
            let lines = self.lines.values();
            let lines = lines.flat_map(|one| [one.line.next_due(), one.waits]);
            lines.flatten().fold(self.deaf(), Instant::min)
        });
        Some(next.min(limit))
    }

    /// When it has heard nothing for too long; who waits for a time of its own does not listen.
    fn deaf(&self) -> Instant {
        let waits = self.lines.values().filter_map(|one| one.waits);
        waits.fold(self.heard, Instant::max) + self.plan.patience
    }

    fn turn(&mut self, now: Instant, place: usize, leaving: &mut VecDeque<Leaving>) {
        let late = now >= self.start + self.plan.limit;
        let deaf = self.waits.is_none() && now >= self.deaf();
        if late || deaf {
            self.end();
            return;
        }
        if self.waits.is_some_and(|begins| begins <= now) {
            self.begin_stage(now, place, leaving);
        }
        let mut due = Vec::new();
        for (line, used) in &mut self.lines {
            if used.waits.is_some_and(|waits| waits <= now) {
                due.push(*line);
            }
            let (client, line) = (place, *line);
            used.line.turn(
                now,
                &mut Out {
                    client,
                    line,
                    leaving,
                },
            );
        }
        for line in due {
            // It listens again from here on.
            self.heard = now;
            let (client, leaving) = (place, &mut *leaving);
            let out = &mut Out {
                client,
                line,
                leaving,
            };
            if let Some(used) = self.lines.remove(&line) {
                self.advance(now, used, out);
            }
        }
    }

    /// What is not over never will be.
    fn end(&mut self) {
        for (_, used) in std::mem::take(&mut self.lines) {
            self.count(&used.line);
        }
        self.over = true;
    }

    fn begin_stage(&mut self, now: Instant, place: usize, leaving: &mut VecDeque<Leaving>) {
        (self.waits, self.begun, self.since, self.heard) = (None, 0, now, now);
        for _ in 0..self.stage().connections {
            if let Some(index) = self.next_exchange(now) {
                self.open(now, index, place, leaving);
            }
        }
    }

    fn stage(&self) -> &StagePlan {
        &self.plan.stages[self.stage]
    }

    /// The exchange that is begun next in this stage.
    fn next_exchange(&mut self, now: Instant) -> Option<usize> {
        let stage = self.stage();
        let count = stage.exchanges.len();
        let more = match stage.lasts {
            None => self.begun < count,
            Some(lasts) => now < self.since + lasts,
        };
        more.then(|| {
            self.begun += 1;
            (self.begun - 1) % count
        })
    }

    fn open(&mut self, now: Instant, index: usize, place: usize, leaving: &mut VecDeque<Leaving>) {
        let number = self.next_line;
        self.next_line += 1;
        let mut line = Line::new(self.plan.line(), now);
        line.turn(
            now,
            &mut Out {
                client: place,
                line: number,
                leaving,
            },
        );
        self.lines.insert(number, Used::new(line, index, now));
    }

    fn take(&mut self, now: Instant, at: usize, segment: &Segment, out: &mut Out) {
        // Of a connection that is closed nothing is left: its last segments need no state.
        match segment {
            Segment::Close => out.push(at, &Segment::Closed, 0),
            Segment::Closed => out.push(at, &Segment::Opened, 0),
            _ => {}
        }
        if self.over {
            return;
        }
        if at == CLIENT {
            self.heard = now;
        }
        let Some(mut used) = self.lines.remove(&out.line) else {
            return;
        };
        used.line.take(now, at, segment, out);
        if at == SERVER {
            used.answer(now, self.stage());
            used.line.send(now, SERVER, out);
            self.lines.insert(out.line, used);
        } else {
            self.advance(now, used, out);
        }
    }

    /// The client goes on with a connection, and with its stage if that is over.
    fn advance(&mut self, now: Instant, mut used: Used, out: &mut Out) {
        if self.go_on(now, &mut used, out) {
            used.line.send(now, CLIENT, out);
            self.lines.insert(out.line, used);
        } else {
            self.close(&used.line, out);
            if let Some(index) = self.next_exchange(now) {
                self.open(now, index, out.client, out.leaving);
            }
        }
        let over = |used: &Used| used.tasks.is_empty() && used.waits.is_none();
        if self.lines.values().all(over) {
            self.end_stage(now, out);
        }
    }

    /// The client goes on with a connection as far as it can: whether that is of use still.
    fn go_on(&mut self, now: Instant, used: &mut Used, out: &mut Out) -> bool {
        if !used.line.open() {
            return true;
        }
        loop {
            self.ask(now, used, out);
            let stage = &self.plan.stages[self.stage];
            let Some(place) = used.complete(now, stage) else {
                return true;
            };
            let task = &mut used.tasks[place];
            if !stage.is_own(task) {
                (task.step, task.asked, task.first) = (task.step + 1, None, None);
                continue;
            }
            let fresh = stage.fresh;
            if let Some(task) = used.tasks.remove(place) {
                self.done(now, &task);
            }
            if fresh {
                return false;
            }
        }
    }

    /// The client writes the requests that it may.
    fn ask(&mut self, now: Instant, used: &mut Used, out: &mut Out) {
        let mut began = now;
        if let Some(task) = used.tasks.front_mut().filter(|task| task.asked.is_none()) {
            let stage = &self.plan.stages[self.stage];
            let own = stage.is_own(task);
            if used.line.written(CLIENT) == 0 && task.connected.is_none() {
                task.connected = Some(now);
            }
            if own && task.opened.is_none() {
                task.opened = Some(now);
                if stage.opening_counts {
                    // Those that are begun with it waited for the connection as well.
                    began = task.began;
                } else {
                    // What the connection begins with belongs to no exchange.
                    task.began = now;
                    (task.connected, task.opened) = (None, None);
                    self.since = self.since.max(now);
                }
            }
            let exchange = stage.exchange(task.step, task.index).clone();
            used.ask(now, 0, &exchange, stage, out);
            self.outcome.begun += u64::from(own);
            if !own {
                return;
            }
        } else if used
            .tasks
            .front()
            .is_some_and(|task| !self.stage().is_own(task))
        {
            return;
        }
        while let Some(index) = self.next_on(now, used) {
            let stage = &self.plan.stages[self.stage];
            used.add(index, began, stage.opening.len());
            let exchange = stage.exchanges[index].clone();
            used.ask(now, used.tasks.len() - 1, &exchange, stage, out);
            self.outcome.begun += 1;
        }
    }

    /// The exchange that is begun next on a connection that has an opening behind it, if it may be.
    fn next_on(&mut self, now: Instant, used: &mut Used) -> Option<usize> {
        used.waits = None;
        let stage = self.stage();
        let next = &stage.exchanges[self.begun % stage.exchanges.len()];
        if used.tasks.len() > next.ahead || (stage.fresh && !used.tasks.is_empty()) {
            return None;
        }
        let due = used.replied.map(|first| first + next.due);
        if let Some(due) = due.filter(|due| *due > now) {
            used.waits =
                (stage.lasts.is_some() || self.begun < stage.exchanges.len()).then_some(due);
            return None;
        }
        self.next_exchange(now)
    }

    /// The exchange of a connection is over.
    fn done(&mut self, now: Instant, task: &Task) {
        let first = self.outcome.span.map_or(task.began, |(first, _)| first);
        self.outcome.span = Some((first.min(task.began), now));
        self.outcome.delays.add(now - task.began);
        if self.stage().lasts.is_none() {
            self.outcome.exchanges.push(Exchanged {
                place: (self.stage, task.index),
                began: task.began,
                opened: task.connected.zip(task.opened),
                replied: (task.first.unwrap_or(now), now),
            });
        }
    }

    /// The client closes a connection.
    fn close(&mut self, line: &Line, out: &mut Out) {
        // Where the server has closed it this is the answer.
        let last = if self.stage().awaits_close {
            Segment::Closed
        } else {
            Segment::Close
        };
        out.push(CLIENT, &last, 0);
        self.count(line);
    }

    fn count(&mut self, line: &Line) {
        for counters in line.counters() {
            self.outcome.retransmits += counters.retransmits;
            self.outcome.timeouts += counters.timeouts;
        }
    }

    /// All exchanges of the stage are over.
    fn end_stage(&mut self, now: Instant, out: &mut Out) {
        for (line, used) in std::mem::take(&mut self.lines) {
            let (client, leaving) = (out.client, &mut *out.leaving);
            self.close(
                &used.line,
                &mut Out {
                    client,
                    line,
                    leaving,
                },
            );
        }
        self.stage += 1;
        if let Some(next) = self.plan.stages.get(self.stage) {
            self.waits = Some(now + next.wait);
        } else {
            (self.over, self.outcome.finished) = (true, true);
        }
    }
}
