//! Whole frames from and to an interface: `AF_PACKET` with a receive ring, batches out.

use std::ffi::CString;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::event::{poll, PollFd, PollFlags};
use tm_wire::{Instant, UnixTime};

use crate::clock;
use crate::platform::clock::timespec;
use crate::IoError;

/// Destination, source and type.
pub const ETHERNET_HEADER_BYTES: usize = 14;
/// Frames that usually can wait to be received.
pub const RING_FRAMES: usize = 8192;
const BLOCK_BYTES: usize = 1 << 18;
/// Room for the ring's own header before a frame (`TPACKET2_HDRLEN` and alignment), and a VLAN tag.
const SLOT_HEADER_BYTES: usize = 112;
/// Frames handed to the kernel in one system call.
pub const BATCH: usize = 64;

/// A frame in the ring; it is given back when this is dropped.
pub struct Frame<'a> {
    /// From destination address, without FCS and without the tag.
    bytes: &'a [u8],
    /// The VLAN tag that the kernel took off on receiving, as it was behind the addresses.
    tag: Option<[u8; TAG_BYTES]>,
    /// Length on the interface without the tag; longer than `bytes` if it did not fit.
    untagged_length: usize,
    /// When the kernel took it, `CLOCK_REALTIME`.
    pub realtime: UnixTime,
    /// Its checksum was left to hardware that is not there: an offload is on.
    pub checksum_missing: bool,
}

/// IEEE Std 802.1Q-2018, 9.5: protocol identifier and control information.
const TAG_BYTES: usize = 4;
/// Where a tag stands: behind both addresses.
const TAG_AT: usize = 12;

impl Frame<'_> {
    /// Length on the interface, tag included.
    #[must_use]
    pub fn length(&self) -> usize {
        self.untagged_length + self.tag.map_or(0, |tag| tag.len())
    }

    /// The frame without the tag.
    #[must_use]
    pub fn untagged(&self) -> &[u8] {
        self.bytes
    }

    /// Whether an interface with this MTU may carry it: a tag comes on top (802.3 clause 3.2.7).
    #[must_use]
    pub fn fits(&self, mtu_bytes: usize) -> bool {
        self.untagged_length <= mtu_bytes + ETHERNET_HEADER_BYTES
    }

    /// Replaces `buffer` by the frame as it was on the wire.
    pub fn copy_to(&self, buffer: &mut Vec<u8>) {
        buffer.clear();
        match (self.tag, self.bytes.split_at_checked(TAG_AT)) {
            (Some(tag), Some((addresses, rest))) => {
                buffer.extend_from_slice(addresses);
                buffer.extend_from_slice(&tag);
                buffer.extend_from_slice(rest);
            }
            _ => buffer.extend_from_slice(self.bytes),
        }
    }
}

/// Receives the frames that come in at an interface, not those that go out.
pub struct Receiver {
    fd: OwnedFd,
    ring: NonNull<u8>,
    ring_bytes: usize,
    slot_bytes: usize,
    next: usize,
    dropped: u64,
}

// SAFETY: the mapping belongs to this value alone and is used by one thread at a time.
unsafe impl Send for Receiver {}

impl Receiver {
    /// Opens the interface; frames of up to `mtu_bytes` and the Ethernet header fit, and so many of
    /// them wait at least.
    pub fn open(interface: &str, mtu_bytes: usize, frames: usize) -> Result<Self, IoError> {
        // Bound with protocol 0 first: nothing is received before the ring and the filters stand.
        let fd = socket(0)?;
        let raw = fd.as_raw_fd();
        set(
            raw,
            libc::PACKET_VERSION,
            &(libc::tpacket_versions::TPACKET_V2 as i32),
            interface,
        )?;
        set(raw, libc::PACKET_IGNORE_OUTGOING, &1_i32, interface)?;
        let wanted = mtu_bytes + ETHERNET_HEADER_BYTES + SLOT_HEADER_BYTES;
        let slot_bytes = wanted.next_power_of_two().max(256);
        let block_bytes = BLOCK_BYTES.max(slot_bytes);
        let blocks = (frames * slot_bytes).div_ceil(block_bytes);
        let ring_bytes = blocks * block_bytes;
        let small = |value: usize| u32::try_from(value).unwrap_or(u32::MAX);
        let request = libc::tpacket_req {
            tp_block_size: small(block_bytes),
            tp_block_nr: small(blocks),
            tp_frame_size: small(slot_bytes),
            tp_frame_nr: small(ring_bytes / slot_bytes),
        };
        set(raw, libc::PACKET_RX_RING, &request, interface)?;
        // SAFETY: maps the ring that was just asked for, shared with the kernel, at an address of
        // the kernel's choice.
        let ring = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                ring_bytes,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED,
                raw,
                0,
            )
        };
        if ring == libc::MAP_FAILED {
            return Err(IoError::last(format!(
                "{interface}: cannot map the receive ring"
            )));
        }
        let Some(ring) = NonNull::new(ring.cast::<u8>()) else {
            return Err(IoError::last(format!(
                "{interface}: the receive ring is at address 0"
            )));
        };
        bind(raw, interface, ALL_PROTOCOLS)?;
        Ok(Self {
            fd,
            ring,
            ring_bytes,
            slot_bytes,
            next: 0,
            dropped: 0,
        })
    }

    /// Calls `take` with each frame that is there, at most `limit`; returns how many.
    pub fn drain(&mut self, limit: usize, mut take: impl FnMut(&Frame<'_>)) -> usize {
        let slots = self.ring_bytes / self.slot_bytes;
        let mut count = 0;
        while count < limit {
            // SAFETY: `next` is below the number of slots, so the slot lies within the mapping.
            let slot = unsafe { self.ring.as_ptr().add(self.next * self.slot_bytes) };
            #[allow(clippy::cast_ptr_alignment)]
            // slots begin at multiples of a power of two, 256 or more
            let header = slot.cast::<libc::tpacket2_hdr>();
            // SAFETY: the status word is shared with the kernel and only touched atomically; slots
            // are aligned to at least 256 bytes.
            let status = unsafe { AtomicU32::from_ptr(&raw mut (*header).tp_status) };
            let bits = status.load(Ordering::Acquire);
            if bits & libc::TP_STATUS_USER == 0 {
                break;
            }
            // SAFETY: with TP_STATUS_USER set the slot is ours until the status is written back.
            let head = unsafe { std::ptr::read_volatile(header) };
            let at = usize::from(head.tp_mac);
            let kept = (head.tp_snaplen as usize).min(self.slot_bytes.saturating_sub(at));
            // SAFETY: the kernel wrote `kept` bytes at offset `at` of this slot.
            let bytes = unsafe { std::slice::from_raw_parts(slot.add(at), kept) };
            let realtime =
                UnixTime(i64::from(head.tp_sec) * 1_000_000_000 + i64::from(head.tp_nsec));
            take(&Frame {
                bytes,
                tag: tag(bits, &head),
                untagged_length: head.tp_len as usize,
                realtime,
                checksum_missing: bits & libc::TP_STATUS_CSUMNOTREADY != 0,
            });
            status.store(libc::TP_STATUS_KERNEL, Ordering::Release);
            self.next = (self.next + 1) % slots;
            count += 1;
        }
        count
    }

    /// Frames that the kernel dropped because the ring was full, in all.
    pub fn dropped(&mut self) -> u64 {
        let mut stats = libc::tpacket_stats {
            tp_packets: 0,
            tp_drops: 0,
        };
        let mut length = libc::socklen_t::try_from(size_of_val(&stats)).unwrap_or(0);
        // SAFETY: `stats` is the structure of this option, `length` its size.
        unsafe {
            libc::getsockopt(
                self.fd.as_raw_fd(),
                libc::SOL_PACKET,
                libc::PACKET_STATISTICS,
                (&raw mut stats).cast(),
                &raw mut length,
            );
        }
        // The kernel counts from 0 again after each reading.
        self.dropped += u64::from(stats.tp_drops);
        self.dropped
    }

    /// Waits for a frame, for `wake`, or until `due`; at most 100 ms.
    pub fn wait(&self, due: Option<Instant>, wake: &Wake) {
        wake.wait_with([self.fd.as_fd()], due);
    }

    /// The same for a frame at one of two interfaces.
    pub fn wait_either(both: [&Self; 2], due: Option<Instant>, wake: &Wake) {
        wake.wait_with(both.map(|receiver| receiver.fd.as_fd()), due);
    }
}

/// The tag that the kernel moved out of the frame; of two it moves the outer one.
fn tag(status: u32, head: &libc::tpacket2_hdr) -> Option<[u8; TAG_BYTES]> {
    if status & libc::TP_STATUS_VLAN_VALID == 0 {
        return None;
    }
    let kind = if status & libc::TP_STATUS_VLAN_TPID_VALID == 0 {
        0x8100
    } else {
        head.tp_vlan_tpid
    };
    let ([a, b], [c, d]) = (kind.to_be_bytes(), head.tp_vlan_tci.to_be_bytes());
    Some([a, b, c, d])
}

fn readable(fd: BorrowedFd<'_>) -> PollFd<'_> {
    PollFd::from_borrowed_fd(fd, PollFlags::IN)
}

impl Drop for Receiver {
    fn drop(&mut self) {
        // SAFETY: the mapping was made with this length and is not used after this.
        unsafe { libc::munmap(self.ring.as_ptr().cast(), self.ring_bytes) };
    }
}

/// Sends frames out of an interface, past its queueing discipline.
pub struct Transmitter {
    fd: OwnedFd,
}

impl Transmitter {
    /// Opens the interface.
    pub fn open(interface: &str) -> Result<Self, IoError> {
        let fd = socket(0)?;
        set(fd.as_raw_fd(), libc::PACKET_QDISC_BYPASS, &1_i32, interface)?;
        bind(fd.as_raw_fd(), interface, 0)?;
        Ok(Self { fd })
    }

    /// Sends at most [`BATCH`] frames in order; returns how many the kernel refused.
    #[must_use]
    pub fn send(&self, frames: &[Vec<u8>]) -> u64 {
        // SAFETY: all-zero is a valid value of these plain structures.
        let (mut vectors, mut headers): ([libc::iovec; BATCH], [libc::mmsghdr; BATCH]) =
            unsafe { (std::mem::zeroed(), std::mem::zeroed()) };
        let count = frames.len().min(BATCH);
        for (index, frame) in frames.iter().take(count).enumerate() {
            // The kernel only reads what is sent.
            vectors[index].iov_base = frame.as_ptr().cast_mut().cast();
            vectors[index].iov_len = frame.len();
            headers[index].msg_hdr.msg_iov = &raw mut vectors[index];
            headers[index].msg_hdr.msg_iovlen = 1;
        }
        let (mut done, mut refused) = (0, 0);
        while done < count {
            let left = u32::try_from(count - done).unwrap_or(0);
            // SAFETY: headers[done..count] point to frames and vectors that outlive the call.
            let sent = unsafe {
                libc::sendmmsg(self.fd.as_raw_fd(), headers[done..].as_mut_ptr(), left, 0)
            };
            match usize::try_from(sent) {
                Ok(sent) => done += sent,
                Err(_) if std::io::Error::last_os_error().raw_os_error() == Some(libc::EINTR) => {}
                Err(_) => {
                    done += 1;
                    refused += 1;
                }
            }
        }
        refused
    }
}

/// Descriptors that a thread waits for beside its [`Wake`].
const MOST_WAITED_FOR: usize = 2;

/// Wakes a thread that waits in [`Receiver::wait`].
pub struct Wake(OwnedFd);

impl Wake {
    /// Makes one.
    pub fn new() -> Result<Self, IoError> {
        // SAFETY: plain integers; the descriptor returned belongs to nobody else.
        let raw = unsafe { libc::eventfd(0, libc::EFD_NONBLOCK | libc::EFD_CLOEXEC) };
        if raw < 0 {
            return Err(IoError::last("eventfd"));
        }
        // SAFETY: just made.
        Ok(Self(unsafe { OwnedFd::from_raw_fd(raw) }))
    }

    /// Wakes.
    pub fn wake(&self) {
        let one = 1_u64;
        // SAFETY: eight bytes, as an eventfd takes them.
        unsafe { libc::write(self.0.as_raw_fd(), (&raw const one).cast(), 8) };
    }

    /// Waits for one of the descriptors, for this, or until `due`; at most 100 ms.
    pub(crate) fn wait_with<const N: usize>(
        &self,
        others: [BorrowedFd<'_>; N],
        due: Option<Instant>,
    ) {
        let now = clock::now();
        let ns = due.map_or(100_000_000, |due| (due - now).0.clamp(0, 100_000_000));
        let time = timespec(ns);
        let mut polls = [(); MOST_WAITED_FOR + 1].map(|()| readable(self.0.as_fd()));
        for (poll, other) in polls[1..].iter_mut().zip(others) {
            *poll = readable(other);
        }
        // A signal is as good an end as the time.
        let _ = poll(&mut polls[..=N.min(MOST_WAITED_FOR)], Some(&time));
        if !polls[0].revents().is_empty() {
            self.clear();
        }
    }

    fn clear(&self) {
        let mut count = 0_u64;
        // SAFETY: eight bytes, as an eventfd gives them.
        unsafe { libc::read(self.0.as_raw_fd(), (&raw mut count).cast(), 8) };
    }
}

/// MTU of an interface in bytes.
pub fn mtu_bytes(interface: &str) -> Result<usize, IoError> {
    let fd = socket(0)?;
    // SAFETY: all-zero is a valid ifreq.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    if interface.len() >= request.ifr_name.len() {
        let error = std::io::Error::from(std::io::ErrorKind::InvalidInput);
        return Err(IoError::new(format!("interface is {interface:?}"), error));
    }
    for (place, byte) in request.ifr_name.iter_mut().zip(interface.bytes()) {
        *place = libc::c_char::from_ne_bytes([byte]); // signed or not, by the architecture
    }
    // SAFETY: `request` holds a terminated name and has room for the answer, an int.
    let mtu = unsafe {
        if libc::ioctl(fd.as_raw_fd(), libc::SIOCGIFMTU as _, &raw mut request) < 0 {
            return Err(IoError::last(format!("interface is {interface:?}")));
        }
        request.ifr_ifru.ifru_mtu
    };
    Ok(usize::try_from(mtu).unwrap_or(0))
}

/// `htons(ETH_P_ALL)`.
#[allow(clippy::cast_possible_truncation)] // 3
const ALL_PROTOCOLS: u16 = (libc::ETH_P_ALL as u16).to_be();
#[allow(clippy::cast_possible_truncation)] // 17
const PACKET_FAMILY: u16 = libc::AF_PACKET as u16;

fn socket(protocol: i32) -> Result<OwnedFd, IoError> {
    // SAFETY: plain integers; the descriptor returned belongs to nobody else.
    let raw = unsafe {
        libc::socket(
            libc::AF_PACKET,
            libc::SOCK_RAW | libc::SOCK_CLOEXEC,
            protocol,
        )
    };
    if raw < 0 {
        return Err(IoError::last(
            "cannot open a packet socket (CAP_NET_RAW is needed)",
        ));
    }
    // SAFETY: just made.
    Ok(unsafe { OwnedFd::from_raw_fd(raw) })
}

fn bind(fd: RawFd, interface: &str, protocol: u16) -> Result<(), IoError> {
    let name = CString::new(interface)
        .map_err(|error| IoError::new(format!("interface is {interface:?}"), error.into()))?;
    // SAFETY: a terminated name.
    let index = unsafe { libc::if_nametoindex(name.as_ptr()) };
    if index == 0 {
        return Err(IoError::last(format!("interface is {interface:?}")));
    }
    // SAFETY: all-zero is a valid sockaddr_ll.
    let mut address: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
    address.sll_family = PACKET_FAMILY;
    address.sll_protocol = protocol;
    address.sll_ifindex = index.cast_signed();
    let length = libc::socklen_t::try_from(size_of_val(&address)).unwrap_or(0);
    // SAFETY: `address` is a sockaddr_ll of the length given.
    let result = unsafe { libc::bind(fd, (&raw const address).cast(), length) };
    if result == 0 {
        Ok(())
    } else {
        Err(IoError::last(format!(
            "cannot bind to the interface {interface}"
        )))
    }
}

fn set<T>(fd: RawFd, option: i32, value: &T, interface: &str) -> Result<(), IoError> {
    let length = libc::socklen_t::try_from(size_of::<T>()).unwrap_or(0);
    // SAFETY: `value` is the structure of this option, of the length given.
    let result = unsafe {
        libc::setsockopt(
            fd,
            libc::SOL_PACKET,
            option,
            std::ptr::from_ref(value).cast(),
            length,
        )
    };
    if result == 0 {
        Ok(())
    } else {
        Err(IoError::last(format!(
            "{interface}: packet socket option {option}"
        )))
    }
}
