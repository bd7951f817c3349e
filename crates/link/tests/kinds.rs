//! Frames by what their headers say: every frame counts once, whatever is in it.

use proptest::prelude::*;
use tm_link::{Kind, Kinds, MOST_KINDS};

fn frame(ether_type: u16, packet: &[u8]) -> Vec<u8> {
    let mut frame = vec![0; 12];
    frame.extend(ether_type.to_be_bytes());
    frame.extend(packet);
    frame
}

fn ipv4(protocol: u8, fragment: u16, payload: &[u8]) -> Vec<u8> {
    let mut packet = vec![0x45, 0, 0, 0, 0, 0];
    packet.extend(fragment.to_be_bytes());
    packet.extend([64, protocol, 0, 0, 198, 18, 0, 1, 198, 18, 0, 2]);
    packet.extend(payload);
    packet
}

fn ipv6(next: u8, payload: &[u8]) -> Vec<u8> {
    let mut packet = vec![0x60, 0, 0, 0, 0, 0, next, 64];
    packet.extend([0; 32]);
    packet.extend(payload);
    packet
}

fn kind(ether_type: u16, protocol: u8, port: u16, later_fragment: bool) -> Kind {
    Kind {
        ether_type,
        protocol,
        ports: [port, 0],
        later_fragment,
    }
}

const UDP_1194: [u8; 8] = [0x9C, 0x40, 0x04, 0xAA, 0, 8, 0, 0];

#[test]
fn headers_are_read() {
    let udp = kind(0x0800, 17, 1194, false);
    assert_eq!(Kind::of(&frame(0x0800, &ipv4(17, 0, &UDP_1194))), udp);
    // Answers have the ports the other way round.
    let answer = [0x04, 0xAA, 0x9C, 0x40, 0, 8, 0, 0];
    assert_eq!(Kind::of(&frame(0x0800, &ipv4(17, 0, &answer))), udp);
    // The first fragment has ports, the later ones have none.
    assert_eq!(Kind::of(&frame(0x0800, &ipv4(17, 0x2000, &UDP_1194))), udp);
    let later = kind(0x0800, 17, 0, true);
    assert_eq!(Kind::of(&frame(0x0800, &ipv4(17, 185, &UDP_1194))), later);
    assert_eq!(
        Kind::of(&frame(0x0800, &ipv4(50, 0, &[1, 2, 3, 4]))),
        kind(0x0800, 50, 0, false)
    );
    assert_eq!(
        Kind::of(&frame(0x0800, &ipv4(1, 0, &[3, 4]))),
        kind(0x0800, 1, 3, false)
    );
    assert_eq!(
        Kind::of(&frame(0x88E5, &[1, 2, 3])),
        kind(0x88E5, 0, 0, false)
    );
}

#[test]
fn of_two_ports_that_a_kernel_chose_both_count() {
    // WireGuard's 51820, and a client's own port below it.
    let wireguard = [0xCA, 0x6C, 0x80, 0x00, 0, 8, 0, 0];
    assert_eq!(
        Kind::of(&frame(0x0800, &ipv4(17, 0, &wireguard))).ports,
        [32_768, 51_820]
    );
}

#[test]
fn ipv6_is_read_behind_its_extension_headers() {
    let udp = kind(0x86DD, 17, 1194, false);
    assert_eq!(Kind::of(&frame(0x86DD, &ipv6(17, &UDP_1194))), udp);
    let mut options = vec![17, 0, 0, 0, 0, 0, 0, 0];
    options.extend(UDP_1194);
    assert_eq!(Kind::of(&frame(0x86DD, &ipv6(60, &options))), udp);
    let mut first = vec![17, 0, 0, 1, 0, 0, 0, 9];
    first.extend(UDP_1194);
    assert_eq!(Kind::of(&frame(0x86DD, &ipv6(44, &first))), udp);
    let later = [17, 0, 0x05, 0xA9, 0, 0, 0, 9, 1, 2, 3, 4];
    assert_eq!(
        Kind::of(&frame(0x86DD, &ipv6(44, &later))),
        kind(0x86DD, 17, 0, true)
    );
    assert_eq!(
        Kind::of(&frame(0x86DD, &ipv6(58, &[135, 0, 0, 0]))),
        kind(0x86DD, 58, 135, false)
    );
}

#[test]
fn tags_are_passed_over() {
    let mut tagged = vec![0, 1, 0x08, 0x00];
    tagged.extend(ipv4(17, 0, &UDP_1194));
    assert_eq!(
        Kind::of(&frame(0x8100, &tagged)),
        kind(0x0800, 17, 1194, false)
    );
}

proptest! {
    #[test]
    fn any_bytes_can_be_read_and_every_frame_counts_once(
        frames in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..120), 0..300)
    ) {
        let mut kinds = Kinds::default();
        for frame in &frames {
            kinds.note(frame);
        }
        let counted: u64 = kinds.counts().iter().map(|(_, count)| count).sum();
        prop_assert_eq!(counted + kinds.others(), frames.len() as u64);
        prop_assert!(kinds.counts().len() <= MOST_KINDS);
    }

    #[test]
    fn each_kind_has_its_own_count(ports in prop::collection::vec(1_u16..40, 0..300)) {
        let mut kinds = Kinds::default();
        for port in &ports {
            let mut udp = UDP_1194;
            udp[2..4].copy_from_slice(&port.to_be_bytes());
            kinds.note(&frame(0x0800, &ipv4(17, 0, &udp)));
        }
        for (kind, count) in kinds.counts() {
            let wanted = ports.iter().filter(|port| **port == kind.ports[0]).count() as u64;
            prop_assert_eq!(*count, wanted);
        }
        prop_assert_eq!(kinds.others(), 0);
    }
}

#[test]
fn the_ports_of_64_tunnels_over_tcp_and_udp_all_have_a_place() {
    let mut kinds = Kinds::default();
    for port in 1_194_u16..1_194 + 64 {
        for protocol in [6, 17] {
            let mut payload = UDP_1194;
            payload[2..4].copy_from_slice(&port.to_be_bytes());
            kinds.note(&frame(0x0800, &ipv4(protocol, 0, &payload)));
        }
    }
    assert_eq!((kinds.counts().len(), kinds.others()), (128, 0));
}
