//! Loads beside what is measured: each has its runs one behind the other, until it is stopped.

use tm_wire::Instant;

use crate::plan::Plan;
use crate::way::{Way, Ways};

/// Which ways are under way, and which come next.
pub struct Loads {
    /// Numbers of the ways that are under way, those that are measured first.
    live: Vec<usize>,
    all: Vec<Load>,
    /// The loads have been ended.
    stopped: bool,
    /// A load that had no further run when there was need of one.
    lacking: Option<usize>,
}

struct Load {
    /// Number of the first way of its first run.
    first: usize,
    runs: usize,
    /// Which run is under way.
    run: usize,
}

impl Loads {
    /// Those of a plan, which begin at once.
    pub fn new(plan: &Plan) -> Self {
        let mut first = 2;
        let load = |runs: &Vec<_>| {
            let runs = runs.len();
            first += 2 * runs;
            Load {
                first: first - 2 * runs,
                runs,
                run: 0,
            }
        };
        let mut loads = Self {
            live: Vec::new(),
            all: plan.loads.iter().map(load).collect(),
            stopped: false,
            lacking: None,
        };
        loads.look();
        loads
    }

    /// Numbers of the ways that are under way.
    pub fn live(&self) -> &[usize] {
        &self.live
    }

    /// Whether a way is waited for: a load is where it has been stopped.
    pub fn awaited(&self, way: usize) -> bool {
        way < 2 || self.stopped
    }

    /// Begins a load's next run where one is over; false: there is none.
    pub fn go_on(&mut self, plan: &Plan, ways: &mut Ways, now: Instant) -> bool {
        if self.stopped || self.all.is_empty() {
            return true;
        }
        let mut changed = false;
        for (place, load) in self.all.iter_mut().enumerate() {
            let both = load.ways();
            if both.iter().any(|way| ways[*way].next_due(now).is_some()) {
                continue;
            }
            if load.run + 1 >= load.runs {
                self.lacking = Some(place);
                return false;
            }
            load.run += 1;
            for way in load.ways() {
                ways[way] = Way::new(plan, way, now);
            }
            changed = true;
        }
        if changed {
            self.look();
        }
        true
    }

    /// Ends all loads, since what is measured is over; false: they have been ended.
    pub fn stop(&mut self, ways: &mut Ways, now: Instant) -> bool {
        if self.stopped || self.all.is_empty() || self.lacking.is_some() {
            return false;
        }
        self.stopped = true;
        for way in self.all.iter().flat_map(Load::ways) {
            ways[way].stop(now);
        }
        true
    }

    /// A load whose runs were over too early.
    pub fn lacking(&self) -> Option<usize> {
        self.lacking
    }

    /// What came of the runs that were begun, load by load, of what came of all.
    pub fn begun<T>(&self, runs: Vec<T>) -> Vec<Vec<T>> {
        let mut runs = runs.into_iter();
        let mut of_load = |load: &Load| {
            let mut found: Vec<T> = runs.by_ref().take(load.runs).collect();
            found.truncate(load.run + 1);
            found
        };
        self.all.iter().map(&mut of_load).collect()
    }

    fn look(&mut self) {
        self.live = vec![0, 1];
        self.live.extend(self.all.iter().flat_map(Load::ways));
    }
}

impl Load {
    fn ways(&self) -> [usize; 2] {
        let first = self.first + 2 * self.run;
        [first, first + 1]
    }
}
