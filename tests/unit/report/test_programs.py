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


def test_a_tunnel_over_tcp_names_what_holds_its_packets_back() -> None:
    one = block("openvpn", "OpenVPN 2.6.14", "openvpn", DataPath.USER_SPACE)
    agreed = replace(one.negotiated[0], details={"carrier_congestion": "bbr"})
    line = "openvpn: OpenVPN 2.6.14 in user space, over TCP with bbr"
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
        (0x0A, 0x0A, ", DSCP and ECN copied to the packets on the link"),
        (0x0A, 0x08, ", DSCP but not ECN copied to the packets on the link"),
        (0x0A, 0x02, ", ECN but not DSCP copied to the packets on the link"),
        (0x0A, 0x00, ", neither DSCP nor ECN copied to the packets on the link"),
        (0x0A, None, ""),
        (0x00, 0x00, ""),
        (None, 0x0A, ""),
    ],
)
def test_what_of_the_traffic_class_is_copied(base: int | None, own: int | None, words: str) -> None:
    one = block("openvpn", "OpenVPN 2.6.14", "openvpn", DataPath.USER_SPACE)
    (proof,) = one.proofs[:1]
    seen = replace(
        one,
        proofs=(replace(proof, traffic_class=own),),
        baseline_proofs=(replace(proof, traffic_class=base),),
    )
    assert programs([seen]) == (f"openvpn: OpenVPN 2.6.14 in user space{words}",)
