//! What the sender of a TCP connection knows of its round-trip time.

use tm_wire::Duration;

/// RFC 6298 section 2.1.
const INITIAL_TIMEOUT: Duration = Duration::from_secs(1);
/// Linux waits so long beyond the smoothed RTT at least (`TCP_RTO_MIN`).
const LEAST_MARGIN: Duration = Duration::from_millis(200);

/// The round-trip time as the sender estimates it (RFC 6298).
#[derive(Default)]
pub struct Rtt {
    /// None before the first sample.
    pub smoothed: Option<Duration>,
    variation: Duration,
    /// The shortest one.
    pub least: Duration,
}

impl Rtt {
    /// Takes a measured one.
    pub fn sample(&mut self, rtt: Duration) {
        let Some(smoothed) = self.smoothed else {
            self.smoothed = Some(rtt);
            self.variation = rtt / 2;
            self.least = rtt;
            return;
        };
        let off = (smoothed - rtt).abs();
        self.variation += (off - self.variation) / 4;
        self.smoothed = Some(smoothed + (rtt - smoothed) / 8);
        self.least = self.least.min(rtt);
    }

    /// How long a sender waits for an acknowledgement at first.
    pub fn timeout(&self) -> Duration {
        self.smoothed.map_or(INITIAL_TIMEOUT, |smoothed| {
            smoothed + LEAST_MARGIN.max(self.variation.saturating_mul(4))
        })
    }
}
