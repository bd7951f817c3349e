//! Seeded random numbers by named stream.

/// xoshiro256++ 1.0 (Blackman and Vigna, ACM TOMS 47(4), 2021): the whole state is the seed's.
#[derive(Clone, Debug)]
pub(crate) struct Random([u64; 4]);

impl Random {
    /// A stream that depends on the seed and on its own name only.
    pub(crate) fn stream(seed: u64, name: &str) -> Self {
        // FNV-1a spreads the name, SplitMix64 fills the state as its authors advise.
        let mut mixed = name.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
        }) ^ seed;
        Self(std::array::from_fn(|_| {
            mixed = mixed.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mut z = mixed;
            z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            z ^ (z >> 31)
        }))
    }

    /// The next 64 bits.
    pub(crate) fn bits(&mut self) -> u64 {
        let s = &mut self.0;
        let result = s[0].wrapping_add(s[3]).rotate_left(23).wrapping_add(s[0]);
        let t = s[1] << 17;
        s[2] ^= s[0];
        s[3] ^= s[1];
        s[1] ^= s[2];
        s[0] ^= s[3];
        s[2] ^= t;
        s[3] = s[3].rotate_left(45);
        result
    }

    /// Uniform over 0 to `cw`, where `cw` is a power of two less one (9.4.2.28: `ECWmin`, `ECWmax`).
    pub(crate) fn backoff(&mut self, cw: u32) -> u32 {
        debug_assert!((cw + 1).is_power_of_two());
        // the upper half has the better bits
        (self.bits() >> 32) as u32 & cw
    }

    /// True with a probability; draws nothing where the answer is certain.
    pub(crate) fn chance(&mut self, probability: f64) -> bool {
        if probability <= 0.0 {
            false
        } else if probability >= 1.0 {
            true
        } else {
            self.unit() < probability
        }
    }

    /// Uniform over [0, 1), in steps of 2^-53.
    pub(crate) fn unit(&mut self) -> f64 {
        (self.bits() >> 11) as f64 * (1.0 / (1_u64 << 53) as f64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn backoff_is_uniform_and_streams_differ() {
        let mut random = Random::stream(7, "backoff");
        let mut seen = [0_u32; 32];
        for _ in 0..320_000 {
            seen[random.backoff(31) as usize] += 1;
        }
        // 10 000 each, standard deviation 98: five of them
        assert!(seen.iter().all(|&n| n.abs_diff(10_000) < 490), "{seen:?}");
        let first = |seed, name| Random::stream(seed, name).bits();
        assert_eq!(first(7, "backoff"), first(7, "backoff"));
        assert_ne!(first(7, "backoff"), first(7, "errors"));
        assert_ne!(first(7, "backoff"), first(8, "backoff"));
    }

    #[test]
    fn chance_has_its_probability() {
        let mut random = Random::stream(1, "errors");
        let hits = (0..100_000).filter(|_| random.chance(0.02)).count();
        assert!((1_780..2_220).contains(&hits), "{hits}"); // five standard deviations of 44
        assert!(!random.chance(0.0));
        assert!(random.chance(1.0));
    }
}
