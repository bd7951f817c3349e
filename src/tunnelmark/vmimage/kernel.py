"""The kernel of a machine: its uncompressed image and the modules that tunnels need."""

import tarfile
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Final

from tunnelmark.model.errors import LabError
from tunnelmark.vmimage import programs, unpack

_INDEX: Final = ("modules.builtin", "modules.builtin.modinfo", "modules.order")
_MODULE: Final = ".ko"


@dataclass(frozen=True)
class Kernel:
    """What was taken out of a kernel's packages, or of a user's files."""

    release: str
    """As ``uname -r`` says."""
    vmlinux: bytes
    """Uncompressed ELF image, which boots through PVH without a boot loader."""
    modules: Mapping[str, bytes]
    """Files below ``lib/modules/<release>/``, the indexes for modprobe included."""

    def in_load_order(self, names: Iterable[str]) -> tuple[str, ...]:
        """Return the paths of modules and all they depend on, dependencies first."""
        depends = _parse_depends(self.modules["modules.dep"].decode())
        by_name = {_module_name(path): path for path in depends}
        order: list[str] = []

        def add(path: str) -> None:
            for needed in reversed(depends[path]):
                add(needed)
            if path not in order:
                order.append(path)

        builtin = {_module_name(p) for p in self.modules["modules.builtin"].decode().split()}
        for name in names:
            if name in by_name:
                add(by_name[name])
            elif name not in builtin:
                raise LabError(f"kernel {self.release}: there is no module {name}")
        return tuple(order)


class Packages:
    """A kernel as its packages are unpacked, one after the other, below a directory."""

    def __init__(self, work_dir: Path) -> None:
        """``work_dir`` exists, empty, and takes all modules."""
        self._work_dir = work_dir
        self._image: bytes | None = None
        self._release = ""

    def add(self, tar: tarfile.TarFile) -> None:
        """Take the image and the modules of one package."""
        for member in tar:
            path = PurePosixPath(member.name)
            if not member.isfile() or ".." in path.parts:
                continue
            stream = tar.extractfile(member)
            if stream is None:
                continue
            parts = path.parts[1:] if path.parts[:1] == ("usr",) else path.parts
            match parts:
                case ("boot", name) if name.startswith("vmlinuz-"):
                    self._release, self._image = name.removeprefix("vmlinuz-"), stream.read()
                case ("lib", "modules", release, "vmlinuz"):
                    self._release, self._image = release, stream.read()
                case ("lib", "modules", *below) if below:
                    target = self._work_dir / "all" / PurePosixPath(*below)
                    target.parent.mkdir(parents=True, exist_ok=True)
                    target.write_bytes(stream.read())

    def kernel(self, wanted: Iterable[str]) -> Kernel:
        """Return it; ``wanted`` names modules and directories below ``kernel/``, all there."""
        tree = self._work_dir / "all" / self._release
        if self._image is None or not tree.is_dir():
            raise LabError("kernel package: has no vmlinuz with modules of the same release")
        starts = [f"kernel/{name}" for name in wanted]
        modules = selected(tree, self._release, starts, self._work_dir, required=starts)
        return Kernel(self._release, unpack.vmlinux(self._image), modules)


def selected(
    tree: Path,
    release: str,
    starts: Iterable[str],
    work_dir: Path,
    *,
    required: Collection[str],
) -> dict[str, bytes]:
    """Return some modules of a tree, uncompressed, with those they depend on and their indexes.

    ``starts`` are modules and directories below ``tree``. ``LabError`` if one that is ``required``
    is neither there nor built in: it is misspelt, or the kernel is another one.
    """
    there = by_path(tree)
    builtin = (tree / "modules.builtin").read_text(encoding="utf-8").split()
    keep: set[str] = set()
    for start in starts:
        below = (start, f"{start}/")
        found = {path for path in there if path == below[0] or path.startswith(below[1])}
        known = found or any(p == below[0] or p.startswith(below[1]) for p in builtin)
        if not known and start in required:
            raise LabError(f"kernel {release}: there is no {start}")
        keep |= found
    taken = _with_dependencies(there, keep, release)
    target = work_dir / "lib/modules" / release
    target.mkdir(parents=True)
    for path, data in taken.items():
        (target / path).parent.mkdir(parents=True, exist_ok=True)
        (target / path).write_bytes(data)
    for name in _INDEX:
        if (tree / name).is_file():
            (target / name).write_bytes((tree / name).read_bytes())
    programs.run(["depmod", "-b", str(work_dir), release])
    files = sorted(file for file in target.rglob("*") if file.is_file())
    return {file.relative_to(target).as_posix(): file.read_bytes() for file in files}


def by_path(tree: Path) -> dict[str, Path]:
    """Return the modules of a tree by their paths in it, without the ending of a compression."""
    return {
        plain: file
        for file in tree.rglob(f"*{_MODULE}*")
        if (plain := _plain(file.relative_to(tree).as_posix())).endswith(_MODULE) and file.is_file()
    }


def _with_dependencies(
    there: Mapping[str, Path], wanted: Collection[str], release: str
) -> dict[str, bytes]:
    """Return the contents of modules and of all they depend on, by what each says of itself.

    depmod would have to unpack all modules of the kernel, ten times as many, to say the same.
    """
    by_name = {_module_name(path): path for path in there}
    taken: dict[str, bytes] = {}
    batch = set(wanted)
    while batch:
        taken |= {path: unpack.file(there[path]) for path in batch}
        needed: set[str] = set()
        for path in batch:
            for name in unpack.depends(taken[path]):
                if name not in by_name:
                    raise LabError(f"kernel {release}: {path} needs {name}, which is not there")
                needed.add(by_name[name])
        batch = needed - taken.keys()
    return taken


def _plain(path: str) -> str:
    """Return the path of a module as it is when it is not compressed."""
    for ending in unpack.ENDINGS:
        path = path.removesuffix(ending)
    return path


def _parse_depends(text: str) -> dict[str, tuple[str, ...]]:
    """Read modules.dep: each line a module, a colon, and all it needs, nearest first."""
    table = {}
    for line in text.splitlines():
        path, _, needed = line.partition(":")
        table[path] = tuple(needed.split())
    return table


def _module_name(path: str) -> str:
    return PurePosixPath(path).name.split(".", 1)[0].replace("-", "_")
