"""Archives in the form the kernel unpacks as its first file system ("newc")."""

import posixpath
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

_MAGIC: Final = b"070701"


@dataclass(frozen=True)
class Member:
    """One file or directory; a directory has no data."""

    data: bytes | None
    mode: int = 0o644


def archive(members: Mapping[str, Member]) -> bytes:
    """Return an archive of the members, sorted by path, parents made, owned by root, time 0.

    Archives can be put one after the other: the kernel unpacks each. See
    Documentation/driver-api/early-userspace/buffer-format.rst of the kernel.
    """
    everything = dict(members)
    for path in members:
        parent = posixpath.dirname(path)
        while parent and parent not in everything:
            everything[parent] = Member(None, 0o755)
            parent = posixpath.dirname(parent)
    out = bytearray()
    for inode, (path, member) in enumerate(sorted(everything.items()), start=1):
        kind = stat.S_IFDIR if member.data is None else stat.S_IFREG
        _append(out, path, kind | member.mode, inode, member.data or b"")
    _append(out, "TRAILER!!!", 0, 0, b"")
    # The kernel skips zeros between archives; 512 keeps the next one aligned.
    out.extend(bytes(-len(out) % 512))
    return bytes(out)


def _append(out: bytearray, path: str, mode: int, inode: int, data: bytes) -> None:
    name = path.encode() + b"\0"
    links = 2 if stat.S_ISDIR(mode) else 1
    fields = (inode, mode, 0, 0, links, 0, len(data), 0, 0, 0, 0, len(name), 0)
    out += _MAGIC + b"".join(b"%08X" % field for field in fields) + name
    out.extend(bytes(-len(out) % 4))
    out += data
    out.extend(bytes(-len(out) % 4))
