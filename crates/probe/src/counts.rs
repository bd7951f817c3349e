//! The counts of a histogram, of which only those are kept that are near to others.
//!
//! An HDR histogram of delays has 34,000 counts of 8 bytes, of which a flow uses few: a thousand flows
//! with four histograms each took a gigabyte. The classes are those of the `hdrhistogram` crate.

/// How often a value came, by classes of three significant digits.
#[derive(Clone, Debug, Default)]
pub(crate) struct Counts {
    /// Place of the chunk of each `CHUNK` classes, plus one; 0: none of them came.
    places: Vec<u16>,
    chunks: Vec<Chunk>,
}

/// Values below are classes of their own; of larger ones each power of two has half as many.
const EXACT: u64 = 2048;
const HALF_BITS: u32 = 10;
const CHUNK: usize = 64;

impl Counts {
    /// Counts `value` so many times more.
    pub fn add(&mut self, value: u64, count: u64) {
        if count == 0 {
            return;
        }
        let class = class(value);
        let (chunk, at) = (class / CHUNK, class % CHUNK);
        if chunk >= self.places.len() {
            self.places.resize(chunk + 1, 0);
        }
        if self.places[chunk] == 0 {
            self.chunks.push(Chunk::One(Box::new([0; CHUNK])));
            // At most 880 chunks: 53 powers of two beyond the exact values, of 16 each.
            self.places[chunk] = u16::try_from(self.chunks.len()).unwrap_or(u16::MAX);
        }
        self.chunks[usize::from(self.places[chunk]) - 1].add(at, count);
    }

    /// The smallest value of each class that came, rising, and how often.
    pub fn iter(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        let chunks = self.places.iter().enumerate();
        let chunks = chunks.filter(|(_, place)| **place > 0);
        chunks.flat_map(|(number, place)| {
            let chunk = &self.chunks[usize::from(*place) - 1];
            let counts = (0..CHUNK).map(move |at| (least(number * CHUNK + at), chunk.get(at)));
            counts.filter(|(_, count)| *count > 0)
        })
    }
}

fn class(value: u64) -> usize {
    let shift = (value | (EXACT - 1)).ilog2() - HALF_BITS;
    // Below 2^16 for every value.
    usize::try_from((u64::from(shift) << HALF_BITS) + (value >> shift)).unwrap_or(usize::MAX)
}

/// Smallest value of a class.
fn least(class: usize) -> u64 {
    let class = class as u64;
    if class < EXACT {
        return class;
    }
    let half = EXACT / 2;
    (class % half + half) << (class / half - 1)
}

/// Neighbouring counts, as wide as the largest of them needs.
#[derive(Clone, Debug)]
enum Chunk {
    One(Box<[u8; CHUNK]>),
    Two(Box<[u16; CHUNK]>),
    Four(Box<[u32; CHUNK]>),
    Eight(Box<[u64; CHUNK]>),
}

impl Chunk {
    fn add(&mut self, at: usize, count: u64) {
        let fits = match self {
            Self::One(counts) => grow(&mut counts[at], count),
            Self::Two(counts) => grow(&mut counts[at], count),
            Self::Four(counts) => grow(&mut counts[at], count),
            Self::Eight(counts) => grow(&mut counts[at], count),
        };
        if !fits {
            self.widen();
            self.add(at, count);
        }
    }

    fn get(&self, at: usize) -> u64 {
        match self {
            Self::One(counts) => counts[at].into(),
            Self::Two(counts) => counts[at].into(),
            Self::Four(counts) => counts[at].into(),
            Self::Eight(counts) => counts[at],
        }
    }

    fn widen(&mut self) {
        *self = match self {
            Self::One(counts) => Self::Two(Box::new(counts.map(u16::from))),
            Self::Two(counts) => Self::Four(Box::new(counts.map(u32::from))),
            Self::Four(counts) => Self::Eight(Box::new(counts.map(u64::from))),
            // Its sums end at the largest number and always fit.
            Self::Eight(_) => return,
        };
    }
}

/// Adds to a count; false: the sum does not fit.
fn grow<T: Copy + Into<u64> + TryFrom<u64>>(cell: &mut T, count: u64) -> bool {
    let sum = (*cell).into().saturating_add(count);
    let grown = T::try_from(sum).map(|sum| *cell = sum);
    grown.is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_class_is_known_by_its_smallest_value(value: u64) {
            let smallest = least(class(value));
            prop_assert!(smallest <= value);
            prop_assert!(value - smallest <= value / 1000);
            prop_assert_eq!(class(smallest), class(value));
            prop_assert!(smallest == 0 || class(smallest - 1) < class(smallest));
        }
    }

    #[test]
    fn counts_of_any_width_are_kept() {
        let mut counts = Counts::default();
        let mut wanted = 0;
        for more in [1, 254, 1, 65_000, 1 << 20, 1 << 40, 0] {
            counts.add(777, more);
            wanted += more;
            counts.add(778, 1);
            let seen: Vec<_> = counts.iter().collect();
            assert_eq!(seen[0], (777, wanted));
        }
        assert_eq!(counts.iter().nth(1), Some((778, 7)));
        counts.add(777, u64::MAX);
        assert_eq!(counts.iter().next(), Some((777, u64::MAX)));
        assert_eq!(counts.iter().count(), 2);
    }
}
