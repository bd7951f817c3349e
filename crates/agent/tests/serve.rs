//! The loop over a real socket with real programs, as a machine's port is served.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::thread::JoinHandle;

use rustix::event::{poll, PollFd, PollFlags, Timespec};
use rustix::process::{pidfd_open, waitpid, Pid, PidfdFlags, WaitOptions};
use serde_json::{json, Value};
use tm_agent::error::AgentError;
use tm_agent::frame::{Decoder, Frame, FrameError};
use tm_agent::proto::PROTOCOL;
use tm_agent::server::{serve, End};

struct Client {
    socket: UnixStream,
    decoder: Decoder,
    next_id: u64,
    agent: Option<JoinHandle<Result<End, AgentError>>>,
}

impl Client {
    fn new() -> Self {
        let (socket, mut theirs) = UnixStream::pair().unwrap();
        theirs.set_nonblocking(true).unwrap();
        let agent = std::thread::spawn(move || serve(&mut theirs, false));
        let mut client = Self {
            socket,
            decoder: Decoder::default(),
            next_id: 0,
            agent: Some(agent),
        };
        let (ready, _) = client.receive();
        assert_eq!(
            (&ready["event"], &ready["protocol"]),
            (&json!("ready"), &json!(PROTOCOL))
        );
        client
    }

    fn send(&mut self, op: &Value, payload: &[u8]) -> u64 {
        self.next_id += 1;
        let header = json!({"id": self.next_id, "op": op})
            .to_string()
            .into_bytes();
        let mut bytes = Vec::new();
        Frame {
            header,
            payload: payload.to_vec(),
        }
        .encode(&mut bytes)
        .unwrap();
        self.socket.write_all(&bytes).unwrap();
        self.next_id
    }

    fn receive(&mut self) -> (Value, Vec<u8>) {
        loop {
            if let Some(frame) = self.decoder.next_frame().unwrap() {
                return (
                    serde_json::from_slice(&frame.header).unwrap(),
                    frame.payload,
                );
            }
            let mut buffer = vec![0; 65536];
            let n = self.socket.read(&mut buffer).unwrap();
            assert!(n > 0, "the agent closed the connection");
            self.decoder.push(&buffer[..n]);
        }
    }

    /// Read nothing for half a second, in which the agent may do wrong.
    fn pause(&self) {
        let end = Timespec {
            tv_sec: 0,
            tv_nsec: 500_000_000,
        };
        poll(&mut [PollFd::new(&self.socket, PollFlags::PRI)], Some(&end)).unwrap();
    }

    /// Ask and return the answer; events before it are lost.
    fn ask(&mut self, op: &Value, payload: &[u8]) -> Result<(Value, Vec<u8>), String> {
        let id = self.send(op, payload);
        loop {
            let (mut header, payload) = self.receive();
            if header["id"] == json!(id) {
                return match header["error"].as_str() {
                    Some(error) => Err(error.to_owned()),
                    None => Ok((header["ok"].take(), payload)),
                };
            }
        }
    }

    fn spawn(&mut self, argv: &[&str], stdin: bool) -> u64 {
        let (answer, _) = self
            .ask(&json!({"spawn": {"argv": argv, "stdin": stdin}}), b"")
            .unwrap();
        answer["proc"].as_u64().unwrap()
    }

    /// Read events until the program's end: its outputs, status and signal.
    fn until_exit(&mut self, proc: u64) -> ([Vec<u8>; 2], Value, Value) {
        let mut outputs = [Vec::new(), Vec::new()];
        loop {
            let (mut event, payload) = self.receive();
            if event["proc"] != json!(proc) {
                continue;
            }
            match event["event"].as_str() {
                Some("output") => {
                    let stream = event["stream"].as_u64().unwrap();
                    outputs[usize::try_from(stream).unwrap() - 1].extend_from_slice(&payload);
                }
                Some("exit") => return (outputs, event["code"].take(), event["signal"].take()),
                _ => {}
            }
        }
    }

    fn finish(mut self) -> Result<End, AgentError> {
        let agent = self.agent.take().unwrap();
        drop(self);
        agent.join().unwrap()
    }
}

#[test]
fn output_of_both_streams_comes_before_the_end() {
    let mut client = Client::new();
    let proc = client.spawn(&["sh", "-c", "echo out; echo err >&2; exit 3"], false);
    let (outputs, code, signal) = client.until_exit(proc);
    assert_eq!(outputs, [b"out\n".to_vec(), b"err\n".to_vec()]);
    assert_eq!((code, signal), (json!(3), Value::Null));
}

#[test]
fn standard_input_arrives_whole_and_ends() {
    let mut client = Client::new();
    let proc = client.spawn(&["wc", "-c"], true);
    let piece = vec![b'x'; 1 << 20];
    for _ in 0..3 {
        client
            .ask(&json!({"stdin": {"proc": proc, "eof": false}}), &piece)
            .unwrap();
    }
    client.send(&json!({"stdin": {"proc": proc, "eof": true}}), b"yz");
    let (outputs, code, _) = client.until_exit(proc);
    assert_eq!((outputs[0].trim_ascii(), code), (&b"3145730"[..], json!(0)));
}

#[test]
fn input_that_a_program_does_not_read_is_no_error_but_input_it_cannot_have_is() {
    let mut client = Client::new();
    let proc = client.spawn(&["true"], true);
    client.until_exit(proc);
    client
        .ask(&json!({"stdin": {"proc": proc, "eof": true}}), b"unread")
        .unwrap();
    let proc = client.spawn(&["sleep", "1000"], false);
    let error = client
        .ask(&json!({"stdin": {"proc": proc, "eof": true}}), b"")
        .unwrap_err();
    assert!(error.contains("has none or it is closed"), "{error}");
}

#[test]
fn much_output_is_neither_lost_nor_out_of_order() {
    let mut client = Client::new();
    let proc = client.spawn(&["seq", "1", "2000000"], false);
    let (outputs, code, _) = client.until_exit(proc);
    assert_eq!(code, json!(0));
    assert_eq!(outputs[0].len(), 14_888_896);
    assert!(outputs[0].ends_with(b"1999999\n2000000\n"));
}

#[test]
fn a_signal_to_the_group_ends_children_of_children() {
    let mut client = Client::new();
    let proc = client.spawn(&["sh", "-c", "sleep 1000 & echo $!; wait"], false);
    let (event, child) = client.receive();
    assert_eq!(event["event"], "output");
    let child = String::from_utf8(child).unwrap().trim().parse().unwrap();
    let child = Pid::from_raw(child).unwrap();
    let child = pidfd_open(child, PidfdFlags::empty()).unwrap();
    client.send(
        &json!({"signal": {"proc": proc, "signal": 9, "group": true}}),
        b"",
    );
    let (_, code, signal) = client.until_exit(proc);
    assert_eq!((code, signal), (Value::Null, json!(9)));
    let limit = Timespec {
        tv_sec: 20,
        tv_nsec: 0,
    };
    let ended = poll(&mut [PollFd::new(&child, PollFlags::IN)], Some(&limit)).unwrap();
    assert_eq!(ended, 1, "the grandchild lives");
}

#[test]
fn output_of_a_descendant_still_comes_after_the_end() {
    let mut client = Client::new();
    // The background process waits for the signal that is sent after the end was reported.
    let proc = client.spawn(
        &[
            "sh",
            "-c",
            "(trap 'echo late; exit' USR1; echo set; while :; do sleep 0.05; done) & exit 0",
        ],
        false,
    );
    let (mut set, mut ended, mut late) = (false, false, false);
    let mut asked = false;
    while !late {
        let (event, payload) = client.receive();
        ended |= event["event"] == "exit";
        set |= payload == b"set\n";
        late = payload == b"late\n";
        if set && ended && !asked {
            client.send(
                &json!({"signal": {"proc": proc, "signal": 10, "group": true}}),
                b"",
            );
            asked = true;
        }
    }
    assert!(ended);
}

#[test]
fn what_a_program_used_is_known_when_it_has_ended() {
    let mut client = Client::new();
    let turns = "i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done";
    let (answer, _) = client
        .ask(&json!({"spawn": {"argv": ["sh", "-c", turns]}}), b"")
        .unwrap();
    client.until_exit(answer["proc"].as_u64().unwrap());
    let (_, payload) = client.ask(&json!({"cpu": {}}), b"").unwrap();
    let snapshot: Value = serde_json::from_slice(&payload).unwrap();
    let row = &snapshot["ended"][0];
    assert_eq!(row[0], answer["pid"]);
    assert_eq!(row[5][0][0], answer["pid"]);
    assert!(row[5][0][1].as_u64().unwrap() > 1_000_000, "{row}");
    let lives = |row: &Value| row[0] == answer["pid"];
    assert!(!snapshot["processes"].as_array().unwrap().iter().any(lives));
}

#[test]
fn requests_whose_answers_have_no_room_wait_and_are_all_answered() {
    let mut client = Client::new();
    // Asked for at once: 200 times a megabyte, of which nobody reads a byte meanwhile.
    let path = std::env::temp_dir().join(format!("tm-agent-{}", std::process::id()));
    std::fs::write(&path, vec![b'x'; 1 << 20]).unwrap();
    let get = json!({"get": {"path": path, "offset": 0, "limit": 1 << 20}});
    let before = resident_bytes();
    let ids: Vec<u64> = (0..200).map(|_| client.send(&get, b"")).collect();
    // The agent is a thread of this process: it has filled the socket and what it may hold.
    client.pause();
    let held = resident_bytes().saturating_sub(before);
    assert!(
        held < 64 << 20,
        "{held} bytes for answers that nobody reads"
    );
    for id in ids {
        let (header, payload) = client.receive();
        assert_eq!((header["id"].as_u64(), payload.len()), (Some(id), 1 << 20));
    }
    std::fs::remove_file(&path).unwrap();
}

/// What this process has in memory.
fn resident_bytes() -> u64 {
    let text = std::fs::read_to_string("/proc/self/statm").unwrap();
    let pages: u64 = text.split(' ').nth(1).unwrap().parse().unwrap();
    pages * 4096
}

#[test]
fn a_program_that_is_not_there_is_named() {
    let mut client = Client::new();
    let error = client
        .ask(&json!({"spawn": {"argv": ["tm-no-such-program"]}}), b"")
        .unwrap_err();
    assert!(error.starts_with("spawn tm-no-such-program: "), "{error}");
}

#[test]
fn a_long_name_is_refused_in_an_answer_and_the_connection_goes_on() {
    let mut client = Client::new();
    // A character of one byte that takes seven in a reply: as they are they had no room in a frame.
    let long = "\u{7f}".repeat(100_000);
    for (op, place) in [
        (json!({"stat": {"path": long}}), "stat: "),
        (
            json!({"get": {"path": "/", "offset": 0, "limit": 1, "x": 1}}),
            "request: unknown field",
        ),
        (json!({"spawn": {"argv": [format!("/{long}")]}}), "spawn /"),
        (
            json!({"spawn": {"argv": ["true", format!("{long}\0")]}}),
            "spawn: argument 1 is ",
        ),
        (json!({ long.as_str(): {} }), "request: "),
    ] {
        let error = client.ask(&op, b"").unwrap_err();
        assert!(error.starts_with(place), "{}", &error[..60]);
    }
    let which = json!({"which": {"program": "tm-no-such-program"}});
    assert_eq!(client.ask(&which, b"").unwrap().0, Value::Null);
}

#[test]
fn a_closed_port_ends_the_loop_and_every_program() {
    let mut client = Client::new();
    let (answer, _) = client
        .ask(&json!({"spawn": {"argv": ["sleep", "1000"]}}), b"")
        .unwrap();
    let pid = answer["pid"].as_i64().unwrap();
    assert_eq!(client.finish().unwrap(), End::Closed);
    // Killed by the loop; nobody waits for it here, so it stays a zombie of this test.
    let status = signal_that_ended(pid);
    assert_eq!(status, Some(9));
}

#[test]
fn power_off_is_answered_before_the_loop_ends() {
    let mut client = Client::new();
    assert_eq!(
        client.ask(&json!({"power_off": {}}), b""),
        Ok((Value::Null, Vec::new()))
    );
    let agent = client.agent.take().unwrap();
    assert_eq!(agent.join().unwrap().unwrap(), End::PowerOff);
}

#[test]
fn nonsense_is_answered_and_garbage_ends_the_connection() {
    let mut client = Client::new();
    assert!(client
        .ask(&json!({"fly": {}}), b"")
        .unwrap_err()
        .contains("fly"));
    let signal = json!({"signal": {"proc": 99, "signal": 15, "group": false}});
    let error = client.ask(&signal, b"").unwrap_err();
    assert!(
        error.starts_with("signal: program 99 is not there, 0 were started"),
        "{error}"
    );
    client.socket.write_all(&[0xff; 64]).unwrap();
    let error = client.agent.take().unwrap().join().unwrap().unwrap_err();
    assert!(
        matches!(error, AgentError::Frame(FrameError::Header(0xffff_ffff))),
        "{error}"
    );
}

/// Wait for a child of this process and return the signal that ended it.
fn signal_that_ended(pid: i64) -> Option<i32> {
    let pid = Pid::from_raw(i32::try_from(pid).unwrap());
    waitpid(pid, WaitOptions::empty())
        .unwrap()
        .and_then(|(_, status)| status.terminating_signal())
}
