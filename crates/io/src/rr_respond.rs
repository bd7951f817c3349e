//! The answering end of `rr`: every request of a session gets an answer of a fixed length.

use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::Scope;

use rustix::net::sockopt::{set_socket_timeout, Timeout};

use crate::process::{self, Priority, Stop};
use crate::rr::{Transport, HEADER_BYTES};
use crate::rr_line::{failed, fill, hand_over, ready, Filled, SLICE};
use crate::IoError;

/// Connections at a time; others wait for one of these to end.
const MOST_CONNECTIONS: usize = 2048;
/// Threads of a listening socket that wait for a connection: none is started while one that is timed
/// waits for it, unless so many begin at once.
const SPARE: usize = 16;

/// What is answered.
pub struct ResponsePlan {
    /// How.
    pub transport: Transport,
    /// Where.
    pub listen: Vec<SocketAddr>,
    /// Bytes of a request, header included.
    pub request_bytes: usize,
    /// Bytes of an answer, header included.
    pub response_bytes: usize,
    /// Requests of any other session are not answered.
    pub session: u64,
    /// `SCHED_FIFO` priority of the threads.
    pub priority: Option<u8>,
}

/// What came of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ResponseOutcome {
    /// Requests that were answered.
    pub answered: u64,
    /// Messages that were no request of this session.
    pub rejected: u64,
}

/// Answers until `stop`; `tell` gets the addresses once all of them listen.
pub fn respond(
    plan: &ResponsePlan,
    stop: &Stop,
    tell: impl FnOnce(&[SocketAddr]),
) -> Result<ResponseOutcome, IoError> {
    let counts = Counts::default();
    let sockets = plan
        .listen
        .iter()
        .map(|address| Socket::open(plan.transport, *address))
        .collect::<Result<Vec<_>, _>>()?;
    let locals = sockets
        .iter()
        .zip(&plan.listen)
        .map(|(socket, address)| socket.local().map_err(|e| failed("listen on", *address, e)))
        .collect::<Result<Vec<_>, _>>()?;
    process::steady();
    tell(&locals);
    let failed = Mutex::new(None);
    let fail = |error| {
        locked(&failed).get_or_insert(error);
        stop.request();
    };
    std::thread::scope(|scope| {
        for socket in &sockets {
            let (counts, fail) = (&counts, &fail);
            let thread = process::spawn_scoped(scope, "answering", move || {
                let result = match socket {
                    Socket::Udp(socket) => {
                        datagrams(plan, socket, counts, stop);
                        Ok(())
                    }
                    Socket::Tcp(listener) => connections(plan, listener, counts, stop),
                };
                result.unwrap_or_else(fail);
            });
            if let Err(error) = thread {
                fail(error);
            }
        }
    });
    match failed.into_inner().unwrap_or_else(PoisonError::into_inner) {
        Some(error) => Err(error),
        None => Ok(ResponseOutcome {
            answered: counts.answered.load(Ordering::Relaxed),
            rejected: counts.rejected.load(Ordering::Relaxed),
        }),
    }
}

fn locked<T>(shared: &Mutex<T>) -> MutexGuard<'_, T> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

#[derive(Default)]
struct Counts {
    answered: AtomicU64,
    rejected: AtomicU64,
}

enum Socket {
    Udp(UdpSocket),
    Tcp(TcpListener),
}

impl Socket {
    fn open(transport: Transport, address: SocketAddr) -> Result<Self, IoError> {
        let opened = match transport {
            Transport::Udp => UdpSocket::bind(address).and_then(|socket| {
                socket.set_read_timeout(Some(SLICE))?;
                Ok(Self::Udp(socket))
            }),
            Transport::Tcp | Transport::Connect => {
                TcpListener::bind(address).and_then(|listener| {
                    look_in_slices(&listener)?;
                    Ok(Self::Tcp(listener))
                })
            }
        };
        opened.map_err(|error| failed("listen on", address, error))
    }

    fn local(&self) -> std::io::Result<SocketAddr> {
        match self {
            Self::Udp(socket) => socket.local_addr(),
            Self::Tcp(listener) => listener.local_addr(),
        }
    }
}

fn datagrams(plan: &ResponsePlan, socket: &UdpSocket, counts: &Counts, stop: &Stop) {
    let mut priority = Priority::take(plan.priority);
    let mut request = vec![0; plan.request_bytes + 1];
    let mut response = vec![0; plan.response_bytes];
    while !stop.requested() {
        // What is wrong with one datagram is no reason to leave the others unanswered.
        let Ok((length, from)) = socket.recv_from(&mut request) else {
            continue;
        };
        if length != plan.request_bytes || !ours(plan, &request) {
            counts.rejected.fetch_add(1, Ordering::Relaxed);
            continue;
        }
        response[..HEADER_BYTES].copy_from_slice(&request[..HEADER_BYTES]);
        if socket.send_to(&response, from).is_ok() {
            counts.answered.fetch_add(1, Ordering::Relaxed);
        }
        priority.check();
    }
}

/// Answers the connections of a listening socket. What fails there fails for all that come, so it is
/// the end.
fn connections(
    plan: &ResponsePlan,
    listener: &TcpListener,
    counts: &Counts,
    stop: &Stop,
) -> Result<(), IoError> {
    let crew = Crew {
        plan,
        listener,
        counts,
        stop,
        idle: AtomicUsize::new(0),
        error: Mutex::new(None),
        wanted: Condvar::new(),
    };
    std::thread::scope(|scope| crew.keep(scope));
    match crew.error.into_inner() {
        Ok(Some(error)) => Err(error),
        _ => Ok(()),
    }
}

/// The threads of a listening socket, some of which always wait for a connection.
struct Crew<'a> {
    plan: &'a ResponsePlan,
    listener: &'a TcpListener,
    counts: &'a Counts,
    stop: &'a Stop,
    idle: AtomicUsize,
    error: Mutex<Option<IoError>>,
    /// Fewer wait than should.
    wanted: Condvar,
}

impl Crew<'_> {
    /// Sees to it that enough wait, until `stop` or an error.
    fn keep<'scope>(&'scope self, scope: &'scope Scope<'scope, '_>) {
        let mut started = 0;
        let mut error = locked(&self.error);
        while error.is_none() && !self.stop.requested() {
            while self.idle.load(Ordering::Relaxed) < SPARE && started < MOST_CONNECTIONS {
                self.idle.fetch_add(1, Ordering::Relaxed);
                started += 1;
                let thread = process::spawn_scoped(scope, "connection", || self.serve());
                if let Err(refused) = thread {
                    error.get_or_insert(refused);
                    break;
                }
            }
            let wait = self.wanted.wait_timeout(error, SLICE);
            error = wait.unwrap_or_else(PoisonError::into_inner).0;
        }
        drop(error);
        // The threads look at it; an error of one socket is the end of all.
        self.stop.request();
    }

    /// One connection after the other.
    fn serve(&self) {
        let mut priority = Priority::take(self.plan.priority);
        while !self.stop.requested() {
            match self.listener.accept() {
                Ok((stream, _)) => {
                    if self.idle.fetch_sub(1, Ordering::Relaxed) <= SPARE / 2 {
                        self.wanted.notify_one();
                    }
                    // A connection that breaks is reported by the end that asks.
                    let _ = connection(self, stream, &mut priority);
                    self.idle.fetch_add(1, Ordering::Relaxed);
                }
                Err(error) if passes(&error) => {}
                Err(error) => {
                    let address = self.plan.listen[0];
                    let address = self.listener.local_addr().unwrap_or(address);
                    locked(&self.error).get_or_insert(failed("accept on", address, error));
                    self.wanted.notify_one();
                    return;
                }
            }
        }
    }
}

/// Whether the next attempt may succeed: the time is over, or the connection was gone before it was
/// taken. Without descriptors or memory (`EMFILE`, `ENOBUFS`) it would fail at once, over and over.
fn passes(error: &std::io::Error) -> bool {
    matches!(
        error.raw_os_error(),
        Some(libc::EAGAIN | libc::EINTR | libc::ECONNABORTED | libc::EPROTO)
    )
}

/// Has `accept` return now and then. Of threads that block in it the kernel wakes one a connection,
/// of threads that poll it wakes all.
fn look_in_slices(listener: &TcpListener) -> std::io::Result<()> {
    set_socket_timeout(listener, Timeout::Recv, Some(SLICE))?;
    Ok(())
}

fn connection(
    crew: &Crew<'_>,
    mut stream: TcpStream,
    priority: &mut Priority,
) -> std::io::Result<()> {
    let Crew {
        plan, counts, stop, ..
    } = crew;
    ready(&stream)?;
    let mut request = vec![0; plan.request_bytes];
    let mut response = vec![0; plan.response_bytes];
    while !stop.requested() {
        match fill(&mut stream, &mut request, || stop.requested())? {
            Filled::Whole => {}
            Filled::Ended(_) | Filled::Waiting => break,
        }
        if !ours(plan, &request) {
            counts.rejected.fetch_add(1, Ordering::Relaxed);
            break;
        }
        response[..HEADER_BYTES].copy_from_slice(&request[..HEADER_BYTES]);
        if !hand_over(&mut stream, &response, || stop.requested())? {
            break;
        }
        counts.answered.fetch_add(1, Ordering::Relaxed);
        priority.check();
        if plan.transport == Transport::Connect {
            // Who closes first keeps the port for a minute; the asking end has not so many.
            break;
        }
    }
    Ok(())
}

fn ours(plan: &ResponsePlan, request: &[u8]) -> bool {
    request[..8] == plan.session.to_be_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rr::{request, RequestPlan, Target};
    use std::sync::mpsc;
    use tm_wire::Duration;

    const SECOND: i64 = 1_000_000_000;

    fn plans(transport: Transport, outstanding: usize) -> (ResponsePlan, RequestPlan) {
        let answer = ResponsePlan {
            transport,
            listen: vec![SocketAddr::from(([127, 0, 0, 1], 0))],
            request_bytes: 100,
            response_bytes: 3000,
            session: 7,
            priority: None,
        };
        let ask = RequestPlan {
            transport,
            flows: Vec::new(),
            outstanding,
            request_bytes: 100,
            response_bytes: 3000,
            session: 7,
            duration: Duration(SECOND / 5),
            timeout: Duration(20 * SECOND),
            priority: None,
        };
        (answer, ask)
    }

    fn talk(
        plan: &ResponsePlan,
        mut asks: RequestPlan,
    ) -> (ResponseOutcome, crate::rr::RequestOutcome) {
        let stop = Stop::listen(None).unwrap();
        std::thread::scope(|scope| {
            let (tell, reported) = mpsc::channel();
            let server = stop.clone();
            let answered = scope
                .spawn(move || respond(plan, &server, |at| tell.send(at[0]).unwrap()).unwrap());
            asks.flows = vec![Target {
                target: reported.recv().unwrap(),
                source: None,
            }];
            let own = Stop::listen(None).unwrap();
            let (mut flows, span) = request(&asks, &own, |_| {}).unwrap();
            assert!(span >= Duration::ZERO);
            stop.request();
            (answered.join().unwrap(), flows.remove(0))
        })
    }

    #[test]
    fn every_request_is_answered() {
        for transport in [Transport::Udp, Transport::Tcp, Transport::Connect] {
            for outstanding in [1, 3] {
                let (plan, asks) = plans(transport, outstanding);
                let (answered, asked) = talk(&plan, asks);
                assert_eq!(asked.error, None, "{transport:?}");
                assert!(asked.answered > 0, "{transport:?}");
                assert_eq!(asked.begun, asked.answered + asked.lost, "{transport:?}");
                assert_eq!(answered.answered, asked.answered + asked.lost + asked.late);
                assert_eq!(answered.rejected, 0);
                assert_eq!(asked.delays.summary().unwrap().count, asked.answered);
            }
        }
    }

    /// Asks a server of ours that is given the request and the connection.
    fn ask_at(serve: impl FnOnce(TcpStream) + Send, timeout: Duration) -> String {
        let (_, mut asks) = plans(Transport::Tcp, 1);
        asks.timeout = timeout;
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        asks.flows = vec![Target {
            target: listener.local_addr().unwrap(),
            source: None,
        }];
        std::thread::scope(|scope| {
            scope.spawn(move || {
                let (mut stream, _) = listener.accept().unwrap();
                let mut request = [0; 100];
                std::io::Read::read_exact(&mut stream, &mut request).unwrap();
                serve(stream);
            });
            let (flows, _) = request(&asks, &Stop::new(), |_| {}).unwrap();
            flows[0].error.clone().unwrap()
        })
    }

    #[test]
    fn a_connection_that_closes_and_one_that_says_nothing_are_an_error_and_an_end() {
        let error = ask_at(drop, Duration(20 * SECOND));
        assert!(error.contains("the connection was closed"), "{error}");
        // Open until the asking end has gone.
        let silent = |mut stream| drop(std::io::Read::read(&mut stream, &mut [0]));
        let error = ask_at(silent, Duration(SECOND / 20));
        assert!(error.contains("did not come in time"), "{error}");
    }

    #[test]
    fn more_connections_at_once_than_threads_that_wait_are_all_answered() {
        for transport in [Transport::Tcp, Transport::Connect] {
            let (plan, mut asks) = plans(transport, 3 * SPARE);
            asks.response_bytes = plan.response_bytes;
            let (answered, asked) = talk(&plan, asks);
            assert_eq!(asked.error, None, "{transport:?}");
            assert!(asked.answered >= 3 * SPARE as u64, "{}", asked.answered);
            assert_eq!(answered.rejected, 0);
        }
    }

    #[test]
    fn a_peer_that_does_not_read_holds_nobody_up_who_is_to_stop() {
        let (mut plan, _) = plans(Transport::Tcp, 1);
        plan.response_bytes = 1 << 20;
        let stop = Stop::new();
        std::thread::scope(|scope| {
            let (tell, reported) = mpsc::channel();
            let server = stop.clone();
            let answered =
                scope.spawn(move || respond(&plan, &server, |at| tell.send(at[0]).unwrap()));
            let mut stream = TcpStream::connect(reported.recv().unwrap()).unwrap();
            let mut request = [0; 100];
            request[..8].copy_from_slice(&7_u64.to_be_bytes());
            // Far more answers than the buffers hold, none of which is read.
            for _ in 0..100 {
                std::io::Write::write_all(&mut stream, &request).unwrap();
            }
            stop.request();
            let answered = answered.join().unwrap().unwrap();
            assert!(answered.answered < 100, "{answered:?}");
        });
    }

    #[test]
    fn a_stranger_is_not_answered() {
        let (plan, mut asks) = plans(Transport::Udp, 1);
        asks.session = 8;
        asks.timeout = Duration(SECOND / 10);
        let (answered, asked) = talk(&plan, asks);
        assert_eq!(answered.answered, 0);
        assert!(answered.rejected > 0);
        assert_eq!((asked.answered, asked.begun), (0, asked.lost));
        let (plan, mut asks) = plans(Transport::Tcp, 1);
        asks.session = 8;
        let (_, asked) = talk(&plan, asks);
        assert!(asked.error.unwrap().contains("answer of 127.0.0.1"));
    }

    #[test]
    fn nobody_there_is_an_error() {
        let (_, mut asks) = plans(Transport::Tcp, 2);
        // Bound and closed again: nobody listens there now.
        let gone = TcpListener::bind("127.0.0.1:0").unwrap();
        let target = gone.local_addr().unwrap();
        drop(gone);
        asks.flows = vec![Target {
            target,
            source: None,
        }];
        let stop = Stop::listen(None).unwrap();
        let (flows, _) = request(&asks, &stop, |_| {}).unwrap();
        assert!(flows[0].error.as_ref().unwrap().contains("refused"));
        assert_eq!(flows[0].answered, 0);
    }
}
