//! Why the agent refuses a request, or ends: the place, the value, the limit, and what to do.

use std::fmt;
use std::io;
use std::num::NonZeroU32;
use std::path::PathBuf;

use crate::frame::FrameError;
use crate::limits::{ARGS_MAX, CHILDREN_MAX, FILES_MAX, PAYLOAD_MAX, STDIN_MAX, UNREAD_MAX};

/// What ends a request, or the agent.
#[derive(Debug)]
pub enum AgentError {
    /// The kernel refused a step.
    System {
        /// Which
        step: Step,
        /// Its reason
        error: io::Error,
    },
    /// The other side does not speak the protocol: the connection cannot go on.
    Frame(FrameError),
    /// The protocol has no such request.
    Request(RequestError),
    /// A word of the command line is not a whole number within its limits.
    Argument {
        /// Which, with its unit
        name: &'static str,
        /// The word
        text: String,
        /// Largest; the smallest is 1
        most: u32,
    },
    /// Only process 1 may be the init of a machine.
    NotInit {
        /// The process
        pid: u32,
    },
    /// The machine has no such port.
    NoPort {
        /// Where the kernel lists them
        folder: &'static str,
        /// Name of the port
        name: String,
        /// How long it was looked for
        waited_s: u32,
    },
    /// Nobody opens the other side of the port.
    NotConnected {
        /// The port
        device: PathBuf,
        /// How long it was waited for
        waited_s: u32,
    },
    /// No program has this number.
    UnknownProgram {
        /// The operation
        op: &'static str,
        /// The number
        proc: u64,
        /// Programs that were started, which have the numbers below
        started: u64,
    },
    /// As many programs run as may.
    TooManyPrograms {
        /// The one that was to be started
        program: String,
    },
    /// The kernel has no such signal.
    UnknownSignal {
        /// Its number
        number: i32,
    },
    /// The program has no standard input any more, or never had.
    StdinClosed {
        /// The program's process
        pid: i32,
    },
    /// A program does not read what it was given.
    StdinFull {
        /// The program's process
        pid: i32,
    },
    /// Programs together do not read what they were given.
    AllStdinFull,
    /// The path names no file.
    NoFileName {
        /// The path
        path: String,
    },
    /// A part of a file that does not begin where the one before it ended.
    PartOffset {
        /// The file
        path: String,
        /// Where the part begins
        offset: u64,
        /// Bytes that are there
        length: u64,
    },
    /// A directory, a device or such, which cannot be read in parts.
    NotRegular {
        /// The path
        path: String,
    },
    /// Files are too long together.
    FilesTooLong {
        /// The limit, in bytes
        most: usize,
    },
}

/// What the kernel was asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Start a program
    Spawn {
        /// Its name or path
        program: String,
    },
    /// Enter the namespaces of a process
    Enter {
        /// The process
        pid: NonZeroU32,
    },
    /// Send a signal
    Signal {
        /// The signal
        number: i32,
        /// The process, which is the head of its group
        pid: i32,
    },
    /// Read what processes have used
    Cpu,
    /// Write a file
    Put {
        /// Its path
        path: String,
    },
    /// Read a file
    Get {
        /// Its path
        path: String,
    },
    /// Look at a file
    Stat {
        /// Its path
        path: String,
    },
    /// Wait for the port and the programs
    Wait,
    /// Read or write the connection
    Connection,
    /// Open the machine's port
    Port {
        /// The port
        device: PathBuf,
    },
    /// Set standard input or output up
    Standard {
        /// The subcommand
        command: &'static str,
    },
    /// Have a root and a working directory of one's own
    Unshare {
        /// The subcommand
        command: &'static str,
    },
    /// Switch the machine off
    PowerOff,
}

/// Why the protocol has no such request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RequestError {
    /// Not the JSON of a request: the parser's reason
    Json(String),
    /// Too many words, or none
    WordCount {
        /// Program and arguments
        arguments: usize,
        /// Variables
        variables: usize,
    },
    /// The first argument, the program, is empty
    EmptyProgram,
    /// The kernel takes texts up to a zero byte
    ZeroByte {
        /// Which text
        place: String,
        /// The text
        text: String,
    },
    /// No name for a variable
    VariableName(String),
    /// No number of a signal
    SignalNumber(i32),
    /// More than permission bits
    Mode {
        /// The file
        path: String,
        /// The value
        mode: u32,
    },
    /// More than a frame carries
    PartLength {
        /// The file
        path: String,
        /// The value, in bytes
        limit: u32,
    },
    /// Too many files at a time
    FileCount(usize),
    /// Not a path from the root on, or one that goes back
    Path {
        /// The operation
        op: &'static str,
        /// The path
        path: String,
    },
}

impl AgentError {
    /// For `map_err`: the kernel refused `step`.
    pub(crate) fn system<E: Into<io::Error>>(step: Step) -> impl FnOnce(E) -> Self {
        move |error| Self::System {
            step,
            error: error.into(),
        }
    }
}

impl From<FrameError> for AgentError {
    fn from(error: FrameError) -> Self {
        Self::Frame(error)
    }
}

impl From<RequestError> for AgentError {
    fn from(error: RequestError) -> Self {
        Self::Request(error)
    }
}

impl fmt::Display for AgentError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::System { step, error } => {
                write!(f, "{step}: {error}")?;
                match step.remedy(error.kind()) {
                    Some(remedy) => write!(f, "; {remedy}"),
                    None => Ok(()),
                }
            }
            Self::Frame(error) => error.fmt(f),
            Self::Request(error) => error.fmt(f),
            Self::Argument { name, text, most } => {
                write!(f, "{name} is {:?}, must be 1 to {most}", Quoted(text))
            }
            Self::NotInit { pid } => write!(
                f,
                "init: process {pid} is not the init of a machine; use stdio on a host"
            ),
            Self::NoPort {
                folder,
                name,
                waited_s,
            } => write!(
                f,
                "{folder}: no port has the name {} after {waited_s} s; start the machine with a \
                 virtio-serial port of this name",
                Quoted(name)
            ),
            Self::NotConnected { device, waited_s } => write!(
                f,
                "{}: the other side does not connect within {waited_s} s; open its socket when the \
                 machine starts",
                device.display()
            ),
            Self::UnknownProgram { op, proc, started } => write!(
                f,
                "{op}: program {proc} is not there, {started} were started and count from 0; use \
                 the number that spawn returned"
            ),
            Self::TooManyPrograms { program } => write!(
                f,
                "spawn {}: {CHILDREN_MAX} programs run, which is the most; end some first",
                Quoted(program)
            ),
            Self::UnknownSignal { number } => write!(
                f,
                "signal: {number} is not a known signal; kill -l names those of this host"
            ),
            Self::StdinClosed { pid } => write!(
                f,
                "stdin: process {pid} has none or it is closed; spawn it with stdin, and send eof \
                 last"
            ),
            Self::StdinFull { pid } => write!(
                f,
                "stdin: process {pid} leaves {STDIN_MAX} bytes unread; send more when it reads"
            ),
            Self::AllStdinFull => write!(
                f,
                "stdin: programs leave {UNREAD_MAX} bytes unread; send more when they read"
            ),
            Self::NoFileName { path } => {
                write!(f, "put {}: has no file name; name a file in it", Quoted(path))
            }
            Self::PartOffset {
                path,
                offset,
                length,
            } => write!(
                f,
                "put {}: part at {offset}, {length} bytes are there; send parts in order, the first \
                 at 0",
                Quoted(path)
            ),
            Self::NotRegular { path } => {
                write!(f, "get {}: is not a regular file; name one", Quoted(path))
            }
            Self::FilesTooLong { most } => write!(
                f,
                "read_many: more than {most} bytes in all; ask for fewer files at a time"
            ),
        }
    }
}

impl std::error::Error for AgentError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::System { error, .. } => Some(error),
            Self::Frame(error) => Some(error),
            Self::Request(error) => Some(error),
            _ => None,
        }
    }
}

impl Step {
    /// What to do where the reason alone does not say it.
    fn remedy(&self, reason: io::ErrorKind) -> Option<&'static str> {
        use io::ErrorKind::{NotFound, PermissionDenied};
        match (self, reason) {
            (Self::Spawn { .. }, NotFound) => Some("install it, or name a path"),
            (Self::Spawn { .. }, PermissionDenied) => Some("it must be executable"),
            (Self::Enter { .. }, NotFound) => Some("it has ended"),
            (Self::Enter { .. } | Self::Unshare { .. } | Self::PowerOff, PermissionDenied) => {
                Some("run the agent as root")
            }
            _ => None,
        }
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Spawn { program } => write!(f, "spawn {}", Quoted(program)),
            Self::Enter { pid } => write!(f, "spawn: within process {pid}"),
            Self::Signal { number, pid } => write!(f, "signal {number} to process {pid}"),
            Self::Cpu => f.write_str("cpu: /proc"),
            Self::Put { path } => write!(f, "put {}", Quoted(path)),
            Self::Get { path } => write!(f, "get {}", Quoted(path)),
            Self::Stat { path } => write!(f, "stat {}", Quoted(path)),
            Self::Wait => f.write_str("poll"),
            Self::Connection => f.write_str("port"),
            Self::Port { device } => device.display().fmt(f),
            Self::Standard { command } => write!(f, "{command}: standard input and output"),
            Self::Unshare { command } => write!(f, "{command}: unshare"),
            Self::PowerOff => f.write_str("power off"),
        }
    }
}

impl fmt::Display for RequestError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Json(reason) => write!(f, "request: {}", Quoted(reason)),
            Self::WordCount {
                arguments,
                variables,
            } => write!(
                f,
                "spawn: {arguments} arguments and {variables} variables, must be 1 to {ARGS_MAX} \
                 and at most {ARGS_MAX}"
            ),
            Self::EmptyProgram => {
                f.write_str("spawn: argument 0 is \"\", must be a program's name or path")
            }
            Self::ZeroByte { place, text } => {
                write!(f, "{place} is {:?}, must have no zero byte", Quoted(text))
            }
            Self::VariableName(name) => write!(
                f,
                "spawn: variable {:?} must have a name, and no = in it",
                Quoted(name)
            ),
            Self::SignalNumber(number) => write!(f, "signal: {number} is outside 1 to 64"),
            Self::Mode { path, mode } => {
                let path = Quoted(path);
                write!(
                    f,
                    "put {path}: mode is {mode:o}, must be at most 7777 (octal)"
                )
            }
            Self::PartLength { path, limit } => write!(
                f,
                "get {}: limit is {limit} bytes, must be at most {PAYLOAD_MAX}; read the file in \
                 parts",
                Quoted(path)
            ),
            Self::FileCount(count) => write!(
                f,
                "read_many: {count} files, must be at most {FILES_MAX}; ask for fewer at a time"
            ),
            Self::Path { op, path } => write!(
                f,
                "{op}: {:?} is relative or has .. among its parts; name it from / on",
                Quoted(path)
            ),
        }
    }
}

impl std::error::Error for RequestError {}

/// A text from outside, of which as much is shown as the longest path has: the answer has to fit into
/// a frame, whatever the request was.
struct Quoted<'a>(&'a str);

impl Quoted<'_> {
    const BYTES_MAX: usize = 4096;

    fn cut(&self) -> (&str, &'static str) {
        let most = self.0.len().min(Self::BYTES_MAX);
        let whole = |end: &usize| self.0.is_char_boundary(*end);
        let end = (0..=most).rev().find(whole).unwrap_or(0);
        let mark = if end < self.0.len() { "…" } else { "" };
        (&self.0[..end], mark)
    }
}

impl fmt::Display for Quoted<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (text, mark) = self.cut();
        write!(f, "{text}{mark}")
    }
}

impl fmt::Debug for Quoted<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (text, mark) = self.cut();
        write!(f, "{text:?}{mark}")
    }
}

#[cfg(test)]
#[path = "error_tests.rs"]
mod tests;
