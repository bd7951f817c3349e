use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use tm_wire::Duration;

use super::{clock, process, Ready, Socket};
use crate::process::pin;
use crate::udp::{Options, ReceiveTime};

fn options() -> Options {
    Options {
        buffer_bytes: 1 << 16,
        dont_fragment: false,
        interface: None,
        netns: None,
        traffic_class: 0,
        time_to_live: false,
        receive_time: ReceiveTime::Kernel,
        shared: false,
    }
}

fn any() -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], 0))
}

#[test]
fn what_only_linux_has_is_refused_by_name() {
    type Ask = fn(&mut Options);
    let asked: [(Ask, &str); 5] = [
        (|o| o.interface = Some("eth0".into()), "interface is eth0"),
        (|o| o.netns = Some(PathBuf::from("/ns")), "netns is /ns"),
        (|o| o.dont_fragment = true, "dont_fragment is true"),
        (|o| o.time_to_live = true, "stamp is not empty"),
        (|o| o.shared = true, "shards is more than 1"),
    ];
    for (ask, what) in asked {
        let mut options = options();
        ask(&mut options);
        let error = Socket::open(any(), None, &options).err().unwrap();
        assert_eq!(error.to_string(), format!("{what}: needs Linux"));
    }
    let error = process::watch(7, Arc::default()).unwrap_err();
    assert_eq!(error.to_string(), "parent_pid is 7: needs Linux");
    assert!(pin(Some(0)).is_err());
    assert!(pin(None).is_ok());
}

#[test]
fn a_socket_is_ready_as_long_as_it_holds_a_packet() {
    let sockets = [0, 1].map(|_| Socket::open(any(), None, &options()).unwrap());
    let mut ready = Ready::watch(&sockets).unwrap();
    let sender = Socket::open(any(), Some(sockets[1].local().unwrap()), &options()).unwrap();
    ready.wait(Duration(0));
    assert_eq!(ready.places().count(), 0);
    sender.inner.send(b"packet").unwrap();
    for _ in 0..2 {
        ready.wait(Duration(5_000_000_000));
        assert_eq!(ready.places().collect::<Vec<_>>(), [1]);
    }
    let mut room = [0; 10];
    assert_eq!(sockets[1].inner.recv(&mut room).unwrap(), 6);
    ready.wait(Duration(0));
    assert_eq!(ready.places().count(), 0);
}

#[test]
fn the_clock_is_near_the_time_of_day_and_never_goes_back() {
    let mut last = clock::monotonic();
    assert!((last - clock::realtime()).abs() < 1_000_000_000);
    for _ in 0..1_000 {
        let now = clock::monotonic();
        assert!(now >= last);
        last = now;
    }
    clock::sleep_until(last + 2_000_000);
    assert!(clock::monotonic() >= last + 2_000_000);
}
