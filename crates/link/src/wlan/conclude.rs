//! The end of an exchange: what the senders learn, and what the receivers give out.

use super::chosen::Report;
use super::compose::{Kind, Part};
use super::exchange::Failure;
use super::medium::{Fate, Medium, Outcome};
use super::queue::{State, NONE};

impl Medium {
    /// The exchange is over and the medium idle.
    pub(super) fn finish(&mut self) {
        let continues = self.conclude_parts();
        for i in 0..self.exchange.internal.len() {
            self.lose_internally(self.exchange.internal[i]);
        }
        self.exchange.internal.clear();
        if !continues.is_some_and(|contender| self.continue_txop(contender)) {
            self.plan();
        }
    }

    /// Apply all results; the contender that may go on with its TXOP, if one may.
    fn conclude_parts(&mut self) -> Option<u32> {
        let parts = std::mem::take(&mut self.exchange.parts);
        for part in &parts {
            match part.kind {
                Kind::Beacon { .. } => {
                    self.contenders[part.contender as usize].beacon_waits = false;
                }
                Kind::Group => self.conclude_group(part),
                Kind::Request { .. } => self.conclude_request(part),
                Kind::Data { .. } => self.conclude_data(part),
            }
            self.draw_backoff(part.contender);
        }
        let continues = match &parts[..] {
            [part] if part.failure.is_none() => {
                let contender = &self.contenders[part.contender as usize];
                let may = contender.parameters.txop_limit_ns > 0 && contender.has_work();
                may.then_some(part.contender)
            }
            _ => None,
        };
        self.exchange.parts = parts; // keeps its allocation
        self.exchange.parts.clear();
        self.exchange.leaders.clear();
        continues
    }

    /// 10.23.2.8: another exchange a SIFS later, if it fits into the TXOP limit.
    fn continue_txop(&mut self, contender: u32) -> bool {
        let limit_ns = self.contenders[contender as usize].parameters.txop_limit_ns;
        let start_ns = self.exchange.end_ns + self.setup.timing.sifs_ns;
        let Some(budget_ns) = (self.exchange.txop_start_ns + limit_ns).checked_sub(start_ns) else {
            return false;
        };
        let part = self.compose(contender, Some(budget_ns));
        if self.duration_ns(&part) > budget_ns {
            self.exchange.leaders.clear();
            return false;
        }
        self.send(part, start_ns);
        true
    }

    fn conclude_group(&mut self, part: &Part) {
        let head = self.flows[part.flow as usize].head;
        let state = match self.slab[head].state {
            State::Received => State::Acknowledged,
            _ => State::Dropped,
        };
        self.slab[head].attempts += 1;
        self.report(part.flow, head, false);
        self.settle(part.contender, part.flow, head, state);
        self.succeed(part.contender);
        self.leave(part.contender, part.flow, true);
    }

    fn conclude_request(&mut self, part: &Part) {
        let flow = &mut self.flows[part.flow as usize];
        let failed = part.failure.is_some();
        flow.request_retries = if failed { flow.request_retries + 1 } else { 0 };
        let over = !failed || flow.request_retries >= self.setup.short_retry_limit;
        if over {
            flow.request = false;
            flow.request_retries = 0;
            // given up, the next data moves the receiver's window all the same (10.25.6.6)
            self.deliver(part.flow, self.now_ns);
        }
        if failed {
            self.fail(part.contender, over);
        } else {
            self.succeed(part.contender);
        }
        self.leave(part.contender, part.flow, over);
    }

    fn conclude_data(&mut self, part: &Part) {
        let mut arrived = 0;
        let mut dropped = false;
        let long = part.reserve && part.failure != Some(Failure::Reservation);
        for i in part.leaders.clone() {
            let leader = self.exchange.leaders[i];
            if part.failure.is_none() && self.slab[leader].state == State::Received {
                arrived += 1;
                self.slab[leader].attempts += 1;
                self.report(part.flow, leader, true);
                self.settle(part.contender, part.flow, leader, State::Acknowledged);
            } else {
                dropped |= self.retry(part.contender, part.flow, leader, long);
            }
        }
        let sent = u32::try_from(part.leaders.len()).expect("at most 64 MPDUs");
        if part.failure != Some(Failure::Reservation) {
            self.rates
                .feedback(part.flow, part.mode_index, sent, arrived);
        }
        if part.failure.is_some() {
            self.fail(part.contender, dropped && !part.aggregated);
        } else {
            self.succeed(part.contender);
        }
        let done = part.failure.is_none() || dropped;
        self.leave(part.contender, part.flow, done);
    }

    /// Count a failed attempt of an MPDU (10.3.4.4); true if it is given up.
    fn retry(&mut self, contender: u32, flow: u32, leader: u32, long: bool) -> bool {
        let entry = &mut self.slab[leader];
        entry.attempts += 1;
        let chosen = entry.chain;
        let over = if let Some(chain) = chosen {
            entry.attempts >= chain.attempts()
        } else if long {
            entry.long_retries += 1;
            entry.long_retries >= self.setup.long_retry_limit
        } else {
            entry.short_retries += 1;
            entry.short_retries >= self.setup.short_retry_limit
        };
        if over {
            // it may have arrived, only its acknowledgement has not
            let arrived = entry.state == State::Received;
            let state = if arrived {
                State::Acknowledged
            } else {
                State::Dropped
            };
            let aggregates = entry.aggregates;
            self.report(flow, leader, false);
            self.settle(contender, flow, leader, state);
            if self.setup.block_ack() && aggregates {
                let flow = &mut self.flows[flow as usize];
                flow.request = true;
            }
        }
        over
    }

    /// Tell the sender of a frame for which it chose the rates.
    fn report(&mut self, flow: u32, leader: u32, acknowledged: bool) {
        let entry = &self.slab[leader];
        if entry.chain.is_some() {
            self.reports.push_back(Report {
                time_ns: self.now_ns,
                token: entry.token,
                sender: self.flows[flow as usize].sender,
                attempts: entry.attempts,
                acknowledged,
            });
        }
    }

    /// The sender is done with an MPDU: tell the frames that were lost, free their places.
    fn settle(&mut self, contender: u32, flow: u32, leader: u32, state: State) {
        let flow = &self.flows[flow as usize];
        let contender = &mut self.contenders[contender as usize];
        let mut index = leader;
        loop {
            let entry = &mut self.slab[index];
            entry.state = state;
            contender.queued_frames -= 1;
            contender.queued_bytes -= u64::from(entry.msdu_bytes);
            if state == State::Dropped {
                entry.told = true;
                self.outcomes.push_back(Outcome {
                    time_ns: self.now_ns,
                    token: entry.token,
                    sender: flow.sender,
                    receiver: flow.receiver,
                    msdu_bytes: entry.msdu_bytes,
                    fate: Fate::RetryLimit,
                });
            }
            index = entry.next;
            if index == NONE || !self.slab[index].joined {
                break;
            }
        }
    }

    /// The receiver gives out what is there in order, up to the first gap (10.25.6.6). Of frames that
    /// were given up it has heard: until then their sender sends it nothing but the request.
    pub(super) fn deliver(&mut self, flow_index: u32, time_ns: u64) {
        let flow = &self.flows[flow_index as usize];
        let mut index = flow.head;
        while index != NONE {
            let entry = &mut self.slab[index];
            match entry.state {
                State::Waiting => break,
                State::Received | State::Acknowledged if !entry.told => {
                    entry.told = true;
                    self.outcomes.push_back(Outcome {
                        time_ns,
                        token: entry.token,
                        sender: flow.sender,
                        receiver: flow.receiver,
                        msdu_bytes: entry.msdu_bytes,
                        fate: Fate::Delivered,
                    });
                }
                _ => {}
            }
            index = entry.next;
        }
    }

    /// Take what is settled out of the flow, and the flow out of its contender's turn.
    fn leave(&mut self, contender: u32, flow: u32, done: bool) {
        let flow = &mut self.flows[flow as usize];
        while flow.head != NONE {
            let entry = &self.slab[flow.head];
            let settled = match entry.state {
                State::Acknowledged => entry.told,
                State::Dropped => !flow.request,
                State::Waiting | State::Received => false,
            };
            if !settled {
                break;
            }
            flow.pop(&mut self.slab);
        }
        let ring = &mut self.contenders[contender as usize].ring;
        if flow.is_empty() && !flow.request {
            ring.pop_front();
        } else if done {
            // receivers take turns; a frame that is repeated keeps its turn
            ring.rotate_left(1);
        }
    }

    /// 10.23.2.4: as if it had collided on air, for the window and for the retry count of the frame.
    fn lose_internally(&mut self, contender_index: u32) {
        let contender = &self.contenders[contender_index as usize];
        let station = usize::from(contender.station);
        self.stations[station].counters.internal_collisions += 1;
        let mut given_up = false;
        if let Some(flow) = contender
            .ring
            .front()
            .copied()
            .filter(|_| !self.setup.block_ack() && !self.setup.chosen)
        {
            let head = self.flows[flow as usize].head;
            given_up = self.retry(contender_index, flow, head, false);
            self.leave(contender_index, flow, given_up);
        }
        self.fail(contender_index, given_up);
        self.draw_backoff(contender_index);
    }

    /// Widen the contention window after a failure (10.3.3, 10.23.2.2).
    fn fail(&mut self, contender_index: u32, given_up: bool) {
        let limit = self.setup.short_retry_limit;
        let contender = &mut self.contenders[contender_index as usize];
        contender.retries += 1;
        if given_up || contender.retries >= limit {
            self.succeed(contender_index);
            return;
        }
        let parameters = &contender.parameters;
        let shift = u32::from(contender.retries).min(15);
        contender.cw = (((parameters.cw_min + 1) << shift) - 1).min(parameters.cw_max);
    }

    fn succeed(&mut self, contender_index: u32) {
        let contender = &mut self.contenders[contender_index as usize];
        contender.retries = 0;
        contender.cw = contender.parameters.cw_min;
    }

    /// Every transmission is followed by a backoff, with or without a next frame (10.3.4.3).
    fn draw_backoff(&mut self, contender_index: u32) {
        let contender = &mut self.contenders[contender_index as usize];
        let random = &mut self.stations[usize::from(contender.station)].backoff;
        contender.slots = random.backoff(contender.cw);
    }
}
