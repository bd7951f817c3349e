//! Serving standard input and output, which on a host over SSH are two pipes of sshd's.
//!
//! The loop of [`crate::server`] waits for one file descriptor, so two threads carry between the
//! pipes and a socket pair. The one that reads is the watchdog: where nothing was heard for as long
//! as was agreed, the other side counts as gone, and all that runs here is ended. Likewise where for
//! so long the loop took nothing of what was heard, which is when the other side does not read: no
//! request is taken while answers have no room.

use std::fs::File;
use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::thread;
use std::time::Duration;

use rustix::event::{poll, PollFd, PollFlags, Timespec};
use rustix::thread::UnshareFlags;

use crate::error::{AgentError, Step};
use crate::server::{serve, End};

const PIECE: usize = 64 * 1024;

/// Serve until the other side closes, is silent for `silence_s`, or asks for the end.
pub fn run(silence_s: i64) -> Result<(), AgentError> {
    // As files: the library's own buffers would hold back what a poll waits for.
    let own = |fd: BorrowedFd<'_>| fd.try_clone_to_owned().map(File::from).map_err(fail);
    let input = own(std::io::stdin().as_fd())?;
    let output = own(std::io::stdout().as_fd())?;
    between(input, output, silence_s)
}

fn fail(error: std::io::Error) -> AgentError {
    AgentError::System {
        step: Step::Standard { command: "stdio" },
        error,
    }
}

fn between(input: File, output: File, silence_s: i64) -> Result<(), AgentError> {
    let (mut inside, outside) = UnixStream::pair().map_err(fail)?;
    inside.set_nonblocking(true).map_err(fail)?;
    let silence = Duration::from_secs(silence_s.unsigned_abs());
    outside.set_write_timeout(Some(silence)).map_err(fail)?;
    let (from_pipe, mut to_pipe) = (outside.try_clone().map_err(fail)?, outside);
    thread::spawn(move || read_on(input, from_pipe, silence_s));
    let writer = thread::spawn(move || write_on(&mut to_pipe, output));
    // Threads share root and working directory; who enters the mounts of another process may not.
    #[allow(deprecated)]
    rustix::thread::unshare(UnshareFlags::FS)
        .map_err(AgentError::system(Step::Unshare { command: "stdio" }))?;
    let end = serve(&mut inside, std::process::id() == 1)?;
    drop(inside);
    if end == End::PowerOff {
        // The answer to it is still on its way; in every other case nobody reads any more.
        let _ = writer.join();
    }
    Ok(())
}

/// Carry standard input to the socket until it ends, is silent for too long, or finds no room there for
/// as long: the socket has that for a timeout.
fn read_on(mut pipe: File, mut socket: UnixStream, silence_s: i64) {
    let limit = Timespec {
        tv_sec: silence_s,
        tv_nsec: 0,
    };
    let mut piece = vec![0; PIECE];
    loop {
        match poll(&mut [PollFd::new(&pipe, PollFlags::IN)], Some(&limit)) {
            Err(rustix::io::Errno::INTR) => continue,
            Ok(1..) => {}
            Ok(0) | Err(_) => break,
        }
        match pipe.read(&mut piece) {
            Err(e) if e.kind() == std::io::ErrorKind::Interrupted => {}
            Ok(0) | Err(_) => break,
            Ok(n) => {
                if socket.write_all(&piece[..n]).is_err() {
                    break;
                }
            }
        }
    }
    let _ = socket.shutdown(Shutdown::Both);
}

/// Carry the socket to standard output until either closes.
fn write_on(socket: &mut UnixStream, mut pipe: File) {
    let mut piece = vec![0; PIECE];
    while let Ok(n @ 1..) = socket.read(&mut piece) {
        if pipe.write_all(&piece[..n]).is_err() {
            break;
        }
    }
    let _ = socket.shutdown(Shutdown::Both);
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::OwnedFd;
    use std::sync::mpsc::channel;

    use rustix::process::{waitpid, Pid, WaitOptions};
    use serde_json::{json, Value};

    use crate::frame::{Decoder, Frame};

    /// So long nobody waits for what takes seconds.
    const LIMIT: Duration = Duration::from_secs(60);

    fn request(op: &Value) -> Vec<u8> {
        let header = json!({"id": 1, "op": op}).to_string().into_bytes();
        let mut bytes = Vec::new();
        let frame = Frame {
            header,
            payload: Vec::new(),
        };
        frame.encode(&mut bytes).unwrap();
        bytes
    }

    fn file(fd: impl Into<OwnedFd>) -> File {
        File::from(fd.into())
    }

    #[test]
    fn a_peer_that_stops_reading_and_writing_is_gone_though_much_is_under_way() {
        let (input, mut requests) = std::io::pipe().unwrap();
        let (mut answers, output) = std::io::pipe().unwrap();
        let (over, ended) = channel();
        thread::spawn(move || over.send(between(file(input), file(output), 1)));
        let much = ["head", "-c", "8388608", "/dev/zero"];
        requests
            .write_all(&request(&json!({"spawn": {"argv": much}})))
            .unwrap();
        // Nobody reads, so at some point the agent takes no more, and nothing more can be written.
        let which = request(&json!({"which": {"program": "sh"}}));
        thread::spawn(move || while requests.write_all(&which).is_ok() {});
        let end = ended.recv_timeout(LIMIT);
        assert!(end.expect("it waits for ever").is_ok());
        let pid = Pid::from_raw(i32::try_from(pid_of_answer(&mut answers)).unwrap());
        let (_, status) = waitpid(pid, WaitOptions::empty()).unwrap().unwrap();
        assert_eq!(status.terminating_signal(), Some(9));
    }

    /// The process id in what was written before nobody read any more.
    fn pid_of_answer(answers: &mut impl Read) -> i64 {
        let mut decoder = Decoder::default();
        let mut piece = vec![0; PIECE];
        loop {
            let length = answers.read(&mut piece).unwrap();
            decoder.push(&piece[..length]);
            while let Some(frame) = decoder.next_frame().unwrap() {
                let header: Value = serde_json::from_slice(&frame.header).unwrap();
                if let Some(pid) = header["ok"]["pid"].as_i64() {
                    return pid;
                }
            }
            assert!(length > 0, "the spawn was not answered");
        }
    }
}
