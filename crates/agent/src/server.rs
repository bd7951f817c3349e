//! The loop: one thread waits for the port and for every program's pipes and end.

use std::collections::BTreeMap;
use std::io::{ErrorKind, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};

use rustix::event::{poll, PollFd, PollFlags, Timespec};
use rustix::process::{Signal, WaitOptions};
use serde_json::{json, Value};

use crate::child::Child;
use crate::cpu;
use crate::error::{AgentError, Step};
use crate::files;
use crate::frame::{Decoder, Frame};
use crate::limits::{CHILDREN_MAX, PAYLOAD_MAX, UNREAD_MAX};
use crate::proto::{self, Event, Op};

/// Above this many bytes to be sent, nothing more is read: neither requests nor output.
const OUT_HIGH: usize = 4 * 1024 * 1024;
/// How often orphans are looked for, and nothing else.
const IDLE: Timespec = Timespec {
    tv_sec: 1,
    tv_nsec: 0,
};

/// Why the loop ended in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// The other side closed the port, or is gone.
    Closed,
    /// The other side asked for it.
    PowerOff,
}

/// Serve one connection to its end; every program that still runs is then killed.
///
/// With `adopt` the process is the init of its machine and reaps what others leave behind.
pub fn serve<P: Read + Write + AsFd>(port: &mut P, adopt: bool) -> Result<End, AgentError> {
    let mut server = Server::default();
    server.say(&json!(Event::Ready {
        protocol: proto::PROTOCOL,
        kernel: rustix::system::uname()
            .release()
            .to_string_lossy()
            .into_owned(),
        uptime_s: uptime_s(),
    }))?;
    let end = server.run(port, adopt);
    for child in server.children.values() {
        let _ = child.signal(Signal::KILL.as_raw(), true);
    }
    end
}

#[derive(Default)]
struct Server {
    decoder: Decoder,
    out: Vec<u8>,
    children: BTreeMap<u64, Child>,
    next_child: u64,
    cpu: cpu::Reader,
    power_off: bool,
}

/// What a file descriptor that is ready belongs to.
#[derive(Clone, Copy)]
enum Source {
    Port,
    End(u64),
    Output(u64, usize),
    Input(u64),
}

impl Server {
    fn run<P: Read + Write + AsFd>(
        &mut self,
        port: &mut P,
        adopt: bool,
    ) -> Result<End, AgentError> {
        loop {
            self.perform_pending()?;
            if self.power_off && self.out.is_empty() {
                return Ok(End::PowerOff);
            }
            for (source, flags) in self.wait(port.as_fd())? {
                match source {
                    Source::Port => {
                        if flags.contains(PollFlags::OUT) && !self.flush(port)? {
                            return Ok(End::Closed);
                        }
                        if flags.contains(PollFlags::IN) && !self.receive(port)? {
                            return Ok(End::Closed);
                        }
                        // Hung up: nobody is left to work for.
                        if flags.intersects(PollFlags::HUP | PollFlags::ERR) {
                            return Ok(End::Closed);
                        }
                    }
                    Source::Output(id, index) => self.forward(id, index)?,
                    Source::Input(id) => {
                        if let Some(child) = self.children.get_mut(&id) {
                            child.write_input();
                        }
                    }
                    Source::End(id) => self.ended(id)?,
                }
            }
            self.children
                .retain(|_, child| !child.finished() || child.group_alive());
            if adopt {
                self.reap();
            }
        }
    }

    fn wait(&self, port: BorrowedFd<'_>) -> Result<Vec<(Source, PollFlags)>, AgentError> {
        let open = self.out.len() < OUT_HIGH;
        let mut sources = vec![Source::Port];
        let mut port_flags = PollFlags::empty();
        port_flags.set(PollFlags::IN, open && !self.power_off);
        port_flags.set(PollFlags::OUT, !self.out.is_empty());
        let mut fds = vec![PollFd::from_borrowed_fd(port, port_flags)];
        let mut add = |source, fd, flags| {
            if let Some(fd) = fd {
                sources.push(source);
                fds.push(PollFd::from_borrowed_fd(fd, flags));
            }
        };
        for (&id, child) in &self.children {
            if open {
                // Output stands before the end, so that what was written before it is sent first.
                add(Source::Output(id, 0), child.output(0), PollFlags::IN);
                add(Source::Output(id, 1), child.output(1), PollFlags::IN);
                add(Source::End(id), child.end(), PollFlags::IN);
            }
            add(Source::Input(id), child.input(), PollFlags::OUT);
        }
        match poll(&mut fds, Some(&IDLE)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(AgentError::system(Step::Wait)(error)),
        }
        let ready = sources.into_iter().zip(fds.iter().map(PollFd::revents));
        Ok(ready.filter(|(_, flags)| !flags.is_empty()).collect())
    }

    /// Read requests; false when the port is closed.
    fn receive<P: Read>(&mut self, port: &mut P) -> Result<bool, AgentError> {
        let mut buffer = vec![0; 64 * 1024];
        match port.read(&mut buffer) {
            Ok(0) => return Ok(false),
            Ok(n) => self.decoder.push(&buffer[..n]),
            Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {}
            Err(error) => return Err(AgentError::system(Step::Connection)(error)),
        }
        Ok(true)
    }

    /// Do requests as long as their answers have room: many small ones that arrive at once may ask for
    /// much. The others wait until what is to be sent has been taken.
    fn perform_pending(&mut self) -> Result<(), AgentError> {
        while self.out.len() < OUT_HIGH && !self.power_off {
            let Some(frame) = self.decoder.next_frame()? else {
                break;
            };
            self.request(&frame)?;
        }
        Ok(())
    }

    /// Write what the port takes; false when it is closed.
    fn flush<P: Write>(&mut self, port: &mut P) -> Result<bool, AgentError> {
        let mut written = 0;
        while written < self.out.len() {
            match port.write(&self.out[written..]) {
                Ok(0) => return Ok(false),
                Ok(n) => written += n,
                Err(e) if e.kind() == ErrorKind::WouldBlock => break,
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(e) if e.kind() == ErrorKind::BrokenPipe => return Ok(false),
                Err(error) => return Err(AgentError::system(Step::Connection)(error)),
            }
        }
        self.out.drain(..written);
        Ok(true)
    }

    fn request(&mut self, frame: &Frame) -> Result<(), AgentError> {
        // An answer needs an id; a request that cannot be parsed may still carry one.
        let id = |header: &[u8]| {
            serde_json::from_slice::<Value>(header)
                .ok()
                .and_then(|v| v.get("id")?.as_u64())
        };
        let (id, done) = match proto::parse(&frame.header) {
            Ok(request) => (Some(request.id), self.perform(request.op, &frame.payload)),
            Err(error) => (id(&frame.header), Err(error.into())),
        };
        let (answer, payload) = match done {
            Ok((value, payload)) => (json!({"id": id, "ok": value}), payload),
            Err(error) => (json!({"id": id, "error": error.to_string()}), Vec::new()),
        };
        self.send(&answer, payload)
    }

    fn perform(&mut self, op: Op, data: &[u8]) -> Result<(Value, Vec<u8>), AgentError> {
        let plain = |value| (value, Vec::new());
        match op {
            Op::Spawn {
                argv,
                env,
                stdin,
                within,
            } => {
                if self.children.len() >= CHILDREN_MAX {
                    let program = argv[0].clone();
                    return Err(AgentError::TooManyPrograms { program });
                }
                let child = Child::start(&argv, env, stdin, within)?;
                let (id, pid) = (self.next_child, child.pid().as_raw_nonzero().get());
                self.next_child += 1;
                self.children.insert(id, child);
                Ok(plain(json!({"proc": id, "pid": pid})))
            }
            Op::Stdin { proc, eof } => {
                // As with a signal: one that has ended already needs no input any more.
                let unread: usize = self.children.values().map(Child::unread).sum();
                if let Some(child) = self.children.get_mut(&proc) {
                    if unread + data.len() > UNREAD_MAX {
                        return Err(AgentError::AllStdinFull);
                    }
                    child.feed(data, eof)?;
                } else if proc >= self.next_child {
                    return Err(self.unknown("stdin", proc));
                }
                Ok(plain(Value::Null))
            }
            Op::Signal {
                proc,
                signal,
                group,
            } => {
                // One that is not known any more has ended: that is what a signal is for.
                if let Some(child) = self.children.get(&proc) {
                    child.signal(signal, group)?;
                } else if proc >= self.next_child {
                    return Err(self.unknown("signal", proc));
                }
                Ok(plain(Value::Null))
            }
            Op::Put {
                path,
                mode,
                offset,
                last,
            } => {
                files::put(&path, mode, offset, last, data)?;
                Ok(plain(Value::Null))
            }
            Op::Get {
                path,
                offset,
                limit,
            } => {
                let (data, end) = files::get(&path, offset, limit as usize)?;
                Ok((json!({"end": end}), data))
            }
            Op::ReadMany { paths } => files::read_many(&paths, PAYLOAD_MAX),
            Op::Cpu {} => Ok((Value::Null, self.cpu.snapshot()?.to_string().into_bytes())),
            Op::Stat { path } => Ok(plain(files::stat(&path)?)),
            Op::Which { program } => {
                let path = std::env::var("PATH").unwrap_or_default();
                let found = files::which(&program, &path);
                Ok(plain(
                    json!(found.map(|p| p.to_string_lossy().into_owned())),
                ))
            }
            Op::PowerOff {} => {
                self.power_off = true;
                Ok(plain(Value::Null))
            }
        }
    }

    fn forward(&mut self, id: u64, index: usize) -> Result<(), AgentError> {
        let mut pieces: Vec<u8> = Vec::new();
        if let Some(child) = self.children.get_mut(&id) {
            child.read_output(index, |piece| pieces.extend_from_slice(piece));
        }
        if pieces.is_empty() {
            return Ok(());
        }
        let stream = if index == 0 { 1 } else { 2 };
        self.send(&json!(Event::Output { proc: id, stream }), pieces)
    }

    fn ended(&mut self, id: u64) -> Result<(), AgentError> {
        let Some(event) = self
            .children
            .get_mut(&id)
            .and_then(|child| child.try_wait(id, &mut self.cpu))
        else {
            return Ok(());
        };
        // The pipes hold at most what was written before the end: one turn empties them.
        self.forward(id, 0)?;
        self.forward(id, 1)?;
        self.say(&json!(event))
    }

    /// Collect processes whose parent has died, which only an init inherits.
    fn reap(&mut self) {
        // Ours first: whom the kernel is asked for next is any that has ended.
        for child in self.children.values_mut() {
            child.collect(&mut self.cpu);
        }
        while let Ok(Some((pid, status))) = rustix::process::waitpid(None, WaitOptions::NOHANG) {
            // One of ours may be among them: its pidfd is readable and the next round tells its end.
            if let Some(child) = self
                .children
                .values_mut()
                .find(|c| c.runs() && c.pid() == pid)
            {
                child.reaped(status);
            }
        }
    }

    fn say(&mut self, header: &Value) -> Result<(), AgentError> {
        self.send(header, Vec::new())
    }

    fn send(&mut self, header: &Value, payload: Vec<u8>) -> Result<(), AgentError> {
        let frame = Frame {
            header: header.to_string().into_bytes(),
            payload,
        };
        Ok(frame.encode(&mut self.out)?)
    }

    fn unknown(&self, op: &'static str, proc: u64) -> AgentError {
        AgentError::UnknownProgram {
            op,
            proc,
            started: self.next_child,
        }
    }
}

fn uptime_s() -> f64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    now.tv_sec as f64 + now.tv_nsec as f64 / 1e9
}
