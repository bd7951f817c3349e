"""What a reader must know of how figures came about, once for all tunnels that it is true of."""

from collections.abc import Iterable, Iterator

from tunnelmark.model.block import BlockRecord
from tunnelmark.report.names import names


def notes_of(blocks: Iterable[BlockRecord]) -> Iterator[str]:
    """Yield each note of the blocks as a sentence, with the tunnels in front."""
    about: dict[str, dict[str, None]] = {}
    for block in blocks:
        for note in block.notes:
            about.setdefault(note, {})[block.tunnel] = None
    for note, tunnels in about.items():
        yield f"{names(list(tunnels))}: {note}."
