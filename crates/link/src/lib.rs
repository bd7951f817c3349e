//! Placeholder crate root, filled by its first commit.

pub mod wlan;
