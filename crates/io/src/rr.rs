//! Requests and answers over UDP and TCP: one at a time on each socket, timed by the asking end.
//!
//! Several outstanding transactions are several sockets, each with a thread that blocks: what is
//! timed is what a program that asks and waits would see, the wake-up of its thread included.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream, UdpSocket};
use std::sync::{Barrier, Mutex, PoisonError};
use std::time::Duration;

use tm_probe::Delays;
use tm_wire::Nanos;

use crate::process::{self, Priority, Stop};
use crate::{clock, IoError};

/// Session and number at the start of every request and answer.
pub const HEADER_BYTES: usize = 16;
/// Longest wait before a request to stop is looked at.
pub(crate) const SLICE: Duration = Duration::from_millis(100);
const PROGRESS: Nanos = Nanos(500_000_000);

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
pub struct AskPlan {
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
    pub duration: Nanos,
    /// So long an answer is waited for.
    pub timeout: Nanos,
    /// `SCHED_FIFO` priority of the threads.
    pub priority: Option<u8>,
}

/// What came of a flow.
#[derive(Clone, Default)]
pub struct Asked {
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

/// Asks until the time is over or `stop`; returns the flows and how long it was asked for.
pub fn ask(
    plan: &AskPlan,
    stop: &Stop,
    mut tell: impl FnMut(&[u64]) + Send,
) -> (Vec<Asked>, Nanos) {
    let flows: Vec<Mutex<Asked>> = plan.flows.iter().map(|_| Mutex::default()).collect();
    let gate = Barrier::new(plan.flows.len() * plan.outstanding + 1);
    let mut span = Nanos(0);
    std::thread::scope(|scope| {
        let mut threads = Vec::new();
        for (place, target) in plan.flows.iter().enumerate() {
            for number in 0..plan.outstanding {
                let (flow, gate) = (&flows[place], &gate);
                let first = ((place * plan.outstanding + number) as u64) << 40;
                threads.push(scope.spawn(move || {
                    let opened = Asker::open(plan, target, first, stop);
                    // Who failed takes part all the same: nobody waits for ever.
                    gate.wait();
                    if let Err(error) = opened.and_then(|mut asker| asker.run(flow)) {
                        let mut flow = locked(flow);
                        flow.error.get_or_insert(error.to_string());
                        stop.ask();
                    }
                }));
            }
        }
        process::steady();
        gate.wait();
        let start = clock::now();
        let mut next = start + PROGRESS;
        while threads.iter().any(|thread| !thread.is_finished()) {
            clock::sleep_until(clock::now() + Nanos(20_000_000));
            if clock::now() >= next {
                tell(&flows.iter().map(|f| locked(f).answered).collect::<Vec<_>>());
                next = next + PROGRESS;
            }
        }
        span = clock::now() - start;
    });
    let flows = flows
        .into_iter()
        .map(|flow| flow.into_inner().unwrap_or_else(PoisonError::into_inner))
        .collect();
    (flows, span)
}

fn locked(flow: &Mutex<Asked>) -> std::sync::MutexGuard<'_, Asked> {
    flow.lock().unwrap_or_else(PoisonError::into_inner)
}

enum Line {
    Udp(UdpSocket),
    Tcp(TcpStream),
    /// Opened anew for each transaction.
    None,
}

/// One socket that asks.
struct Asker<'a> {
    plan: &'a AskPlan,
    target: SocketAddr,
    line: Line,
    next: u64,
    request: Vec<u8>,
    answer: Vec<u8>,
    stop: &'a Stop,
}

enum Fate {
    Answered,
    Lost,
    Stopped,
}

impl<'a> Asker<'a> {
    fn open(
        plan: &'a AskPlan,
        target: &Target,
        first: u64,
        stop: &'a Stop,
    ) -> Result<Self, IoError> {
        let line = match plan.transport {
            Transport::Udp => Line::Udp(udp(target, plan.timeout)?),
            Transport::Tcp => Line::Tcp(connect(target.target, plan.timeout)?),
            Transport::Connect => {
                // A server that is not there is told of before the time runs.
                drop(connect(target.target, plan.timeout)?);
                Line::None
            }
        };
        let mut request = vec![0; plan.request_bytes];
        request[..8].copy_from_slice(&plan.session.to_be_bytes());
        Ok(Self {
            plan,
            target: target.target,
            line,
            next: first,
            request,
            // One more: a datagram that is too long shows.
            answer: vec![0; plan.response_bytes + 1],
            stop,
        })
    }

    fn run(&mut self, flow: &Mutex<Asked>) -> Result<(), IoError> {
        let mut priority = Priority::take(self.plan.priority);
        let end = clock::now() + self.plan.duration;
        while !self.stop.asked() {
            if clock::now() >= end {
                break;
            }
            self.request[8..HEADER_BYTES].copy_from_slice(&self.next.to_be_bytes());
            let mut late = 0;
            locked(flow).begun += 1;
            // Behind the lock: waiting for another thread of ours is no delay of the path.
            let start = clock::now();
            let fate = self.once(start, &mut late)?;
            let took = clock::now() - start;
            let mut seen = locked(flow);
            seen.late += late;
            match fate {
                Fate::Answered => {
                    seen.answered += 1;
                    seen.delays.add(took);
                }
                Fate::Lost => seen.lost += 1,
                Fate::Stopped => seen.begun -= 1,
            }
            drop(seen);
            self.next += 1;
            priority.check();
        }
        Ok(())
    }

    fn once(&mut self, start: Nanos, late: &mut u64) -> Result<Fate, IoError> {
        let deadline = start + self.plan.timeout;
        match &mut self.line {
            Line::Udp(socket) => {
                socket
                    .send(&self.request)
                    .map_err(|error| self::failed("request to", self.target, error))?;
                loop {
                    match socket.recv(&mut self.answer) {
                        Ok(length)
                            if length == self.plan.response_bytes
                                && self.answer[..HEADER_BYTES] == self.request[..HEADER_BYTES] =>
                        {
                            // The socket is looked at in slices: it may have come after its time.
                            if clock::now() <= deadline {
                                return Ok(Fate::Answered);
                            }
                            *late += 1;
                        }
                        Ok(_) => *late += 1,
                        Err(error) if waits(&error) => {}
                        Err(error) => return Err(failed("answer of", self.target, error)),
                    }
                    if self.stop.asked() {
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
            Line::None => {
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

/// One transaction of a connection; with `closing` the other end closes it afterwards.
fn exchange(
    plan: &AskPlan,
    stream: &mut TcpStream,
    (target, request, answer): (SocketAddr, &[u8], &mut Vec<u8>),
    deadline: Nanos,
    stop: &Stop,
    closing: bool,
) -> Result<Fate, IoError> {
    stream
        .write_all(request)
        .map_err(|error| failed("request to", target, error))?;
    let wanted = plan.response_bytes + usize::from(closing);
    let got = fill(stream, &mut answer[..wanted], || {
        stop.asked() || clock::now() >= deadline
    })
    .map_err(|error| failed("answer of", target, error))?;
    match got {
        Filled::Ended(length) if closing && length == plan.response_bytes => {}
        Filled::Whole if !closing => {}
        Filled::Waiting if stop.asked() => return Ok(Fate::Stopped),
        Filled::Waiting => {
            let error = std::io::Error::new(ErrorKind::TimedOut, "did not come in time");
            return Err(failed("answer of", target, error));
        }
        Filled::Whole | Filled::Ended(_) => {
            let error = std::io::Error::new(ErrorKind::InvalidData, "is not as long as asked for");
            return Err(failed("answer of", target, error));
        }
    }
    if answer[..HEADER_BYTES] != request[..HEADER_BYTES] {
        let error = std::io::Error::new(ErrorKind::InvalidData, "is to another request");
        return Err(failed("answer of", target, error));
    }
    Ok(Fate::Answered)
}

/// How far a buffer was filled.
pub(crate) enum Filled {
    /// To its end.
    Whole,
    /// The other end closed the connection after so many bytes.
    Ended(usize),
    /// Nothing more came until the caller would not wait longer.
    Waiting,
}

/// Reads until the buffer is full, the connection ends, or `enough` when nothing comes.
pub(crate) fn fill(
    stream: &mut TcpStream,
    buffer: &mut [u8],
    enough: impl Fn() -> bool,
) -> std::io::Result<Filled> {
    let mut length = 0;
    while length < buffer.len() {
        match stream.read(&mut buffer[length..]) {
            Ok(0) => return Ok(Filled::Ended(length)),
            Ok(more) => length += more,
            Err(error) if waits(&error) => {}
            Err(error) => return Err(error),
        }
        if length < buffer.len() && enough() {
            return Ok(Filled::Waiting);
        }
    }
    Ok(Filled::Whole)
}

pub(crate) fn waits(error: &std::io::Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted
    )
}

/// Sets a connection up for short messages, and for looking at `stop` now and then.
pub(crate) fn ready(stream: &TcpStream) -> std::io::Result<()> {
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(SLICE))
}

fn udp(target: &Target, timeout: Nanos) -> Result<UdpSocket, IoError> {
    let limit = patience(timeout);
    let any = match target.target {
        SocketAddr::V4(_) => SocketAddr::from(([0; 4], 0)),
        SocketAddr::V6(_) => SocketAddr::from(([0_u16; 8], 0)),
    };
    let source = target.source.unwrap_or(any);
    let socket = UdpSocket::bind(source).map_err(|error| failed("bind", source, error))?;
    socket
        .connect(target.target)
        .and_then(|()| socket.set_read_timeout(Some(SLICE.min(limit))))
        .map_err(|error| failed("connect to", target.target, error))?;
    Ok(socket)
}

fn connect(target: SocketAddr, timeout: Nanos) -> Result<TcpStream, IoError> {
    let limit = patience(timeout);
    let stream = TcpStream::connect_timeout(&target, limit)
        .map_err(|error| failed("connect to", target, error))?;
    ready(&stream)
        .and_then(|()| stream.set_write_timeout(Some(limit)))
        .map_err(|error| failed("connect to", target, error))?;
    Ok(stream)
}

fn patience(timeout: Nanos) -> Duration {
    Duration::from_nanos(u64::try_from(timeout.0).unwrap_or(1).max(1))
}

pub(crate) fn failed(what: &str, address: SocketAddr, error: std::io::Error) -> IoError {
    IoError::new(format!("{what} {address}"), error)
}
