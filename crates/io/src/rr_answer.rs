//! The answering end of `rr`: every request of a session gets an answer of a fixed length.

use std::io::Write;
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::{AsRawFd, RawFd};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use crate::process::{self, Priority, Stop};
use crate::rr::{failed, fill, ready, waits, Filled, Transport, HEADER_BYTES, SLICE};
use crate::IoError;

/// Connections at a time; more are closed at once and counted.
const MOST_CONNECTIONS: usize = 2048;

/// What is answered.
pub struct AnswerPlan {
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
pub struct Answered {
    /// Requests that were answered.
    pub answered: u64,
    /// Messages that were no request of this session, and connections beyond the limit.
    pub rejected: u64,
}

/// Answers until `stop`; `tell` gets the addresses once all of them listen.
pub fn answer(
    plan: &AnswerPlan,
    stop: &Stop,
    tell: impl FnOnce(&[SocketAddr]),
) -> Result<Answered, IoError> {
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
    std::thread::scope(|scope| {
        for socket in &sockets {
            let counts = &counts;
            scope.spawn(move || match socket {
                Socket::Udp(socket) => datagrams(plan, socket, counts, stop),
                Socket::Tcp(listener) => connections(plan, listener, counts, stop),
            });
        }
    });
    Ok(Answered {
        answered: counts.answered.load(Ordering::Relaxed),
        rejected: counts.rejected.load(Ordering::Relaxed),
    })
}

#[derive(Default)]
struct Counts {
    answered: AtomicU64,
    rejected: AtomicU64,
    open: AtomicUsize,
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
                    listener.set_nonblocking(true)?;
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

fn datagrams(plan: &AnswerPlan, socket: &UdpSocket, counts: &Counts, stop: &Stop) {
    let mut priority = Priority::take(plan.priority);
    let mut request = vec![0; plan.request_bytes + 1];
    let mut response = vec![0; plan.response_bytes];
    while !stop.asked() {
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

fn connections(plan: &AnswerPlan, listener: &TcpListener, counts: &Counts, stop: &Stop) {
    std::thread::scope(|scope| {
        while !stop.asked() {
            let Ok((stream, _)) = listener.accept() else {
                wait_readable(listener.as_raw_fd());
                continue;
            };
            if counts.open.fetch_add(1, Ordering::Relaxed) >= MOST_CONNECTIONS {
                counts.open.fetch_sub(1, Ordering::Relaxed);
                counts.rejected.fetch_add(1, Ordering::Relaxed);
                continue;
            }
            scope.spawn(move || {
                // A connection that breaks is told of by the end that asks.
                let _ = connection(plan, stream, counts, stop);
                counts.open.fetch_sub(1, Ordering::Relaxed);
            });
        }
    });
}

fn connection(
    plan: &AnswerPlan,
    mut stream: TcpStream,
    counts: &Counts,
    stop: &Stop,
) -> std::io::Result<()> {
    ready(&stream)?;
    let mut priority = Priority::take(plan.priority);
    let mut request = vec![0; plan.request_bytes];
    let mut response = vec![0; plan.response_bytes];
    while !stop.asked() {
        match fill(&mut stream, &mut request, || stop.asked())? {
            Filled::Whole => {}
            Filled::Ended(_) | Filled::Waiting => break,
        }
        if !ours(plan, &request) {
            counts.rejected.fetch_add(1, Ordering::Relaxed);
            break;
        }
        response[..HEADER_BYTES].copy_from_slice(&request[..HEADER_BYTES]);
        let mut rest = &response[..];
        while !rest.is_empty() {
            match stream.write(rest) {
                Ok(length) => rest = &rest[length..],
                Err(error) if waits(&error) && !stop.asked() => {}
                Err(error) => return Err(error),
            }
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

fn ours(plan: &AnswerPlan, request: &[u8]) -> bool {
    request[..8] == plan.session.to_be_bytes()
}

fn wait_readable(fd: RawFd) {
    let mut poll = libc::pollfd {
        fd,
        events: libc::POLLIN,
        revents: 0,
    };
    // SAFETY: one valid pollfd.
    unsafe { libc::poll(&raw mut poll, 1, 100) };
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rr::{ask, AskPlan, Target};
    use std::sync::mpsc;
    use tm_wire::Nanos;

    const SECOND: i64 = 1_000_000_000;

    fn plans(transport: Transport, outstanding: usize) -> (AnswerPlan, AskPlan) {
        let answer = AnswerPlan {
            transport,
            listen: vec![SocketAddr::from(([127, 0, 0, 1], 0))],
            request_bytes: 100,
            response_bytes: 3000,
            session: 7,
            priority: None,
        };
        let ask = AskPlan {
            transport,
            flows: Vec::new(),
            outstanding,
            request_bytes: 100,
            response_bytes: 3000,
            session: 7,
            duration: Nanos(SECOND / 5),
            timeout: Nanos(20 * SECOND),
            priority: None,
        };
        (answer, ask)
    }

    fn talk(plan: &AnswerPlan, mut asks: AskPlan) -> (Answered, crate::rr::Asked) {
        let stop = Stop::listen(None).unwrap();
        std::thread::scope(|scope| {
            let (tell, told) = mpsc::channel();
            let server = stop.clone();
            let answered =
                scope.spawn(move || answer(plan, &server, |at| tell.send(at[0]).unwrap()).unwrap());
            asks.flows = vec![Target {
                target: told.recv().unwrap(),
                source: None,
            }];
            let own = Stop::listen(None).unwrap();
            let (mut flows, span) = ask(&asks, &own, |_| {});
            assert!(span >= Nanos(0));
            stop.ask();
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

    #[test]
    fn a_stranger_is_not_answered() {
        let (plan, mut asks) = plans(Transport::Udp, 1);
        asks.session = 8;
        asks.timeout = Nanos(SECOND / 10);
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
        let (flows, _) = ask(&asks, &stop, |_| {});
        assert!(flows[0].error.as_ref().unwrap().contains("refused"));
        assert_eq!(flows[0].answered, 0);
    }
}
