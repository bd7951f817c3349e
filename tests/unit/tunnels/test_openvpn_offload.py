"""Which module of the kernel an OpenVPN uses: 2.6 one of its own, 2.7 the kernel's."""

from typing import Any

import pytest

from tunnelmark.tunnels.openvpn import OpenVpnTunnel
from tunnelmark.tunnels.openvpn.params import OpenVpnParams
from tunnelmark.tunnels.openvpn.wire import data_channel


@pytest.mark.parametrize(
    ("version", "modules", "reason"),
    [
        ("2.6.14", {"ovpn_dco_v2"}, None),
        ("2.7.8", {"ovpn"}, None),
        ("2.6.14", set(), "the kernel has no ovpn"),
        (
            "2.6.14",
            {"ovpn"},
            "OpenVPN 2.6 uses the kernel module ovpn_dco_v2, which the kernel lacks",
        ),
        (
            "2.7.8",
            {"ovpn_dco_v2"},
            "OpenVPN 2.7 uses the kernel module ovpn, which the kernel lacks",
        ),
    ],
)
def test_the_module_is_that_of_the_program(
    hosts: Any, version: str, modules: set[str], reason: str | None
) -> None:
    host = hosts[0]
    host.programs |= {"openvpn", "ip", "ping"}
    host.kernel |= modules
    host.answer = lambda _argv, _stdin: (0, f"OpenVPN {version} x86_64-pc-linux-gnu [DCO]\n")
    driver = OpenVpnTunnel(OpenVpnParams.model_validate({"offload": "kernel"}))
    assert driver.unavailable(host) == reason


def test_a_packet_with_an_epoch_is_four_bytes_longer() -> None:
    settings: Any = {
        "cipher": "AES-256-GCM",
        "auth": "SHA256",
        "lzo": False,
        "static_key": False,
        "tcp": False,
    }
    with_it, without = (
        sum(layer.bytes for layer in data_channel(540, epoch=epoch, **settings))
        for epoch in (True, False)
    )
    # Measured with OpenVPN 2.7.8 in user space: 596 bytes of IP around a payload of 512.
    assert (with_it, without) == (596 - 20 - 8 - 540, 592 - 20 - 8 - 540)
