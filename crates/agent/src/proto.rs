//! What may be asked of the agent and what it says; strict, every list and number bounded.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::num::NonZeroU32;

use serde::{Deserialize, Serialize};

use crate::error::RequestError;
use crate::limits::{ARGS_MAX, FILES_MAX, PAYLOAD_MAX};

/// Version of this protocol; both sides must speak the same.
pub const PROTOCOL: u32 = 4;

/// A request: an id chosen by the client, and what to do.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Request {
    /// Given back in the reply.
    pub id: u64,
    /// What to do.
    pub op: Op,
}

/// The operations.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Op {
    /// Start a program; its output arrives as `output` events, its end as `exit`.
    Spawn {
        /// Program and arguments; the program is looked up on the PATH.
        argv: Vec<String>,
        /// Variables beside those of the agent.
        #[serde(default)]
        env: BTreeMap<String, String>,
        /// Whether standard input is a pipe fed by `stdin`; otherwise it is `/dev/null`.
        #[serde(default)]
        stdin: bool,
        /// Process whose network and mounts it sees, instead of the agent's.
        #[serde(default)]
        within: Option<NonZeroU32>,
    },
    /// Give the payload to a program's standard input.
    Stdin {
        /// Which program.
        proc: u64,
        /// Close standard input after these bytes.
        eof: bool,
    },
    /// Send a signal to the program, or to its process group.
    Signal {
        /// Which program.
        proc: u64,
        /// Signal number, 1 to 64.
        signal: i32,
        /// The whole group.
        group: bool,
    },
    /// Write the payload at `offset` of a file that appears whole with the `last` part.
    Put {
        /// Absolute path; parents are made.
        path: String,
        /// Permission bits.
        mode: u32,
        /// Where the payload goes; parts come in order.
        offset: u64,
        /// Whether the file is complete.
        last: bool,
    },
    /// Read part of a file.
    Get {
        /// Absolute path.
        path: String,
        /// From where.
        offset: u64,
        /// At most this many bytes; the end of the file is said.
        limit: u32,
    },
    /// Read many small files (of /proc) at one time; sizes in the header, null where missing.
    ReadMany {
        /// Absolute paths.
        paths: Vec<String>,
    },
    /// CPU time of every process, and of the cores: the payload is JSON, see [`crate::cpu`].
    Cpu {},
    /// Kind, size and mode of a file, or null.
    Stat {
        /// Absolute path.
        path: String,
    },
    /// Path of a program, or null.
    Which {
        /// Name without a slash.
        program: String,
    },
    /// End all programs and switch the machine off.
    PowerOff {},
}

/// What the agent says without being asked.
#[derive(Debug, Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum Event {
    /// First of all.
    Ready {
        /// [`PROTOCOL`].
        protocol: u32,
        /// Release of the guest's kernel.
        kernel: String,
        /// Seconds since the kernel started.
        uptime_s: f64,
    },
    /// The payload is output of a program.
    Output {
        /// Which program.
        proc: u64,
        /// 1 or 2.
        stream: u8,
    },
    /// A program has ended; all it wrote before its end has been sent before this.
    Exit {
        /// Which program.
        proc: u64,
        /// Exit status, if it ended by itself.
        code: Option<i32>,
        /// Signal that ended it.
        signal: Option<i32>,
    },
}

/// Parse a request and check what types cannot say.
pub fn parse(header: &[u8]) -> Result<Request, RequestError> {
    let request: Request = serde_json::from_slice(header)
        .map_err(|error| RequestError::Json(lower(&error.to_string())))?;
    match &request.op {
        Op::Spawn { argv, env, .. } => spawn(argv, env)?,
        Op::Signal { signal, .. } => {
            if !(1..=64).contains(signal) {
                return Err(RequestError::SignalNumber(*signal));
            }
        }
        Op::Put { path, mode, .. } => {
            absolute("put", path)?;
            if *mode > 0o7777 {
                let (path, mode) = (path.clone(), *mode);
                return Err(RequestError::Mode { path, mode });
            }
        }
        Op::Get { path, limit, .. } => {
            absolute("get", path)?;
            if *limit as usize > PAYLOAD_MAX {
                let (path, limit) = (path.clone(), *limit);
                return Err(RequestError::PartLength { path, limit });
            }
        }
        Op::ReadMany { paths } => {
            if paths.len() > FILES_MAX {
                return Err(RequestError::FileCount(paths.len()));
            }
            for path in paths {
                absolute("read_many", path)?;
            }
        }
        Op::Stat { path } => absolute("stat", path)?,
        Op::Which { program } => text("which: program", program)?,
        Op::Stdin { .. } | Op::Cpu {} | Op::PowerOff {} => {}
    }
    Ok(request)
}

fn spawn(argv: &[String], env: &BTreeMap<String, String>) -> Result<(), RequestError> {
    if argv.is_empty() || argv.len() > ARGS_MAX || env.len() > ARGS_MAX {
        return Err(RequestError::WordCount {
            arguments: argv.len(),
            variables: env.len(),
        });
    }
    if argv[0].is_empty() {
        return Err(RequestError::EmptyProgram);
    }
    for (place, argument) in argv.iter().enumerate() {
        text(format_args!("spawn: argument {place}"), argument)?;
    }
    for (name, value) in env {
        text("spawn: variable", name)?;
        if name.is_empty() || name.contains('=') {
            return Err(RequestError::VariableName(name.clone()));
        }
        text("spawn: value of a variable", value)?;
    }
    Ok(())
}

fn text(place: impl Display, text: &str) -> Result<(), RequestError> {
    if text.contains('\0') {
        return Err(RequestError::ZeroByte {
            place: place.to_string(),
            text: text.to_owned(),
        });
    }
    Ok(())
}

fn absolute(op: &'static str, path: &str) -> Result<(), RequestError> {
    if !path.starts_with('/') || path.contains('\0') || path.split('/').any(|part| part == "..") {
        return Err(RequestError::Path {
            op,
            path: path.to_owned(),
        });
    }
    Ok(())
}

fn lower(text: &str) -> String {
    let mut chars = text.chars();
    chars
        .next()
        .map_or_else(String::new, |c| c.to_lowercase().chain(chars).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_request_is_parsed() {
        let request =
            parse(br#"{"id":7,"op":{"spawn":{"argv":["ip","a"],"stdin":true}}}"#).unwrap();
        assert_eq!(request.id, 7);
        assert!(matches!(request.op, Op::Spawn { stdin: true, .. }));
    }

    #[test]
    fn what_is_not_in_the_contract_is_refused_by_name() {
        for (text, part) in [
            (r#"{"id":1,"op":{"spawn":{"argv":[]}}}"#, "0 arguments"),
            (
                r#"{"id":1,"op":{"spawn":{"argv":["a"],"shell":true}}}"#,
                "shell",
            ),
            (
                r#"{"id":1,"op":{"spawn":{"argv":["a","b\u0000"]}}}"#,
                "zero byte",
            ),
            (
                r#"{"id":1,"op":{"spawn":{"argv":["a"],"env":{"A=B":"c"}}}}"#,
                "A=B",
            ),
            (
                r#"{"id":1,"op":{"spawn":{"argv":["a"],"within":0}}}"#,
                "nonzero",
            ),
            (
                r#"{"id":1,"op":{"signal":{"proc":1,"signal":0,"group":false}}}"#,
                "outside 1 to 64",
            ),
            (
                r#"{"id":1,"op":{"get":{"path":"etc","offset":0,"limit":1}}}"#,
                "etc",
            ),
            (
                r#"{"id":1,"op":{"get":{"path":"/a/../b","offset":0,"limit":1}}}"#,
                "/a/../b",
            ),
            (
                r#"{"id":1,"op":{"get":{"path":"/a","offset":0,"limit":1048577}}}"#,
                "1048577",
            ),
            (
                r#"{"id":1,"op":{"put":{"path":"/a","mode":4096,"offset":0,"last":true}}}"#,
                "10000",
            ),
            (r#"{"id":1,"op":"reboot"}"#, "reboot"),
            (r#"{"id":-1,"op":{"power_off":{}}}"#, "-1"),
            (r#"{"id":1,"op":{"power_off":{}},"x":1}"#, "x"),
        ] {
            let error = parse(text.as_bytes()).expect_err(text).to_string();
            assert!(error.contains(part), "{text}: {error}");
            assert!(!error.ends_with('.'), "{error}");
        }
    }

    proptest! {
        #[test]
        fn arbitrary_headers_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = parse(&bytes);
        }
    }
}
