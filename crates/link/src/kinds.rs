//! What kinds of frames went over a link: counted by header, so that a frame that is not the
//! tunnel's can be distinguished at any moment of a measurement.

/// Kinds that are counted apart; frames of further kinds are counted together.
pub const MOST_KINDS: usize = 256;

/// What the headers of a frame say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kind {
    /// Type of the Ethernet frame, behind VLAN tags.
    pub ether_type: u16,
    /// IP protocol number, for IPv6 that behind the extension headers; 0 where there is no IP.
    pub protocol: u8,
    /// Of UDP or TCP: the lower port, and the higher one where both are of those that a kernel
    /// chooses by itself. Of ICMP: the type of the message. 0 for all others and for fragments but
    /// the first. So all connections to one service are one kind.
    pub ports: [u16; 2],
    /// A fragment of an IP packet but the first.
    pub later_fragment: bool,
}

impl Kind {
    /// Reads the headers; never fails, whatever the bytes: what is cut off counts as 0.
    #[must_use]
    pub fn of(frame: &[u8]) -> Self {
        let mut at = 12;
        let mut ether_type = be16(frame, at).unwrap_or(0);
        for _ in 0..2 {
            if ether_type != VLAN && ether_type != SERVICE_VLAN {
                break;
            }
            at += 4;
            ether_type = be16(frame, at).unwrap_or(0);
        }
        let packet = frame.get(at + 2..).unwrap_or(&[]);
        let (protocol, payload, later_fragment) = match ether_type {
            IPV4 => ipv4(packet),
            IPV6 => ipv6(packet),
            _ => (0, None, false),
        };
        Self {
            ether_type,
            protocol,
            ports: payload.map_or([0, 0], |payload| ports(protocol, payload)),
            later_fragment,
        }
    }
}

/// How many frames of each kind there were.
#[derive(Clone, Debug, Default)]
pub struct Kinds {
    counts: Vec<(Kind, u64)>,
    others: u64,
}

impl Kinds {
    /// Counts a frame.
    pub fn note(&mut self, frame: &[u8]) {
        let kind = Kind::of(frame);
        match self.counts.iter().position(|(known, _)| *known == kind) {
            // A stream's kind comes again and again: it moves forward and is found at once.
            Some(0) => self.counts[0].1 += 1,
            Some(at) => {
                self.counts[at].1 += 1;
                self.counts.swap(at, at - 1);
            }
            None if self.counts.len() < MOST_KINDS => self.counts.push((kind, 1)),
            None => self.others += 1,
        }
    }

    /// Each kind with its number of frames, in no order that means anything.
    #[must_use]
    pub fn counts(&self) -> &[(Kind, u64)] {
        &self.counts
    }

    /// Frames of kinds that found no place.
    #[must_use]
    pub fn others(&self) -> u64 {
        self.others
    }
}

const VLAN: u16 = 0x8100;
const SERVICE_VLAN: u16 = 0x88A8;
const IPV4: u16 = 0x0800;
const IPV6: u16 = 0x86DD;
const ICMP: u8 = 1;
const TCP: u8 = 6;
const UDP: u8 = 17;
const ICMPV6: u8 = 58;
/// First port that Linux chooses by itself (`net.ipv4.ip_local_port_range`).
const EPHEMERAL: u16 = 32_768;
const MOST_EXTENSIONS: usize = 8;

type Parsed<'a> = (u8, Option<&'a [u8]>, bool);

fn ipv4(packet: &[u8]) -> Parsed<'_> {
    let Some([first, .., protocol]) = packet.get(..10) else {
        return (0, None, false);
    };
    let header = usize::from(first & 0x0F) * 4;
    let later = be16(packet, 6).is_some_and(|field| field & 0x1FFF != 0);
    let payload = if later { None } else { packet.get(header..) };
    (*protocol, payload, later)
}

fn ipv6(packet: &[u8]) -> Parsed<'_> {
    let Some(mut next) = packet.get(6).copied() else {
        return (0, None, false);
    };
    let mut at = 40;
    for _ in 0..MOST_EXTENSIONS {
        let Some(length) = packet.get(at + 1).copied().map(usize::from) else {
            break;
        };
        match next {
            // Hop-by-hop options, routing, destination options (RFC 8200 section 4).
            0 | 43 | 60 => at += (length + 1) * 8,
            44 => {
                let later = be16(packet, at + 2).is_some_and(|field| field & 0xFFF8 != 0);
                if later {
                    return (packet[at], None, true);
                }
                next = packet[at];
                at += 8;
                continue;
            }
            _ => return (next, packet.get(at..), false),
        }
        next = packet.get(at - (length + 1) * 8).copied().unwrap_or(0);
    }
    (next, packet.get(at..), false)
}

fn ports(protocol: u8, payload: &[u8]) -> [u16; 2] {
    match protocol {
        TCP | UDP => match (be16(payload, 0), be16(payload, 2)) {
            (Some(source), Some(destination)) => {
                let (low, high) = (source.min(destination), source.max(destination));
                [low, if low < EPHEMERAL { 0 } else { high }]
            }
            _ => [0, 0],
        },
        ICMP | ICMPV6 => [payload.first().copied().map_or(0, u16::from), 0],
        _ => [0, 0],
    }
}

fn be16(bytes: &[u8], at: usize) -> Option<u16> {
    let pair = bytes.get(at..at + 2)?;
    Some(u16::from_be_bytes([pair[0], pair[1]]))
}
