//! The sending thread: what is due, when it is due, a batch a system call.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use rtrb::Producer;
use tm_probe::{Filler, Pacer, Slot};
use tm_wire::Nanos;

use crate::alarm::Alarm;
use crate::process::{self, Priority, Realtime, Stop};
use crate::send::{FlowPlan, SendPlan};
use crate::udp::{Batch, Sending, Socket, BATCH};
use crate::{clock, IoError};

/// A packet that was due, from the sending to the receiving thread.
///
/// Notes of a batch are pushed before its packets leave, so an answer always finds its question.
#[derive(Clone, Copy)]
pub(crate) enum Note {
    /// It was handed to the kernel, or skipped.
    Due {
        /// Place of the flow in the plan.
        flow: u16,
        scheduled: Nanos,
        sent: Option<Nanos>,
        size: u32,
    },
    /// The kernel refused it.
    Refused { flow: u16, seq: u32 },
    /// It had to wait for room in the socket's buffer and leaves at `sent`.
    HeldUp { flow: u16, seq: u32, sent: Nanos },
}

/// Sends all flows to their end; returns what became of the thread's `SCHED_FIFO`.
///
/// `start` is asked for the start of the schedule when everything is ready, so that the first packet
/// waits for nothing; without one nothing is sent.
pub(crate) fn sending(
    plan: &SendPlan,
    sockets: &mut [Socket],
    mut notes: Producer<Note>,
    start: impl FnOnce() -> Option<Nanos>,
    stop: &Stop,
) -> Result<Realtime, IoError> {
    process::pin(plan.send_cpu)?;
    process::steady();
    let mut priority = Priority::take(plan.realtime_priority);
    let mut flows: Vec<Outgoing<'_>> = (0_u16..)
        .zip(plan.flows.iter().zip(sockets))
        .map(|(number, (flow, socket))| Outgoing::new(number, flow, socket, plan))
        .collect();
    let mut alarm = Alarm::default();
    let Some(start) = start() else {
        return Ok(priority.fate());
    };
    for flow in &mut flows {
        flow.pacer.shift(start);
    }
    // The flow with the earliest packet is on top.
    let mut queue: BinaryHeap<Reverse<(Nanos, usize)>> = flows
        .iter()
        .enumerate()
        .filter_map(|(index, flow)| Some(Reverse((flow.pacer.next_due()?, index))))
        .collect();
    while let Some(Reverse((due, index))) = queue.peek().copied() {
        if stop.asked() {
            break;
        }
        if due > clock::now() {
            if plan.coalesce > Nanos(0) {
                clock::sleep_until((due + plan.coalesce).min(clock::now() + SLICE));
            } else {
                alarm.wait_until(due);
            }
            continue;
        }
        queue.pop();
        flows[index].send_due(&mut notes);
        alarm.passed(due);
        if let Some(next) = flows[index].pacer.next_due() {
            queue.push(Reverse((next, index)));
        }
        priority.check();
    }
    Ok(priority.fate())
}

/// Longest sleep before a request to stop is looked at.
const SLICE: Nanos = Nanos(100_000_000);

struct Outgoing<'a> {
    number: u16,
    plan: &'a FlowPlan,
    socket: &'a mut Socket,
    segment: bool,
    pacer: Pacer,
    filler: Filler,
    batch: Batch,
    /// Packets that were due at once, those that are skipped too.
    due: Vec<Slot>,
}

impl<'a> Outgoing<'a> {
    fn new(number: u16, flow: &'a FlowPlan, socket: &'a mut Socket, plan: &SendPlan) -> Self {
        Self {
            number,
            plan: flow,
            socket,
            segment: plan.segment,
            pacer: Pacer::new(
                flow.start_offset,
                flow.schedule.clone(),
                flow.size.clone(),
                flow.end,
                plan.missed,
                flow.seed,
            ),
            filler: Filler::new(flow.content.clone(), flow.seed),
            batch: Batch::new(flow.largest_bytes()),
            due: Vec::with_capacity(BATCH),
        }
    }

    /// Sends what is due of this flow, at most a batch, in one system call.
    fn send_due(&mut self, notes: &mut Producer<Note>) {
        let offset = clock::realtime_offset();
        let now = clock::now();
        let mut count = 0;
        self.due.clear();
        while count < BATCH {
            let Some(slot) = self.pacer.poll(now) else {
                break;
            };
            self.due.push(slot);
            if slot.send {
                self.batch.set_length(count, slot.size as usize);
                let packet = self.batch.packet(count);
                let head = self.plan.format.header_bytes(packet.len());
                self.filler.fill(slot.seq, &mut packet[head..]);
                count += 1;
            }
        }
        // All are filled before the first is stamped: that work is no delay of the path.
        let flow = self.number;
        let mut place = 0;
        for slot in &self.due {
            let mut sent = None;
            if slot.send {
                let time = clock::now();
                let packet = self.batch.packet(place);
                self.plan.format.ask(packet, slot.seq, time, offset);
                sent = Some(time);
                place += 1;
            }
            let (scheduled, size) = (slot.scheduled, slot.size);
            push(
                notes,
                Note::Due {
                    flow,
                    scheduled,
                    sent,
                    size,
                },
            );
        }
        self.due.retain(|slot| slot.send);
        let mut from = 0;
        while from < count {
            let (sent, end) = if self.segment {
                self.batch.send_runs(self.socket, from, count)
            } else {
                self.batch.send(self.socket, from, count, false)
            };
            from += sent;
            match end {
                Sending::Done => {}
                Sending::Refused => {
                    let seq = self.due[from].seq;
                    push(notes, Note::Refused { flow, seq });
                    from += 1;
                }
                // The wait is ours, not the path's: what did not leave is stamped anew.
                Sending::Full => {
                    self.socket.wait_writable();
                    for place in from..count {
                        let (seq, sent) = (self.due[place].seq, clock::now());
                        let packet = self.batch.packet(place);
                        self.plan.format.ask(packet, seq, sent, offset);
                        push(notes, Note::HeldUp { flow, seq, sent });
                    }
                }
            }
        }
    }
}

fn push(notes: &mut Producer<Note>, mut note: Note) {
    while let Err(rtrb::PushError::Full(back)) = notes.push(note) {
        note = back;
        clock::sleep_until(clock::now() + Nanos(100_000));
    }
}
