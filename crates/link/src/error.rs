//! Why what came in from outside is refused: the place, the value and the limit.

use std::fmt;

/// A configuration that cannot be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigError {
    /// Key by key from the outermost object on, such as `a_to_b.loss.probability`
    pub place: String,
    /// What is wrong there
    pub fault: Fault,
}

/// What is wrong at a place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Beyond its limits, both of which are allowed
    Range {
        /// The value
        value: String,
        /// Smallest
        least: String,
        /// Largest
        most: String,
    },
    /// None of the values there are
    Choice {
        /// The value
        value: String,
        /// All that are allowed
        allowed: Vec<String>,
    },
    /// At odds with another key or with the standard: the rest of the sentence
    Conflict(String),
}

impl ConfigError {
    /// The value must be within limits, both of which are allowed.
    pub(crate) fn range<T: fmt::Display>(place: String, value: T, least: T, most: T) -> Self {
        let [value, least, most] = [value, least, most].map(|one| one.to_string());
        let fault = Fault::Range { value, least, most };
        Self { place, fault }
    }

    /// The value must be one of these.
    pub(crate) fn choice<T: fmt::Display>(place: String, value: &T, allowed: &[T]) -> Self {
        let fault = Fault::Choice {
            value: value.to_string(),
            allowed: allowed.iter().map(ToString::to_string).collect(),
        };
        Self { place, fault }
    }

    /// The place is at odds with something else; `reason` goes on with the sentence.
    pub(crate) fn conflict(place: String, reason: impl fmt::Display) -> Self {
        let fault = Fault::Conflict(reason.to_string());
        Self { place, fault }
    }
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let place = &self.place;
        match &self.fault {
            Fault::Range { value, least, most } => {
                write!(f, "{place} is {value}, must be {least} to {most}")
            }
            Fault::Choice { value, allowed } => {
                write!(
                    f,
                    "{place} is {value}, must be one of {}",
                    allowed.join(", ")
                )
            }
            Fault::Conflict(reason) => write!(f, "{place} {reason}"),
        }
    }
}

impl std::error::Error for ConfigError {}

/// Where a key stands in a configuration that stands at `path`.
pub(crate) fn place_in(path: &str, key: &str) -> String {
    let dot = if path.is_empty() { "" } else { "." };
    format!("{path}{dot}{key}")
}

/// A trace that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TraceError {
    /// A line is no millisecond within the limit
    Line {
        /// From 1
        line: usize,
        /// Its first characters
        text: String,
        /// Largest millisecond
        most_ms: u64,
    },
    /// A line goes back in time
    Backwards {
        /// From 1
        line: usize,
        /// Its millisecond
        ms: u64,
        /// That of the line before
        before_ms: u64,
    },
    /// No line at all
    Empty,
    /// It is repeated, so it must last
    EndsAtZero,
}

impl fmt::Display for TraceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Line {
                line,
                text,
                most_ms,
            } => write!(
                f,
                "line {line} is {text:?}, must be a millisecond from 0 to {most_ms}"
            ),
            Self::Backwards {
                line,
                ms,
                before_ms,
            } => write!(f, "line {line} is {ms}, before the {before_ms} above it"),
            Self::Empty => f.write_str("has no opportunity"),
            Self::EndsAtZero => f.write_str("ends at 0 ms, must end later: it is repeated"),
        }
    }
}

impl std::error::Error for TraceError {}
