//! What the ends of a TCP connection say to each other, and how one is opened.

use tm_wire::{Duration, Instant};

use crate::tcp_receiver::{Acknowledgement, MOST_BLOCKS};

/// RFC 6298 section 2.1, doubled each time.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(1);
/// RFC 9293 section 3.1, and timestamps (RFC 7323 appendix A) in every segment.
const HEADER_BYTES: u32 = 20 + 12;
/// Beside the header of 20 bytes: maximum segment size, selective acknowledgements permitted,
/// timestamps, window scale and padding.
const OPEN_BYTES: u32 = 20 + 20;
/// RFC 2018 section 3, behind two bytes of padding.
const BLOCKS_BYTES: u32 = 4;
const BLOCK_BYTES: u32 = 8;
/// RFC 768.
const UDP_HEADER_BYTES: u32 = 8;

/// The part of an end in the opening.
#[derive(Default)]
pub struct Handshake {
    sent: Instant,
    tries: u32,
    /// When its segment is to be sent, for the first time or again.
    pub timer: Option<Instant>,
}

impl Handshake {
    /// One that begins at `at`.
    pub fn at(at: Instant) -> Self {
        Self {
            timer: Some(at),
            ..Self::default()
        }
    }

    /// Whether its segment is to be sent now, for the first time or again.
    pub fn due(&mut self, now: Instant) -> bool {
        if self.timer.is_none_or(|timer| timer > now) {
            return false;
        }
        self.timer = Some(now + HANDSHAKE_TIMEOUT.saturating_mul(1 << self.tries.min(16)));
        self.sent = now;
        self.tries += 1;
        true
    }

    /// What is known of the path when it ends at `now`.
    pub fn established(&self, now: Instant) -> Established {
        Established {
            rtt: (self.tries == 1).then_some(now - self.sent),
            lossy: self.tries > TRIES_OF_NO_LOSS,
        }
    }
}

/// What a handshake tells whoever sends next.
#[derive(Clone, Copy)]
pub struct Established {
    /// None where nobody knows to which of several segments the answer was one.
    pub rtt: Option<Duration>,
    /// So many segments were sent again that the path loses: the first window is one segment.
    pub lossy: bool,
}

/// RFC 5681 section 3.1 has a window of one segment from the first one that is sent again; Linux from
/// the second on, since RFC 6298 has the first after a second only.
const TRIES_OF_NO_LOSS: u32 = 2;

/// A segment. Numbers count segments.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Segment {
    /// SYN.
    Open,
    /// SYN and ACK.
    Opening,
    /// The ACK of it, or of a FIN.
    Opened,
    /// Its number, when it was sent, and what is acknowledged with it: the next segment and the echo.
    Data(u64, Instant, Option<(u64, Instant)>),
    /// An acknowledgement alone.
    Said(Acknowledgement),
    /// A FIN that is to be answered by one.
    Close,
    /// A FIN that answers one.
    Closed,
}

impl Segment {
    /// The payload of the UDP datagram that is as long; `data_bytes` is that of data.
    pub fn size(&self, data_bytes: u32) -> u32 {
        self.bytes(data_bytes) - UDP_HEADER_BYTES
    }

    /// Its length behind the IP header, with so much data.
    pub fn bytes(&self, data_bytes: u32) -> u32 {
        match self {
            Self::Open | Self::Opening => OPEN_BYTES,
            Self::Opened | Self::Close | Self::Closed => HEADER_BYTES,
            Self::Data(..) => HEADER_BYTES + data_bytes,
            Self::Said(said) => {
                let blocks = u32::try_from(said.blocks.len()).unwrap_or(0);
                HEADER_BYTES + BLOCKS_BYTES * blocks.min(1) + BLOCK_BYTES * blocks
            }
        }
    }

    /// The sizes of all that a connection sends whose data come in such lengths.
    pub fn sizes(data_bytes: impl IntoIterator<Item = u32>) -> Vec<u32> {
        let said = (0..=MOST_BLOCKS).map(|count| {
            let blocks = vec![(0, 0); count];
            let (next, echo) = (0, Instant(0));
            Self::Said(Acknowledgement { next, blocks, echo }).size(0)
        });
        let data = Self::Data(0, Instant(0), None);
        let lengths = data_bytes.into_iter().map(|bytes| data.size(bytes));
        std::iter::once(Self::Open.size(0))
            .chain(lengths)
            .chain(said)
            .collect()
    }

    /// As it is carried; the length of the data is not in it.
    pub fn to_bytes(&self) -> Vec<u8> {
        let (kind, numbers) = match self {
            Self::Open => (0, Vec::new()),
            Self::Opening => (1, Vec::new()),
            Self::Opened => (2, Vec::new()),
            Self::Data(number, sent, said) => {
                let said = said
                    .iter()
                    .flat_map(|(next, echo)| [*next, unsigned(*echo)]);
                let fixed = [*number, unsigned(*sent)];
                (3, fixed.into_iter().chain(said).collect())
            }
            Self::Said(said) => {
                let blocks = said.blocks.iter().flat_map(|(from, to)| [*from, *to]);
                let fixed = [said.next, unsigned(said.echo)];
                (4, fixed.into_iter().chain(blocks).collect())
            }
            Self::Close => (5, Vec::new()),
            Self::Closed => (6, Vec::new()),
        };
        let numbers = numbers.iter().flat_map(|number| number.to_le_bytes());
        std::iter::once(kind).chain(numbers).collect()
    }

    /// What was carried; None: it is no segment.
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let (kind, rest) = bytes.split_first()?;
        let number = |eight: &[u8]| Some(u64::from_le_bytes(eight.try_into().ok()?));
        let numbers: Vec<u64> = rest.chunks(8).map(number).collect::<Option<_>>()?;
        let time = |number: u64| Instant(number.cast_signed());
        match (kind, numbers.as_slice()) {
            (0, []) => Some(Self::Open),
            (1, []) => Some(Self::Opening),
            (2, []) => Some(Self::Opened),
            (3, [number, sent]) => Some(Self::Data(*number, time(*sent), None)),
            (3, [number, sent, next, echo]) => {
                let said = Some((*next, time(*echo)));
                Some(Self::Data(*number, time(*sent), said))
            }
            (4, [next, echo, blocks @ ..]) if blocks.len() % 2 == 0 => {
                let blocks = blocks.chunks_exact(2).map(|pair| (pair[0], pair[1]));
                Some(Self::Said(Acknowledgement {
                    next: *next,
                    blocks: blocks.collect(),
                    echo: time(*echo),
                }))
            }
            (5, []) => Some(Self::Close),
            (6, []) => Some(Self::Closed),
            _ => None,
        }
    }
}

fn unsigned(time: Instant) -> u64 {
    time.0.cast_unsigned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_segment_is_read_as_it_was_written() {
        let said = Acknowledgement {
            next: 7,
            blocks: vec![(9, 12), (14, u64::MAX)],
            echo: Instant(-5),
        };
        for segment in [
            Segment::Open,
            Segment::Opening,
            Segment::Opened,
            Segment::Data(3, Instant(1 << 40), None),
            Segment::Data(3, Instant(1 << 40), Some((4, Instant(-1)))),
            Segment::Said(said),
            Segment::Close,
            Segment::Closed,
        ] {
            assert_eq!(Segment::parse(&segment.to_bytes()), Some(segment));
        }
        for wrong in [
            &[][..],
            &[9],
            &[3],
            &[3, 1, 2],
            &[0, 1, 2, 3, 4, 5, 6, 7, 8],
        ] {
            assert_eq!(Segment::parse(wrong), None);
        }
    }
}
