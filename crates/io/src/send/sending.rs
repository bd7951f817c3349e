//! The sending thread: what is due, when it is due, a batch a system call.

use rtrb::Producer;
use tm_probe::{Note, Outgoing};
use tm_wire::{Duration, Instant};

use super::plan::SendPlan;
use crate::alarm::Alarm;
use crate::process::{self, Priority, Realtime, Stop};
use crate::udp::{Batch, Departure, Socket};
use crate::{clock, IoError};

/// Sends all flows to their end; returns what became of the thread's `SCHED_FIFO`, and how
/// long it waited awake.
///
/// `start` is asked for the start of the schedule when everything is ready, so that the first packet
/// waits for nothing; without one nothing is sent. It ends early on `stop`, and where nobody takes
/// the notes any more.
pub(super) fn sending(
    plan: &SendPlan,
    sockets: &mut [Socket],
    mut notes: Producer<Note>,
    start: impl FnOnce() -> Option<Instant>,
    stop: &Stop,
) -> Result<(Realtime, Duration), IoError> {
    process::pin(plan.send_cpu)?;
    process::steady();
    let mut priority = Priority::take(plan.realtime_priority);
    let flows = plan.flows.iter().map(|flow| &flow.outgoing);
    let mut outgoing = Outgoing::new(flows, plan.missed);
    let mut batch = Batch::new(plan.largest_bytes());
    let mut alarm = Alarm::new(plan.spin);
    let Some(start) = start() else {
        return Ok((priority.fate(), alarm.awake()));
    };
    outgoing.begin(start);
    while let Some((due, flow)) = outgoing.next_due() {
        if stop.requested() || notes.is_abandoned() {
            break;
        }
        if due > batch.look() {
            if plan.coalesce > Duration::ZERO {
                clock::sleep_until((due + plan.coalesce).min(clock::now() + SLICE));
            } else {
                alarm.wait_until(due);
            }
            continue;
        }
        let mut departure = Departure {
            batch: &mut batch,
            socket: &mut sockets[flow],
            segment: plan.segment,
            stop,
        };
        outgoing.send_due(&mut departure, |note| push(&mut notes, note, stop));
        alarm.passed(due);
        priority.check();
    }
    Ok((priority.fate(), alarm.awake()))
}

/// Longest sleep before a request to stop is looked at.
const SLICE: Duration = Duration::from_millis(100);

/// Hands a note over; false: nobody takes it, or the run is to end before somebody does.
fn push(notes: &mut Producer<Note>, mut note: Note, stop: &Stop) -> bool {
    while let Err(rtrb::PushError::Full(back)) = notes.push(note) {
        if stop.requested() || notes.is_abandoned() {
            return false;
        }
        note = back;
        clock::sleep_until(clock::now() + Duration(100_000));
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;
    use rtrb::RingBuffer;

    const NOTE: Note = Note::Refused { flow: 0, seq: 0 };

    #[test]
    fn a_full_ring_holds_nobody_up_who_is_to_stop_or_whom_nobody_hears() {
        let (mut notes, taken) = RingBuffer::new(1);
        let stop = Stop::new();
        assert!(push(&mut notes, NOTE, &stop));
        stop.request();
        assert!(!push(&mut notes, NOTE, &stop));
        let stop = Stop::new();
        drop(taken);
        assert!(!push(&mut notes, NOTE, &stop));
    }
}
