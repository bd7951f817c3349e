//! Messages of `mac80211_hwsim` over generic netlink, as its header file in Linux numbers them.

use super::header::SHORTEST_BYTES;
use super::netlink::{attributes, Malformed, Writer, REQUEST, REQUEST_ACK};
use super::Address;
use crate::wlan::{Rate, CHAIN_LENGTH, DSSS_RATES, OFDM_RATES};

/// Name of the family.
pub const FAMILY: &str = "MAC80211_HWSIM";
/// A frame on its way from or to a radio.
pub const FRAME: u8 = 2;

/// Longest frame that the kernel takes from a medium: `IEEE80211_MAX_DATA_LEN`, header included.
pub const FRAME_MAX_BYTES: usize = 2_304;

const REGISTER: u8 = 1;
const TX_INFO_FRAME: u8 = 3;
const NEW_RADIO: u8 = 4;

mod attribute {
    pub const ADDR_RECEIVER: u16 = 1;
    pub const ADDR_TRANSMITTER: u16 = 2;
    pub const FRAME: u16 = 3;
    pub const FLAGS: u16 = 4;
    pub const RX_RATE: u16 = 5;
    pub const SIGNAL: u16 = 6;
    pub const TX_INFO: u16 = 7;
    pub const COOKIE: u16 = 8;
    pub const CHANNELS: u16 = 9;
    pub const REG_CUSTOM_REG: u16 = 12;
    pub const DESTROY_RADIO_ON_CLOSE: u16 = 16;
    pub const RADIO_NAME: u16 = 17;
    pub const NO_VIF: u16 = 18;
    pub const FREQ: u16 = 19;
    pub const TX_INFO_FLAGS: u16 = 21;
    pub const PERM_ADDR: u16 = 22;
}

/// Flags of a frame.
mod flag {
    pub const NO_ACK: u32 = 1 << 1;
    pub const STAT_ACK: u32 = 1 << 2;
}

/// Flags of a rate.
mod rate_flag {
    pub const RTS_CTS: u16 = 1 << 0;
    pub const CTS_PROTECT: u16 = 1 << 1;
    pub const SHORT_PREAMBLE: u16 = 1 << 2;
    pub const MCS: u16 = 1 << 3;
    pub const GREENFIELD: u16 = 1 << 4;
    pub const WIDTH_40: u16 = 1 << 5;
    pub const SHORT_GUARD: u16 = 1 << 7;
    /// Duplicate of a legacy rate, VHT, 80 and 160 MHz
    pub const UNKNOWN: u16 = !0xbf;
}

/// Received signal of every frame, dBm: strong, since errors are the medium's to decide.
const SIGNAL_DBM: i32 = -30;
/// Rates of the 2.4 GHz band in the order of the kernel's table; the 5 GHz band has those of OFDM.
const LEGACY_RATES: usize = DSSS_RATES.len() + OFDM_RATES.len();

/// One entry of the sender's list of rates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TxRate {
    /// Index or MCS; negative: the list ends
    pub index: i8,
    /// Attempts
    pub count: u8,
    /// How
    pub flags: u16,
}

/// No more rates.
pub const NO_RATE: TxRate = TxRate {
    index: -1,
    count: 0,
    flags: 0,
};

impl TxRate {
    /// The rate in the words of the medium; `None` if it is none that the medium knows.
    #[must_use]
    pub fn rate(&self, frequency_mhz: u32) -> Option<Rate> {
        let number = usize::try_from(self.index).ok()?;
        if self.flags & rate_flag::UNKNOWN != 0 {
            return None;
        }
        if self.flags & rate_flag::MCS != 0 {
            return Some(Rate::Ht {
                mcs: u8::try_from(number).ok()?,
                wide: self.flags & rate_flag::WIDTH_40 != 0,
                short_guard: self.flags & rate_flag::SHORT_GUARD != 0,
                greenfield: self.flags & rate_flag::GREENFIELD != 0,
            });
        }
        let number = number
            + if in_2ghz(frequency_mhz) {
                0
            } else {
                DSSS_RATES.len()
            };
        let rate_bit_s = DSSS_RATES.iter().chain(&OFDM_RATES).nth(number)?;
        Some(Rate::Legacy {
            rate_bit_s: *rate_bit_s,
            short_preamble: self.flags & rate_flag::SHORT_PREAMBLE != 0,
        })
    }

    /// RTS and CTS before the frame.
    #[must_use]
    pub fn reserve(&self) -> bool {
        self.flags & rate_flag::RTS_CTS != 0
    }

    /// A CTS to oneself before the frame.
    #[must_use]
    pub fn protect(&self) -> bool {
        self.flags & rate_flag::CTS_PROTECT != 0
    }
}

/// A frame that a radio sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outgoing<'a> {
    /// The radio, by the address it was made with
    pub radio: Address,
    /// 802.11 without FCS
    pub frame: &'a [u8],
    /// The kernel's flags, to be given back
    pub flags: u32,
    /// Rates in order
    pub rates: [TxRate; CHAIN_LENGTH],
    /// The kernel's name for the frame
    pub cookie: u64,
    /// Centre of its channel
    pub frequency_mhz: u32,
}

impl Outgoing<'_> {
    /// Whether nobody is to acknowledge it.
    #[must_use]
    pub fn no_ack(&self) -> bool {
        self.flags & flag::NO_ACK != 0
    }
}

/// Read the attributes of a frame that a radio sends.
pub fn outgoing(bytes: &[u8]) -> Result<Outgoing<'_>, Malformed> {
    let (mut radio, mut frame, mut flags) = (None, None, None);
    let (mut cookie, mut frequency) = (None, None);
    let (mut indices, mut rate_flags) = (None, None);
    for one in attributes(bytes) {
        let (kind, value) = one?;
        match kind {
            attribute::ADDR_TRANSMITTER => radio = Some(exactly::<6>("transmitter", value)?),
            attribute::FRAME => frame = Some(value),
            attribute::FLAGS => flags = Some(u32::from_ne_bytes(exactly("flags", value)?)),
            attribute::COOKIE => cookie = Some(u64::from_ne_bytes(exactly("cookie", value)?)),
            attribute::FREQ => frequency = Some(u32::from_ne_bytes(exactly("frequency", value)?)),
            attribute::TX_INFO => {
                indices = Some(exactly::<{ 2 * CHAIN_LENGTH }>("rates", value)?);
            }
            attribute::TX_INFO_FLAGS => {
                rate_flags = Some(exactly::<{ 3 * CHAIN_LENGTH }>("rate flags", value)?);
            }
            _ => {} // newer kernels tell more
        }
    }
    let frame = frame.ok_or_else(|| missing("frame"))?;
    if !(SHORTEST_BYTES..=FRAME_MAX_BYTES).contains(&frame.len()) {
        return Err(Malformed(format!(
            "frame: is {} bytes long, must be {SHORTEST_BYTES} to {FRAME_MAX_BYTES}",
            frame.len()
        )));
    }
    let indices = indices.ok_or_else(|| missing("rates"))?;
    let rate_flags = rate_flags.ok_or_else(|| missing("rate flags"))?;
    Ok(Outgoing {
        radio: radio.ok_or_else(|| missing("transmitter"))?,
        frame,
        flags: flags.ok_or_else(|| missing("flags"))?,
        rates: std::array::from_fn(|i| TxRate {
            index: indices[2 * i].cast_signed(),
            count: indices[2 * i + 1],
            flags: u16::from_ne_bytes([rate_flags[3 * i + 1], rate_flags[3 * i + 2]]),
        }),
        cookie: cookie.ok_or_else(|| missing("cookie"))?,
        frequency_mhz: frequency.ok_or_else(|| missing("frequency"))?,
    })
}

/// What becomes of a frame, for the radio that sent it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Status {
    /// The radio, by the address it was made with
    pub radio: Address,
    /// Flags as they came with the frame
    pub flags: u32,
    /// Its name
    pub cookie: u64,
    /// Rates with the attempts that were made
    pub rates: [TxRate; CHAIN_LENGTH],
    /// It was acknowledged
    pub acknowledged: bool,
}

/// Tell a radio what became of its frame.
pub fn put_status(writer: &mut Writer, family: u16, sequence: u32, status: &Status) {
    let mut rates = [0; 2 * CHAIN_LENGTH];
    for (place, rate) in rates.chunks_exact_mut(2).zip(&status.rates) {
        place.copy_from_slice(&[rate.index.cast_unsigned(), rate.count]);
    }
    let acknowledged = if status.acknowledged {
        flag::STAT_ACK
    } else {
        0
    };
    writer
        .begin(family, REQUEST, sequence, TX_INFO_FRAME)
        .put(attribute::ADDR_TRANSMITTER, &status.radio)
        .put(
            attribute::FLAGS,
            &(status.flags | acknowledged).to_ne_bytes(),
        )
        .put(attribute::SIGNAL, &SIGNAL_DBM.to_ne_bytes())
        .put(attribute::TX_INFO, &rates)
        .put(attribute::COOKIE, &status.cookie.to_ne_bytes());
}

/// A frame for the radio that hears it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Heard<'a> {
    /// The radio, by the address it was made with
    pub radio: Address,
    /// 802.11 without FCS
    pub frame: &'a [u8],
    /// Nominal rate
    pub rate_bit_s: u64,
    /// Centre of the channel
    pub frequency_mhz: u32,
}

/// Hand a frame to the radio that hears it.
pub fn put_frame(writer: &mut Writer, family: u16, sequence: u32, heard: &Heard<'_>) {
    let rate_index = legacy_index(heard.rate_bit_s, heard.frequency_mhz);
    writer
        .begin(family, REQUEST, sequence, FRAME)
        .put(attribute::ADDR_RECEIVER, &heard.radio)
        .put(attribute::FRAME, heard.frame)
        .put(attribute::RX_RATE, &rate_index.to_ne_bytes())
        .put(attribute::SIGNAL, &SIGNAL_DBM.to_ne_bytes())
        .put(attribute::FREQ, &heard.frequency_mhz.to_ne_bytes());
}

/// Ask to be the medium of all radios of the namespace.
pub fn put_register(writer: &mut Writer, family: u16, sequence: u32) {
    writer.begin(family, REQUEST_ACK, sequence, REGISTER);
}

/// Ask for a radio of one channel without an interface, which goes when the socket is closed.
///
/// The custom regulatory domain 0 of hwsim lets access points work in the 5 GHz band with 40 MHz.
pub fn put_new_radio(writer: &mut Writer, family: u16, sequence: u32, name: &str, own: &Address) {
    let mut text = name.as_bytes().to_vec();
    text.push(0);
    writer
        .begin(family, REQUEST_ACK, sequence, NEW_RADIO)
        .put(attribute::CHANNELS, &1_u32.to_ne_bytes())
        .put(attribute::RADIO_NAME, &text)
        .put(attribute::PERM_ADDR, own)
        .put(attribute::NO_VIF, &[])
        .put(attribute::DESTROY_RADIO_ON_CLOSE, &[])
        .put(attribute::REG_CUSTOM_REG, &0_u32.to_ne_bytes());
}

/// Index of a rate for the receiver, which knows legacy rates only: an HT rate becomes the
/// fastest of those that is not faster.
#[must_use]
pub fn legacy_index(rate_bit_s: u64, frequency_mhz: u32) -> u32 {
    let all = || DSSS_RATES.iter().chain(&OFDM_RATES);
    let number = all().position(|&one| one == rate_bit_s).unwrap_or_else(|| {
        let slower = OFDM_RATES.iter().filter(|&&one| one <= rate_bit_s).count();
        DSSS_RATES.len() + slower.saturating_sub(1)
    });
    let first = if in_2ghz(frequency_mhz) {
        0
    } else {
        DSSS_RATES.len()
    };
    u32::try_from(number.saturating_sub(first).min(LEGACY_RATES)).unwrap_or(0)
}

fn in_2ghz(frequency_mhz: u32) -> bool {
    frequency_mhz < 4_000
}

fn exactly<const N: usize>(what: &str, value: &[u8]) -> Result<[u8; N], Malformed> {
    value.try_into().map_err(|_| {
        Malformed(format!(
            "{what}: is {} bytes long, must be {N}",
            value.len()
        ))
    })
}

fn missing(what: &str) -> Malformed {
    Malformed(format!("{what}: is not there"))
}
