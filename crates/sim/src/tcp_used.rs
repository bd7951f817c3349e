//! What a connection of a client is used for: the exchanges that are under way on it, and the server's part in
//! them.

use std::collections::VecDeque;

use tm_wire::{Duration, Instant};

use crate::client_plan::{Exchange, StagePlan};
use crate::tcp_line::{Line, Out, CLIENT, SERVER};

/// A connection and what it is used for.
pub struct Used {
    /// The connection.
    pub line: Line,
    /// The exchanges that are under way or, before those, what it begins with; none: it waits for the
    /// others, or until the next one is due.
    pub tasks: VecDeque<Task>,
    /// The next exchange is begun then.
    pub waits: Option<Instant>,
    /// When its first reply began to come.
    pub replied: Option<Instant>,
    /// Replies that take turns, each with the number of its task.
    turns: VecDeque<Turn>,
    /// Replies that nobody waits for, each behind a request that has arrived with so many segments.
    owed: VecDeque<(u64, Exchange)>,
    numbers: u64,
}

/// An exchange that was begun.
pub struct Task {
    /// Place of the exchange in its stage.
    pub index: usize,
    /// When it was begun.
    pub began: Instant,
    /// Place of the exchange among those that the connection begins with; behind them its own.
    pub step: usize,
    /// Its request; None: it waits for the connection.
    pub asked: Option<Asked>,
    /// When its connection was there.
    pub connected: Option<Instant>,
    /// When what that begins with was done.
    pub opened: Option<Instant>,
    /// When the first segment of the reply came.
    pub first: Option<Instant>,
    number: u64,
}

/// A request that was written, by numbers of segments.
#[derive(Clone, Copy)]
pub struct Asked {
    /// It has arrived with all before this one.
    request: u64,
    /// The server has it.
    answered: bool,
    /// The begin of the reply can be read when this one is there; None: it is not begun.
    from: Option<u64>,
    /// The reply has arrived with all before this one; None: it is not written yet.
    until: Option<u64>,
}

/// A reply that is written in turns.
struct Turn {
    number: u64,
    left: u64,
    /// What is left of its turn.
    share: u64,
}

impl Used {
    /// A connection for an exchange.
    pub fn new(line: Line, index: usize, began: Instant) -> Self {
        let mut used = Self {
            line,
            tasks: VecDeque::new(),
            waits: None,
            replied: None,
            turns: VecDeque::new(),
            owed: VecDeque::new(),
            numbers: 0,
        };
        used.add(index, began, 0);
        used
    }

    /// Adds an exchange behind those under way.
    pub fn add(&mut self, index: usize, began: Instant, step: usize) {
        self.numbers += 1;
        self.tasks.push_back(Task {
            index,
            began,
            step,
            asked: None,
            connected: None,
            opened: None,
            first: None,
            number: self.numbers,
        });
    }

    /// Writes the request of a task. Where replies take turns many requests are written at once: those
    /// that may not leave yet fill segments up.
    pub fn ask(
        &mut self,
        now: Instant,
        place: usize,
        exchange: &Exchange,
        stage: &StagePlan,
        out: &mut Out,
    ) {
        if stage.turns.is_some() && !exchange.held && exchange.request_due.is_empty() {
            for bytes in &exchange.request {
                self.line.join(CLIENT, *bytes);
                self.line.send(now, CLIENT, out);
            }
        } else {
            exchange.write(&mut self.line, CLIENT, now);
        }
        let mut from = exchange.reply.is_empty().then(|| self.line.written(SERVER));
        if exchange.goes_on {
            let request = self.line.written(CLIENT);
            self.owed.push_back((request, exchange.clone()));
            from = Some(self.line.has(CLIENT));
        }
        self.tasks[place].asked = Some(Asked {
            request: self.line.written(CLIENT),
            answered: from.is_some(),
            from,
            until: from,
        });
    }

    /// Notes which replies began to come at `now`; the place of one that has come as a whole.
    pub fn complete(&mut self, now: Instant, stage: &StagePlan) -> Option<usize> {
        let has = self.line.has(CLIENT);
        for task in &mut self.tasks {
            let from = task.asked.and_then(|asked| asked.from);
            if task.first.is_none() && from.is_some_and(|from| has > from) {
                task.first = Some(now);
                if stage.is_own(task) {
                    self.replied.get_or_insert(now);
                }
            }
        }
        let whole = |asked: Asked| asked.until.is_some_and(|until| has >= until);
        self.tasks
            .iter()
            .position(|task| task.asked.is_some_and(whole))
    }

    /// The server answers requests that are there.
    pub fn answer(&mut self, now: Instant, stage: &StagePlan) {
        let has = self.line.has(SERVER);
        while self.owed.front().is_some_and(|owed| owed.0 <= has) {
            if let Some((_, exchange)) = self.owed.pop_front() {
                exchange.write(&mut self.line, SERVER, now);
            }
        }
        for place in 0..self.tasks.len() {
            let task = &mut self.tasks[place];
            let Some(asked) = &mut task.asked else { break };
            if asked.answered || has < asked.request {
                continue;
            }
            asked.answered = true;
            let own = task.step >= stage.opening.len();
            let exchange = stage.exchange(task.step, task.index);
            if let Some(turns) = stage.turns.filter(|_| own) {
                self.turns.push_back(Turn {
                    number: task.number,
                    left: exchange.reply.iter().sum(),
                    share: turns.turn_bytes.max(1),
                });
                // The server writes what it has before it reads the next request.
                self.take_turns(stage);
                continue;
            }
            let readable = self.line.before(exchange.readable_bytes);
            asked.from = Some(self.line.written(SERVER) + readable);
            exchange.write(&mut self.line, SERVER, now);
            if own && stage.awaits_close {
                self.line.write(SERVER, 0);
            }
            asked.until = Some(self.line.written(SERVER));
        }
        self.take_turns(stage);
    }

    /// Replies that take turns are written as far as the kernel takes them, record by record.
    fn take_turns(&mut self, stage: &StagePlan) {
        let Some(turns) = stage.turns else {
            return;
        };
        while !self.turns.is_empty() && self.line.wants(SERVER) {
            let record_bytes = turns.record_bytes.max(1);
            let mut room = record_bytes;
            let mut parts = Vec::new();
            while let Some(turn) = self.turns.front_mut().filter(|_| room > 0) {
                let bytes = turn.left.min(turn.share).min(room);
                turn.left -= bytes;
                turn.share -= bytes;
                room -= bytes;
                let (number, over) = (turn.number, turn.left == 0);
                parts.push((number, over));
                if over {
                    self.turns.pop_front();
                } else if turn.share == 0 {
                    turn.share = turns.turn_bytes.max(1);
                    self.turns.rotate_left(1);
                }
            }
            self.line
                .join(SERVER, record_bytes - room + turns.seal_bytes);
            // Nothing in a record can be read before its end.
            let until = self.line.written(SERVER);
            for (number, over) in parts {
                let mut tasks = self.tasks.iter_mut();
                let task = tasks.find(|task| task.number == number);
                if let Some(asked) = task.and_then(|task| task.asked.as_mut()) {
                    asked.from.get_or_insert(until - 1);
                    asked.until = over.then_some(until);
                }
            }
        }
    }
}

impl Exchange {
    /// An end writes its part.
    fn write(&self, line: &mut Line, end: usize, now: Instant) {
        let (pieces, due) = if end == CLIENT {
            (&self.request, &self.request_due)
        } else {
            (&self.reply, &self.reply_due)
        };
        for (place, bytes) in pieces.iter().enumerate() {
            match due.get(place) {
                _ if self.held => line.write_held(end, *bytes),
                Some(due) if *due > Duration(0) => line.write_due(end, *bytes, now + *due),
                _ => line.write(end, *bytes),
            }
        }
    }
}

impl StagePlan {
    /// The exchange of a task.
    pub(crate) fn exchange(&self, step: usize, index: usize) -> &Exchange {
        self.opening.get(step).unwrap_or(&self.exchanges[index])
    }

    /// Whether a task is at its own exchange.
    pub(crate) fn is_own(&self, task: &Task) -> bool {
        task.step >= self.opening.len()
    }
}
