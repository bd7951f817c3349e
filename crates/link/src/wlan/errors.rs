//! Frame errors: none, a fixed probability, or from the signal-to-noise ratio.

use super::phy::Mode;
use super::snr::log_bit_survival;
use crate::random::Random;

/// How frames get lost beside collisions.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum ErrorModel {
    /// Never
    None,
    /// Each MPDU with data with the same probability, control frames never
    Fixed {
        /// 0 to 1
        probability: f64,
    },
    /// By rate and length, control frames too
    Snr {
        /// Signal-to-noise ratio over the channel's width, dB
        snr_db: f64,
    },
}

/// A rate with its losses.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rated {
    pub mode: Mode,
    loss: Loss,
}

#[derive(Clone, Copy, Debug)]
enum Loss {
    Never,
    Frame(f64),
    /// ln of the survival of one bit
    Bit(f64),
}

impl Rated {
    /// A rate for data.
    pub(super) fn data(mode: Mode, errors: ErrorModel) -> Self {
        let loss = match errors {
            ErrorModel::None => Loss::Never,
            ErrorModel::Fixed { probability } => Loss::Frame(probability),
            ErrorModel::Snr { snr_db } => Loss::Bit(log_bit_survival(&mode, snr_db)),
        };
        Self { mode, loss }
    }

    /// A rate for control frames.
    pub(super) fn control(mode: Mode, errors: ErrorModel) -> Self {
        match errors {
            ErrorModel::Fixed { .. } => Self {
                mode,
                loss: Loss::Never,
            },
            _ => Self::data(mode, errors),
        }
    }

    /// Whether a frame of that length gets lost.
    pub(super) fn loses(&self, bytes: u32, random: &mut Random) -> bool {
        match self.loss {
            Loss::Never => false,
            Loss::Frame(probability) => random.chance(probability),
            Loss::Bit(ln) => random.chance(-libm::expm1(f64::from(bytes) * 8.0 * ln)),
        }
    }
}
