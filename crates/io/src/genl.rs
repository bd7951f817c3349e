//! A generic netlink socket: requests with their answers, and messages that come by themselves.

use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};

use rustix::event::{poll, PollFd, PollFlags};
use tm_link::radio::netlink::{attributes, messages, Writer, ERROR, REQUEST_ACK};
use tm_wire::{Duration, Instant};

use crate::packet::Wake;
use crate::platform::clock::timespec;
use crate::{clock, IoError};

/// Family of the families.
const CONTROL: u16 = 0x10;
const GET_FAMILY: u8 = 3;
const FAMILY_ID: u16 = 1;
const FAMILY_NAME: u16 = 2;

const ANSWER_LIMIT: Duration = Duration::from_secs(5);
/// What may wait in the socket while this process does not run.
const RECEIVE_BUFFER_BYTES: i32 = 32 << 20;
/// Longest datagram that is read: a frame with its attributes is far below.
const DATAGRAM_MAX_BYTES: usize = 16 << 10;

/// A socket that speaks with one family.
pub struct Genl {
    fd: OwnedFd,
    family: u16,
    sequence: u32,
    buffer: Vec<u8>,
}

/// What a read brought.
pub enum Received<'a> {
    /// Nothing is there.
    Nothing,
    /// The kernel dropped messages because this process did not keep up.
    Overrun,
    /// One or more messages.
    Datagram(&'a [u8]),
}

impl Genl {
    /// Opens a socket and asks for the number of a family; `remedy` is for when there is none.
    pub fn open(family: &str, remedy: &str) -> Result<Self, IoError> {
        // SAFETY: plain integers; the descriptor returned belongs to nobody else.
        let raw = unsafe {
            libc::socket(
                libc::AF_NETLINK,
                libc::SOCK_RAW | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK,
                libc::NETLINK_GENERIC,
            )
        };
        if raw < 0 {
            return Err(IoError::last("cannot open a generic netlink socket"));
        }
        // SAFETY: just made.
        let fd = unsafe { OwnedFd::from_raw_fd(raw) };
        // SAFETY: all-zero is a valid sockaddr_nl: the kernel chooses the port.
        let mut address: libc::sockaddr_nl = unsafe { std::mem::zeroed() };
        address.nl_family = u16::try_from(libc::AF_NETLINK).unwrap_or(0);
        let length = libc::socklen_t::try_from(size_of_val(&address)).unwrap_or(0);
        // SAFETY: `address` is a sockaddr_nl of the length given.
        if unsafe { libc::bind(raw, (&raw const address).cast(), length) } < 0 {
            return Err(IoError::last("cannot bind a generic netlink socket"));
        }
        for option in [libc::SO_RCVBUF, libc::SO_RCVBUFFORCE] {
            let length = libc::socklen_t::try_from(size_of::<i32>()).unwrap_or(0);
            let bytes = RECEIVE_BUFFER_BYTES;
            let value = (&raw const bytes).cast();
            // SAFETY: both options take an int. Where the second is not allowed, the first counts.
            unsafe { libc::setsockopt(raw, libc::SOL_SOCKET, option, value, length) };
        }
        let mut socket = Self {
            fd,
            family: CONTROL,
            sequence: 0,
            buffer: vec![0; DATAGRAM_MAX_BYTES],
        };
        socket.family = socket.resolve(family, remedy)?;
        Ok(socket)
    }

    /// Number of the family.
    #[must_use]
    pub fn family(&self) -> u16 {
        self.family
    }

    /// Sends one request and returns its result; `put` is given the number it must carry.
    pub fn request(
        &mut self,
        what: &str,
        put: impl FnOnce(&mut Writer, u16, u32),
    ) -> Result<i32, IoError> {
        self.sequence += 1;
        let (family, sequence) = (self.family, self.sequence);
        let mut writer = Writer::default();
        put(&mut writer, family, sequence);
        self.send(writer.bytes())
            .map_err(|error| IoError::new(what, error))?;
        let mut result = None;
        self.until_answer(what, |kind, number, body| {
            if kind == ERROR && number == sequence {
                result = Some(body);
            }
            result.is_some()
        })?;
        match result {
            Some(result) if result >= 0 => Ok(result),
            Some(negative) => {
                let error = std::io::Error::from_raw_os_error(-negative);
                Err(IoError::new(what, error))
            }
            None => Err(late(what)),
        }
    }

    /// Sends messages that are complete.
    pub fn send(&self, bytes: &[u8]) -> std::io::Result<()> {
        // SAFETY: a buffer and its length.
        let sent =
            unsafe { libc::send(self.fd.as_raw_fd(), bytes.as_ptr().cast(), bytes.len(), 0) };
        if sent < 0 {
            return Err(std::io::Error::last_os_error());
        }
        Ok(())
    }

    /// Reads one datagram, without waiting for it.
    pub fn receive(&mut self) -> Result<Received<'_>, IoError> {
        // SAFETY: a buffer and its length; with MSG_TRUNC the true length is returned.
        let got = unsafe {
            libc::recv(
                self.fd.as_raw_fd(),
                self.buffer.as_mut_ptr().cast(),
                self.buffer.len(),
                libc::MSG_TRUNC,
            )
        };
        let Ok(length) = usize::try_from(got) else {
            let error = std::io::Error::last_os_error();
            return match error.raw_os_error() {
                Some(libc::EAGAIN | libc::EINTR) => Ok(Received::Nothing),
                Some(libc::ENOBUFS) => Ok(Received::Overrun),
                _ => Err(IoError::new("generic netlink", error)),
            };
        };
        if length > self.buffer.len() {
            let words = format!(
                "generic netlink: a datagram of {length} bytes, at most {DATAGRAM_MAX_BYTES} are read"
            );
            let error = std::io::Error::from(std::io::ErrorKind::InvalidData);
            return Err(IoError::new(words, error));
        }
        Ok(Received::Datagram(&self.buffer[..length]))
    }

    /// Waits for a message or until `deadline`; a signal ends the waiting.
    fn wait(&self, deadline: Instant) {
        let left = deadline - clock::now();
        let left = left.clamp(Duration::ZERO, ANSWER_LIMIT).0;
        let mut wanted = [PollFd::new(&self.fd, PollFlags::IN)];
        let _ = poll(&mut wanted, Some(&timespec(left)));
    }

    /// Waits for a message, for `wake`, or until `due`; at most 100 ms.
    pub fn wait_or(&self, due: Option<Instant>, wake: &Wake) {
        wake.wait_with([self.fd.as_fd()], due);
    }

    fn resolve(&mut self, name: &str, remedy: &str) -> Result<u16, IoError> {
        let what = format!("the kernel has no {name} ({remedy})");
        let mut text = name.as_bytes().to_vec();
        text.push(0);
        let mut writer = Writer::default();
        writer
            .begin(CONTROL, REQUEST_ACK, 0, GET_FAMILY)
            .put(FAMILY_NAME, &text);
        self.send(writer.bytes())
            .map_err(|error| IoError::new(&what, error))?;
        let mut found = None;
        let mut buffer = Vec::new();
        let deadline = clock::now() + ANSWER_LIMIT;
        loop {
            self.wait(deadline);
            if let Received::Datagram(bytes) = self.receive()? {
                buffer.clear();
                buffer.extend_from_slice(bytes);
                for message in messages(&buffer).flatten() {
                    if message.kind == ERROR {
                        let result = message.result().unwrap_or(-libc::EBADMSG);
                        return match found {
                            Some(family) if result == 0 => Ok(family),
                            _ => Err(IoError::new(
                                what,
                                std::io::Error::from_raw_os_error(result.abs()),
                            )),
                        };
                    }
                    let Ok((_, rest)) = message.generic() else {
                        continue;
                    };
                    for (kind, value) in attributes(rest).flatten() {
                        if let (FAMILY_ID, [a, b]) = (kind, value) {
                            found = Some(u16::from_ne_bytes([*a, *b]));
                        }
                    }
                }
            }
            if clock::now() >= deadline {
                return Err(late(&what));
            }
        }
    }

    /// Reads until `take`, which is given kind, number and result of each message, is content.
    fn until_answer(
        &mut self,
        what: &str,
        mut take: impl FnMut(u16, u32, i32) -> bool,
    ) -> Result<(), IoError> {
        let deadline = clock::now() + ANSWER_LIMIT;
        while clock::now() < deadline {
            self.wait(deadline);
            if let Received::Datagram(bytes) = self.receive()? {
                for message in messages(bytes).flatten() {
                    let result = message.result().unwrap_or(-libc::EBADMSG);
                    if take(message.kind, message.sequence, result) {
                        return Ok(());
                    }
                }
            }
        }
        Err(late(what))
    }
}

fn late(what: &str) -> IoError {
    IoError::new(what, std::io::Error::from(std::io::ErrorKind::TimedOut))
}
