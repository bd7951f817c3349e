"""How programs keep to a rate: what each writes at once, and when. Pure.

All of them write, and then wait as long as what they wrote may take.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

SSH_KBIT: Final = 1024
"""What ``-l`` of scp and sftp takes for a kilobit."""
_SSH_LEAST_BYTES: Final = 16 << 10
"""Fewer do not make scp wait, which reads so much of a file at a time (misc.c)."""
_SSH_LARGEST_BYTES: Final = 8 * _SSH_LEAST_BYTES
_SSH_SHORTEST_WAIT_NS: Final = 10_000_000
_SSH_LONGEST_WAIT_NS: Final = 10**9
_CURL_BYTES: Final = 64 << 10
"""curl's buffer for uploads."""
_NGINX_BYTES: Final = 2 << 20
"""What nginx lets the kernel send of a file at a time (``sendfile_max_chunk``)."""
_NGINX_SEALED_BYTES: Final = (32 << 10, 64 << 10)
"""With TLS it reads files into buffers: one at first, then two (``output_buffers``)."""


@dataclass(frozen=True)
class Paced:
    """Something that is written in pieces."""

    pieces: tuple[int, ...]
    due_ns: tuple[int, ...]
    """When each may leave, after the first one."""


def by_curl(size_bytes: int, bytes_s: int) -> Paced:
    """Return how curl sends a file (``--limit-rate``)."""
    return _paced(size_bytes, (_CURL_BYTES,), bytes_s)


def by_nginx(size_bytes: int, bytes_s: int, *, tls: bool) -> Paced:
    """Return how nginx sends a reply (``limit_rate``): never more than it may in a second."""
    sizes = _NGINX_SEALED_BYTES if tls else (_NGINX_BYTES,)
    return _paced(size_bytes, [min(size, bytes_s) for size in sizes], bytes_s)


def by_scp(size_bytes: int, bit_s: int) -> Paced:
    """Return how scp sends a file (``-l``): so much that it waits 10 ms, the second one at once."""
    step = _SSH_LEAST_BYTES
    while step < _SSH_LARGEST_BYTES and _ns(step, bit_s) < _SSH_SHORTEST_WAIT_NS:
        step *= 2
    pieces, due_ns = [], []
    for begin in range(0, size_bytes, _SSH_LEAST_BYTES):
        pieces.append(min(_SSH_LEAST_BYTES, size_bytes - begin))
        # The clock begins with the first piece, which is not waited for.
        due_ns.append(_ns(begin // step * step, bit_s) if begin > _SSH_LEAST_BYTES else 0)
    return Paced(tuple(pieces), tuple(due_ns))


def read(size_bytes: int, window_bytes: int, step_bytes: int, bit_s: int) -> Paced:
    """Return how a file comes whose reader keeps to a rate: a window of it, then what was read."""
    pieces, due_ns = [min(size_bytes, window_bytes)], [0]
    for begin in range(window_bytes, size_bytes, step_bytes):
        pieces.append(min(step_bytes, size_bytes - begin))
        due_ns.append(_ns(begin + step_bytes - window_bytes, bit_s))
    return Paced(tuple(pieces), tuple(due_ns))


def waits_ns(messages: Iterable[int], bit_s: int, block_bytes: int) -> list[int]:
    """Return when sftp has done with each message: it waits behind a block of a file.

    A file that is shorter is not held back. Behind a wait of a second it waits for half as much,
    for a quarter of a block at least; behind one of less than 10 ms for twice as much (misc.c).
    """
    total = counted = waited = 0
    least = block_bytes
    found = []
    for message in messages:
        total += message
        counted += message
        if counted >= least:
            wait_ns = _ns(counted, bit_s)
            if wait_ns >= _SSH_LONGEST_WAIT_NS:
                least = max(least // 2, block_bytes // 4)
            elif wait_ns < _SSH_SHORTEST_WAIT_NS:
                least = min(2 * least, 8 * block_bytes)
            counted, waited = 0, total
        found.append(_ns(waited, bit_s))
    return found


def _paced(size_bytes: int, sizes: Iterable[int], bytes_s: int) -> Paced:
    """Return pieces of such sizes, the last one again and again."""
    pieces: list[int] = []
    due_ns: list[int] = []
    left, begin, upcoming = size_bytes, 0, list(sizes)
    while left:
        piece = min(left, upcoming[0])
        pieces.append(piece)
        due_ns.append(_ns(begin, 8 * bytes_s))
        left -= piece
        begin += piece
        if len(upcoming) > 1:
            del upcoming[0]
    return Paced(tuple(pieces), tuple(due_ns))


def _ns(size_bytes: int, bit_s: int) -> int:
    return size_bytes * 8 * 10**9 // bit_s
