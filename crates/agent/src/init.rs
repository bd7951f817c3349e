//! Two of the three ways to be started: as the init of a machine, or on a socket (for tests). The
//! third, on a host, is `stdio`.

use std::fs::{self, File, OpenOptions};
use std::os::fd::AsFd;
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::net::UnixStream;
use std::panic::resume_unwind;
use std::path::PathBuf;
use std::thread;

use rustix::event::{poll, PollFd, PollFlags, Timespec};
use rustix::fs::OFlags;
use rustix::system::RebootCommand;
use rustix::thread::UnshareFlags;

use crate::error::{AgentError, Step};
use crate::server::{serve, End};

/// Where the kernel lists the ports of the machine.
const PORTS: &str = "/sys/class/virtio-ports";
const TRIES: u32 = 100;
const TRIES_PER_S: u32 = 10;
const TRY: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 1_000_000_000 / TRIES_PER_S as i64,
};

/// Be process 1: find the port by its name, serve it to its end, switch the machine off.
pub fn run(name: &str) -> Result<(), AgentError> {
    if std::process::id() != 1 {
        let pid = std::process::id();
        return Err(AgentError::NotInit { pid });
    }
    // In a thread of its own: the kernel starts its helpers, modprobe among them, where the root of
    // the first thread is, as long as that is shared with the kernel's threads (Linux 7:
    // fs/fs_struct.c).
    let end = thread::scope(|scope| {
        thread::Builder::new()
            .spawn_scoped(scope, || {
                own_root()?;
                open(name).and_then(|mut port| serve(&mut port, true))
            })
            .map_err(AgentError::system(Step::Unshare { command: "init" }))?
            .join()
            .unwrap_or_else(|panic| resume_unwind(panic))
    });
    // Said on the console, which the run quotes when a machine dies without having been asked to.
    match &end {
        Ok(End::PowerOff) => {}
        Ok(End::Closed) => eprintln!("tunnelmark-agent: the port was closed, switching off"),
        Err(error) => eprintln!("tunnelmark-agent: {error}"),
    }
    rustix::fs::sync();
    rustix::system::reboot(RebootCommand::PowerOff).map_err(AgentError::system(Step::PowerOff))
}

/// Share root and working directory with nobody: the first process has them in common with threads
/// of the kernel, and so may not enter the mounts of another process (setns(2)).
fn own_root() -> Result<(), AgentError> {
    // Deprecated for what it can do to file descriptors, which are not asked for here.
    #[allow(deprecated)]
    rustix::thread::unshare(UnshareFlags::FS)
        .map_err(AgentError::system(Step::Unshare { command: "init" }))
}

/// Serve the socket that is standard input.
pub fn serve_standard_input() -> Result<(), AgentError> {
    let fail = |error| AgentError::System {
        step: Step::Standard { command: "serve" },
        error,
    };
    let fd = std::io::stdin()
        .as_fd()
        .try_clone_to_owned()
        .map_err(fail)?;
    let mut socket = UnixStream::from(fd);
    socket.set_nonblocking(true).map_err(fail)?;
    serve(&mut socket, false).map(drop)
}

/// Open the port once it is there and its other side is connected.
fn open(name: &str) -> Result<File, AgentError> {
    for _ in 0..TRIES {
        if let Some(device) = find(name) {
            let step = || Step::Port {
                device: device.clone(),
            };
            let port = OpenOptions::new()
                .read(true)
                .write(true)
                .custom_flags(OFlags::NONBLOCK.bits().cast_signed())
                .open(&device)
                .map_err(AgentError::system(step()))?;
            let mut fds = [PollFd::new(&port, PollFlags::OUT)];
            for _ in 0..TRIES {
                poll(&mut fds, Some(&TRY)).map_err(AgentError::system(step()))?;
                if !fds[0].revents().contains(PollFlags::HUP) {
                    return Ok(port);
                }
                pause();
            }
            return Err(AgentError::NotConnected {
                device,
                waited_s: TRIES / TRIES_PER_S,
            });
        }
        pause();
    }
    Err(AgentError::NoPort {
        folder: PORTS,
        name: name.to_owned(),
        waited_s: TRIES / TRIES_PER_S,
    })
}

fn find(name: &str) -> Option<PathBuf> {
    fs::read_dir(PORTS).ok()?.flatten().find_map(|entry| {
        let text = fs::read_to_string(entry.path().join("name")).ok()?;
        (text.trim_end() == name).then(|| PathBuf::from("/dev").join(entry.file_name()))
    })
}

/// Wait a tenth of a second without a clock: a poll of nothing that times out.
fn pause() {
    let _ = poll(&mut [], Some(&TRY));
}
