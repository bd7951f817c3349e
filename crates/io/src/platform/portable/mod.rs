//! Every other system, by the standard library and two crates that know them all.

pub mod clock;
pub mod files;
pub mod netns;
pub mod process;
mod ready;
mod socket;
mod transfer;

pub use ready::Ready;
pub use socket::Socket;
pub use transfer::Transfer;

#[cfg(test)]
mod tests;
