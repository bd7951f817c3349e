"""The contents of packages as one tree, written as one tar stream in a fixed order."""

import io
import posixpath
import tarfile
from collections.abc import Iterable, Iterator
from typing import IO, Final

from tunnelmark.vmimage.recipe import Account, Recipe

_MERGED: Final = ("bin", "sbin", "lib", "lib32", "lib64", "libx32")
"""Top directories that are links into ``usr`` on a system of today; packages still name them."""


class Tree:
    """Files by path, gathered from many sources; the last one to name a path wins.

    Times and owners' names are dropped, so that the same packages give the same bytes.
    """

    def __init__(self, left_out: Iterable[str] = ()) -> None:
        """Take the starts of paths that are not gathered."""
        self._left_out = tuple(left_out)
        self._entries: dict[str, tuple[tarfile.TarInfo, bytes]] = {}

    def add_tar(self, tar: tarfile.TarFile) -> None:
        """Gather a package's files."""
        for member in tar:
            path = _merged(member.name)
            if not path or self._is_left_out(path):
                continue
            owner = (member.uid, member.gid)
            if member.isfile():
                stream = tar.extractfile(member)
                data = b"" if stream is None else stream.read()
                self._add(path, tarfile.REGTYPE, member.mode, data, owner=owner)
            elif member.islnk():
                # Stored as a second copy, so that it stands without its first name.
                data = self._entries[_merged(member.linkname)][1]
                self._add(path, tarfile.REGTYPE, member.mode, data, owner=owner)
            elif member.issym():
                self._add(path, tarfile.SYMTYPE, 0o777, owner=owner, link=member.linkname)
            elif not (member.isdir() and path in self._entries):
                self._add(path, member.type, member.mode, owner=owner)

    def add_file(self, path: str, data: bytes, mode: int = 0o644, gid: int = 0) -> None:
        """Add a file of root's."""
        self._add(_merged(path), tarfile.REGTYPE, mode, data, owner=(0, gid))

    def add_link(self, path: str, target: str) -> None:
        """Add a symbolic link."""
        self._add(_merged(path), tarfile.SYMTYPE, 0o777, link=target)

    def add_directory(self, path: str, mode: int = 0o755) -> None:
        """Add a directory, unless it is there."""
        if _merged(path) not in self._entries:
            self._add(_merged(path), tarfile.DIRTYPE, mode)

    def get(self, path: str) -> bytes:
        """Return the content of a file that was gathered; ``KeyError`` if it was not."""
        return self._entries[_merged(path)][1]

    def write(self, out: IO[bytes]) -> None:
        """Write everything as a tar stream, sorted by path, parents before their children."""
        for name in _MERGED:
            if any(path.startswith(f"usr/{name}/") for path in self._entries):
                info = tarfile.TarInfo(name)
                info.type, info.linkname, info.mode = tarfile.SYMTYPE, f"usr/{name}", 0o777
                self._entries[name] = (info, b"")
        for path in list(self._entries):
            for parent in _parents(path):
                self.add_directory(parent)
        with tarfile.open(fileobj=out, mode="w|", format=tarfile.GNU_FORMAT) as tar:
            for _path, (info, data) in sorted(self._entries.items()):
                tar.addfile(info, io.BytesIO(data))

    def _is_left_out(self, path: str) -> bool:
        return any(
            path == start or path.startswith(f"{start}/") for start in map(_merged, self._left_out)
        )

    def _add(
        self,
        path: str,
        kind: bytes,
        mode: int,
        data: bytes = b"",
        *,
        owner: tuple[int, int] = (0, 0),
        link: str = "",
    ) -> None:
        info = tarfile.TarInfo(path)
        info.type, info.mode, info.linkname = kind, mode & 0o7777, link
        (info.uid, info.gid), info.size, info.mtime = owner, len(data), 0
        self._entries[path] = (info, data)


def finish(tree: Tree, recipe: Recipe) -> None:
    """Do what the packages' own scripts would do on an installed system, and no more."""
    passwd = tree.get("usr/share/base-passwd/passwd.master").decode()
    group = tree.get("usr/share/base-passwd/group.master").decode()
    passwd += "".join(_passwd_lines(recipe.accounts))
    group += "".join(f"{account.name}:x:{account.uid}:\n" for account in recipe.accounts)
    names = [line.split(":", 1)[0] for line in passwd.splitlines()]
    shadow = "".join(f"{name}:*:19000:0:99999:7:::\n" for name in names)
    tree.add_file("etc/passwd", passwd.replace(":*:", ":x:").encode())
    tree.add_file("etc/group", group.replace(":*:", ":x:").encode())
    tree.add_file("etc/shadow", shadow.encode(), mode=0o640, gid=42)
    for path in recipe.directories:
        tree.add_directory(path)
    for path, target in recipe.links.items():
        tree.add_link(path, target)
    for path, text in recipe.files.items():
        tree.add_file(path, text.encode())


def _passwd_lines(accounts: Iterable[Account]) -> Iterator[str]:
    for account in accounts:
        yield f"{account.name}:x:{account.uid}:{account.uid}::{account.home}:/usr/sbin/nologin\n"


def _merged(path: str) -> str:
    path = posixpath.normpath(path.lstrip("/"))
    if path in {".", *_MERGED}:
        return ""
    top, _, rest = path.partition("/")
    return f"usr/{top}/{rest}" if top in _MERGED else path


def _parents(path: str) -> Iterator[str]:
    parent = posixpath.dirname(path)
    while parent:
        yield parent
        parent = posixpath.dirname(parent)
