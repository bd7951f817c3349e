//! Sockets of transactions: opened, filled and emptied in slices, so that a request to stop is seen.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream, UdpSocket};
use std::time;

use tm_wire::Duration;

use crate::IoError;

/// Longest wait before a request to stop is looked at.
pub(crate) const SLICE: time::Duration = time::Duration::from_millis(100);

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

/// Writes all of `bytes`; false: `enough` was said before there was room for them.
pub(crate) fn hand_over(
    stream: &mut TcpStream,
    bytes: &[u8],
    enough: impl Fn() -> bool,
) -> std::io::Result<bool> {
    let mut rest = bytes;
    while !rest.is_empty() {
        match stream.write(rest) {
            Ok(0) => return Err(ErrorKind::WriteZero.into()),
            Ok(length) => rest = &rest[length..],
            Err(error) if waits(&error) => {}
            Err(error) => return Err(error),
        }
        if !rest.is_empty() && enough() {
            return Ok(false);
        }
    }
    Ok(true)
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
    stream.set_write_timeout(Some(SLICE))?;
    stream.set_read_timeout(Some(SLICE))
}

/// A socket that asks `target`, from `source` unless the route decides.
pub(crate) fn udp(
    target: SocketAddr,
    source: Option<SocketAddr>,
    timeout: Duration,
) -> Result<UdpSocket, IoError> {
    let limit = patience(timeout);
    let any = match target {
        SocketAddr::V4(_) => SocketAddr::from(([0; 4], 0)),
        SocketAddr::V6(_) => SocketAddr::from(([0_u16; 8], 0)),
    };
    let source = source.unwrap_or(any);
    let socket = UdpSocket::bind(source).map_err(|error| failed("bind", source, error))?;
    socket
        .connect(target)
        .and_then(|()| socket.set_read_timeout(Some(SLICE.min(limit))))
        .map_err(|error| failed("connect to", target, error))?;
    Ok(socket)
}

pub(crate) fn connect(target: SocketAddr, timeout: Duration) -> Result<TcpStream, IoError> {
    let limit = patience(timeout);
    let stream = TcpStream::connect_timeout(&target, limit)
        .map_err(|error| failed("connect to", target, error))?;
    ready(&stream).map_err(|error| failed("connect to", target, error))?;
    Ok(stream)
}

fn patience(timeout: Duration) -> time::Duration {
    time::Duration::from_nanos(u64::try_from(timeout.0).unwrap_or(1).max(1))
}

pub(crate) fn failed(what: &str, address: SocketAddr, error: std::io::Error) -> IoError {
    IoError::new(format!("{what} {address}"), error)
}
