"""A table of what each header takes, from what a block recorded."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from tunnelmark.model.block import BlockRecord

_MOST_SIZES: Final = 6


@dataclass(frozen=True)
class LayerRow:
    """One header, over the sizes of the table."""

    name: str
    source: str
    cells: tuple[str, ...]


@dataclass(frozen=True)
class LayerTable:
    """Headers by payload size."""

    sizes: tuple[int, ...]
    rows: tuple[LayerRow, ...]
    equal: tuple[bool, ...]
    """For each size: the capture had packets of the lengths that the layers add up to."""


def layer_table(block: BlockRecord) -> LayerTable | None:
    """Return the headers of a block's tunnel, outermost first; None where none were recorded."""
    by_size = {one.payload_bytes: one for one in block.layers}
    sizes = spread(list(by_size), _MOST_SIZES)
    if not sizes:
        return None
    # A layer may stand at one size alone: padding that another does not need.
    sources = {layer.name: layer.source for size in sizes for layer in by_size[size].layers}
    rows = []
    for name, source in sources.items():
        found = [
            next((layer.bytes for layer in by_size[size].layers if layer.name == name), 0)
            for size in sizes
        ]
        rows.append(LayerRow(name, source, tuple(str(count) for count in found)))
    return LayerTable(sizes, tuple(rows), tuple(by_size[size].equal for size in sizes))


def spread(sizes: Sequence[int], most: int) -> tuple[int, ...]:
    """Return at most so many of some sizes, the least and the largest among them."""
    ordered = sorted(set(sizes))
    if len(ordered) <= most:
        return tuple(ordered)
    return tuple(ordered[round(k * (len(ordered) - 1) / (most - 1))] for k in range(most))
