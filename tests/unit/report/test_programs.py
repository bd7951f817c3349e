"""What a tunnel was stands beside its figures."""

from dataclasses import replace

import pytest

from made_results import block_record
from tunnelmark.model.block import BlockRecord, Stratum
from tunnelmark.model.tunnel import DataPath, Negotiated
from tunnelmark.report.programs import programs


def block(tunnel: str, version: str, implementation: str, path: DataPath | None) -> BlockRecord:
    agreed = Negotiated(None, version, implementation, 1420, data_path=path)
    return replace(block_record(), tunnel=tunnel, negotiated=(agreed,))


@pytest.mark.parametrize(
    ("one", "line"),
    [
        (
            block("wireguard", "wireguard-go v0.0.2", "wireguard-go", DataPath.USER_SPACE),
            "wireguard: wireguard-go v0.0.2 in user space",
        ),
        (
            block("fast", "WireGuard 1.0.0", "kernel", DataPath.KERNEL_THREADS),
            "fast: WireGuard 1.0.0 in the kernel",
        ),
        (
            block("ipsec", "strongSwan 5.9.8", "libipsec", DataPath.USER_SPACE),
            "ipsec: strongSwan 5.9.8 (libipsec) in user space",
        ),
        (block("old", "OpenVPN 2.6.14", "openvpn", None), "old: OpenVPN 2.6.14"),
        (
            replace(
                block("slow", "OpenVPN 2.6.14", "openvpn", DataPath.USER_SPACE),
                stratum=Stratum.EMULATED,
            ),
            "slow (emulated): OpenVPN 2.6.14 in user space",
        ),
    ],
)
def test_program_version_and_place(one: BlockRecord, line: str) -> None:
    assert programs([one]) == (line,)


def test_how_many_clients_it_had_and_on_what() -> None:
    one = block("openvpn", "OpenVPN 2.6.14", "openvpn", DataPath.USER_SPACE)
    agreed = replace(one.negotiated[0], details={"clients": "3 clients on one link"})
    line = "openvpn: OpenVPN 2.6.14 in user space, 3 clients on one link"
    assert programs([replace(one, negotiated=(agreed, agreed))]) == (line,)


@pytest.mark.parametrize(
    ("details", "words"),
    [
        ({"carrier_congestion_chosen_by": "study"}, "over TCP with bbr"),
        ({"carrier_congestion_chosen_by": "kernel"}, "over TCP with bbr (the kernel's default)"),
        # Simulated, and results of before.
        ({}, "over TCP with bbr"),
        ({"transport": "tcp and udp"}, "over UDP and over TCP with bbr"),
    ],
)
def test_a_tunnel_over_tcp_names_what_holds_its_packets_back(
    details: dict[str, str], words: str
) -> None:
    one = block("openvpn", "OpenVPN 2.6.14", "openvpn", DataPath.USER_SPACE)
    agreed = replace(one.negotiated[0], details={"carrier_congestion": "bbr", **details})
    line = f"openvpn: OpenVPN 2.6.14 in user space, {words}"
    assert programs([replace(one, negotiated=(agreed,))]) == (line,)


def test_a_tunnel_that_ran_as_two_programs_names_both_and_none_none() -> None:
    blocks = [
        block("wireguard", "wireguard-go v0.0.2", "wireguard-go", DataPath.USER_SPACE),
        block("wireguard", "WireGuard 1.0.0", "kernel", DataPath.KERNEL),
        block("none", "", "none", None),
    ]
    assert programs(blocks) == (
        "wireguard: wireguard-go v0.0.2 in user space and WireGuard 1.0.0 in the kernel",
    )


@pytest.mark.parametrize(
    ("base", "own", "words"),
    [
        (0x0A, 0x0A, "DSCP and ECN copied"),
        (0x0A, 0x08, "DSCP but not ECN copied"),
        (0x0A, 0x02, "ECN but not DSCP copied"),
        (0x0A, 0x00, "Neither DSCP nor ECN copied"),
        (0x0A, None, None),
        (0x00, 0x00, None),
        (None, 0x0A, None),
    ],
)
def test_what_of_the_traffic_class_is_copied(
    base: int | None, own: int | None, words: str | None
) -> None:
    seen = with_classes("openvpn", base, own)
    copied = () if words is None else (f"{words} to the packets on the link: openvpn",)
    assert programs([seen]) == ("openvpn: OpenVPN 2.6.14 in user space", *copied)


def with_classes(tunnel: str, base: int | None, own: int | None) -> BlockRecord:
    one = block(tunnel, "OpenVPN 2.6.14", "openvpn", DataPath.USER_SPACE)
    (proof,) = one.proofs[:1]
    return replace(
        one,
        proofs=(replace(proof, traffic_class=own),),
        baseline_proofs=(replace(proof, traffic_class=base),),
    )


def test_tunnels_are_in_order_and_those_that_copy_alike_share_a_line() -> None:
    blocks = [
        with_classes("ssh", 0x0A, 0x00),
        with_classes("gre", 0x0A, 0x0A),
        with_classes("fastd", 0x0A, 0x00),
        with_classes("fastd", 0x0A, 0x00),
    ]
    assert programs(blocks) == (
        "fastd: OpenVPN 2.6.14 in user space",
        "gre: OpenVPN 2.6.14 in user space",
        "ssh: OpenVPN 2.6.14 in user space",
        "DSCP and ECN copied to the packets on the link: gre",
        "Neither DSCP nor ECN copied to the packets on the link: fastd, ssh",
    )
