//! What the kernel and a program say beside a packet (`cmsg(3)`).
//!
//! Lengths are `as _` here and where they are handed over: each C library has types of its own for them.

use std::mem::size_of;

use tm_wire::UnixTime;

/// Room for a timestamp, an overrun count and a time to live, aligned as control messages are.
pub const CONTROL_WORDS: usize = 16;
/// Room for the length at which the kernel cuts.
pub const CUT_WORDS: usize = 3;

/// The option that has the kernel tell when a packet came, in 64 bits for the seconds and 64 for the ns.
///
/// On 32-bit machines that is `SO_TIMESTAMPNS_NEW` (`asm-generic/socket.h`, Linux 5.1): what is older there
/// has 32 bits, and ends in 2038.
pub const TIMESTAMP: i32 = if cfg!(target_pointer_width = "64") {
    libc::SO_TIMESTAMPNS
} else {
    64
};

/// What the kernel says beside a packet.
#[derive(Default)]
pub struct Ancillary {
    /// When it came.
    pub time: Option<UnixTime>,
    /// Packets that were dropped at the socket so far.
    pub overrun: Option<u32>,
    /// Or the hop limit.
    pub time_to_live: Option<u8>,
}

/// Reads the control messages of a message that the kernel filled in.
pub fn ancillary(header: &libc::msghdr) -> Ancillary {
    let mut found = Ancillary::default();
    // SAFETY: the kernel filled msg_control up to msg_controllen; the CMSG macros stay inside, and
    // the data of each kind is read unaligned, in the size that the kernel writes.
    unsafe {
        let mut message = libc::CMSG_FIRSTHDR(header);
        while !message.is_null() {
            let data = libc::CMSG_DATA(message);
            match ((*message).cmsg_level, (*message).cmsg_type) {
                (libc::SOL_SOCKET, TIMESTAMP) => {
                    let [s, ns]: [i64; 2] = std::ptr::read_unaligned(data.cast());
                    found.time = Some(UnixTime(s * 1_000_000_000 + ns));
                }
                (libc::SOL_SOCKET, libc::SO_RXQ_OVFL) => {
                    found.overrun = Some(std::ptr::read_unaligned(data.cast::<u32>()));
                }
                (libc::IPPROTO_IP, libc::IP_TTL) | (libc::IPPROTO_IPV6, libc::IPV6_HOPLIMIT) => {
                    let value = std::ptr::read_unaligned(data.cast::<i32>());
                    found.time_to_live = u8::try_from(value).ok();
                }
                _ => {}
            }
            message = libc::CMSG_NXTHDR(header, message);
        }
    }
    found
}

/// Has the kernel cut a message into packets of `bytes`.
pub fn cut_into(header: &mut libc::msghdr, control: &mut [u64; CUT_WORDS], bytes: u16) {
    let wanted = u32::try_from(size_of::<u16>()).unwrap_or(0);
    // SAFETY: `control` has room for one message of two bytes, aligned as control messages are, and
    // the caller keeps it in place until the message has been sent.
    unsafe {
        header.msg_control = control.as_mut_ptr().cast();
        header.msg_controllen = libc::CMSG_SPACE(wanted) as _;
        let message = libc::CMSG_FIRSTHDR(header);
        (*message).cmsg_level = libc::SOL_UDP;
        (*message).cmsg_type = libc::UDP_SEGMENT;
        (*message).cmsg_len = libc::CMSG_LEN(wanted) as _;
        std::ptr::write_unaligned(libc::CMSG_DATA(message).cast::<u16>(), bytes);
    }
}
