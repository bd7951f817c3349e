//! A trace to be replayed: when each packet left, and how long it was.

use tm_wire::{Duration, LARGEST_PAYLOAD_BYTES};

/// Packets of a trace, in order of time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trace {
    packets: Vec<(Duration, u32)>,
}

/// Largest number of packets in a trace.
pub const MOST_PACKETS: usize = 4_000_000;
/// Largest size of a trace's file: longer than the most packets on lines of the usual length.
pub const LARGEST_TRACE_BYTES: u64 = 128 << 20;
const LONGEST_NS: i64 = 24 * 3_600_000_000_000;
#[allow(clippy::cast_possible_truncation)] // 65,507
const LONGEST_PAYLOAD: u32 = LARGEST_PAYLOAD_BYTES as u32;

/// What is wrong with a trace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TraceError {
    /// It has no packet.
    Empty,
    /// A line of it, from 1.
    Line {
        /// Which.
        line: usize,
        /// What is wrong there.
        fault: LineFault,
    },
}

/// What is wrong with a line of a trace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LineFault {
    /// It has no two words.
    Words,
    /// A word is no whole number: which one, and its first characters.
    Number(&'static str, String),
    /// A number is too large: which one, its first characters, and the largest.
    TooLarge(&'static str, String, i64),
    /// Its packet leaves before the one above it: both offsets.
    Backwards(Duration, Duration),
    /// There are [`MOST_PACKETS`] above it.
    TooMany,
}

impl core::fmt::Display for TraceError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::Empty => f.write_str("has no packet"),
            Self::Line { line, fault } => write!(f, "line {line}: {fault}"),
        }
    }
}

impl core::fmt::Display for LineFault {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::Words => f.write_str("must be an offset in ns and a payload size in bytes"),
            Self::Number(what, word) => write!(f, "{what} is {word:?}, must be a whole number"),
            Self::TooLarge(what, word, most) => {
                write!(f, "{what} is {word}, must be at most {most}")
            }
            Self::Backwards(at, before) => write!(
                f,
                "offset is {} ns, before the {} ns of the packet above it",
                at.0, before.0
            ),
            Self::TooMany => write!(f, "has more than {MOST_PACKETS} packets"),
        }
    }
}

impl std::error::Error for TraceError {}

impl Trace {
    /// Parses lines of `offset_ns payload_bytes`, separated by blanks or a comma.
    ///
    /// Offsets count from the start of the trace and never go back; `#` begins a comment.
    pub fn parse(text: &[u8]) -> Result<Self, TraceError> {
        let mut packets: Vec<(Duration, u32)> = Vec::new();
        for (at, line) in text.split(|byte| *byte == b'\n').enumerate() {
            let wrong = |fault| TraceError::Line {
                line: at + 1,
                fault,
            };
            let Some(packet) = parse_line(line).map_err(wrong)? else {
                continue;
            };
            if let Some((before, _)) = packets.last() {
                if packet.0 < *before {
                    return Err(wrong(LineFault::Backwards(packet.0, *before)));
                }
            }
            if packets.len() == MOST_PACKETS {
                return Err(wrong(LineFault::TooMany));
            }
            packets.push(packet);
        }
        if packets.is_empty() {
            return Err(TraceError::Empty);
        }
        Ok(Self { packets })
    }

    /// Packet `index`: how long after the start of the trace it left, and its payload size.
    #[must_use]
    pub fn packet(&self, index: usize) -> Option<(Duration, u32)> {
        self.packets.get(index).copied()
    }

    /// Packets in it, at least one.
    #[must_use]
    pub fn length(&self) -> usize {
        self.packets.len()
    }

    /// How long after the start of the trace the last packet left.
    #[must_use]
    pub fn end(&self) -> Duration {
        self.packets.last().map_or(Duration(0), |(at, _)| *at)
    }

    /// Smallest and largest payload size.
    #[must_use]
    pub fn sizes(&self) -> (u32, u32) {
        let sizes = self.packets.iter().map(|(_, size)| *size);
        let least = sizes.clone().min().unwrap_or(0);
        (least, sizes.max().unwrap_or(0))
    }
}

fn parse_line(line: &[u8]) -> Result<Option<(Duration, u32)>, LineFault> {
    let line = line.split(|byte| *byte == b'#').next().unwrap_or(line);
    let mut words = line
        .split(|byte| byte.is_ascii_whitespace() || *byte == b',')
        .filter(|word| !word.is_empty());
    let Some(first) = words.next() else {
        return Ok(None);
    };
    let (Some(second), None) = (words.next(), words.next()) else {
        return Err(LineFault::Words);
    };
    let offset = number(first, "offset", LONGEST_NS)?;
    let size = number(second, "payload size", LONGEST_PAYLOAD)?;
    Ok(Some((Duration(offset), size)))
}

/// A whole number that is at most so large.
fn number<T>(word: &[u8], what: &'static str, most: T) -> Result<T, LineFault>
where
    T: Copy + PartialOrd + Into<i64> + std::str::FromStr,
{
    let shown = || String::from_utf8_lossy(&word[..word.len().min(24)]).into_owned();
    // No sign, no blank, no other digits than these: `parse` alone would take a plus.
    if !word.iter().all(u8::is_ascii_digit) {
        return Err(LineFault::Number(what, shown()));
    }
    std::str::from_utf8(word)
        .ok()
        .and_then(|text| text.parse().ok())
        .filter(|value| *value <= most)
        .ok_or_else(|| LineFault::TooLarge(what, shown(), most.into()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn comments_blank_lines_and_commas_are_read() {
        let trace = Trace::parse(b"# mine\n0 100\n\n5,200 # again\r\n5\t30\n").unwrap();
        let packets: Vec<_> = (0..).map_while(|k| trace.packet(k)).collect();
        assert_eq!(
            packets,
            [(Duration(0), 100), (Duration(5), 200), (Duration(5), 30)]
        );
        assert_eq!((trace.end(), trace.sizes()), (Duration(5), (30, 200)));
    }

    #[test]
    fn an_error_names_line_value_and_limit() {
        let error = |text: &str| Trace::parse(text.as_bytes()).unwrap_err().to_string();
        assert_eq!(error("# nothing\n"), "has no packet");
        assert_eq!(
            error("0 64\n0 70000\n"),
            "line 2: payload size is 70000, must be at most 65507"
        );
        assert_eq!(
            error("7 64\n5 64\n"),
            "line 2: offset is 5 ns, before the 7 ns of the packet above it"
        );
        assert_eq!(
            error("+1 64\n"),
            "line 1: offset is \"+1\", must be a whole number"
        );
        assert!(error("1\n").starts_with("line 1: must be"));
        assert!(error("1 2 3\n").starts_with("line 1: must be"));
        assert!(error("99999999999999999999999 64\n").contains("must be at most"));
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(
            gaps in proptest::collection::vec((0_i64..1_000_000, 1_u32..60_000), 1..50),
        ) {
            let mut at = 0;
            let mut lines = Vec::new();
            let mut packets = Vec::new();
            for (gap, size) in gaps {
                at += gap;
                lines.push(format!("{at} {size}"));
                packets.push((Duration(at), size));
            }
            let trace = Trace::parse(lines.join("\n").as_bytes()).unwrap();
            let read: Vec<_> = (0..).map_while(|k| trace.packet(k)).collect();
            prop_assert_eq!(read, packets);
        }

        #[test]
        fn any_bytes_are_survived(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            if let Ok(trace) = Trace::parse(&bytes) {
                prop_assert!(trace.sizes().1 as usize <= LARGEST_PAYLOAD_BYTES);
            }
        }
    }
}
