//! What the medium must know of an 802.11 frame: who is to hear it, and how urgent it is.

use super::Address;
use crate::wlan::Category;

/// Shortest frame with a sender: frame control, duration and two addresses (9.3.1.2).
pub const SHORTEST_BYTES: usize = 16;

/// The parts of a MAC header that decide how a frame is sent (9.2.4).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// To whom: address 1
    pub receiver: Address,
    /// From whom: address 2
    pub sender: Address,
    /// What kind
    pub kind: Kind,
    /// The body is encrypted
    pub protected: bool,
}

/// Type and subtype, as far as they matter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Beacon
    Beacon,
    /// Other management frames
    Management,
    /// Control frames
    Control,
    /// Data without quality of service
    Data,
    /// Data with a user priority
    QosData {
        /// 0–7
        priority: u8,
    },
}

impl Header {
    /// Read it; `None` where the bytes are no frame that a radio could send.
    #[must_use]
    pub fn parse(frame: &[u8]) -> Option<Self> {
        let head = frame.first_chunk::<SHORTEST_BYTES>()?;
        let (kind, subtype) = (head[0] >> 2 & 3, head[0] >> 4);
        if head[0] & 3 != 0 {
            return None; // protocol version 0 alone is known (9.2.4.1.2)
        }
        let four_addresses = head[1] & 3 == 3;
        let kind = match kind {
            0 if subtype == 8 => Kind::Beacon,
            0 => Kind::Management,
            1 => Kind::Control,
            2 if subtype & 8 != 0 => {
                let control = *frame.get(if four_addresses { 30 } else { 24 })?;
                Kind::QosData {
                    priority: control & 7,
                }
            }
            2 => Kind::Data,
            _ => return None,
        };
        Some(Self {
            receiver: [head[4], head[5], head[6], head[7], head[8], head[9]],
            sender: [head[10], head[11], head[12], head[13], head[14], head[15]],
            kind,
            protected: head[1] & 0x40 != 0,
        })
    }

    /// Whether everybody is to hear it.
    #[must_use]
    pub fn is_group(&self) -> bool {
        self.receiver[0] & 1 == 1
    }

    /// Whether it carries data.
    #[must_use]
    pub fn is_data(&self) -> bool {
        matches!(self.kind, Kind::Data | Kind::QosData { .. })
    }

    /// Its access category: management goes with voice (11.1.1, 10.2.3.2 of 802.11-2020).
    #[must_use]
    pub fn category(&self) -> Category {
        match self.kind {
            Kind::Beacon | Kind::Management | Kind::Control => Category::Voice,
            Kind::Data => Category::BestEffort,
            Kind::QosData { priority } => Category::from_user_priority(priority),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(control: [u8; 2], qos: u8) -> Vec<u8> {
        let mut frame = vec![control[0], control[1], 0, 0];
        frame.extend([0x02, 1, 1, 1, 1, 1]);
        frame.extend([0x02, 2, 2, 2, 2, 2]);
        frame.extend([0x02, 3, 3, 3, 3, 3, 0, 0, qos, 0]);
        frame
    }

    #[test]
    fn frames_are_distinguished() {
        let kind = |control| Header::parse(&frame(control, 6)).map(|header| header.kind);
        assert_eq!(kind([0x80, 0]), Some(Kind::Beacon));
        assert_eq!(kind([0x40, 0]), Some(Kind::Management));
        assert_eq!(kind([0x84, 0]), Some(Kind::Control));
        assert_eq!(kind([0x08, 1]), Some(Kind::Data));
        assert_eq!(kind([0x88, 1]), Some(Kind::QosData { priority: 6 }));
        assert_eq!(kind([0x0c, 0]), None); // type 3
        assert_eq!(kind([0x81, 0]), None); // version 1
    }

    #[test]
    fn addresses_protection_and_category_are_read() {
        let header = Header::parse(&frame([0x88, 0x41], 6)).unwrap();
        assert_eq!(header.receiver, [0x02, 1, 1, 1, 1, 1]);
        assert_eq!(header.sender, [0x02, 2, 2, 2, 2, 2]);
        assert!(header.protected && header.is_data() && !header.is_group());
        assert_eq!(header.category(), Category::Voice);
        let header = Header::parse(&frame([0x88, 1], 1)).unwrap();
        assert_eq!(header.category(), Category::Background);
        assert!(!header.protected);
    }

    #[test]
    fn what_is_cut_off_is_no_frame() {
        let whole = frame([0x88, 1], 5);
        for length in 0..25 {
            assert_eq!(Header::parse(&whole[..length]), None, "{length} bytes");
        }
        // with four addresses the priority stands behind the fourth
        assert_eq!(Header::parse(&frame([0x88, 3], 5)), None);
    }
}
