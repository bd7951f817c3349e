//! Real radios on the modelled medium: the frames of Linux' simulated radios (`mac80211_hwsim`) take
//! the airtime of [`crate::wlan`]. No clock and no socket here either.
//!
//! [`netlink`] frames messages, [`hwsim`] knows those of the simulated radios, [`header`] reads what
//! the medium must know of an 802.11 frame, and [`Air`] carries frames from one radio to the other.

mod air;
pub mod header;
pub mod hwsim;
pub mod netlink;

pub use air::{Air, Event, Sent, PENDING_MAX};

/// A MAC address.
pub type Address = [u8; 6];
