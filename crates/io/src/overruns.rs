//! Drops at full buffers, without packets that the kernel refused because they were damaged.

use std::collections::BTreeSet;
use std::path::PathBuf;

use crate::platform::netns;

/// The kernel's counts of datagrams for which a socket of some network namespaces had no room.
///
/// A socket's own count of drops (`SO_RXQ_OVFL`) holds datagrams with a wrong checksum too, which a
/// link that corrupts makes. These counts do not, but are those of all sockets.
pub struct Overruns {
    start: Option<u64>,
    /// None: that of the program.
    namespaces: BTreeSet<Option<PathBuf>>,
}

impl Overruns {
    /// Reads the counts of the namespaces of sockets at the start of a run; none: the program's own.
    #[must_use]
    pub fn begin<'a>(namespaces: impl Iterator<Item = &'a Option<PathBuf>>) -> Self {
        let namespaces = namespaces.cloned().collect();
        Self {
            start: read(&namespaces),
            namespaces,
        }
    }

    /// How many there were since the start.
    #[must_use]
    pub fn so_far(&self) -> MostOverruns {
        let now = read(&self.namespaces);
        let since = |start| now.map(|now| now.saturating_sub(start));
        let count = self.start.and_then(since);
        MostOverruns(count.map(|count| u32::try_from(count).unwrap_or(u32::MAX)))
    }
}

/// Of a socket's drops at most so many were for want of room; None: the kernel tells nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MostOverruns(Option<u32>);

impl MostOverruns {
    /// The overruns among a socket's drops, of which the kernel may tell nothing either.
    #[must_use]
    pub fn of(self, drops: Option<u32>) -> Option<u32> {
        match (drops, self.0) {
            (Some(drops), Some(most)) => Some(drops.min(most)),
            (known, None) | (None, known) => known,
        }
    }
}

fn read(namespaces: &BTreeSet<Option<PathBuf>>) -> Option<u64> {
    let count = |one: &Option<PathBuf>| netns::within(one.as_deref(), || Ok(own())).ok()?;
    namespaces.iter().map(count).sum()
}

fn own() -> Option<u64> {
    let of = |name: &str| std::fs::read_to_string(format!("/proc/thread-self/net/{name}")).ok();
    let ipv4 = ipv4(&of("snmp")?)?;
    // There is no such file where IPv6 is off.
    Some(ipv4 + of("snmp6").map_or(0, |text| ipv6(&text)))
}

const COUNTS: [&str; 2] = ["RcvbufErrors", "MemErrors"];

/// Sums the counts in `/proc/net/snmp`, which has a line of names and one of values.
fn ipv4(text: &str) -> Option<u64> {
    let mut lines = text
        .lines()
        .filter_map(|line| line.strip_prefix("Udp: "))
        .map(str::split_ascii_whitespace);
    let (names, values) = (lines.next()?, lines.next()?);
    names
        .zip(values)
        .filter(|(name, _)| COUNTS.contains(name))
        .map(|(_, value)| value.parse::<u64>().ok())
        .sum()
}

/// Sums the counts in `/proc/net/snmp6`, which has one per line.
fn ipv6(text: &str) -> u64 {
    text.lines()
        .filter_map(|line| line.strip_prefix("Udp6")?.split_once(char::is_whitespace))
        .filter(|(name, _)| COUNTS.contains(name))
        .filter_map(|(_, value)| value.trim().parse::<u64>().ok())
        .sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_counts_are_found_by_their_names() {
        let snmp = "Ip: Forwarding\nIp: 1\nUdp: InDatagrams RcvbufErrors InCsumErrors MemErrors\n\
                    Udp: 100 5 7 2\nUdpLite: InDatagrams RcvbufErrors\nUdpLite: 1 9\n";
        assert_eq!(ipv4(snmp), Some(7));
        assert_eq!(ipv4("Udp: RcvbufErrors\nUdp: none\n"), None);
        assert_eq!(ipv4(""), None);
        let snmp6 = "Udp6InDatagrams   \t9\nUdp6RcvbufErrors   \t4\nUdp6MemErrors \t1\n\
                     Udp6InCsumErrors \t3\nUdpLite6RcvbufErrors \t8\n";
        assert_eq!(ipv6(snmp6), 5);
    }

    #[test]
    fn without_an_overrun_in_the_namespace_no_drop_is_one() {
        let mut overruns = Overruns::begin([None].iter());
        overruns.start = Some(u64::MAX);
        assert_eq!(overruns.so_far().of(Some(3)), Some(0));
        overruns.start = None;
        assert_eq!(overruns.so_far().of(Some(3)), Some(3));
        assert_eq!(overruns.so_far().of(None), None);
    }
}
