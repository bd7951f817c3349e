//! What fills a packet behind its header; a compressing tunnel decides by it.

use crate::stream::Stream;

/// Filling of the payload.
#[derive(Clone, Debug, PartialEq)]
pub enum Content {
    /// Zero bytes.
    Zero,
    /// A pattern, over and over.
    Repeat(Vec<u8>),
    /// Random bytes, of which every packet takes another piece.
    Random,
    /// This share of every 1024-byte piece is zero, the rest random.
    Compressible(f64),
    /// Whatever stands there: nobody reads it.
    Unread,
}

impl Content {
    /// Whether it takes bytes of the [`Pool`].
    fn is_drawn(&self) -> bool {
        matches!(self, Self::Random | Self::Compressible(_))
    }
}

/// Random bytes from which packets take pieces at changing offsets, so that none repeats soon and no
/// generator runs per packet. All flows share one.
pub struct Pool(Vec<u8>);

impl Pool {
    /// The bytes, always the same: where a flow begins in them is drawn from its seed.
    #[must_use]
    pub fn new() -> Self {
        let mut bytes = vec![0; POOL_BYTES];
        Stream::named(0, "content").fill(&mut bytes);
        Self(bytes)
    }

    /// The pool for flows of these contents: empty where none takes bytes of it.
    pub fn of<'a>(contents: impl IntoIterator<Item = &'a Content>) -> Self {
        if contents.into_iter().any(Content::is_drawn) {
            Self::new()
        } else {
            Self(Vec::new())
        }
    }
}

impl Default for Pool {
    fn default() -> Self {
        Self::new()
    }
}

/// Fills the packets of one flow.
pub struct Filler {
    content: Content,
    /// Where the flow begins in the pool.
    begin: usize,
}

const POOL_BYTES: usize = 1 << 20;
const PIECE_BYTES: usize = 1024;

impl Filler {
    /// The same seed gives the same packets.
    #[must_use]
    pub fn new(content: Content, seed: u64) -> Self {
        let begin = Stream::named(seed, "content").between(0, POOL_BYTES as u64 - 1);
        let begin = usize::try_from(begin).unwrap_or(0);
        Self { content, begin }
    }

    /// What it fills packets with.
    #[must_use]
    pub fn content(&self) -> &Content {
        &self.content
    }

    /// Fills `payload` (the bytes behind the header) of packet `seq`.
    pub fn fill(&self, pool: &Pool, seq: u32, payload: &mut [u8]) {
        match &self.content {
            Content::Unread => {}
            Content::Zero => payload.fill(0),
            Content::Repeat(pattern) if pattern.is_empty() => payload.fill(0),
            Content::Repeat(pattern) => {
                for (byte, source) in payload.iter_mut().zip(pattern.iter().cycle()) {
                    *byte = *source;
                }
            }
            Content::Random => self.random(pool, seq, payload),
            Content::Compressible(ratio) => {
                self.random(pool, seq, payload);
                for piece in payload.chunks_mut(PIECE_BYTES) {
                    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
                    let zeros = (piece.len() as f64 * ratio).round() as usize;
                    let zeros = zeros.min(piece.len());
                    piece[..zeros].fill(0);
                }
            }
        }
    }

    fn random(&self, pool: &Pool, seq: u32, payload: &mut [u8]) {
        // A stride that is odd and larger than any payload visits all offsets before one comes again.
        let mut at = (seq as usize).wrapping_mul(66_047).wrapping_add(self.begin) % POOL_BYTES;
        let mut rest = payload;
        while !rest.is_empty() {
            let take = rest.len().min(POOL_BYTES - at);
            let (head, tail) = rest.split_at_mut(take);
            head.copy_from_slice(&pool.0[at..at + take]);
            rest = tail;
            at = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filled(content: Content, seed: u64, seq: u32, size: usize) -> Vec<u8> {
        let mut payload = vec![1; size];
        Filler::new(content, seed).fill(&Pool::new(), seq, &mut payload);
        payload
    }

    #[test]
    fn the_same_seed_gives_the_same_packets_and_another_gives_others() {
        let random = |seed, seq| filled(Content::Random, seed, seq, 500);
        assert_eq!(random(1, 7), random(1, 7));
        assert_ne!(random(1, 7), random(2, 7));
        assert_ne!(random(1, 7), random(1, 8));
    }

    #[test]
    fn what_nobody_reads_is_left_as_it_is_and_needs_no_pool() {
        assert_eq!(filled(Content::Unread, 1, 9, 3), [1; 3]);
        let pool = |content: Content| Pool::of([&content]).0.len();
        assert_eq!((pool(Content::Unread), pool(Content::Zero)), (0, 0));
        assert_eq!(pool(Content::Compressible(0.5)), POOL_BYTES);
    }

    #[test]
    fn the_share_of_zeros_is_the_ratio() {
        let payload = filled(Content::Compressible(0.75), 1, 0, 4096);
        let zeros = payload
            .iter()
            .map(|byte| u32::from(*byte == 0))
            .sum::<u32>();
        assert!((3072..3100).contains(&zeros), "{zeros} of 4096 are zero");
    }

    #[test]
    fn a_pattern_repeats_and_an_empty_one_is_zero() {
        assert_eq!(
            filled(Content::Repeat(b"abc".to_vec()), 1, 9, 7),
            b"abcabca"
        );
        assert_eq!(filled(Content::Repeat(Vec::new()), 1, 9, 3), [0; 3]);
    }
}
