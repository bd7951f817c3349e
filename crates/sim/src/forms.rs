//! Which packets a datagram becomes: those that enter the tunnel, and those of each on the link.

use std::collections::BTreeMap;
use std::fmt;
use std::rc::Rc;

/// Sizes of datagrams that one path may have.
pub const LARGEST_FORMS: usize = 65_536;
/// Packets into which a datagram may be cut before the tunnel.
pub const MOST_INNER: usize = 64;
/// Packets on the link into which one of these may be cut.
pub const MOST_OUTER: usize = 64;

/// A packet that enters the tunnel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Inner {
    /// Its length with IP header.
    pub bytes: u32,
    /// Lengths with IP header of the packets on the link that carry it, in order of sending.
    pub outer: Vec<u32>,
}

/// For each payload of a path's datagrams the packets that it becomes.
#[derive(Clone, Debug, Default)]
pub struct Forms {
    by_payload: BTreeMap<u32, Rc<[Inner]>>,
}

/// Why forms are refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FormsError {
    /// More sizes than [`LARGEST_FORMS`].
    TooMany,
    /// A payload of so many bytes stands there twice.
    Twice(u32),
    /// A payload of so many bytes becomes no packet, or too many.
    Count(u32),
}

impl fmt::Display for FormsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooMany => write!(f, "more than {LARGEST_FORMS} sizes"),
            Self::Twice(payload) => write!(f, "a payload of {payload} bytes stands there twice"),
            Self::Count(payload) => write!(
                f,
                "a payload of {payload} bytes must become 1 to {MOST_INNER} packets, each of them 1 \
                 to {MOST_OUTER} on the link"
            ),
        }
    }
}

impl std::error::Error for FormsError {}

impl Forms {
    /// Takes payloads with their packets.
    pub fn new(sizes: impl IntoIterator<Item = (u32, Vec<Inner>)>) -> Result<Self, FormsError> {
        let mut by_payload = BTreeMap::new();
        for (payload, inner) in sizes {
            let counts = |outer: &Inner| (1..=MOST_OUTER).contains(&outer.outer.len());
            if !(1..=MOST_INNER).contains(&inner.len()) || !inner.iter().all(counts) {
                return Err(FormsError::Count(payload));
            }
            if by_payload.insert(payload, Rc::from(inner)).is_some() {
                return Err(FormsError::Twice(payload));
            }
            if by_payload.len() > LARGEST_FORMS {
                return Err(FormsError::TooMany);
            }
        }
        Ok(Self { by_payload })
    }

    /// The packets of a payload; None: it is not among the sizes.
    #[must_use]
    pub fn of(&self, payload_bytes: u32) -> Option<Rc<[Inner]>> {
        self.by_payload.get(&payload_bytes).map(Rc::clone)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn inner(outer: usize) -> Inner {
        Inner {
            bytes: 100,
            outer: vec![120; outer],
        }
    }

    #[test]
    fn what_makes_no_sense_is_refused_with_its_payload() {
        let error = |sizes: Vec<(u32, Vec<Inner>)>| Forms::new(sizes).err();
        assert_eq!(error(vec![(5, vec![])]), Some(FormsError::Count(5)));
        assert_eq!(error(vec![(6, vec![inner(0)])]), Some(FormsError::Count(6)));
        assert_eq!(
            error(vec![(7, vec![inner(65)])]),
            Some(FormsError::Count(7))
        );
        let twice = vec![(8, vec![inner(1)]), (8, vec![inner(2)])];
        assert_eq!(error(twice), Some(FormsError::Twice(8)));
        let forms = Forms::new([(8, vec![inner(1), inner(2)])]).unwrap();
        assert_eq!(forms.of(8).unwrap().len(), 2);
        assert!(forms.of(9).is_none());
    }
}
