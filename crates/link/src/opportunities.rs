//! Mahimahi's trace format: each line is a millisecond in which a packet can leave.

use tm_wire::Duration;

use crate::error::TraceError;

/// Chances to send in time, over and over (Netravali et al., USENIX ATC 2015, section 4.2).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Opportunities {
    ms: Vec<u64>,
    bytes: u64,
}

/// Largest size of a trace's file.
pub const LARGEST_BYTES: u64 = 64 << 20;
/// What an opportunity carries: an MTU of 1500 and the four bytes that Mahimahi adds.
pub const MAHIMAHI_BYTES: u64 = 1504;

const LONGEST_MS: u64 = 24 * 3_600_000;
const NS_PER_MS: i64 = 1_000_000;

impl Opportunities {
    /// Parses a trace; an error names the line.
    pub fn parse(text: &[u8], bytes: u64) -> Result<Self, TraceError> {
        let mut ms: Vec<u64> = Vec::new();
        for (line, bytes) in (1..).zip(text.split(|byte| *byte == b'\n')) {
            let word = bytes.trim_ascii();
            if word.is_empty() {
                continue;
            }
            let value = std::str::from_utf8(word)
                .ok()
                .filter(|word| word.bytes().all(|byte| byte.is_ascii_digit()))
                .and_then(|word| word.parse().ok())
                .filter(|value| *value <= LONGEST_MS)
                .ok_or_else(|| TraceError::Line {
                    line,
                    text: String::from_utf8_lossy(&word[..word.len().min(24)]).into_owned(),
                    most_ms: LONGEST_MS,
                })?;
            if let Some(before) = ms.last().copied().filter(|before| value < *before) {
                return Err(TraceError::Backwards {
                    line,
                    ms: value,
                    before_ms: before,
                });
            }
            ms.push(value);
        }
        match ms.last() {
            None => Err(TraceError::Empty),
            Some(0) => Err(TraceError::EndsAtZero),
            Some(_) => Ok(Self { ms, bytes }),
        }
    }

    /// Bytes that one opportunity carries.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// How long after the start opportunity `number` is, rounds counted.
    pub(crate) fn offset(&self, number: u64) -> Duration {
        let length = self.ms.len() as u64;
        let (round, index) = (number / length, number % length);
        let ms = self.ms[usize::try_from(index).unwrap_or(0)];
        let ms = round.saturating_mul(self.period_ms()).saturating_add(ms);
        let ms = i64::try_from(ms).unwrap_or(i64::MAX);
        Duration(ms.saturating_mul(NS_PER_MS))
    }

    /// Number of the first opportunity later than this from the start.
    pub(crate) fn first_after(&self, offset: Duration) -> u64 {
        let Ok(ns) = u64::try_from(offset.0) else {
            return 0;
        };
        // Opportunities lie on whole milliseconds: one is later than `ns` if it is later than this.
        let ms = ns / NS_PER_MS.unsigned_abs();
        let (round, rest) = (ms / self.period_ms(), ms % self.period_ms());
        let index = self.ms.partition_point(|at| *at <= rest) as u64;
        // The last of a round lies at the same time as those at 0 of the next.
        let number = round * self.ms.len() as u64 + index;
        if rest > 0 || round == 0 {
            return number;
        }
        number.max(round * self.ms.len() as u64)
    }

    /// No `bytes` in a row wait for longer, whenever that begins.
    #[must_use]
    pub fn longest(&self, bytes: u64) -> Duration {
        let count = bytes / self.bytes.max(1) + 2;
        let gaps = self.ms.windows(2).map(|pair| pair[1] - pair[0]);
        let gap = gaps.chain(self.ms.first().copied()).max().unwrap_or(0);
        let rounds = count / self.ms.len() as u64 + 2;
        let ms = count
            .saturating_mul(gap)
            .min(rounds.saturating_mul(self.period_ms()));
        Duration(
            i64::try_from(ms)
                .unwrap_or(i64::MAX / NS_PER_MS)
                .saturating_mul(NS_PER_MS),
        )
    }

    fn period_ms(&self) -> u64 {
        self.ms.last().copied().unwrap_or(1).max(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_trace_is_read_and_repeats_after_its_last_line() {
        let trace = Opportunities::parse(b"0\n3\r\n3\n\n10\n", MAHIMAHI_BYTES).unwrap();
        let ms: Vec<i64> = (0..10).map(|k| trace.offset(k).0 / NS_PER_MS).collect();
        assert_eq!(ms, [0, 3, 3, 10, 10, 13, 13, 20, 20, 23]);
    }

    #[test]
    fn an_error_names_its_line() {
        let error = |text: &[u8]| Opportunities::parse(text, 1).unwrap_err().to_string();
        assert_eq!(error(b"\n"), "has no opportunity");
        assert!(error(b"0\n0\n").starts_with("ends at 0 ms"));
        assert_eq!(error(b"5\n4\n"), "line 2 is 4, before the 5 above it");
        assert!(error(b"5\n-4\n").starts_with("line 2 is \"-4\", must be"));
        assert!(error(b"99999999999999999999\n").contains("must be a millisecond"));
    }

    proptest! {
        #[test]
        fn the_first_later_one_is_found(
            gaps in proptest::collection::vec(0_u64..6, 1..20), ns in 0_i64..200_000_000,
        ) {
            let mut at = 0;
            let mut lines = Vec::new();
            for gap in gaps {
                at += gap;
                lines.push(at.to_string());
            }
            lines.push((at + 1).to_string());
            let trace = Opportunities::parse(lines.join("\n").as_bytes(), 1).unwrap();
            let found = trace.first_after(Duration(ns));
            prop_assert!(trace.offset(found).0 > ns);
            prop_assert!(found == 0 || trace.offset(found - 1).0 <= ns);
        }

        #[test]
        fn any_bytes_are_survived(bytes in proptest::collection::vec(any::<u8>(), 0..100)) {
            let _ = Opportunities::parse(&bytes, MAHIMAHI_BYTES);
        }
    }
}
