//! The end of an exchange: what the senders learn, and what the receivers give out.

use super::bss::Bss;
use super::compose::{Failure, Kind, Part};
use super::queue::State;

impl Bss {
    /// Apply the result of a part, whose MPDUs begin with `leaders`.
    pub(super) fn conclude(&mut self, part: &Part, leaders: &[u32], now_ns: u64) {
        match part.kind {
            Kind::Beacon { .. } => self.access.get_mut(part.contender).beacon_waits = false,
            Kind::Group => self.conclude_group(part, now_ns),
            Kind::Request { .. } => self.conclude_request(part, now_ns),
            Kind::Data { .. } => self.conclude_data(part, leaders, now_ns),
        }
        self.access.draw_backoff(part.contender);
    }

    /// 10.23.2.4: as if it had collided on air, for the window and for the retry count of the frame.
    pub(super) fn lose_internally(&mut self, contender_index: u32, now_ns: u64) {
        let contender = self.access.get(contender_index);
        let (station, flow) = (contender.station, contender.ring.front().copied());
        self.counters(station).internal_collisions += 1;
        let mut given_up = false;
        let counts = !self.setup.block_ack() && !self.setup.chosen;
        if let Some(flow) = flow.filter(|_| counts) {
            let head = self.queues.head(flow);
            given_up = self.retry(contender_index, flow, head, false, now_ns);
            self.leave(contender_index, flow, given_up);
        }
        self.access.fail(contender_index, given_up);
        self.access.draw_backoff(contender_index);
    }

    fn conclude_group(&mut self, part: &Part, now_ns: u64) {
        let head = self.queues.head(part.flow);
        let entry = &mut self.queues.slab[head];
        entry.attempts += 1;
        let state = match entry.state {
            State::Received => State::Acknowledged,
            _ => State::Dropped,
        };
        self.queues.report(part.flow, head, false, now_ns);
        self.settle(part.contender, part.flow, head, state, now_ns);
        self.access.succeed(part.contender);
        self.leave(part.contender, part.flow, true);
    }

    fn conclude_request(&mut self, part: &Part, now_ns: u64) {
        let flow = self.queues.flow_mut(part.flow);
        let failed = part.failure.is_some();
        flow.request_retries = if failed { flow.request_retries + 1 } else { 0 };
        let over = !failed || flow.request_retries >= self.setup.short_retry_limit;
        if over {
            flow.request = false;
            flow.request_retries = 0;
            // given up, the next data moves the receiver's window all the same (10.25.6.6)
            self.queues.deliver(part.flow, now_ns);
        }
        if failed {
            self.access.fail(part.contender, over);
        } else {
            self.access.succeed(part.contender);
        }
        self.leave(part.contender, part.flow, over);
    }

    fn conclude_data(&mut self, part: &Part, leaders: &[u32], now_ns: u64) {
        let mut arrived = 0;
        let mut dropped = false;
        let long = part.reserve && part.failure != Some(Failure::Reservation);
        for &leader in leaders {
            let entry = &mut self.queues.slab[leader];
            if part.failure.is_none() && entry.state == State::Received {
                arrived += 1;
                entry.attempts += 1;
                self.queues.report(part.flow, leader, true, now_ns);
                let state = State::Acknowledged;
                self.settle(part.contender, part.flow, leader, state, now_ns);
            } else {
                dropped |= self.retry(part.contender, part.flow, leader, long, now_ns);
            }
        }
        let sent = u32::try_from(leaders.len()).expect("at most a block ack window");
        if part.failure != Some(Failure::Reservation) {
            self.rates
                .feedback(part.flow, part.mode_index, sent, arrived);
        }
        if part.failure.is_some() {
            self.access
                .fail(part.contender, dropped && !part.aggregated);
        } else {
            self.access.succeed(part.contender);
        }
        let done = part.failure.is_none() || dropped;
        self.leave(part.contender, part.flow, done);
    }

    /// Count a failed attempt of an MPDU (10.3.4.4); true if it is given up.
    fn retry(&mut self, contender: u32, flow: u32, leader: u32, long: bool, now_ns: u64) -> bool {
        let entry = &mut self.queues.slab[leader];
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
            self.queues.report(flow, leader, false, now_ns);
            self.settle(contender, flow, leader, state, now_ns);
            if self.setup.block_ack() && aggregates {
                self.queues.flow_mut(flow).request = true;
            }
        }
        over
    }

    /// The sender is done with an MPDU.
    fn settle(&mut self, contender: u32, flow: u32, leader: u32, state: State, now_ns: u64) {
        let settled = self.queues.settle(flow, leader, state, now_ns);
        let contender = self.access.get_mut(contender);
        contender.queued_frames -= settled.frames;
        contender.queued_bytes -= settled.bytes;
    }

    /// Take what is settled out of the flow, and the flow out of its contender's turn.
    fn leave(&mut self, contender: u32, flow: u32, done: bool) {
        let empty = self.queues.drop_settled(flow);
        let ring = &mut self.access.get_mut(contender).ring;
        if empty {
            ring.pop_front();
        } else if done {
            // receivers take turns; a frame that is repeated keeps its turn
            ring.rotate_left(1);
        }
    }
}
