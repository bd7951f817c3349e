"""Files to transfer, made from a seed, each kind with the properties that decide a transfer."""

import hashlib
import itertools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Final, Literal, get_args

from tunnelmark.workloads import corpus_media, corpus_text

Kind = Literal["video", "photo", "audio", "compressed", "binary", "text", "zero"]
KINDS: Final[tuple[Kind, ...]] = get_args(Kind)
LARGEST_BYTES: Final = 512 << 20
DISTINCT_BYTES: Final = 16 << 20
"""Behind so much the files repeat: no tunnel compresses over more, and half a gigabyte of
pictures takes a minute to make."""

_Maker = Callable[[int, int], Iterator[tuple[str, bytes]]]
"""Takes the seed and the bytes that are wanted in total; makes files without end."""
_MAKERS: Final[Mapping[Kind, _Maker]] = {
    "video": corpus_media.videos,
    "photo": corpus_media.photos,
    "audio": corpus_media.audio,
    "compressed": corpus_text.archives,
    "binary": corpus_text.programs,
    "text": corpus_text.texts,
    "zero": corpus_text.zeros,
}


@dataclass(frozen=True)
class File:
    """One file of a corpus."""

    name: str
    """A plain file name without directories."""
    data: bytes

    @cached_property
    def sha256(self) -> str:
        """Digest of the content, hexadecimal."""
        return hashlib.sha256(self.data).hexdigest()


# Trials repeat the same corpus; four kinds in turn are a classic study, and a worker may have two.
@lru_cache(maxsize=8)
def corpus(kind: Kind, size_bytes: int, seed: int) -> tuple[File, ...]:
    """Return files of ``size_bytes`` in total; the last one is cut where that is reached.

    The same arguments give the same bytes; ``photo``, ``video`` and ``compressed`` do so as long as
    the encoders (libjpeg, zlib) are the same version.
    """
    if not 1 <= size_bytes <= LARGEST_BYTES:
        raise ValueError(f"a corpus has 1 to {LARGEST_BYTES} bytes, not {size_bytes}")
    files: list[File] = []
    left = size_bytes
    made = _repeated(_MAKERS[kind](seed, size_bytes))
    for number, (ending, data) in enumerate(made):
        files.append(File(f"{kind}-{number:04}.{ending}", data[:left]))
        left -= len(files[-1].data)
        if left == 0:
            break
    return tuple(files)


def _repeated(files: Iterator[tuple[str, bytes]]) -> Iterator[tuple[str, bytes]]:
    """Yield files, and the same ones again and again once they are long enough together."""
    made: list[tuple[str, bytes]] = []
    length = 0
    while length < DISTINCT_BYTES:
        made.append(next(files))
        length += len(made[-1][1])
        yield made[-1]
    yield from itertools.cycle(made)
