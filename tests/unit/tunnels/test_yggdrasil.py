from ipaddress import IPv6Address

import pytest

from tunnelmark.tunnels.yggdrasil import _peered, address_of

# Keys and addresses as Yggdrasil 0.4.7 wrote them.
KNOWN = [
    (
        "1389d82078534ebf05834aed0efa5f9b4943d961dbe046675cf8d1924e5c759f",
        "203:c762:7df8:7acb:140f:a7cb:512f:105a",
    ),
    (
        "a78c6ceb846ef3ef0193a4a1c3f08ec6c4fc8ac9b44b94a2e6694192dfbfbc99",
        "200:b0e7:2628:f722:1821:fcd8:b6bc:781e",
    ),
]


@pytest.mark.parametrize(("key", "address"), KNOWN)
def test_the_address_of_a_node_follows_from_its_key(key: str, address: str) -> None:
    assert address_of(bytes.fromhex(key)) == IPv6Address(address)


def test_a_node_is_ready_when_its_own_peer_is_there_and_its_device() -> None:
    peer = IPv6Address("203:c762:7df8:7acb:140f:a7cb:512f:105a")
    connected = f"Connected outbound TLS: {peer}@198.18.0.2:9001, source 198.18.0.1:40292\n"
    device = "Interface MTU: 53049\n"
    assert _peered(peer, device + connected)
    assert not _peered(peer, connected)
    assert not _peered(peer, device)
    assert not _peered(IPv6Address("200::1"), device + connected)
