"""Headers as a publication printed them beside those that the capture of the proof confirmed."""

from collections.abc import Sequence

from tunnelmark.model.block import BlockRecord, Layered
from tunnelmark.published import table
from tunnelmark.report.beside_table import Beside, Row
from tunnelmark.report.classics import Headers
from tunnelmark.report.show import NOTHING


def headers_beside(one: Headers, blocks: Sequence[BlockRecord]) -> Beside:
    """Return a row for each published header of a tunnel on a link.

    Measured is what the layers take of the datagrams that went as one packet and had the length
    that the layers add up to: one figure, or the least and the most where padding varies.
    """
    printed: dict[tuple[str, ...], list[float]] = {}
    for row in table(one.csv):
        if row[one.attribute] in one.layers:
            key = [column.ours(row[name]) for name, column in one.choose.items()]
            printed.setdefault((*key, row[one.attribute]), []).append(float(row[one.value]))
    labels = [str(column.label) for column in one.choose.values()]
    rows, found = [], 0
    for cells, values in printed.items():
        seen = _seen(dict(zip(labels, cells, strict=False)), one.layers[cells[-1]], blocks)
        found += bool(seen)
        least, most = min(values), max(values)
        rows.append(Row(cells, _range(least, most), _shown(seen), _change(seen, least, most)))
    heads = (*labels, "header")
    return Beside(one.number, one.title, "bytes", heads, tuple(rows), found)


def _seen(wanted: dict[str, str], names: Sequence[str], blocks: Sequence[BlockRecord]) -> list[int]:
    """Return what the layers of these names took together, over blocks and payloads."""
    return sorted(
        {
            sum(layer.bytes for layer in layered.layers if layer.name in names)
            for block in blocks
            if all(getattr(block, label) == text for label, text in wanted.items())
            for layered in block.layers
            if layered.equal and _whole(block, layered)
        }
    )


def _whole(block: BlockRecord, layered: Layered) -> bool:
    """Say whether a datagram was one packet: of several, the headers are added up."""
    return any(
        sample.payload_bytes == layered.payload_bytes and sample.fragments == 1
        for proof in block.proofs
        for sample in proof.samples
    )


def _shown(seen: Sequence[int]) -> str:
    return _range(seen[0], seen[-1]) if seen else NOTHING


def _change(seen: Sequence[int], least: float, most: float) -> str:
    if not seen:
        return NOTHING
    if least <= seen[0] and seen[-1] <= most:
        return "same"
    if seen[0] <= least and most <= seen[-1]:
        return "within"
    low, high = seen[0] - most, seen[-1] - least
    return f"{low:+g}" if low == high else f"{low:+g} to {high:+g}"


def _range(low: float, high: float) -> str:
    return f"{low:g}" if low == high else f"{low:g} to {high:g}"
