//! `known TUN PORT PEER SETTINGS`: one end of a tunnel of which everything is known, for tests.
//!
//! Packets go between the TUN device and UDP as they are. `SETTINGS` is `delay_ns,loss,copies,
//! packet_ns,byte_ps,unwrap_ns,seed`: what happens to each packet that comes from the device. It is
//! lost by chance, costs so much of this thread's processor time (as the kernel counts it), waits so
//! long since it was read, and leaves so many times. A packet that comes from the peer costs
//! `unwrap_ns`. A cost is all that its thread takes per packet, what it takes to wake up, to read and
//! to send in it: how long those take depends on how long the processor slept.

use std::collections::VecDeque;
use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::net::UdpSocket;
use std::os::fd::{AsRawFd, RawFd};

use tm_io::alarm::Alarm;
use tm_io::clock;
use tm_wire::{Duration, Instant};

const LARGEST: usize = 65_536;
const BATCH: usize = 64;

struct Settings {
    delay: Duration,
    loss: f64,
    copies: usize,
    packet: i64,
    byte_ps: i64,
    unwrap: i64,
    seed: u64,
}

fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [tun, local, peer, settings] = words.as_slice() else {
        fail("usage: known TUN LOCAL PEER DELAY_NS,LOSS,COPIES,PACKET_NS,BYTE_PS,UNWRAP_NS,SEED");
    };
    let settings = parse(settings).unwrap_or_else(|| fail("SETTINGS make no sense"));
    let device = open(tun).unwrap_or_else(|error| fail(&format!("{tun}: {error}")));
    let socket = UdpSocket::bind(local).unwrap_or_else(|error| fail(&format!("{local}: {error}")));
    socket
        .connect(peer)
        .unwrap_or_else(|error| fail(&format!("{peer}: {error}")));
    let (mut into, from) = (
        device.try_clone().unwrap_or_else(|e| fail(&e.to_string())),
        socket.try_clone().unwrap_or_else(|e| fail(&e.to_string())),
    );
    println!("ready");
    let unwrap = settings.unwrap;
    std::thread::spawn(move || {
        let mut buffer = vec![0; LARGEST];
        let mut cost = Cost::new();
        loop {
            // A peer that is not there yet refuses: that is no end.
            if let Ok(count) = from.recv(&mut buffer) {
                cost.packet(unwrap);
                let _ = into.write(&buffer[..count]);
            }
        }
    });
    outward(device, &socket, &settings);
}

fn outward(mut device: File, socket: &UdpSocket, settings: &Settings) -> ! {
    let mut buffer = vec![0; LARGEST];
    let mut waiting: VecDeque<(Instant, Vec<u8>)> = VecDeque::new();
    let mut random = settings.seed | 1;
    let mut alarm = Alarm::new(true);
    let mut cost = Cost::new();
    loop {
        let mut taken = 0;
        while taken < BATCH && readable(device.as_raw_fd(), Some(Duration::ZERO)) {
            let Ok(count) = device.read(&mut buffer) else {
                fail("the device is gone");
            };
            let read = clock::now();
            taken += 1;
            if chance(&mut random) < settings.loss {
                continue;
            }
            let bytes = i64::try_from(count).unwrap_or(i64::MAX);
            cost.packet(settings.packet + settings.byte_ps * bytes / 1000);
            waiting.push_back((read + settings.delay, buffer[..count].to_vec()));
        }
        while waiting.front().is_some_and(|(due, _)| *due <= clock::now()) {
            let Some((due, packet)) = waiting.pop_front() else {
                break;
            };
            for _ in 0..settings.copies {
                let _ = socket.send(&packet);
            }
            alarm.passed(due);
        }
        if taken == 0 {
            let due = waiting.front().map(|(due, _)| *due);
            alarm.wait_or(due, |up| {
                readable(device.as_raw_fd(), up.map(|up| up - clock::now()));
            });
        }
    }
}

/// What this thread has taken of the processor, held at so much per packet.
struct Cost {
    owed: Duration,
}

impl Cost {
    fn new() -> Self {
        Self {
            owed: clock::thread_time(),
        }
    }

    /// Uses the processor up to what the packets until now should have cost.
    fn packet(&mut self, ns: i64) {
        self.owed += Duration(ns);
        while clock::thread_time() < self.owed {
            std::hint::spin_loop();
        }
    }
}

/// Evenly between 0 and 1: xorshift64* (Vigna 2016).
#[allow(clippy::cast_precision_loss)] // 53 bits fit
fn chance(state: &mut u64) -> f64 {
    *state ^= *state >> 12;
    *state ^= *state << 25;
    *state ^= *state >> 27;
    (state.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 11) as f64 / (1_u64 << 53) as f64
}

fn parse(text: &str) -> Option<Settings> {
    let words: Vec<&str> = text.split(',').collect();
    let [delay, loss, copies, packet, byte, unwrap, seed] = words.as_slice() else {
        return None;
    };
    Some(Settings {
        delay: Duration(delay.parse().ok()?),
        loss: loss.parse().ok()?,
        copies: copies.parse().ok()?,
        packet: packet.parse().ok()?,
        byte_ps: byte.parse().ok()?,
        unwrap: unwrap.parse().ok()?,
        seed: seed.parse().ok()?,
    })
}

/// Opens a TUN device without a header before its packets; it goes with this process.
fn open(name: &str) -> std::io::Result<File> {
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .open("/dev/net/tun")?;
    // SAFETY: a zeroed ifreq is a valid one; all its parts are plain data.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    for (place, byte) in request.ifr_name.iter_mut().zip(name.bytes().take(15)) {
        *place = byte.cast_signed();
    }
    request.ifr_ifru.ifru_flags = i16::try_from(libc::IFF_TUN | libc::IFF_NO_PI).unwrap_or(0);
    // SAFETY: the descriptor is open and the request lives until the call returns.
    if unsafe { libc::ioctl(file.as_raw_fd(), libc::TUNSETIFF as _, &raw mut request) } < 0 {
        return Err(std::io::Error::last_os_error());
    }
    Ok(file)
}

/// Waits until there is something to read, at most so long; None: as long as it takes.
fn readable(fd: RawFd, limit: Option<Duration>) -> bool {
    let mut watched = libc::pollfd {
        fd,
        events: libc::POLLIN,
        revents: 0,
    };
    let time = limit.map(|limit| libc::timespec {
        tv_sec: limit.0.max(0) / 1_000_000_000,
        tv_nsec: limit.0.max(0) % 1_000_000_000,
    });
    let time = time.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
    // SAFETY: one pollfd, and a timespec or none, that live until the call returns.
    unsafe { libc::ppoll(&raw mut watched, 1, time, std::ptr::null()) > 0 }
}

fn fail(words: &str) -> ! {
    eprintln!("{words}");
    std::process::exit(1);
}
