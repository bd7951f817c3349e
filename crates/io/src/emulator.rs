//! A link emulator in real time: each part of a link has a thread that drives its state machine.
//!
//! The loop is one for wires, WLANs and simulated radios: take what came, hand on what is due, sleep
//! until there is more. Whoever asks for a report never holds it up.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{sync_channel, Receiver as Inbox, SyncSender};
use std::thread;

use tm_wire::{Duration, Instant};

use crate::alarm::Alarm;
use crate::packet::Wake;
use crate::process::{self, Priority, Stop};
use crate::{clock, IoError};

/// The signals that ask a subcommand for a report, and that begin schedules again.
pub use signal_hook::consts::{SIGUSR1, SIGUSR2};

/// A part of a link that one thread drives.
pub trait LinkDriver: Send {
    /// What it says of itself.
    type Report: Send;

    /// Takes what came and hands on what is due, of both no more than it has room for, so that it
    /// comes back in short time.
    fn turn(&mut self) -> Result<Turn, IoError>;

    /// When something is due next.
    fn next_due(&self) -> Option<Instant>;

    /// Sleeps until something comes, until `up`, or until woken; at most 100 ms.
    fn sleep(&self, up: Option<Instant>, wake: &Wake);

    /// Begins schedules again.
    fn restart(&mut self) {}

    /// What there is to say now.
    fn report(&mut self) -> Self::Report;
}

/// What a turn did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Turn {
    /// Frames that came.
    pub taken: usize,
    /// Frames and reports forwarded.
    pub sent: usize,
}

/// How the threads of an emulator run.
#[derive(Clone, Copy, Debug, Default)]
pub struct Threads {
    /// `SCHED_FIFO` priority.
    pub realtime_priority: Option<u8>,
    /// Processor.
    pub cpu: Option<usize>,
}

/// What is asked of a running emulator.
#[derive(Clone, Copy, Debug, Default)]
pub struct Requests {
    /// A report now.
    pub report: bool,
    /// Schedules begin again.
    pub restart: bool,
}

/// What is reported while it runs; `R` is what a driver says of itself.
pub enum Event<R> {
    /// Every interface is there.
    Ready,
    /// Every second and when asked for.
    Progress(R, Awake),
}

/// Processor time that the threads of an emulator spent awake, waiting for a frame's time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Awake(pub Duration);

const SECOND: Duration = Duration::from_secs(1);
/// How often the main thread looks whether something is asked.
const TICK: Duration = Duration::from_millis(20);
/// How long a driver may take to answer.
const PATIENCE: std::time::Duration = std::time::Duration::from_secs(1);

/// Runs the drivers until `stop`, or until one of them fails, which ends the others. Returns the last
/// reports.
pub fn run<L: LinkDriver, const N: usize>(
    drivers: [L; N],
    threads: Threads,
    stop: &Stop,
    requests: &mut dyn FnMut() -> Requests,
    notify: &mut dyn FnMut(Event<[L::Report; N]>),
) -> Result<([L::Report; N], Awake), IoError> {
    process::steady();
    let mut controls = Vec::with_capacity(N);
    for _ in 0..N {
        controls.push(Control::new()?);
    }
    notify(Event::Ready);
    thread::scope(|scope| {
        let mut running = Vec::with_capacity(N);
        for (driver, control) in drivers.into_iter().zip(&controls) {
            let side = &control.side;
            let work = move || drive(driver, threads, stop, side);
            match thread::Builder::new().spawn_scoped(scope, work) {
                Ok(thread) => running.push(thread),
                Err(error) => {
                    end(stop, &controls);
                    return Err(IoError::new("cannot start a thread", error));
                }
            }
        }
        let mut next = clock::now() + SECOND;
        while !stop.requested() && !running.iter().any(thread::ScopedJoinHandle::is_finished) {
            clock::sleep_until((clock::now() + TICK).min(next));
            let requested = requests();
            if requested.restart {
                for control in &controls {
                    control.side.restart.store(true, Ordering::Release);
                    control.side.wake.wake();
                }
            }
            if requested.report || clock::now() >= next {
                let reports = controls.iter().filter_map(Control::report).collect();
                if let Some((reports, awake)) = all(reports) {
                    notify(Event::Progress(reports, awake));
                }
                if !requested.report {
                    next += SECOND;
                }
            }
        }
        end(stop, &controls);
        let mut last = Vec::with_capacity(N);
        for thread in running {
            let ended = thread.join();
            last.push(ended.unwrap_or_else(|panic| std::panic::resume_unwind(panic))?);
        }
        let missing = std::io::Error::from(std::io::ErrorKind::NotFound);
        all(last).ok_or_else(|| IoError::new("no last report", missing))
    })
}

fn all<R, const N: usize>(drivers: Vec<(R, Duration)>) -> Option<([R; N], Awake)> {
    let awake = drivers.iter().map(|(_, awake)| *awake).sum();
    let reports: Vec<R> = drivers.into_iter().map(|(report, _)| report).collect();
    Some((reports.try_into().ok()?, Awake(awake)))
}

fn end<R>(stop: &Stop, controls: &[Control<R>]) {
    stop.request();
    for control in controls {
        control.side.wake.wake();
    }
}

/// How the main thread asks a driver for a report.
struct Control<R> {
    side: DriverSide<R>,
    inbox: Inbox<(R, Duration)>,
}

/// The driver's end of it.
struct DriverSide<R> {
    wake: Wake,
    report: AtomicBool,
    restart: AtomicBool,
    outbox: SyncSender<(R, Duration)>,
}

impl<R> Control<R> {
    fn new() -> Result<Self, IoError> {
        let (outbox, inbox) = sync_channel(1);
        let side = DriverSide {
            wake: Wake::new()?,
            report: AtomicBool::new(false),
            restart: AtomicBool::new(false),
            outbox,
        };
        Ok(Self { side, inbox })
    }

    fn report(&self) -> Option<(R, Duration)> {
        self.side.report.store(true, Ordering::Release);
        self.side.wake.wake();
        self.inbox.recv_timeout(PATIENCE).ok()
    }
}

fn drive<L: LinkDriver>(
    mut driver: L,
    threads: Threads,
    stop: &Stop,
    side: &DriverSide<L::Report>,
) -> Result<(L::Report, Duration), IoError> {
    process::pin(threads.cpu)?;
    process::steady();
    let mut priority = Priority::take(threads.realtime_priority);
    let mut alarm = Alarm::default();
    driver.restart();
    while !stop.requested() {
        if side.restart.swap(false, Ordering::AcqRel) {
            driver.restart();
        }
        let turn = driver.turn()?;
        if side.report.swap(false, Ordering::AcqRel) {
            // A reader that is late finds the newest report when it asks again.
            let _ = side.outbox.try_send((driver.report(), alarm.awake()));
        }
        priority.check();
        if turn == Turn::default() {
            alarm.wait_or(driver.next_due(), |up| driver.sleep(up, &side.wake));
        } else if turn.sent > 0 {
            alarm.passed(clock::now());
        }
    }
    Ok((driver.report(), alarm.awake()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicU32;
    use std::sync::Arc;

    /// Counts its turns, and fails after some if it should.
    struct Counter {
        turns: u32,
        restarts: Arc<AtomicU32>,
        fails: bool,
    }

    impl LinkDriver for Counter {
        type Report = u32;

        fn turn(&mut self) -> Result<Turn, IoError> {
            self.turns += 1;
            if self.fails && self.turns == 3 {
                let error = std::io::Error::from(std::io::ErrorKind::BrokenPipe);
                return Err(IoError::new("driver", error));
            }
            Ok(Turn::default())
        }

        fn next_due(&self) -> Option<Instant> {
            None
        }

        fn sleep(&self, _up: Option<Instant>, _wake: &Wake) {
            clock::sleep_until(clock::now() + Duration(100_000));
        }

        fn restart(&mut self) {
            self.restarts.fetch_add(1, Ordering::Relaxed);
        }

        fn report(&mut self) -> u32 {
            self.turns
        }
    }

    fn drivers(fails: [bool; 2]) -> ([Counter; 2], Arc<AtomicU32>) {
        let restarts = Arc::new(AtomicU32::new(0));
        let driver = |fails| Counter {
            turns: 0,
            restarts: Arc::clone(&restarts),
            fails,
        };
        (fails.map(driver), restarts)
    }

    #[test]
    fn reports_come_when_asked_for_and_at_the_end() {
        let (drivers, restarts) = drivers([false; 2]);
        let stop = Stop::listen(None).unwrap();
        let mut asks = 0;
        let mut reported = Vec::new();
        let (last, awake) = run(
            drivers,
            Threads::default(),
            &stop,
            &mut || {
                asks += 1;
                if asks > 3 {
                    stop.request();
                }
                Requests {
                    report: asks == 1,
                    restart: asks == 2,
                }
            },
            &mut |event| reported.push(event),
        )
        .unwrap();
        let [Event::Ready, Event::Progress(first, _)] = &reported[..] else {
            panic!("{} events", reported.len());
        };
        // Nothing was ever due.
        assert_eq!(awake, Awake::default());
        assert!(first[0] > 0 && last[0] > first[0] && last[1] > first[1]);
        // at the start, and once more
        assert_eq!(restarts.load(Ordering::Relaxed), 4);
    }

    #[test]
    fn a_driver_that_fails_ends_the_other() {
        let (drivers, _) = drivers([false, true]);
        let stop = Stop::listen(None).unwrap();
        let mut requests = Requests::default;
        let ended = run(
            drivers,
            Threads::default(),
            &stop,
            &mut requests,
            &mut |_| {},
        );
        assert_eq!(ended.unwrap_err().what, "driver");
        assert!(stop.requested());
    }
}
