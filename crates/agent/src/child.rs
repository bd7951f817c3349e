//! One program that the agent started: its pipes, its end.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{ErrorKind, Read, Write};
use std::num::NonZeroU32;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

use rustix::process::{Pid, PidfdFlags, Signal, WaitId, WaitIdOptions, WaitOptions, WaitStatus};
use rustix::thread::move_into_link_name_space;

use crate::cpu;
use crate::error::{AgentError, Step};
use crate::limits::STDIN_MAX;
use crate::proto::Event;

/// Most bytes read from one pipe before others have their turn.
const TURN: usize = 256 * 1024;

/// A program, in a process group of its own.
#[derive(Debug)]
pub struct Child {
    pid: Pid,
    pidfd: OwnedFd,
    stdin: Option<File>,
    stdin_queue: VecDeque<u8>,
    stdin_eof: bool,
    outputs: [Option<File>; 2],
    status: Option<WaitStatus>,
    exited: bool,
}

/// This thread has the network and the mounts of another process, and so has what it starts, until
/// this is dropped.
///
/// `ip netns exec` does the same again for each program, for 30 ms of an emulated CPU.
struct Within {
    own: [File; 2],
}

impl Within {
    fn enter(pid: NonZeroU32) -> Result<Self, AgentError> {
        let fail = |error| AgentError::System {
            step: Step::Enter { pid },
            error,
        };
        let own = namespaces("thread-self").map_err(fail)?;
        let theirs = namespaces(&pid.to_string()).map_err(fail)?;
        let within = Self { own };
        join(&theirs).map_err(fail)?;
        Ok(within)
    }
}

impl Drop for Within {
    fn drop(&mut self) {
        // They are ours: the kernel has no reason to refuse the way back.
        join(&self.own).expect("own namespaces");
    }
}

fn namespaces(process: &str) -> std::io::Result<[File; 2]> {
    let open = |kind| File::open(format!("/proc/{process}/ns/{kind}"));
    Ok([open("net")?, open("mnt")?])
}

fn join(namespaces: &[File; 2]) -> std::io::Result<()> {
    for namespace in namespaces {
        move_into_link_name_space(namespace.as_fd(), None)?;
    }
    Ok(())
}

impl Child {
    /// Start a program, with the namespaces of a process if one is named; the error says the reason.
    pub fn start(
        argv: &[String],
        env: impl IntoIterator<Item = (String, String)>,
        stdin: bool,
        within: Option<NonZeroU32>,
    ) -> Result<Self, AgentError> {
        let fail = |error| AgentError::System {
            step: Step::Spawn {
                program: argv[0].clone(),
            },
            error,
        };
        let _within = within.map(Within::enter).transpose()?;
        let child = Command::new(&argv[0])
            .args(&argv[1..])
            .envs(env)
            .process_group(0)
            .stdin(if stdin { Stdio::piped() } else { Stdio::null() })
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(fail)?;
        Self::hold(child, |pid| {
            Ok(rustix::process::pidfd_open(pid, PidfdFlags::empty())?)
        })
        .map_err(fail)
    }

    /// Takes hold of a program that runs; where that is refused it is ended, so that none runs that
    /// nobody knows of.
    fn hold(
        mut child: std::process::Child,
        watch: impl FnOnce(Pid) -> std::io::Result<OwnedFd>,
    ) -> std::io::Result<Self> {
        let pid = Pid::from_child(&child);
        let file = |pipe: OwnedFd| -> std::io::Result<File> {
            rustix::io::ioctl_fionbio(&pipe, true)?;
            Ok(File::from(pipe))
        };
        let held = || -> std::io::Result<Self> {
            let stdin = child
                .stdin
                .take()
                .map(|pipe| file(pipe.into()))
                .transpose()?;
            let stdout = child.stdout.take().map(|pipe| file(pipe.into()));
            let stderr = child.stderr.take().map(|pipe| file(pipe.into()));
            Ok(Self {
                pid,
                pidfd: watch(pid)?,
                stdin_eof: stdin.is_none(),
                stdin,
                stdin_queue: VecDeque::new(),
                outputs: [stdout.transpose()?, stderr.transpose()?],
                status: None,
                exited: false,
            })
        }();
        if held.is_err() {
            // It is the head of its group, and what it started is in it. It is gone at once, so it may
            // be waited for.
            let _ = rustix::process::kill_process_group(pid, Signal::KILL);
            let _ = child.kill();
            let _ = child.wait();
        }
        held
    }

    /// Process id, also the id of its group.
    pub fn pid(&self) -> Pid {
        self.pid
    }

    /// Becomes readable when the program has ended; None once that has been reported.
    pub fn end(&self) -> Option<BorrowedFd<'_>> {
        (!self.exited).then(|| self.pidfd.as_fd())
    }

    /// The pipe of an output stream (0 or 1) that is still open.
    pub fn output(&self, index: usize) -> Option<BorrowedFd<'_>> {
        self.outputs[index].as_ref().map(AsFd::as_fd)
    }

    /// The pipe of standard input while bytes wait for it.
    pub fn input(&self) -> Option<BorrowedFd<'_>> {
        self.stdin
            .as_ref()
            .filter(|_| !self.stdin_queue.is_empty())
            .map(AsFd::as_fd)
    }

    /// Whether its end is not known yet.
    pub fn runs(&self) -> bool {
        self.status.is_none()
    }

    /// Take the status that was collected for it.
    pub fn reaped(&mut self, status: WaitStatus) {
        self.status = Some(status);
    }

    /// Collect the status if it has ended, and keep what it used before that is gone.
    pub fn collect(&mut self, cpu: &mut cpu::Reader) {
        if self.status.is_some() {
            return;
        }
        let look = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        let Ok(Some(_)) = rustix::process::waitid(WaitId::Pid(self.pid), look) else {
            return;
        };
        cpu.keep(u64::from(self.raw().unsigned_abs()));
        if let Ok(Some((_, status))) = rustix::process::waitpid(Some(self.pid), WaitOptions::NOHANG)
        {
            self.reaped(status);
        }
    }

    /// Bytes that wait for it to read them.
    pub fn unread(&self) -> usize {
        self.stdin_queue.len()
    }

    /// Whether nothing more can come from it.
    pub fn finished(&self) -> bool {
        self.exited && self.outputs.iter().all(Option::is_none)
    }

    /// Queue bytes for standard input, and its end.
    pub fn feed(&mut self, data: &[u8], eof: bool) -> Result<(), AgentError> {
        if self.stdin_eof {
            return Err(AgentError::StdinClosed { pid: self.raw() });
        }
        self.stdin_eof = eof;
        if self.stdin.is_none() {
            return Ok(()); // the program does not want to read on, which is its right
        }
        if self.stdin_queue.len() + data.len() > STDIN_MAX {
            return Err(AgentError::StdinFull { pid: self.raw() });
        }
        self.stdin_queue.extend(data);
        self.write_input();
        Ok(())
    }

    /// Write what the pipe takes.
    pub fn write_input(&mut self) {
        let Some(pipe) = self.stdin.as_mut() else {
            return;
        };
        while !self.stdin_queue.is_empty() {
            match pipe.write(self.stdin_queue.as_slices().0) {
                Ok(n) => drop(self.stdin_queue.drain(..n)),
                Err(e) if e.kind() == ErrorKind::WouldBlock => return,
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(_) => {
                    // The program closed its end: what it does not read is nobody's loss.
                    self.stdin_queue.clear();
                    self.stdin = None;
                    return;
                }
            }
        }
        if self.stdin_eof {
            self.stdin = None;
        }
    }

    /// Hand what an output stream holds to `sink` in pieces; the stream closes at its end.
    pub fn read_output(&mut self, index: usize, mut sink: impl FnMut(&[u8])) {
        let Some(pipe) = self.outputs[index].as_mut() else {
            return;
        };
        let mut buffer = vec![0; 32 * 1024];
        let mut total = 0;
        while total < TURN {
            match pipe.read(&mut buffer) {
                Ok(0) => break,
                Ok(n) => {
                    sink(&buffer[..n]);
                    total += n;
                }
                Err(e) if e.kind() == ErrorKind::WouldBlock => return,
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(_) => break,
            }
        }
        if total < TURN {
            self.outputs[index] = None;
        }
    }

    /// Say how it ended, once, if it has.
    pub fn try_wait(&mut self, id: u64, cpu: &mut cpu::Reader) -> Option<Event> {
        if self.exited {
            return None;
        }
        self.collect(cpu);
        let status = self.status?;
        let (code, signal) = (status.exit_status(), status.terminating_signal());
        self.exited = true;
        self.stdin = None;
        Some(Event::Exit {
            proc: id,
            code,
            signal,
        })
    }

    /// Send a signal to the program or to its group; one that has ended is no error.
    pub fn signal(&self, number: i32, group: bool) -> Result<(), AgentError> {
        let signal = Signal::from_named_raw(number).ok_or(AgentError::UnknownSignal { number })?;
        let sent = if group {
            rustix::process::kill_process_group(self.pid, signal)
        } else if self.exited {
            return Ok(());
        } else {
            rustix::process::pidfd_send_signal(&self.pidfd, signal)
        };
        match sent {
            Ok(()) | Err(rustix::io::Errno::SRCH) => Ok(()),
            Err(error) => {
                let pid = self.raw();
                Err(AgentError::system(Step::Signal { number, pid })(error))
            }
        }
    }

    /// Whether any process of its group is left.
    pub fn group_alive(&self) -> bool {
        rustix::process::test_kill_process_group(self.pid).is_ok()
    }

    fn raw(&self) -> i32 {
        self.pid.as_raw_nonzero().get()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_that_cannot_be_watched_does_not_run_on_unknown() {
        let program = Command::new("sleep")
            .arg("1000")
            .process_group(0)
            .spawn()
            .unwrap();
        let pid = Pid::from_child(&program);
        let error = Child::hold(program, |_| Err(ErrorKind::OutOfMemory.into())).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::OutOfMemory);
        // Waited for, so its number is free again: no process has it, not even a zombie.
        assert!(rustix::process::test_kill_process(pid).is_err());
    }
}
