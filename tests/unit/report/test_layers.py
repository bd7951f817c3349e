"""Bytes by layer in a report: what a block recorded, and nothing that it did not."""

from dataclasses import replace

from made_results import block_record
from tunnelmark.model.block import Layered
from tunnelmark.model.overhead import Layer
from tunnelmark.report.layers import layer_table, spread


def test_layers_stand_under_the_sizes_that_have_them() -> None:
    ip, pad = Layer("outer IPv4 header", 20, "RFC 791"), Layer("padding", 3, "RFC 4303")
    block = replace(
        block_record(),
        layers=(Layered(100, (ip,), equal=True), Layered(64, (ip, pad), equal=False)),
    )
    table = layer_table(block)
    assert table is not None
    assert table.sizes == (64, 100)
    assert table.equal == (False, True)
    assert [(row.name, row.cells) for row in table.rows] == [
        ("outer IPv4 header", ("20", "20")),
        ("padding", ("3", "0")),
    ]


def test_an_older_block_has_no_table() -> None:
    assert layer_table(block_record()) is None


def test_many_sizes_are_thinned_and_keep_their_ends() -> None:
    assert spread(range(1, 101), 6) == (1, 21, 41, 60, 80, 100)
    assert spread([5, 5, 1], 6) == (1, 5)
    assert spread([], 6) == ()
