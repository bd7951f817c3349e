//! The two ways to be started: as the init of a machine, or on a socket (for tests).

use std::fs::{self, File, OpenOptions};
use std::os::fd::AsFd;
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;

use rustix::event::{poll, PollFd, PollFlags, Timespec};
use rustix::fs::OFlags;
use rustix::system::RebootCommand;
use rustix::thread::UnshareFlags;

use crate::server::{serve, End};

const PORTS: &str = "/sys/class/virtio-ports";
const TRIES: u32 = 100;
const TRY: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 100_000_000,
};

/// Be process 1: find the port by its name, serve it to its end, switch the machine off.
pub fn run(name: &str) -> Result<(), String> {
    if std::process::id() != 1 {
        return Err(format!(
            "init: process {} is not the init of a machine",
            std::process::id()
        ));
    }
    own_root()?;
    let end = open(name).and_then(|mut port| serve(&mut port, true));
    // Said on the console, which the run quotes when a machine dies without having been asked to.
    match &end {
        Ok(End::PowerOff) => {}
        Ok(End::Closed) => eprintln!("tunnelmark-agent: the port was closed, switching off"),
        Err(error) => eprintln!("tunnelmark-agent: {error}"),
    }
    rustix::fs::sync();
    rustix::system::reboot(RebootCommand::PowerOff).map_err(|e| format!("power off: {e}"))
}

/// Share root and working directory with nobody: the first process has them in common with threads
/// of the kernel, and so may not enter the mounts of another process (setns(2)).
fn own_root() -> Result<(), String> {
    // Deprecated for what it can do to file descriptors, which are not asked for here.
    #[allow(deprecated)]
    rustix::thread::unshare(UnshareFlags::FS).map_err(|e| format!("init: unshare: {e}"))
}

/// Serve the socket that is standard input.
pub fn serve_standard_input() -> Result<(), String> {
    let fail = |e: std::io::Error| format!("standard input: {e}");
    let fd = std::io::stdin()
        .as_fd()
        .try_clone_to_owned()
        .map_err(fail)?;
    let mut socket = UnixStream::from(fd);
    socket.set_nonblocking(true).map_err(fail)?;
    serve(&mut socket, false).map(drop)
}

/// Open the port once it is there and its other side is connected.
fn open(name: &str) -> Result<File, String> {
    for _ in 0..TRIES {
        if let Some(device) = find(name) {
            let flags = i32::try_from(OFlags::NONBLOCK.bits()).map_err(|e| e.to_string())?;
            let port = OpenOptions::new()
                .read(true)
                .write(true)
                .custom_flags(flags)
                .open(&device)
                .map_err(|e| format!("{}: {e}", device.display()))?;
            let mut fds = [PollFd::new(&port, PollFlags::OUT)];
            for _ in 0..TRIES {
                poll(&mut fds, Some(&TRY)).map_err(|e| format!("{}: {e}", device.display()))?;
                if !fds[0].revents().contains(PollFlags::HUP) {
                    return Ok(port);
                }
                pause();
            }
            return Err(format!(
                "{}: the other side does not connect",
                device.display()
            ));
        }
        pause();
    }
    Err(format!("{PORTS}: no port has the name {name}"))
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
