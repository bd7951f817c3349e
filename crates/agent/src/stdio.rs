//! Serving standard input and output, which on a host over SSH are two pipes of sshd's.
//!
//! The loop of [`crate::server`] waits for one file descriptor, so two threads carry between the
//! pipes and a socket pair. The one that reads is the watchdog: where nothing was heard for as long
//! as was agreed, the other side counts as gone, and all that runs here is ended.

use std::fs::File;
use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::thread;

use rustix::event::{poll, PollFd, PollFlags, Timespec};
use rustix::thread::UnshareFlags;

use crate::error::{AgentError, Step};
use crate::server::{serve, End};

const PIECE: usize = 64 * 1024;

/// Serve until the other side closes, is silent for `silence_s`, or asks for the end.
pub fn run(silence_s: i64) -> Result<(), AgentError> {
    let fail = |error| AgentError::System {
        step: Step::Standard { command: "stdio" },
        error,
    };
    let (mut inside, outside) = UnixStream::pair().map_err(fail)?;
    inside.set_nonblocking(true).map_err(fail)?;
    let (from_pipe, mut to_pipe) = (outside.try_clone().map_err(fail)?, outside);
    // As files: the library's own buffers would hold back what a poll waits for.
    let own = |fd: BorrowedFd<'_>| fd.try_clone_to_owned().map(File::from).map_err(fail);
    let input = own(std::io::stdin().as_fd())?;
    let output = own(std::io::stdout().as_fd())?;
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

/// Carry standard input to the socket until it ends, or is silent for too long.
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
