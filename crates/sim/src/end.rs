//! One end of a tunnel as a queue: packets wait for one of its servers, which works on each for a time.

use std::cell::RefCell;
use std::cmp::Reverse;
use std::collections::VecDeque;
use std::rc::Rc;

use tm_probe::Stream;
use tm_wire::{Duration, Instant};

/// What an end does to a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Job {
    /// A packet of the traffic becomes packets of the tunnel.
    Wrap = 0,
    /// Packets of the tunnel become the packet of the traffic again.
    Unwrap = 1,
}

/// How long a job takes, and how many may wait for it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Work {
    /// For each packet, ns.
    pub packet_ns: i64,
    /// For each byte of the packet of the traffic, ps.
    pub byte_ps: i64,
    /// Standard deviation of the time as a share of it; its logarithm is normally distributed.
    pub scatter: f64,
    /// Packets that may wait; those beyond are dropped.
    pub most_waiting: usize,
}

/// An end of a tunnel.
#[derive(Clone, Debug, PartialEq)]
pub struct EndPlan {
    /// Packets that are worked on at a time, at least 1: threads with a core each.
    pub servers: usize,
    /// A packet never overtakes one of its job, however long that one takes.
    pub in_order: bool,
    /// [`Job::Wrap`].
    pub wrap: Work,
    /// [`Job::Unwrap`].
    pub unwrap: Work,
}

/// What became of the packets of one job.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EndCounters {
    /// Packets that came.
    pub offered: u64,
    /// Packets that found the queue full.
    pub dropped: u64,
    /// Time that was worked.
    pub busy: Duration,
}

/// The cores of a CPU that several ends share.
pub struct Cores {
    /// When each has done what it was given.
    free: Vec<Instant>,
}

impl Cores {
    /// Idle cores, at least one.
    #[must_use]
    pub fn new(number: usize) -> Self {
        Self {
            free: vec![Instant::MIN; number.max(1)],
        }
    }

    /// The core that can begin first, from `begin` on. Of those that are free by then it is the one that was
    /// busy last: the others may be needed earlier.
    fn give(&mut self, begin: Instant) -> Option<&mut Instant> {
        let soonest = |free: &&mut Instant| (begin.max(**free), Reverse(**free));
        self.free.iter_mut().min_by_key(soonest)
    }
}

/// The state of an end. All its jobs have the same servers, in the order in which packets come.
pub struct End {
    plan: EndPlan,
    /// When each server has done what it was given.
    free: Vec<Instant>,
    /// Each server needs one of these while it works; None: it has one of its own.
    cores: Option<Rc<RefCell<Cores>>>,
    /// When packets that wait begin, by job.
    begins: [VecDeque<Instant>; 2],
    last_done: [Instant; 2],
    random: [Stream; 2],
    counters: [EndCounters; 2],
}

impl End {
    /// An idle end; `name` starts the names of its random streams.
    #[must_use]
    pub fn new(plan: EndPlan, seed: u64, name: &str) -> Self {
        Self {
            free: vec![Instant::MIN; plan.servers.max(1)],
            cores: None,
            begins: [VecDeque::new(), VecDeque::new()],
            last_done: [Instant::MIN; 2],
            random: ["wrap", "unwrap"].map(|job| Stream::named(seed, &format!("{name}/{job}"))),
            counters: [EndCounters::default(); 2],
            plan,
        }
    }

    /// The same end where its servers run on cores that other ends have too.
    #[must_use]
    pub fn on(self, cores: Option<Rc<RefCell<Cores>>>) -> Self {
        Self { cores, ..self }
    }

    /// Takes a packet of `bytes` at `now`; returns when it is done, or None: it is dropped.
    ///
    /// Times of successive calls do not go back.
    pub fn take(&mut self, now: Instant, job: Job, bytes: u32) -> Option<Instant> {
        let place = job as usize;
        let work = self.work(job);
        let counters = &mut self.counters[place];
        counters.offered += 1;
        // Every packet draws, so the time of packet k hangs on the seed and on k alone.
        let takes = work.draw(bytes, &mut self.random[place]);
        let waiting = &mut self.begins[place];
        while waiting.front().is_some_and(|begin| *begin <= now) {
            waiting.pop_front();
        }
        let server = self.free.iter_mut().min()?;
        let mut cores = self.cores.as_ref().map(|cores| cores.borrow_mut());
        let core = match &mut cores {
            Some(cores) => cores.give(now.max(*server)),
            None => None,
        };
        let begin = now
            .max(*server)
            .max(core.as_deref().map_or(Instant::MIN, |free| *free));
        if begin > now {
            if waiting.len() >= work.most_waiting {
                counters.dropped += 1;
                return None;
            }
            waiting.push_back(begin);
        }
        *server = begin.saturating_add(takes);
        if let Some(core) = core {
            *core = *server;
        }
        counters.busy += takes;
        let mut done = *server;
        if self.plan.in_order {
            done = done.max(self.last_done[place]);
            self.last_done[place] = done;
        }
        Some(done)
    }

    /// Packets that may wait for a job.
    #[must_use]
    pub fn most_waiting(&self, job: Job) -> usize {
        self.work(job).most_waiting
    }

    /// Drops a packet of `bytes` that finds its way on closed.
    pub fn refuse(&mut self, job: Job, bytes: u32) {
        let place = job as usize;
        self.work(job).draw(bytes, &mut self.random[place]);
        self.counters[place].offered += 1;
        self.counters[place].dropped += 1;
    }

    fn work(&self, job: Job) -> Work {
        match job {
            Job::Wrap => self.plan.wrap,
            Job::Unwrap => self.plan.unwrap,
        }
    }

    /// What became of the packets of a job.
    #[must_use]
    pub fn counters(&self, job: Job) -> EndCounters {
        self.counters[job as usize]
    }
}

impl Work {
    /// The time for a packet.
    fn draw(&self, bytes: u32, random: &mut Stream) -> Duration {
        let mean = self
            .packet_ns
            .saturating_add(self.byte_ps.saturating_mul(i64::from(bytes)) / 1000);
        if self.scatter <= 0.0 {
            return Duration(mean);
        }
        // The logarithm has the variance ln(1 + c^2) where c is the ratio of deviation to mean; a
        // normal variate after Box and Muller 1958, whose first number is above 0.
        let variance = libm::log1p(self.scatter * self.scatter);
        let radius = libm::sqrt(-2.0 * libm::log(random.unit()));
        let normal = radius * libm::cos(std::f64::consts::TAU * random.unit());
        let factor = libm::exp(libm::sqrt(variance) * normal - variance / 2.0);
        #[allow(clippy::cast_possible_truncation)] // saturates
        let drawn = libm::round(mean as f64 * factor) as i64;
        Duration(drawn)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn work(packet_ns: i64) -> Work {
        Work {
            packet_ns,
            byte_ps: 0,
            scatter: 0.0,
            most_waiting: usize::MAX,
        }
    }

    fn plan(servers: usize, work: Work) -> EndPlan {
        EndPlan {
            servers,
            in_order: true,
            wrap: work,
            unwrap: work,
        }
    }

    #[test]
    fn bytes_and_packets_cost_what_they_were_said_to() {
        let mut end = End::new(
            plan(
                1,
                Work {
                    byte_ps: 2_500,
                    ..work(1_000)
                },
            ),
            1,
            "end",
        );
        assert_eq!(end.take(Instant(0), Job::Wrap, 400), Some(Instant(2_000)));
        assert_eq!(end.take(Instant(5_000), Job::Wrap, 0), Some(Instant(6_000)));
        assert_eq!(end.counters(Job::Wrap).busy, Duration(3_000));
    }

    #[test]
    fn both_jobs_have_the_same_server() {
        let mut end = End::new(plan(1, work(100)), 1, "end");
        assert_eq!(end.take(Instant(0), Job::Wrap, 1), Some(Instant(100)));
        assert_eq!(end.take(Instant(0), Job::Unwrap, 1), Some(Instant(200)));
        let mut two = End::new(plan(2, work(100)), 1, "end");
        assert_eq!(two.take(Instant(0), Job::Wrap, 1), Some(Instant(100)));
        assert_eq!(two.take(Instant(0), Job::Unwrap, 1), Some(Instant(100)));
        assert_eq!(two.take(Instant(0), Job::Wrap, 1), Some(Instant(200)));
    }

    /// Ends of a plan each, on so many cores together.
    fn on_cores(number: usize, plans: &[EndPlan]) -> Vec<End> {
        let cores = Rc::new(RefCell::new(Cores::new(number)));
        let ends = plans.iter().map(|plan| {
            let end = End::new(plan.clone(), 1, "end");
            end.on(Some(Rc::clone(&cores)))
        });
        ends.collect()
    }

    #[test]
    fn ends_on_one_core_wait_for_each_other() {
        let mut ends = on_cores(1, &[plan(1, work(100)), plan(2, work(100))]);
        assert_eq!(ends[0].take(Instant(0), Job::Wrap, 1), Some(Instant(100)));
        assert_eq!(ends[1].take(Instant(0), Job::Wrap, 1), Some(Instant(200)));
        assert_eq!(ends[1].take(Instant(50), Job::Wrap, 1), Some(Instant(300)));
        assert_eq!(
            ends[0].take(Instant(60), Job::Unwrap, 1),
            Some(Instant(400))
        );
        assert_eq!(
            ends[0].take(Instant(900), Job::Wrap, 1),
            Some(Instant(1000))
        );
        // One thread each: a second core is no use to one of them, and all of it to the other.
        let mut ends = on_cores(2, &[plan(1, work(100)), plan(1, work(100))]);
        assert_eq!(ends[0].take(Instant(0), Job::Wrap, 1), Some(Instant(100)));
        assert_eq!(ends[0].take(Instant(0), Job::Wrap, 1), Some(Instant(200)));
        assert_eq!(ends[1].take(Instant(0), Job::Wrap, 1), Some(Instant(100)));
    }

    #[test]
    fn what_waits_for_a_core_waits_in_the_queue_of_its_own_end() {
        let short = Work {
            most_waiting: 1,
            ..work(100)
        };
        let mut ends = on_cores(1, &[plan(1, short), plan(1, short)]);
        assert_eq!(ends[0].take(Instant(0), Job::Wrap, 1), Some(Instant(100)));
        assert_eq!(ends[1].take(Instant(0), Job::Wrap, 1), Some(Instant(200)));
        assert_eq!(ends[1].take(Instant(0), Job::Wrap, 1), None);
        assert_eq!(ends[0].take(Instant(0), Job::Wrap, 1), Some(Instant(300)));
    }

    #[test]
    fn what_waits_beyond_the_bound_is_dropped_and_what_is_worked_on_does_not_wait() {
        let mut end = End::new(
            plan(
                1,
                Work {
                    most_waiting: 2,
                    ..work(100)
                },
            ),
            1,
            "end",
        );
        let taken: Vec<_> = (0..5).map(|_| end.take(Instant(0), Job::Wrap, 1)).collect();
        assert_eq!(
            taken,
            [
                Some(Instant(100)),
                Some(Instant(200)),
                Some(Instant(300)),
                None,
                None
            ]
        );
        assert_eq!(end.take(Instant(100), Job::Wrap, 1), Some(Instant(400)));
        let counters = end.counters(Job::Wrap);
        assert_eq!((counters.offered, counters.dropped), (6, 2));
    }

    #[test]
    fn scatter_is_as_wide_as_it_was_said_to_be() {
        let scattered = Work {
            scatter: 0.3,
            ..work(1_000_000)
        };
        let mut random = Stream::named(5, "test");
        let drawn: Vec<f64> = (0..100_000)
            .map(|_| scattered.draw(0, &mut random).0 as f64)
            .collect();
        let mean = drawn.iter().sum::<f64>() / drawn.len() as f64;
        let square = drawn.iter().map(|one| (one - mean).powi(2)).sum::<f64>();
        let deviation = (square / drawn.len() as f64).sqrt();
        assert!((mean / 1e6 - 1.0).abs() < 0.005, "mean {mean}");
        assert!(
            (deviation / mean / 0.3 - 1.0).abs() < 0.02,
            "deviation {deviation}"
        );
    }

    /// Mean wait before the service of packets that come at random, each worked on for `takes_ns`.
    fn mean_wait_ns(takes_ns: i64, load: f64) -> f64 {
        let mut end = End::new(plan(1, work(takes_ns)), 3, "end");
        let mut random = Stream::named(11, "arrivals");
        let (mut now, mut total, packets) = (0.0_f64, 0.0, 400_000);
        for _ in 0..packets {
            now += -random.unit().ln() * takes_ns as f64 / load;
            #[allow(clippy::cast_possible_truncation)]
            let at = Instant(now as i64);
            let done = end.take(at, Job::Wrap, 1).unwrap();
            total += (done - at - Duration(takes_ns)).0 as f64;
        }
        total / f64::from(packets)
    }

    #[test]
    fn the_wait_is_that_of_the_queue_of_pollaczek_and_khinchine() {
        // M/D/1: rho D / (2 (1 - rho)); Kleinrock, Queueing Systems I, 1975, section 5.6.
        for load in [0.3, 0.6, 0.8] {
            let expected = load * 10_000.0 / (2.0 * (1.0 - load));
            let found = mean_wait_ns(10_000, load);
            assert!(
                (found / expected - 1.0).abs() < 0.04,
                "{found} instead of {expected} at a load of {load}"
            );
        }
    }

    proptest! {
        #[test]
        fn a_core_for_each_server_is_as_good_as_one_of_its_own(
            packets in proptest::collection::vec((0_i64..200, 0_usize..3, any::<bool>()), 1..200),
        ) {
            let plans = [plan(1, work(100)), plan(1, work(170)), plan(1, work(230))];
            let mut shared = on_cores(3, &plans);
            let mut own: Vec<_> = plans.iter().map(|one| End::new(one.clone(), 1, "end")).collect();
            let mut now = Instant(0);
            for (gap, place, wraps) in packets {
                now += Duration(gap);
                let job = if wraps { Job::Wrap } else { Job::Unwrap };
                prop_assert_eq!(shared[place].take(now, job, 1), own[place].take(now, job, 1));
            }
        }

        #[test]
        fn cores_never_do_more_than_they_can(
            packets in proptest::collection::vec((0_i64..60, 0_usize..4), 1..200),
            number in 1_usize..4,
        ) {
            let plans = vec![plan(1, work(100)); 4];
            let mut ends = on_cores(number, &plans);
            let (mut now, mut last) = (Instant(0), Instant(0));
            let mut done = Vec::new();
            for (gap, place) in packets {
                now += Duration(gap);
                let at = ends[place].take(now, Job::Wrap, 1).unwrap();
                last = last.max(at);
                done.push(at);
            }
            // Each was worked on for the 100 ns before it was done.
            for at in &done {
                let together = done.iter().filter(|one| **one > *at - Duration(100) && **one <= *at);
                prop_assert!(together.count() <= number);
            }
            let busy: i64 = ends.iter().map(|end| end.counters(Job::Wrap).busy.0).sum();
            prop_assert!(busy <= last.0 * i64::try_from(number).unwrap());
        }

        #[test]
        fn nothing_is_done_before_it_came_nor_out_of_order(
            gaps in proptest::collection::vec((0_i64..300, any::<bool>(), 1_u32..1500), 1..200),
            servers in 1_usize..4,
            scatter in 0.0_f64..1.0,
        ) {
            let jittery = Work { scatter, most_waiting: 20, byte_ps: 100, ..work(150) };
            let mut end = End::new(plan(servers, jittery), 9, "end");
            let mut now = Instant(0);
            let mut last = [Instant::MIN; 2];
            let mut taken = [0_u64; 2];
            for (gap, wraps, bytes) in &gaps {
                now += Duration(*gap);
                let job = if *wraps { Job::Wrap } else { Job::Unwrap };
                if let Some(done) = end.take(now, job, *bytes) {
                    prop_assert!(done >= now && done >= last[job as usize]);
                    last[job as usize] = done;
                    taken[job as usize] += 1;
                }
            }
            for job in [Job::Wrap, Job::Unwrap] {
                let counters = end.counters(job);
                prop_assert_eq!(counters.offered - counters.dropped, taken[job as usize]);
            }
        }
    }
}
