//! The unit on the line: two lengths, a JSON header, binary payload.
//!
//! | bytes | field |
//! | --- | --- |
//! | 4 | header length, big-endian, 2 to [`HEADER_MAX`] |
//! | 4 | payload length, big-endian, 0 to [`PAYLOAD_MAX`] |
//! | … | header, one JSON object |
//! | … | payload |

use std::fmt;

use crate::limits::{HEADER_MAX, PAYLOAD_MAX};

const LENGTHS: usize = 8;

/// One message in either direction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    /// JSON text.
    pub header: Vec<u8>,
    /// Bytes that the header talks about.
    pub payload: Vec<u8>,
}

/// The other side does not speak this protocol; the connection cannot go on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FrameError {
    /// The header is empty or over the limit.
    Header(usize),
    /// The payload is over the limit.
    Payload(usize),
}

impl fmt::Display for FrameError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Header(n) => {
                write!(
                    f,
                    "frame: header of {n} bytes, the limits are 2 and {HEADER_MAX}"
                )
            }
            Self::Payload(n) => {
                write!(f, "frame: payload of {n} bytes, the limit is {PAYLOAD_MAX}")
            }
        }
    }
}

impl std::error::Error for FrameError {}

impl Frame {
    /// Append the frame to `out`; an oversized frame is refused before a byte is written.
    pub fn encode(&self, out: &mut Vec<u8>) -> Result<(), FrameError> {
        let (header, payload) = checked(self.header.len(), self.payload.len())?;
        out.reserve(LENGTHS + self.header.len() + self.payload.len());
        out.extend_from_slice(&header.to_be_bytes());
        out.extend_from_slice(&payload.to_be_bytes());
        out.extend_from_slice(&self.header);
        out.extend_from_slice(&self.payload);
        Ok(())
    }
}

/// Finds frames in a stream that arrives in pieces of any size.
#[derive(Debug, Default)]
pub struct Decoder {
    buffer: Vec<u8>,
    start: usize,
}

impl Decoder {
    /// Take the next piece of the stream.
    pub fn push(&mut self, bytes: &[u8]) {
        if self.start > 0 {
            self.buffer.drain(..self.start);
            self.start = 0;
        }
        self.buffer.extend_from_slice(bytes);
    }

    /// Return the next whole frame, or None until more has arrived.
    pub fn next_frame(&mut self) -> Result<Option<Frame>, FrameError> {
        let rest = &self.buffer[self.start..];
        let Some(lengths) = rest.first_chunk::<LENGTHS>() else {
            return Ok(None);
        };
        let lengths = u64::from_be_bytes(*lengths);
        let header = (lengths >> 32) as usize;
        let payload = (lengths & 0xffff_ffff) as usize;
        // Checked on the lengths alone: a hostile length never makes us wait for its bytes.
        checked(header, payload)?;
        let Some(body) = rest.get(LENGTHS..LENGTHS + header + payload) else {
            return Ok(None);
        };
        let frame = Frame {
            header: body[..header].to_vec(),
            payload: body[header..].to_vec(),
        };
        self.start += LENGTHS + header + payload;
        Ok(Some(frame))
    }
}

fn checked(header: usize, payload: usize) -> Result<(u32, u32), FrameError> {
    let header32 = u32::try_from(header)
        .ok()
        .filter(|_| (2..=HEADER_MAX).contains(&header));
    let payload32 = u32::try_from(payload)
        .ok()
        .filter(|_| payload <= PAYLOAD_MAX);
    match (header32, payload32) {
        (None, _) => Err(FrameError::Header(header)),
        (_, None) => Err(FrameError::Payload(payload)),
        (Some(h), Some(p)) => Ok((h, p)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn frame(header: &[u8], payload: &[u8]) -> Frame {
        Frame {
            header: header.to_vec(),
            payload: payload.to_vec(),
        }
    }

    #[test]
    fn the_bytes_are_as_documented() {
        let mut out = Vec::new();
        frame(b"{}", b"abc").encode(&mut out).unwrap();
        assert_eq!(out, b"\0\0\0\x02\0\0\0\x03{}abc");
    }

    #[test]
    fn a_length_over_the_limit_is_refused_before_its_bytes_arrive() {
        let mut decoder = Decoder::default();
        decoder.push(&[0, 0, 0, 2, 0xff, 0xff, 0xff, 0xff]);
        assert_eq!(decoder.next_frame(), Err(FrameError::Payload(0xffff_ffff)));
        let mut decoder = Decoder::default();
        decoder.push(&[0, 0, 0, 1, 0, 0, 0, 0]);
        assert_eq!(decoder.next_frame(), Err(FrameError::Header(1)));
    }

    #[test]
    fn an_oversized_frame_writes_nothing() {
        let mut out = Vec::new();
        let big = frame(b"{}", &vec![0; PAYLOAD_MAX + 1]);
        assert_eq!(
            big.encode(&mut out),
            Err(FrameError::Payload(PAYLOAD_MAX + 1))
        );
        assert!(out.is_empty());
    }

    proptest! {
        #[test]
        fn what_is_encoded_comes_back_however_it_is_cut(
            frames in prop::collection::vec(
                (prop::collection::vec(any::<u8>(), 2..40), prop::collection::vec(any::<u8>(), 0..90)),
                0..8,
            ),
            cut in 1_usize..50,
        ) {
            let frames: Vec<Frame> = frames.iter().map(|(h, p)| frame(h, p)).collect();
            let mut stream = Vec::new();
            for one in &frames {
                one.encode(&mut stream).unwrap();
            }
            let mut decoder = Decoder::default();
            let mut seen = Vec::new();
            for piece in stream.chunks(cut) {
                decoder.push(piece);
                while let Some(one) = decoder.next_frame().unwrap() {
                    seen.push(one);
                }
            }
            prop_assert_eq!(seen, frames);
        }

        #[test]
        fn arbitrary_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            let mut decoder = Decoder::default();
            decoder.push(&bytes);
            while let Ok(Some(_)) = decoder.next_frame() {}
        }
    }
}
