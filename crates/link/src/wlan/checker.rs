//! What every examination of a configuration needs: where a key stands, and how it is refused.

use super::config::Config;
use crate::error::{place_in, ConfigError};

/// A configuration under examination.
pub(super) struct Checker<'a> {
    pub(super) config: &'a Config,
    pub(super) path: &'a str,
}

impl Checker<'_> {
    /// Where a key stands.
    pub(super) fn place(&self, key: &str) -> String {
        place_in(self.path, key)
    }

    pub(super) fn error<T>(
        &self,
        key: &str,
        reason: impl std::fmt::Display,
    ) -> Result<T, ConfigError> {
        Err(ConfigError::conflict(self.place(key), reason))
    }

    pub(super) fn range<T: PartialOrd + std::fmt::Display>(
        &self,
        key: &str,
        value: T,
        low: T,
        high: T,
    ) -> Result<(), ConfigError> {
        if low <= value && value <= high {
            return Ok(());
        }
        Err(ConfigError::range(self.place(key), value, low, high))
    }

    pub(super) fn one_of<T: PartialEq + std::fmt::Display>(
        &self,
        key: &str,
        value: &T,
        allowed: &[T],
    ) -> Result<(), ConfigError> {
        if allowed.contains(value) {
            return Ok(());
        }
        Err(ConfigError::choice(self.place(key), value, allowed))
    }
}
