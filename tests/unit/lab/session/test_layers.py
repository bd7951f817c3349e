"""Packets on the link that are not as long as the model says fail the trials of their tunnel."""

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from made_results import block_record
from tunnelmark.lab.session.layers import layers_seen, model_check
from tunnelmark.model.block import WireSample
from tunnelmark.model.overhead import Encapsulation, Layer, datagram
from tunnelmark.model.validity import Check

_MTU = 1500
_SIZES = (100, 1000, 1400, 2000)


class _Tunnel:
    params = SimpleNamespace(inner="ipv4")

    def __init__(self, *, stream: bool, shares: bool = False) -> None:
        carrier = (Layer("IPv4", 20, ""), Layer("TCP" if stream else "UDP", 20, ""))
        layers = (*carrier, Layer("made", 16, ""))
        self.model = Encapsulation(lambda _: layers, 1444, stream=stream, shares=shares)
        self.modelled = True

    def encapsulation(self, _agreed: object) -> Encapsulation:
        return self.model


def _checked(changed: Sequence[int], *, stream: bool = False, shares: bool = False) -> Check:
    """Judge packets of which those of some payloads are 8 bytes longer than modelled."""
    tunnel: Any = _Tunnel(stream=stream, shares=shares)
    samples = []
    for size in _SIZES:
        wire = datagram(size, link_mtu_bytes=_MTU, encapsulation=tunnel.model, inner_ip=4)
        first, *rest = wire.outer_packet_bytes
        samples.append(WireSample(size, (first + 8 * (size in changed), *rest)))
    return model_check(tunnel, block_record().negotiated[0], samples, _MTU)


def test_what_the_model_says_passes() -> None:
    check = _checked([])
    assert check.ok
    assert check.message.startswith("4 of 4 payloads took as many bytes on the link as the model")


@pytest.mark.parametrize("size", _SIZES)
def test_one_payload_of_another_length_fails(size: int) -> None:
    check = _checked([size])
    assert (check.ok, check.value) == (False, 1.0)
    assert f"the one of {size} bytes took " in check.message


def test_the_message_says_what_was_seen_and_what_the_model_says() -> None:
    assert _checked([100]).message.endswith("; the one of 100 bytes took 192, not 184")
    assert "; the one of 2000 bytes took 1508 + " in _checked([2000]).message


def test_a_stream_may_put_packets_together_but_not_make_all_of_them_longer() -> None:
    assert _checked([2000], stream=True).ok
    assert _checked([1000, 2000], stream=True).ok
    assert not _checked([100, 1000, 1400], stream=True).ok


def test_where_packets_share_others_only_those_of_one_packet_are_judged() -> None:
    check = _checked([2000], shares=True)
    assert check.ok
    assert check.message.startswith("3 of 3 payloads")
    assert not _checked([1000], shares=True).ok


def test_nothing_seen_is_nothing_wrong() -> None:
    tunnel: Any = _Tunnel(stream=False)
    check = model_check(tunnel, block_record().negotiated[0], (), _MTU)
    assert check.ok
    assert check.message.startswith("no payload was seen on the link by itself")


def test_a_tunnel_without_a_model_is_judged_by_none() -> None:
    tunnel: Any = _Tunnel(stream=False)
    tunnel.modelled = False
    (proof,) = block_record().proofs
    agreed = block_record().negotiated[0]
    assert layers_seen(tunnel, agreed, proof, _MTU) == ()
    check = model_check(tunnel, agreed, (), _MTU)
    assert (check.ok, check.value) == (True, None)
    assert "its overhead is the captured one" in check.message
