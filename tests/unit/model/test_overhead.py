"""The overhead model against figures that are published or were captured."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tunnelmark.model.esp import ESP_SUITES, esp
from tunnelmark.model.overhead import (
    Encapsulation,
    Layer,
    best_inner_mtu,
    datagram,
    fragment,
    fragmentation_point,
    ip_layer,
    padding,
    segment,
    tcp_layer,
)


def test_without_a_tunnel_the_fragmentation_point_is_1472() -> None:
    assert fragmentation_point(link_mtu_bytes=1500, encapsulation=None) == 1472
    assert fragmentation_point(link_mtu_bytes=1500, encapsulation=None, inner_ip=6) == 1452


def test_esp_transport_3des_sha1_has_the_published_fragmentation_point() -> None:
    # munasinghe-2005, claim mun-04
    wrap = esp(ESP_SUITES["3DES-SHA1"], mode="transport", inner_mtu_bytes=1500)
    assert fragmentation_point(link_mtu_bytes=1500, encapsulation=wrap) == 1438


def test_first_fragment_carries_a_multiple_of_eight() -> None:
    assert fragment(1501, 1500, 4) == (1500, 21)
    assert fragment(1501, 1499, 4) == (20 + 1472, 29)


@given(
    length=st.integers(41, 65535),
    mtu=st.integers(576, 9000),
    version=st.sampled_from([4, 6]),
)
def test_fragments_carry_all_data_within_the_mtu(length: int, mtu: int, version: int) -> None:
    packets = fragment(length, mtu, 4 if version == 4 else 6)
    header = 20 if version == 4 else 40
    cost = header if version == 4 or len(packets) == 1 else 48
    assert sum(packets) - cost * len(packets) == length - header
    assert all(packet <= mtu for packet in packets)
    assert all((packet - cost) % 8 == 0 for packet in packets[:-1])


@given(
    payload=st.integers(1, 3000),
    suite=st.sampled_from(sorted(ESP_SUITES)),
    mode=st.sampled_from(["transport", "tunnel"]),
    udp=st.booleans(),
)
def test_layers_add_up_to_the_overhead(payload: int, suite: str, mode: str, udp: bool) -> None:
    wrap = esp(
        ESP_SUITES[suite],
        mode="tunnel" if mode == "tunnel" else "transport",
        inner_mtu_bytes=1400,
        udp_encapsulation=udp,
    )
    wire = datagram(payload, link_mtu_bytes=1500, encapsulation=wrap)
    assert sum(layer.bytes for layer in wire.layers) == wire.overhead_bytes


@given(payload=st.integers(1, 3000), suite=st.sampled_from(sorted(ESP_SUITES)))
def test_what_esp_encrypts_fills_whole_blocks(payload: int, suite: str) -> None:
    costs = {
        layer.name: layer.bytes
        for layer in esp(ESP_SUITES[suite], mode="tunnel", inner_mtu_bytes=1400).layers(payload)
    }
    filled = payload + costs["ESP padding"] + costs["ESP trailer"]
    assert filled % ESP_SUITES[suite].block_bytes == 0
    assert costs["ESP padding"] < ESP_SUITES[suite].block_bytes


@given(
    payload=st.integers(1, 9000),
    suite=st.sampled_from(sorted(ESP_SUITES)),
    udp=st.booleans(),
    mtu=st.integers(576, 9000),
)
def test_pieces_of_ip_tfs_fit_the_link_and_carry_all(
    payload: int, suite: str, udp: bool, mtu: int
) -> None:
    wrap = esp(
        ESP_SUITES[suite],
        mode="tunnel",
        inner_mtu_bytes=9100,
        udp_encapsulation=udp,
        aggfrag=True,
    )
    wire = datagram(payload, link_mtu_bytes=mtu, encapsulation=wrap)
    *full, last = wire.outer_packet_bytes
    assert sum(layer.bytes for layer in wire.layers) == wire.overhead_bytes
    assert len(set(full)) <= 1
    assert all(last <= one <= mtu for one in full)
    # One byte more would have been another block.
    assert all(mtu - one < ESP_SUITES[suite].block_bytes for one in full)


def test_best_inner_mtu_just_fits() -> None:
    def layers(wrapped: int) -> tuple[Layer, ...]:
        return (ip_layer(4), Layer("padding", padding(wrapped, 16), "test"))

    wrap = Encapsulation(layers, 1500)
    best = best_inner_mtu(link_mtu_bytes=1500, encapsulation=wrap)
    assert best == 1472  # the largest multiple of 16 within 1480


def test_no_room_for_a_fragment_is_an_error() -> None:
    with pytest.raises(ValueError, match="no room"):
        fragment(1000, 27, 4)


@given(data=st.integers(1, 20000), headers=st.integers(40, 80), mtu=st.integers(576, 9000))
def test_segments_carry_all_data_and_all_but_the_last_are_full(
    data: int, headers: int, mtu: int
) -> None:
    packets = segment(data, headers, mtu)
    assert sum(packets) - headers * len(packets) == data
    assert all(packet == mtu for packet in packets[:-1])
    assert headers < packets[-1] <= mtu


def test_no_room_for_a_segment_is_an_error() -> None:
    with pytest.raises(ValueError, match="no room"):
        segment(1000, 52, 52)


def test_a_packet_in_a_stream_is_cut_where_a_segment_is_full() -> None:
    def layers(_wrapped: int) -> tuple[Layer, ...]:
        return (ip_layer(4), tcp_layer(), Layer("length", 2, "test"))

    wrap = Encapsulation(layers, 1500, stream=True)
    wire = datagram(1450, link_mtu_bytes=1500, encapsulation=wrap)
    # 1478 + 2 bytes are written, 1448 fit into the first segment.
    assert wire.outer_packet_bytes == (1500, 52 + 32)
    assert sum(layer.bytes for layer in wire.layers) == wire.overhead_bytes
    assert fragmentation_point(link_mtu_bytes=1500, encapsulation=wrap) == 1448 - 2 - 28
