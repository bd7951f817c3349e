//! A link emulator in real time: each part of a link has a thread that drives its state machine.
//!
//! The loop is one for wires, WLANs and simulated radios: take what came, hand on what is due, sleep
//! until there is more. Whoever asks for a report never holds it up.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
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
    /// They sleep until a frame is due, and are as late as the kernel wakes.
    pub asleep: bool,
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
const PATIENCE: Duration = Duration::from_secs(1);

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
                let reports = controls
                    .iter()
                    .filter_map(|one| one.report(PATIENCE))
                    .collect();
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
    inbox: Inbox<Answer<R>>,
}

/// The driver's end of it.
struct DriverSide<R> {
    wake: Wake,
    /// Number of the last request for a report.
    asked: AtomicUsize,
    restart: AtomicBool,
    outbox: SyncSender<Answer<R>>,
}

/// A report, with the number of the request that it answers and the time that the driver was awake.
struct Answer<R> {
    number: usize,
    report: R,
    awake: Duration,
}

/// The answer to a request, and one to a request before it that came too late: a request is made
/// where none is left, so there is always room, and the driver never waits for whoever reads.
const ANSWERS: usize = 2;

impl<R> Control<R> {
    fn new() -> Result<Self, IoError> {
        let (outbox, inbox) = sync_channel(ANSWERS);
        let side = DriverSide {
            wake: Wake::new()?,
            asked: AtomicUsize::new(0),
            restart: AtomicBool::new(false),
            outbox,
        };
        Ok(Self { side, inbox })
    }

    /// The driver's report of now; None: it takes longer than `patience`.
    ///
    /// A driver that was too late answers all the same. That answer has the number of its request, and
    /// is not taken for the one to a later request.
    fn report(&self, patience: Duration) -> Option<(R, Duration)> {
        while self.inbox.try_recv().is_ok() {}
        let number = self
            .side
            .asked
            .fetch_add(1, Ordering::AcqRel)
            .wrapping_add(1);
        self.side.wake.wake();
        let deadline = clock::now() + patience;
        loop {
            let left = u64::try_from((deadline - clock::now()).0).unwrap_or(0);
            let left = std::time::Duration::from_nanos(left);
            let answer = self.inbox.recv_timeout(left).ok()?;
            if answer.number == number {
                return Some((answer.report, answer.awake));
            }
        }
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
    let mut alarm = Alarm::new(!threads.asleep);
    let mut answered = 0;
    driver.restart();
    while !stop.requested() {
        if side.restart.swap(false, Ordering::AcqRel) {
            driver.restart();
        }
        let turn = driver.turn()?;
        let number = side.asked.load(Ordering::Acquire);
        if number != answered {
            answered = number;
            let _ = side.outbox.try_send(Answer {
                number,
                report: driver.report(),
                awake: alarm.awake(),
            });
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
    use std::sync::mpsc::{channel, Sender};
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

    /// Hands on a frame every 200 µs.
    struct Paced {
        next: Instant,
    }

    impl LinkDriver for Paced {
        type Report = ();

        fn turn(&mut self) -> Result<Turn, IoError> {
            let now = clock::now();
            if now < self.next {
                return Ok(Turn::default());
            }
            self.next = now + Duration(200_000);
            Ok(Turn { taken: 0, sent: 1 })
        }

        fn next_due(&self) -> Option<Instant> {
            Some(self.next)
        }

        fn sleep(&self, up: Option<Instant>, _wake: &Wake) {
            clock::sleep_until(up.unwrap());
        }

        fn report(&mut self) {}
    }

    #[test]
    fn threads_that_shall_sleep_are_never_awake_for_nothing() {
        for asleep in [false, true] {
            let next = clock::now();
            let threads = Threads {
                asleep,
                ..Threads::default()
            };
            let stop = Stop::listen(None).unwrap();
            let begun = clock::now();
            let mut requests = || {
                if clock::now() > begun + Duration(100_000_000) {
                    stop.request();
                }
                Requests::default()
            };
            let driver = Paced { next };
            let (_, awake) = run([driver], threads, &stop, &mut requests, &mut |_| {}).unwrap();
            assert_eq!(awake == Awake::default(), asleep, "{awake:?}");
        }
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

    /// Reports how often it was asked; a report takes until the test lets it go.
    struct Held {
        asked: u32,
        begun: Sender<()>,
        go: Inbox<()>,
    }

    impl LinkDriver for Held {
        type Report = u32;

        fn turn(&mut self) -> Result<Turn, IoError> {
            Ok(Turn::default())
        }

        fn next_due(&self) -> Option<Instant> {
            None
        }

        fn sleep(&self, _up: Option<Instant>, _wake: &Wake) {
            clock::sleep_until(clock::now() + Duration(100_000));
        }

        fn report(&mut self) -> u32 {
            self.asked += 1;
            let asked = self.asked;
            let _ = self.begun.send(());
            // Once nobody holds it any more it answers at once.
            let _ = self.go.recv();
            asked
        }
    }

    /// What `test` finds beside a driver: it asks, learns when a report is begun, and lets it go.
    fn beside_held<T>(test: impl FnOnce(&Control<u32>, &Inbox<()>, Sender<()>) -> T) -> T {
        let control = Control::new().unwrap();
        let stop = Stop::listen(None).unwrap();
        let (begun, begins) = channel();
        let (release, go) = channel();
        let held = Held {
            asked: 0,
            begun,
            go,
        };
        thread::scope(|scope| {
            scope.spawn(|| drive(held, Threads::default(), &stop, &control.side).unwrap());
            let found = test(&control, &begins, release);
            stop.request();
            found
        })
    }

    const LONG: Duration = Duration::from_secs(60);

    #[test]
    fn a_report_after_a_late_one_is_new() {
        let found = beside_held(|control, begins, release| {
            let late = control.report(Duration(1));
            begins.recv().unwrap();
            // Now it comes, and nobody waits for it any more.
            drop(release);
            [late, control.report(LONG), control.report(LONG)]
        });
        let found = found.map(|report| report.map(|(number, _)| number));
        assert_eq!(found, [None, Some(2), Some(3)]);
    }

    #[test]
    fn a_report_that_comes_while_the_next_is_waited_for_is_not_taken_for_it() {
        let found = beside_held(|control, begins, release| {
            let late = control.report(Duration(1));
            begins.recv().unwrap();
            let side = &control.side;
            let next = thread::scope(|scope| {
                scope.spawn(move || {
                    while side.asked.load(Ordering::Acquire) < 2 {
                        thread::yield_now();
                    }
                    drop(release);
                });
                control.report(LONG)
            });
            [late, next]
        });
        let found = found.map(|report| report.map(|(number, _)| number));
        assert_eq!(found, [None, Some(2)]);
    }
}
