//! Netlink and generic netlink messages, and attributes in them: written, and read strictly.
//!
//! RFC 3549 sections 2.2 and 2.3; everything is in the byte order of the machine and aligned to 4.

/// An answer to a request: 0 or an errno.
pub const ERROR: u16 = 2;
/// Nothing.
pub const NOOP: u16 = 1;
/// Flags of a request that wants an answer.
pub const REQUEST_ACK: u16 = 0x5;
/// Flag of a request.
pub const REQUEST: u16 = 0x1;

const HEADER_BYTES: usize = 16;
const GENERIC_HEADER_BYTES: usize = 4;
const ATTRIBUTE_HEADER_BYTES: usize = 4;

/// Why a message cannot be read: where, what, and the limit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Malformed(pub String);

impl std::fmt::Display for Malformed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Malformed {}

/// Writes messages one behind the other into one buffer.
#[derive(Debug, Default)]
pub struct Writer {
    buffer: Vec<u8>,
    start: usize,
}

impl Writer {
    /// Begin a generic netlink message; what was begun before is complete.
    pub fn begin(&mut self, family: u16, flags: u16, sequence: u32, command: u8) -> &mut Self {
        self.start = self.buffer.len();
        self.buffer.extend(0_u32.to_ne_bytes());
        self.buffer.extend(family.to_ne_bytes());
        self.buffer.extend(flags.to_ne_bytes());
        self.buffer.extend(sequence.to_ne_bytes());
        self.buffer.extend(0_u32.to_ne_bytes());
        self.buffer.extend([command, 1, 0, 0]);
        self.close();
        self
    }

    /// Append an attribute to the message.
    ///
    /// # Panics
    ///
    /// If the value is longer than an attribute can be.
    pub fn put(&mut self, kind: u16, value: &[u8]) -> &mut Self {
        let length =
            u16::try_from(ATTRIBUTE_HEADER_BYTES + value.len()).expect("at most 65531 bytes");
        self.buffer.extend(length.to_ne_bytes());
        self.buffer.extend(kind.to_ne_bytes());
        self.buffer.extend(value);
        self.buffer.resize(self.buffer.len().next_multiple_of(4), 0);
        self.close();
        self
    }

    /// Everything written since the last call of `clear`.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.buffer
    }

    /// Forget what was written.
    pub fn clear(&mut self) {
        self.buffer.clear();
        self.start = 0;
    }

    fn close(&mut self) {
        let length = u32::try_from(self.buffer.len() - self.start).expect("below 4 GiB");
        self.buffer[self.start..self.start + 4].copy_from_slice(&length.to_ne_bytes());
    }
}

/// A message as it came in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Message<'a> {
    /// Family, or [`ERROR`]
    pub kind: u16,
    /// Of the request that is answered
    pub sequence: u32,
    /// What follows the header
    pub body: &'a [u8],
}

impl<'a> Message<'a> {
    /// Command and attributes of a generic netlink message.
    pub fn generic(&self) -> Result<(u8, &'a [u8]), Malformed> {
        match self.body {
            [command, _, _, _, attributes @ ..] => Ok((*command, attributes)),
            short => Err(Malformed(format!(
                "generic netlink message: is {} bytes long, at least {GENERIC_HEADER_BYTES} belong \
                 to its header",
                short.len()
            ))),
        }
    }

    /// Result of a request: what it returned, or a negative errno.
    pub fn result(&self) -> Result<i32, Malformed> {
        match self.body {
            [a, b, c, d, ..] => Ok(i32::from_ne_bytes([*a, *b, *c, *d])),
            short => Err(Malformed(format!(
                "netlink answer: is {} bytes long, must be at least 4",
                short.len()
            ))),
        }
    }
}

/// Kind and value of an attribute.
pub type Attribute<'a> = (u16, &'a [u8]);

/// The messages of one datagram.
pub fn messages(datagram: &[u8]) -> impl Iterator<Item = Result<Message<'_>, Malformed>> {
    let mut rest = datagram;
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let (result, next) = first_message(rest);
        rest = next;
        Some(result)
    })
}

/// The attributes of a message.
pub fn attributes(bytes: &[u8]) -> impl Iterator<Item = Result<Attribute<'_>, Malformed>> {
    let mut rest = bytes;
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let (result, next) = first_attribute(rest);
        rest = next;
        Some(result)
    })
}

fn first_message(bytes: &[u8]) -> (Result<Message<'_>, Malformed>, &[u8]) {
    let Some(header) = bytes.first_chunk::<HEADER_BYTES>() else {
        let words = format!(
            "netlink: {} bytes are left, too few for a header",
            bytes.len()
        );
        return (Err(Malformed(words)), &[]);
    };
    let length = u32::from_ne_bytes([header[0], header[1], header[2], header[3]]);
    let length = usize::try_from(length).unwrap_or(usize::MAX);
    if !(HEADER_BYTES..=bytes.len()).contains(&length) {
        let words = format!(
            "netlink: length of a message is {length}, must be {HEADER_BYTES} to {}",
            bytes.len()
        );
        return (Err(Malformed(words)), &[]);
    }
    let message = Message {
        kind: u16::from_ne_bytes([header[4], header[5]]),
        sequence: u32::from_ne_bytes([header[8], header[9], header[10], header[11]]),
        body: &bytes[HEADER_BYTES..length],
    };
    let next = length.next_multiple_of(4).min(bytes.len());
    (Ok(message), &bytes[next..])
}

fn first_attribute(bytes: &[u8]) -> (Result<Attribute<'_>, Malformed>, &[u8]) {
    let Some(header) = bytes.first_chunk::<ATTRIBUTE_HEADER_BYTES>() else {
        let words = format!(
            "attributes: {} bytes are left, too few for one",
            bytes.len()
        );
        return (Err(Malformed(words)), &[]);
    };
    let length = usize::from(u16::from_ne_bytes([header[0], header[1]]));
    // the two highest bits say that it nests and that it is in network order
    let kind = u16::from_ne_bytes([header[2], header[3]]) & 0x3fff;
    if !(ATTRIBUTE_HEADER_BYTES..=bytes.len()).contains(&length) {
        let words = format!(
            "attribute {kind}: length is {length}, must be {ATTRIBUTE_HEADER_BYTES} to {}",
            bytes.len()
        );
        return (Err(Malformed(words)), &[]);
    }
    let next = length.next_multiple_of(4).min(bytes.len());
    let value = &bytes[ATTRIBUTE_HEADER_BYTES..length];
    (Ok((kind, value)), &bytes[next..])
}
