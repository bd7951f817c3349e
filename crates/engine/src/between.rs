//! What is between two ends: a wire each way, or a medium that both share.

use std::sync::Arc;

use serde::Deserialize;
use tm_link::wlan::Config;
use tm_link::{ConfigError, DirectionConfig, Opportunities, LARGEST_TRACE_BYTES};

use crate::flow::read_bounded;
use crate::{config, Failure};

/// A medium that both directions share.
#[derive(Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum MediumConfig {
    /// IEEE 802.11.
    Wlan(Box<Config>),
}

/// What is between two ends.
pub enum Between {
    /// Forward and reverse.
    Wire(Box<[DirectionConfig; 2]>),
    /// What both share.
    Wlan(Box<Config>),
}

impl Between {
    /// Examines it, but for traces.
    pub fn check(
        a_to_b: Option<DirectionConfig>,
        b_to_a: Option<DirectionConfig>,
        medium: Option<MediumConfig>,
    ) -> Result<Self, Failure> {
        match (a_to_b, b_to_a, medium) {
            (Some(a_to_b), Some(b_to_a), None) => {
                a_to_b.check("a_to_b")?;
                b_to_a.check("b_to_a")?;
                Ok(Self::Wire(Box::new([a_to_b, b_to_a])))
            }
            (None, None, Some(MediumConfig::Wlan(medium))) => {
                medium.setup(MEDIUM)?;
                Ok(Self::Wlan(medium))
            }
            _ => config::wrong("a_to_b and b_to_a must both be set, or medium alone"),
        }
    }
}

/// Where a medium stands in a configuration.
pub const MEDIUM: &str = "medium";

/// A direction with the opportunities of its trace.
pub fn with_trace(
    place: &str,
    config: DirectionConfig,
) -> Result<(DirectionConfig, Option<Arc<Opportunities>>), Failure> {
    let Some(trace) = &config.trace else {
        return Ok((config, None));
    };
    let at = format!("{place}.trace.path");
    let text = read_bounded(&at, &trace.path, LARGEST_TRACE_BYTES)?;
    let opportunities = Opportunities::parse(&text, trace.opportunity_bytes)
        .map_err(|error| Failure::Config(format!("{at}: {}: {error}", trace.path.display())))?;
    Ok((config, Some(Arc::new(opportunities))))
}

impl From<ConfigError> for Failure {
    fn from(error: ConfigError) -> Self {
        Self::Config(error.to_string())
    }
}
