//! Requests and answers over UDP and TCP: one at a time on each socket, timed by the asking end.
//!
//! Several outstanding transactions are several sockets, each with a thread that blocks: what is
//! timed is what a program that asks and waits would see, the wake-up of its thread included.

use std::collections::VecDeque;
use std::io::ErrorKind;
use std::net::{SocketAddr, TcpStream, UdpSocket};
use std::panic::resume_unwind;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::ScopedJoinHandle;

use tm_probe::Delays;
use tm_wire::{Duration, Instant};

use crate::process::{self, Priority, Stop};
use crate::rr_line::{connect, failed, fill, hand_over, udp, waits, Filled};
use crate::{clock, IoError};

/// Session and number at the start of every request and answer.
pub const HEADER_BYTES: usize = 16;
const PROGRESS: Duration = Duration::from_millis(500);

/// How requests are carried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transport {
    /// One datagram each way.
    Udp,
    /// One TCP connection for all transactions of a socket.
    Tcp,
    /// A TCP connection for each transaction, which the answering end closes.
    Connect,
}

/// Where one flow of transactions goes.
pub struct Target {
    /// The answering end.
    pub target: SocketAddr,
    /// Address to ask from, UDP only; the route decides otherwise.
    pub source: Option<SocketAddr>,
}

/// What is asked.
pub struct RequestPlan {
    /// How.
    pub transport: Transport,
    /// Where, all at once.
    pub flows: Vec<Target>,
    /// Sockets of each flow.
    pub outstanding: usize,
    /// Bytes of a request, header included.
    pub request_bytes: usize,
    /// Bytes of an answer, header included.
    pub response_bytes: usize,
    /// What both ends know the transactions by.
    pub session: u64,
    /// So long transactions are begun.
    pub duration: Duration,
    /// How long to wait for an answer.
    pub timeout: Duration,
    /// `SCHED_FIFO` priority of the threads.
    pub priority: Option<u8>,
}

/// What came of a flow.
#[derive(Clone, Default)]
pub struct RequestOutcome {
    /// Time of every transaction that was answered.
    pub delays: Delays,
    /// Transactions that were begun.
    pub begun: u64,
    /// Those that were answered.
    pub answered: u64,
    /// Those whose answer did not come in time, UDP only.
    pub lost: u64,
    /// Answers that came after their time, UDP only.
    pub late: u64,
    /// Why the flow ended early.
    pub error: Option<String>,
}

/// Asks until the time is over or `stop`; returns the flows and how long they asked.
///
/// That is until no request was begun any more, or until the last answer where one came after that.
/// The wait for an answer that never came does not count: one lost datagram at the end would make the
/// rate of all flows smaller.
pub fn request(
    plan: &RequestPlan,
    stop: &Stop,
    mut tell: impl FnMut(&[u64]) + Send,
) -> Result<(Vec<RequestOutcome>, Duration), IoError> {
    let flows: Vec<Mutex<RequestOutcome>> = plan.flows.iter().map(|_| Mutex::default()).collect();
    let gate = Gate::default();
    let span = std::thread::scope(|scope| {
        let mut threads = Vec::new();
        for (place, target) in plan.flows.iter().enumerate() {
            for number in 0..plan.outstanding {
                let (flow, gate) = (&flows[place], &gate);
                let first = ((place * plan.outstanding + number) as u64) << 40;
                let thread = process::spawn_scoped(scope, "asking", move || {
                    let opened = Requester::open(plan, target, first, stop);
                    // Who failed takes part all the same: nobody waits for ever.
                    if !gate.pass() {
                        return None;
                    }
                    let asked = opened.and_then(|mut requester| requester.run(flow));
                    asked
                        .map_err(|error| {
                            locked(flow).error.get_or_insert(error.to_string());
                            stop.request();
                        })
                        .ok()
                });
                match thread {
                    Ok(thread) => threads.push(thread),
                    Err(error) => {
                        gate.open(threads.len(), false);
                        return Err(error);
                    }
                }
            }
        }
        process::steady();
        gate.open(threads.len(), true);
        let mut next = clock::now() + PROGRESS;
        while threads.iter().any(|thread| !thread.is_finished()) {
            clock::sleep_until(clock::now() + Duration::from_millis(20));
            if clock::now() >= next {
                tell(&flows.iter().map(|f| locked(f).answered).collect::<Vec<_>>());
                next += PROGRESS;
            }
        }
        let ended = threads.into_iter().map(ScopedJoinHandle::join);
        let asked = ended.filter_map(|thread| thread.unwrap_or_else(|panic| resume_unwind(panic)));
        let together = asked.reduce(|(began, until), (from, to)| (began.min(from), until.max(to)));
        Ok(together.map_or(Duration::ZERO, |(began, until)| until - began))
    })?;
    let flows = flows
        .into_iter()
        .map(|flow| flow.into_inner().unwrap_or_else(PoisonError::into_inner))
        .collect();
    Ok((flows, span))
}

fn locked<T>(shared: &Mutex<T>) -> MutexGuard<'_, T> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Where threads wait for each other, as many as could be started.
#[derive(Default)]
struct Gate {
    /// How many wait, and whether they are to go on once that is known.
    state: Mutex<(usize, Option<bool>)>,
    changed: Condvar,
}

impl Gate {
    /// Waits for the gate to open; whether there is anything to do behind it.
    fn pass(&self) -> bool {
        let mut state = locked(&self.state);
        state.0 += 1;
        self.changed.notify_all();
        let wait = self.changed.wait_while(state, |state| state.1.is_none());
        wait.unwrap_or_else(PoisonError::into_inner).1 == Some(true)
    }

    /// Waits until `count` threads wait, and lets them go on, or home.
    fn open(&self, count: usize, go: bool) {
        let state = locked(&self.state);
        let wait = self.changed.wait_while(state, |state| state.0 < count);
        wait.unwrap_or_else(PoisonError::into_inner).1 = Some(go);
        self.changed.notify_all();
    }
}

enum Line {
    Udp(UdpSocket),
    Tcp(TcpStream),
    /// Opened again for each transaction. Until the first there is one that shows that somebody answers:
    /// as many are open at one time as will be, so the other end starts its threads before the time
    /// runs.
    Anew(Option<TcpStream>),
}

/// One socket that asks.
struct Requester<'a> {
    plan: &'a RequestPlan,
    target: SocketAddr,
    line: Line,
    next: u64,
    /// Transactions whose answer did not come in time, the last of them: it may still come.
    lost: VecDeque<u64>,
    request: Vec<u8>,
    answer: Vec<u8>,
    stop: &'a Stop,
}

enum Fate {
    /// In time, at this point.
    Answered(Instant),
    /// So late that it is lost, and seen to be.
    Late,
    Lost,
    Stopped,
}

/// Lost transactions whose answers are known as late ones.
const MOST_LOST: usize = 1024;

impl<'a> Requester<'a> {
    fn open(
        plan: &'a RequestPlan,
        target: &Target,
        first: u64,
        stop: &'a Stop,
    ) -> Result<Self, IoError> {
        let line = match plan.transport {
            Transport::Udp => Line::Udp(udp(target.target, target.source, plan.timeout)?),
            Transport::Tcp => Line::Tcp(connect(target.target, plan.timeout)?),
            Transport::Connect => Line::Anew(Some(connect(target.target, plan.timeout)?)),
        };
        let mut request = vec![0; plan.request_bytes];
        request[..8].copy_from_slice(&plan.session.to_be_bytes());
        Ok(Self {
            plan,
            target: target.target,
            line,
            next: first,
            lost: VecDeque::new(),
            request,
            // One more: a datagram that is too long shows.
            answer: vec![0; plan.response_bytes + 1],
            stop,
        })
    }

    /// Asks until the time is over or it is to stop; returns since when and until when.
    fn run(&mut self, flow: &Mutex<RequestOutcome>) -> Result<(Instant, Instant), IoError> {
        let mut priority = Priority::take(self.plan.priority);
        let began = clock::now();
        let end = began + self.plan.duration;
        let mut last_answer = began;
        while !self.stop.requested() {
            if clock::now() >= end {
                break;
            }
            self.request[8..HEADER_BYTES].copy_from_slice(&self.next.to_be_bytes());
            let mut late = 0;
            locked(flow).begun += 1;
            // Behind the lock: waiting for another thread of ours is no delay of the path.
            let start = clock::now();
            let fate = self.once(start, &mut late)?;
            let mut seen = locked(flow);
            seen.late += late;
            match fate {
                Fate::Answered(at) => {
                    last_answer = at;
                    seen.answered += 1;
                    seen.delays.add(at - start);
                }
                Fate::Late => {
                    seen.lost += 1;
                    seen.late += 1;
                }
                Fate::Lost => {
                    seen.lost += 1;
                    self.lost.truncate(MOST_LOST - 1);
                    self.lost.push_front(self.next);
                }
                Fate::Stopped => seen.begun -= 1,
            }
            drop(seen);
            self.next += 1;
            priority.check();
        }
        Ok((began, clock::now().min(end).max(last_answer)))
    }

    fn once(&mut self, start: Instant, late: &mut u64) -> Result<Fate, IoError> {
        let deadline = start + self.plan.timeout;
        match &mut self.line {
            Line::Udp(socket) => {
                socket
                    .send(&self.request)
                    .map_err(|error| failed("request to", self.target, error))?;
                loop {
                    match socket.recv(&mut self.answer) {
                        Ok(length) if length == self.plan.response_bytes => {
                            let at = clock::now();
                            if self.answer[..HEADER_BYTES] == self.request[..HEADER_BYTES] {
                                // The socket is looked at in slices: it may have come too late.
                                let fate = if at <= deadline {
                                    Fate::Answered(at)
                                } else {
                                    Fate::Late
                                };
                                return Ok(fate);
                            }
                            let session = self.plan.session;
                            *late += u64::from(was_lost(&self.answer, session, &mut self.lost));
                        }
                        // Of another length, so no answer.
                        Ok(_) => {}
                        Err(error) if waits(&error) => {}
                        Err(error) => return Err(failed("answer of", self.target, error)),
                    }
                    if self.stop.requested() {
                        return Ok(Fate::Stopped);
                    }
                    if clock::now() >= deadline {
                        return Ok(Fate::Lost);
                    }
                }
            }
            Line::Tcp(stream) => exchange(
                self.plan,
                stream,
                (self.target, &self.request, &mut self.answer),
                deadline,
                self.stop,
                false,
            ),
            Line::Anew(probe) => {
                drop(probe.take());
                let mut stream = connect(self.target, self.plan.timeout)?;
                exchange(
                    self.plan,
                    &mut stream,
                    (self.target, &self.request, &mut self.answer),
                    deadline,
                    self.stop,
                    true,
                )
            }
        }
    }
}

/// Whether what was received answers a transaction that was lost; it does so once.
fn was_lost(answer: &[u8], own: u64, lost: &mut VecDeque<u64>) -> bool {
    let [session, number] = [0, 8].map(|at| &answer[at..at + 8]);
    if session != own.to_be_bytes() {
        return false;
    }
    let place = lost.iter().position(|lost| lost.to_be_bytes() == number);
    place.and_then(|place| lost.remove(place)).is_some()
}

/// One transaction of a connection; with `closing` the other end closes it afterwards.
fn exchange(
    plan: &RequestPlan,
    stream: &mut TcpStream,
    (target, request, answer): (SocketAddr, &[u8], &mut Vec<u8>),
    deadline: Instant,
    stop: &Stop,
    closing: bool,
) -> Result<Fate, IoError> {
    let enough = || stop.requested() || clock::now() >= deadline;
    let wrong = |kind, what: &str| failed("answer of", target, std::io::Error::new(kind, what));
    let late = || wrong(ErrorKind::TimedOut, "did not come in time");
    if !hand_over(stream, request, enough).map_err(|error| failed("request to", target, error))? {
        return if stop.requested() {
            Ok(Fate::Stopped)
        } else {
            Err(late())
        };
    }
    let wanted = plan.response_bytes + usize::from(closing);
    let got = fill(stream, &mut answer[..wanted], enough)
        .map_err(|error| failed("answer of", target, error))?;
    let at = clock::now();
    match got {
        Filled::Ended(length) if closing && length == plan.response_bytes => {}
        Filled::Whole if !closing => {}
        Filled::Waiting if stop.requested() => return Ok(Fate::Stopped),
        Filled::Waiting => return Err(late()),
        Filled::Ended(0) => {
            let what = "did not come: the connection was closed";
            return Err(wrong(ErrorKind::UnexpectedEof, what));
        }
        Filled::Whole | Filled::Ended(_) => {
            return Err(wrong(ErrorKind::InvalidData, "is not as long as asked for"));
        }
    }
    if answer[..HEADER_BYTES] != request[..HEADER_BYTES] {
        return Err(wrong(ErrorKind::InvalidData, "is to another request"));
    }
    // The connection is looked at in slices: it may have come after its time.
    if at > deadline {
        return Err(late());
    }
    Ok(Fate::Answered(at))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_to_what_was_lost_is_late_once_and_any_other_is_none() {
        let datagram =
            |session: u64, number: u64| [session.to_be_bytes(), number.to_be_bytes()].concat();
        let mut lost = VecDeque::from([4, 3]);
        assert!(
            !was_lost(&datagram(7, 2), 7, &mut lost),
            "it was answered in time"
        );
        assert!(!was_lost(&datagram(8, 3), 7, &mut lost), "another session");
        assert!(was_lost(&datagram(7, 3), 7, &mut lost));
        assert!(!was_lost(&datagram(7, 3), 7, &mut lost), "a copy");
        assert_eq!(lost, [4]);
    }

    #[test]
    fn nobody_waits_at_the_gate_for_threads_that_could_not_be_started() {
        for go in [false, true] {
            let gate = Gate::default();
            std::thread::scope(|scope| {
                let threads = [(); 3].map(|()| scope.spawn(|| gate.pass()));
                gate.open(3, go);
                assert!(threads
                    .into_iter()
                    .all(|thread| thread.join().unwrap() == go));
            });
        }
    }

    fn plan_of(
        server: &UdpSocket,
        outstanding: usize,
        duration: Duration,
        timeout: Duration,
    ) -> RequestPlan {
        server
            .set_read_timeout(Some(crate::rr_line::SLICE))
            .unwrap();
        RequestPlan {
            transport: Transport::Udp,
            flows: vec![Target {
                target: server.local_addr().unwrap(),
                source: None,
            }],
            outstanding,
            request_bytes: 32,
            response_bytes: 32,
            session: 7,
            duration,
            timeout,
            priority: None,
        }
    }

    #[test]
    fn an_answer_behind_its_time_is_late_once_and_its_copy_is_none() {
        let server = UdpSocket::bind("127.0.0.1:0").unwrap();
        // The second of two slices lasts beyond it, so an answer behind it is read.
        let plan = plan_of(
            &server,
            1,
            Duration::from_millis(700),
            Duration::from_millis(150),
        );
        let (flows, _) = std::thread::scope(|scope| {
            let asked = scope.spawn(|| request(&plan, &Stop::new(), |_| {}).unwrap());
            let mut message = [0; 32];
            while !asked.is_finished() {
                if let Ok((_, peer)) = server.recv_from(&mut message) {
                    let behind = clock::now() + Duration::from_millis(170);
                    while clock::now() < behind {
                        clock::sleep_until(behind);
                    }
                    for _copy in 0..2 {
                        server.send_to(&message, peer).unwrap();
                    }
                }
            }
            asked.join().unwrap()
        });
        assert!(flows[0].lost > 0);
        assert!(
            flows[0].late <= flows[0].lost,
            "{} late of {} lost",
            flows[0].late,
            flows[0].lost
        );
    }

    #[test]
    fn the_wait_for_an_answer_that_never_comes_is_not_asking() {
        let server = UdpSocket::bind("127.0.0.1:0").unwrap();
        let plan = plan_of(
            &server,
            2,
            Duration::from_millis(200),
            Duration::from_secs(2),
        );
        let (flows, span) = std::thread::scope(|scope| {
            let asked = scope.spawn(|| request(&plan, &Stop::new(), |_| {}).unwrap());
            let mut first = None;
            let mut message = [0; 32];
            while !asked.is_finished() {
                // Of the two sockets the one that asks first is answered.
                if let Ok((_, peer)) = server.recv_from(&mut message) {
                    if *first.get_or_insert(peer) == peer {
                        server.send_to(&message, peer).unwrap();
                    }
                }
            }
            asked.join().unwrap()
        });
        assert_eq!(flows[0].lost, 1);
        assert_eq!(flows[0].begun, flows[0].answered + 1);
        assert!(span >= plan.duration, "{span:?}");
        assert!(span.0 < plan.timeout.0 / 2, "{span:?}");
    }
}
