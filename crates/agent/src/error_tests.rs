use super::*;

fn system(step: Step, kind: io::ErrorKind) -> String {
    AgentError::system::<io::Error>(step)(kind.into()).to_string()
}

#[test]
fn what_the_kernel_refused_is_reported_with_its_place_and_what_to_do() {
    let spawn = || Step::Spawn {
        program: "ip".to_owned(),
    };
    let reported = system(spawn(), io::ErrorKind::NotFound);
    assert!(reported.starts_with("spawn ip: "), "{reported}");
    assert!(
        reported.ends_with("; install it, or name a path"),
        "{reported}"
    );
    let reported = system(spawn(), io::ErrorKind::PermissionDenied);
    assert!(reported.ends_with("; it must be executable"), "{reported}");
    // Nothing is advised that nobody knows.
    assert_eq!(
        system(spawn(), io::ErrorKind::OutOfMemory),
        "spawn ip: out of memory"
    );
    let pid = NonZeroU32::new(7).unwrap();
    let reported = system(Step::Enter { pid }, io::ErrorKind::NotFound);
    assert!(
        reported.starts_with("spawn: within process 7: "),
        "{reported}"
    );
    assert!(reported.ends_with("; it has ended"), "{reported}");
}

#[test]
fn the_reason_of_the_kernel_can_be_asked_for() {
    use std::error::Error;
    let error = AgentError::system::<io::Error>(Step::Wait)(io::ErrorKind::OutOfMemory.into());
    let source = error.source().unwrap().downcast_ref::<io::Error>().unwrap();
    assert_eq!(source.kind(), io::ErrorKind::OutOfMemory);
    assert!(AgentError::AllStdinFull.source().is_none());
}

#[test]
fn every_step_has_a_place() {
    let path = || "/a".to_owned();
    let device = PathBuf::from("/dev/vport0p1");
    for (step, place) in [
        (Step::Signal { number: 9, pid: 7 }, "signal 9 to process 7"),
        (Step::Cpu, "cpu: /proc"),
        (Step::Put { path: path() }, "put /a"),
        (Step::Get { path: path() }, "get /a"),
        (Step::Stat { path: path() }, "stat /a"),
        (Step::Wait, "poll"),
        (Step::Connection, "port"),
        (Step::Port { device }, "/dev/vport0p1"),
        (
            Step::Standard { command: "stdio" },
            "stdio: standard input and output",
        ),
        (Step::Unshare { command: "init" }, "init: unshare"),
        (Step::PowerOff, "power off"),
    ] {
        assert_eq!(step.to_string(), place);
    }
}

#[test]
fn what_is_refused_is_reported_with_place_value_limit_and_what_to_do() {
    let path = || "/a".to_owned();
    for (error, reported) in [
        (
            AgentError::Argument {
                name: "stdio: silence in s",
                text: "x".to_owned(),
                most: 86_400,
            },
            "stdio: silence in s is \"x\", must be 1 to 86400",
        ),
        (
            AgentError::NotInit { pid: 7 },
            "init: process 7 is not the init of a machine; use stdio on a host",
        ),
        (
            AgentError::NoPort {
                folder: "/sys/class/virtio-ports",
                name: "tm".to_owned(),
                waited_s: 10,
            },
            "/sys/class/virtio-ports: no port has the name tm after 10 s; start the machine \
             with a virtio-serial port of this name",
        ),
        (
            AgentError::NotConnected {
                device: PathBuf::from("/dev/vport0p1"),
                waited_s: 20,
            },
            "/dev/vport0p1: the other side does not connect within 20 s; open its socket when \
             the machine starts",
        ),
        (
            AgentError::UnknownProgram {
                op: "stdin",
                proc: 9,
                started: 2,
            },
            "stdin: program 9 is not there, 2 were started and count from 0; use the number \
             that spawn returned",
        ),
        (
            AgentError::TooManyPrograms {
                program: "ip".to_owned(),
            },
            "spawn ip: 1024 programs run, which is the most; end some first",
        ),
        (
            AgentError::UnknownSignal { number: 33 },
            "signal: 33 is not a known signal; kill -l names those of this host",
        ),
        (
            AgentError::StdinClosed { pid: 7 },
            "stdin: process 7 has none or it is closed; spawn it with stdin, and send eof last",
        ),
        (
            AgentError::StdinFull { pid: 7 },
            "stdin: process 7 leaves 67108864 bytes unread; send more when it reads",
        ),
        (
            AgentError::AllStdinFull,
            "stdin: programs leave 134217728 bytes unread; send more when they read",
        ),
        (
            AgentError::NoFileName { path: path() },
            "put /a: has no file name; name a file in it",
        ),
        (
            AgentError::PartOffset {
                path: path(),
                offset: 7,
                length: 3,
            },
            "put /a: part at 7, 3 bytes are there; send parts in order, the first at 0",
        ),
        (
            AgentError::NotRegular { path: path() },
            "get /a: is not a regular file; name one",
        ),
        (
            AgentError::FilesTooLong { most: 10 },
            "read_many: more than 10 bytes in all; ask for fewer files at a time",
        ),
        (
            FrameError::Header(1).into(),
            "frame: header of 1 bytes, the limits are 2 and 524288",
        ),
    ] {
        assert_eq!(error.to_string(), reported);
    }
}

#[test]
fn a_request_that_is_none_is_reported_with_its_value_and_its_limit() {
    let path = || "/a".to_owned();
    for (error, reported) in [
        (
            RequestError::Json("unknown field `x`".to_owned()),
            "request: unknown field `x`",
        ),
        (
            RequestError::WordCount {
                arguments: 0,
                variables: 4097,
            },
            "spawn: 0 arguments and 4097 variables, must be 1 to 4096 and at most 4096",
        ),
        (
            RequestError::EmptyProgram,
            "spawn: argument 0 is \"\", must be a program's name or path",
        ),
        (
            RequestError::ZeroByte {
                place: "spawn: argument 1".to_owned(),
                text: "b\0".to_owned(),
            },
            "spawn: argument 1 is \"b\\0\", must have no zero byte",
        ),
        (
            RequestError::VariableName("A=B".to_owned()),
            "spawn: variable \"A=B\" must have a name, and no = in it",
        ),
        (
            RequestError::SignalNumber(0),
            "signal: 0 is outside 1 to 64",
        ),
        (
            RequestError::Mode {
                path: path(),
                mode: 0o10000,
            },
            "put /a: mode is 10000, must be at most 7777 (octal)",
        ),
        (
            RequestError::PartLength {
                path: path(),
                limit: 1_048_577,
            },
            "get /a: limit is 1048577 bytes, must be at most 1048576; read the file in parts",
        ),
        (
            RequestError::FileCount(1025),
            "read_many: 1025 files, must be at most 1024; ask for fewer at a time",
        ),
        (
            RequestError::Path {
                op: "get",
                path: "etc".to_owned(),
            },
            "get: \"etc\" is relative or has .. among its parts; name it from / on",
        ),
    ] {
        assert_eq!(AgentError::from(error).to_string(), reported);
    }
}

#[test]
fn a_text_of_any_length_is_reported_in_a_frame() {
    let long = "\0ü".repeat(1 << 17);
    let reported = RequestError::ZeroByte {
        place: "spawn: argument 1".to_owned(),
        text: long.clone(),
    };
    assert!(reported.to_string().len() < 64 << 10);
    let reported = AgentError::NotRegular { path: long }.to_string();
    assert!(
        reported.len() < 5_000 && reported.contains('…'),
        "{}",
        reported.len()
    );
}
