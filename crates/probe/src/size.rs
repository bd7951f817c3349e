//! How long the payload of each packet is.

use crate::stream::Stream;

/// Payload sizes in bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Size {
    /// All the same.
    Fixed(u32),
    /// Each from the first to the second, both included, as likely.
    Uniform(u32, u32),
    /// Each drawn by weight (an IMIX).
    Mix(Vec<Share>),
    /// As the trace of the schedule says.
    Trace,
}

/// One size of a mix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Share {
    /// Payload size.
    pub bytes: u32,
    /// How often, against the sum of all weights.
    pub weight: u32,
}

impl Size {
    /// Smallest and largest size; None where the trace says it.
    #[must_use]
    pub fn limits(&self) -> Option<(u32, u32)> {
        match self {
            Self::Fixed(bytes) => Some((*bytes, *bytes)),
            Self::Uniform(least, most) => Some((*least, *most)),
            Self::Mix(shares) => {
                let sizes = shares.iter().map(|share| share.bytes);
                Some((sizes.clone().min()?, sizes.max()?))
            }
            Self::Trace => None,
        }
    }
}

/// Draws the sizes of one flow.
#[derive(Clone, Debug)]
pub struct Sizes {
    size: Size,
    total: u64,
    random: Stream,
}

impl Sizes {
    /// Sizes with a stream of their own.
    #[must_use]
    pub fn new(size: Size, random: Stream) -> Self {
        let total = match &size {
            Size::Mix(shares) => shares.iter().map(|share| u64::from(share.weight)).sum(),
            _ => 0,
        };
        Self {
            size,
            total,
            random,
        }
    }

    /// The size of the next packet, `traced` being what the trace says.
    pub fn next(&mut self, traced: Option<u32>) -> u32 {
        match &self.size {
            Size::Fixed(bytes) => *bytes,
            Size::Uniform(least, most) => {
                let drawn = self.random.between(u64::from(*least), u64::from(*most));
                u32::try_from(drawn).unwrap_or(*most)
            }
            Size::Mix(shares) => {
                let mut drawn = self.random.between(1, self.total.max(1));
                for share in shares {
                    match drawn.checked_sub(u64::from(share.weight)) {
                        Some(rest) if rest > 0 => drawn = rest,
                        _ => return share.bytes,
                    }
                }
                0
            }
            Size::Trace => traced.unwrap_or(0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn sizes(size: Size) -> Sizes {
        Sizes::new(size, Stream::named(3, "size"))
    }

    #[test]
    fn a_mix_has_the_shares_of_its_weights() {
        // RFC 6985's example of an IMIX: 7 small, 4 middle, 1 large.
        let shares = [(64, 7), (548, 4), (1472, 1)]
            .map(|(bytes, weight)| Share { bytes, weight })
            .to_vec();
        let mut sizes = sizes(Size::Mix(shares));
        let drawn: Vec<u32> = (0..120_000).map(|_| sizes.next(None)).collect();
        for (bytes, expected) in [(64, 70_000_i64), (548, 40_000), (1472, 10_000)] {
            let seen = drawn.iter().filter(|size| **size == bytes).count();
            let seen = i64::try_from(seen).unwrap();
            // Five standard deviations of a binomial count are below 900.
            assert!((seen - expected).abs() < 900, "{bytes} bytes: {seen}");
        }
    }

    proptest! {
        #[test]
        fn sizes_stay_within_their_limits(
            shares in proptest::collection::vec((1_u32..60_000, 1_u32..9), 1..6),
        ) {
            let shares: Vec<_> = shares
                .into_iter()
                .map(|(bytes, weight)| Share { bytes, weight })
                .collect();
            for size in [Size::Mix(shares), Size::Uniform(30, 90), Size::Fixed(44)] {
                let (least, most) = size.limits().unwrap();
                let mut sizes = sizes(size);
                for _ in 0..50 {
                    prop_assert!((least..=most).contains(&sizes.next(None)));
                }
            }
        }
    }

    #[test]
    fn a_weight_of_none_is_never_drawn() {
        let shares = [(1, 0), (2, 5), (3, 0)].map(|(bytes, weight)| Share { bytes, weight });
        let mut sizes = sizes(Size::Mix(shares.to_vec()));
        assert!((0..1000).all(|_| sizes.next(None) == 2));
    }
}
