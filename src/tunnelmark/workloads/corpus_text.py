"""Corpora that compress, and archives of them; pure functions of the seed.

``RandomState`` and ``random.Random`` are used because their streams never change between versions.
"""

import io
import random
import struct
import zipfile
from collections.abc import Iterator
from typing import Final

import numpy as np

TEXT_BYTES: Final = 200_000
PROGRAM_BYTES: Final = 2_000_000
ARCHIVE_PARTS: Final = 12
ZERO_BYTES: Final = 10_000_000

_VOCABULARY: Final = 20_000
# A Zipf exponent near one is what natural language has; steeper gives texts that compress too well.
_ZIPF: Final = 1.0
_SYLLABLES: Final = (
    *("an", "be", "con", "der", "en", "for", "ge", "hal", "in", "ka", "lo", "men", "ner", "or"),
    *("pre", "qui", "re", "sti", "ter", "un", "ver", "wo", "ex", "ly", "zo", "ti", "ma", "su"),
)
# First bytes of x86-64 instructions by their share in programs, roughly: mov, lea, call, jcc …
_OPCODES: Final = (
    *(b"\x48\x89", b"\x48\x8b", b"\x48\x8d", b"\xe8", b"\x0f\x84", b"\x89", b"\x8b", b"\x83"),
    *(b"\x48\x83", b"\x85\xc0", b"\x74", b"\x75", b"\xeb", b"\xc3", b"\x55", b"\x41\x54"),
)
_BATCH: Final = 4096
_ZIP_TIME: Final = (2026, 1, 1, 0, 0, 0)


def texts(seed: int, _wanted_bytes: int = 0) -> Iterator[tuple[str, bytes]]:
    """Yield texts of sentences whose words have the frequencies of a natural language."""
    stream = np.random.RandomState(seed & 0xFFFFFFFF)
    words = _vocabulary(random.Random(f"{seed}/vocabulary"))  # noqa: S311 - no secret
    weights = 1.0 / np.arange(1, len(words) + 1) ** _ZIPF
    borders = np.cumsum(weights / weights.sum())
    while True:
        yield "txt", _text(stream, words, borders)


def programs(seed: int, _wanted_bytes: int = 0) -> Iterator[tuple[str, bytes]]:
    """Yield files like programs: code, tables of addresses, texts, and rooms of zeros."""
    stream = random.Random(f"{seed}/programs")  # noqa: S311 - no secret
    prose = texts(seed)
    while True:
        strings = next(prose)[1].replace(b" ", b"\0")
        yield (
            "bin",
            b"\x7fELF\x02\x01\x01"
            + bytes(4096 - 7)
            + _code(stream, PROGRAM_BYTES * 6 // 10)
            + _table(stream, PROGRAM_BYTES // 10)
            + strings
            + bytes(PROGRAM_BYTES // 10)
            + stream.randbytes(PROGRAM_BYTES // 10),
        )


def archives(seed: int, _wanted_bytes: int = 0) -> Iterator[tuple[str, bytes]]:
    """Yield zip files (Deflate) of texts and programs."""
    prose, binaries = texts(seed), programs(seed)
    while True:
        out = io.BytesIO()
        with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
            for number in range(ARCHIVE_PARTS):
                ending, data = next(binaries if number % 6 == 0 else prose)
                name = zipfile.ZipInfo(f"{number}.{ending}", _ZIP_TIME)
                archive.writestr(name, data, zipfile.ZIP_DEFLATED)
        yield "zip", out.getvalue()


def zeros(_seed: int, _wanted_bytes: int) -> Iterator[tuple[str, bytes]]:
    """Yield files of nothing but zeros."""
    while True:
        yield "zero", bytes(ZERO_BYTES)


def _vocabulary(stream: random.Random) -> list[str]:
    words: dict[str, None] = {}
    while len(words) < _VOCABULARY:
        # Frequent words are short ones.
        most = 1 + min(3, len(words) // 25)
        words["".join(stream.choices(_SYLLABLES, k=stream.randint(1, most)))] = None
        if len(words) < len(_SYLLABLES):
            words[stream.choice("abcdefghijklmnopqrstuvwxyz")] = None
    return list(words)


def _text(stream: "np.random.RandomState", words: list[str], borders: "np.ndarray") -> bytes:
    # A word and its space have more than four characters in the mean.
    picks = np.searchsorted(borders, stream.random_sample(TEXT_BYTES // 3))
    chosen = [words[pick] for pick in np.minimum(picks, len(words) - 1).tolist()]
    sentences = []
    at = 0
    for length in stream.randint(6, 22, len(chosen) // 6).tolist():
        sentence = " ".join(chosen[at : at + length])
        # Every twelfth sentence or so ends a paragraph.
        sentences.append(sentence.capitalize() + (".\n" if length == 13 else ". "))  # noqa: PLR2004
        at += length
        if at >= len(chosen):
            break
    return "".join(sentences).encode("ascii")[:TEXT_BYTES]


def _code(stream: random.Random, size_bytes: int) -> bytes:
    """Return instructions: few opcodes often, with operands of which some recur."""
    weights = [1.0 / (rank + 1) for rank in range(len(_OPCODES))]
    operands = [stream.randbytes(stream.choice((1, 1, 2, 4))) for _ in range(600)]
    parts: list[bytes] = []
    length = 0
    while length < size_bytes:
        opcodes = stream.choices(_OPCODES, weights, k=_BATCH)
        recurring = stream.choices(operands, k=_BATCH)
        fresh = stream.randbytes(3 * _BATCH)
        # One operand in three is new.
        batch = b"".join(
            opcode + (recurring[i] if i % 3 else fresh[3 * i : 3 * i + 3])
            for i, opcode in enumerate(opcodes)
        )
        parts.append(batch)
        length += len(batch)
    return b"".join(parts)[:size_bytes]


def _table(stream: random.Random, size_bytes: int) -> bytes:
    """Return a table of ascending addresses, eight bytes each."""
    address, parts = 0x400000, []
    for _ in range(size_bytes // 8):
        address += stream.choice((16, 32, 48, 64, 128, 208))
        parts.append(struct.pack("<Q", address))
    return b"".join(parts)
