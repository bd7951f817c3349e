//! Linux.

pub mod clock;
mod control;
pub mod files;
pub mod netns;
pub mod process;
mod ready;
pub mod socket;
mod transfer;

pub use ready::Ready;
pub use socket::Socket;
pub use transfer::Transfer;
