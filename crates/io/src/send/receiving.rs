//! The receiving thread: replies as they come, the records of packets, and the end.

use rtrb::Consumer;
use tm_probe::{Incoming, Note, SendRecord, SenderFlow};
use tm_wire::{Duration, Instant};

use super::plan::SendPlan;
use crate::process::{Priority, Realtime};
use crate::records::Records;
use crate::udp::{Batch, Ready, Socket};
use crate::{clock, IoError};

/// What came of the receiving thread.
pub(super) struct Received {
    /// When the last reply was waited for.
    pub end: Instant,
    pub realtime: Realtime,
    /// Every reply had a kernel timestamp.
    pub kernel_timestamps: bool,
    /// In the order of the plan.
    pub flows: Vec<SenderFlow>,
}

/// All that the thread works with.
pub(super) struct Receiving<'a> {
    sockets: &'a mut [Socket],
    ready: Ready,
    batch: Batch,
    incoming: Incoming,
    notes: Consumer<Note>,
    priority: Priority,
}

/// Longest time between two looks at the notes of the sending thread, and how often records are
/// looked for that nothing more is waited for.
const LOOK: Duration = Duration::from_millis(5);
const PROGRESS: Duration = Duration::from_millis(500);

impl<'a> Receiving<'a> {
    pub fn new(
        plan: &SendPlan,
        sockets: &'a mut [Socket],
        notes: Consumer<Note>,
    ) -> Result<Self, IoError> {
        let flows = plan.flows.iter();
        let flows = flows.map(|flow| (flow.flow, flow.outgoing.format.clone()));
        Ok(Self {
            priority: Priority::take(plan.realtime_priority),
            ready: Ready::watch(sockets)?,
            sockets,
            batch: Batch::new(plan.largest_bytes()),
            incoming: Incoming::new(flows, plan.waiting),
            notes,
        })
    }

    /// Receives until nothing more is waited for. `sending_done` tells when the last packet left,
    /// once it has; `tell` hears of the flows every 500 ms.
    pub fn run(
        mut self,
        mut records: Records,
        sending_done: impl Fn() -> Option<Instant>,
        mut tell: impl FnMut(Instant, &[SenderFlow]),
    ) -> Result<Received, IoError> {
        let mut next_look = clock::now();
        let mut next_progress = next_look + PROGRESS;
        let end = loop {
            // Asked before the notes are taken: of a packet that left before there is a note.
            let done = sending_done();
            take_notes(&mut self.notes, &mut self.incoming);
            self.take_answers();
            let now = clock::now();
            if now >= next_look {
                next_look = now + LOOK;
                self.incoming
                    .expire(now, |record| records.push(&record.to_bytes()));
                if records.failed() {
                    break now;
                }
                if let Some(at) = done {
                    self.incoming.sending_done(at);
                    if self.incoming.over(now) {
                        break now;
                    }
                }
            }
            if now >= next_progress {
                next_progress = now + PROGRESS;
                tell(now, self.incoming.flows());
            }
            self.ready.wait(LOOK);
            self.priority.check();
        };
        take_notes(&mut self.notes, &mut self.incoming);
        let kernel_timestamps = self.incoming.kernel_timestamps;
        let flows = self
            .incoming
            .finish(|record: &SendRecord| records.push(&record.to_bytes()));
        records.finish()?;
        Ok(Received {
            end,
            realtime: self.priority.fate(),
            kernel_timestamps,
            flows,
        })
    }

    /// Takes a batch of each socket that has one: who floods one has the others wait for no more than
    /// that.
    fn take_answers(&mut self) {
        for place in self.ready.places() {
            if self.batch.receive(&mut self.sockets[place]) == 0 {
                continue;
            }
            // A test packet's note is pushed before it leaves: taking notes now, after its reply has
            // been read, finds it.
            take_notes(&mut self.notes, &mut self.incoming);
            self.incoming.take(place, &mut self.batch);
        }
    }
}

/// Takes the notes that are there, and not those that come meanwhile: a sender that is as fast would
/// have it go on for ever.
fn take_notes(notes: &mut Consumer<Note>, incoming: &mut Incoming) {
    for _ in 0..notes.slots() {
        if let Ok(note) = notes.pop() {
            incoming.note(note);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::send::FlowPlan;
    use crate::udp::{Options, ReceiveTime};
    use rtrb::RingBuffer;
    use std::net::{SocketAddr, UdpSocket};
    use tm_probe::port::BATCH;
    use tm_probe::{Content, Format, Missed, OutgoingFlow, Schedule, Size, Stop, Waiting};

    fn plan(count: u16) -> SendPlan {
        let any = SocketAddr::from(([127, 0, 0, 1], 0));
        let flow = |flow| FlowPlan {
            flow,
            outgoing: OutgoingFlow {
                format: Format::Stamp { key: None },
                start_offset: Duration(0),
                schedule: Schedule::Fixed { gap: Duration(1) },
                end: Stop::Packets(1),
                size: Size::Fixed(100),
                content: Content::Zero,
                seed: 0,
            },
            target: any,
            source: any,
            interface: None,
            netns: None,
            traffic_class: 0,
        };
        SendPlan {
            flows: (0..count).map(flow).collect(),
            waiting: Waiting {
                late: Duration(0),
                drain: Duration(0),
            },
            missed: Missed::Send,
            coalesce: Duration(0),
            spin: true,
            segment: false,
            dont_fragment: false,
            receive_time: ReceiveTime::Kernel,
            records: None,
            realtime_priority: None,
            send_cpu: None,
            receive_cpu: None,
            buffer_bytes: 1 << 20,
            shards: 1,
        }
    }

    #[test]
    fn who_floods_one_flow_has_the_others_wait_for_a_batch_at_most() {
        let plan = plan(3);
        let options = Options {
            buffer_bytes: plan.buffer_bytes,
            dont_fragment: false,
            interface: None,
            netns: None,
            traffic_class: 0,
            time_to_live: false,
            receive_time: plan.receive_time,
            shared: false,
        };
        let open = |flow: &FlowPlan| Socket::open(flow.source, None, &options).unwrap();
        let mut sockets: Vec<Socket> = plan.flows.iter().map(open).collect();
        let stranger = UdpSocket::bind("127.0.0.1:0").unwrap();
        let to = |place: usize, count: usize| {
            let address = sockets[place].local().unwrap();
            for _ in 0..count {
                stranger.send_to(b"no answer", address).unwrap();
            }
        };
        to(0, 3 * BATCH);
        to(2, 1);
        let (_, notes) = RingBuffer::new(1);
        let mut receiving = Receiving::new(&plan, &mut sockets, notes).unwrap();
        receiving.ready.wait(Duration(1_000_000_000));
        receiving.take_answers();
        let rejected = receiving.incoming.flows().iter();
        let rejected: Vec<u64> = rejected.map(|flow| flow.counters.rejected).collect();
        assert_eq!(rejected, [BATCH as u64, 0, 1]);
    }
}
