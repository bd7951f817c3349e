//! What differs between operating systems: Linux has everything, all others send and reflect.
//!
//! Both halves have the same modules with the same names. Without Linux there is no kernel time of
//! arrival, so every time is the program's and marked as such, no count of overruns, no real-time
//! priority and no network namespace; what cannot be had is refused by name. The feature `portable`
//! takes that half on Linux too, where its tests run.

#[cfg(not(any(target_os = "linux", feature = "portable")))]
compile_error!("not Linux: build with --features portable");

#[cfg(not(feature = "portable"))]
mod linux;
#[cfg(not(feature = "portable"))]
pub use linux::*;
#[cfg(feature = "portable")]
mod portable;
#[cfg(feature = "portable")]
pub use portable::*;
