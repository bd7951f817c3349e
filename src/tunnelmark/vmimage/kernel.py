"""The kernel of a machine: its uncompressed image and the modules that tunnels need."""

import lzma
import tarfile
import zlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Final

from tunnelmark.model.errors import LabError
from tunnelmark.vmimage import programs

_VMLINUX_MAX: Final = 512 << 20
_INDEX: Final = ("modules.builtin", "modules.builtin.modinfo", "modules.order")


@dataclass(frozen=True)
class Kernel:
    """What was taken out of a kernel package."""

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


def extract(tar: tarfile.TarFile, wanted: Iterable[str], work_dir: Path) -> Kernel:
    """Read a kernel package; ``wanted`` names modules and directories below ``kernel/``."""
    image: bytes | None = None
    release = ""
    root = work_dir / "lib/modules"
    for member in tar:
        path = PurePosixPath(member.name)
        if not member.isfile() or ".." in path.parts:
            continue
        stream = tar.extractfile(member)
        if stream is None:
            continue
        if path.parent == PurePosixPath("boot") and path.name.startswith("vmlinuz-"):
            release, image = path.name.removeprefix("vmlinuz-"), stream.read()
        elif path.parts[:2] == ("lib", "modules"):
            target = root / PurePosixPath(*path.parts[2:])
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(stream.read())
    if image is None or not (root / release).is_dir():
        raise LabError("kernel package: has no boot/vmlinuz with modules of the same release")
    _index(work_dir, release)
    _keep_only(root / release, wanted)
    _index(work_dir, release)
    files = sorted(file for file in (root / release).rglob("*") if file.is_file())
    modules = {file.relative_to(root / release).as_posix(): file.read_bytes() for file in files}
    return Kernel(release=release, vmlinux=uncompressed(image), modules=modules)


def uncompressed(image: bytes) -> bytes:
    """Return the ELF file that a compressed kernel image carries.

    The image is a small decompressor followed by the payload; the payload is found by trying each
    place that looks like the start of one, as the kernel's own scripts/extract-vmlinux does.
    """
    for magic, decompress in _FORMATS:
        start = image.find(magic)
        while start != -1:
            try:
                data = decompress(image[start:])
            except (zlib.error, lzma.LZMAError, EOFError):
                data = b""
            if data.startswith(b"\x7fELF"):
                return data
            start = image.find(magic, start + 1)
    raise LabError(f"kernel image of {len(image)} bytes: no compressed ELF file was found in it")


def _xz(data: bytes) -> bytes:
    return lzma.LZMADecompressor().decompress(data, max_length=_VMLINUX_MAX)


def _gzip(data: bytes) -> bytes:
    return zlib.decompressobj(31).decompress(data, _VMLINUX_MAX)


_FORMATS: Final[tuple[tuple[bytes, Callable[[bytes], bytes]], ...]] = (
    (b"\xfd7zXZ\x00", _xz),
    (b"\x1f\x8b\x08", _gzip),
)


def _index(work_dir: Path, release: str) -> None:
    programs.run(["depmod", "-b", str(work_dir), release])


def _keep_only(root: Path, wanted: Iterable[str]) -> None:
    """Remove all modules but those that are wanted and those they depend on."""
    depends = _parse_depends((root / "modules.dep").read_text(encoding="ascii"))
    starts = tuple(f"kernel/{name}" for name in wanted)
    keep: set[str] = set()
    for start in starts:
        found = {path for path in depends if path == start or path.startswith(f"{start}/")}
        # Built into this kernel is as good; misspelt is not.
        builtin = (root / "modules.builtin").read_text(encoding="ascii").split()
        if not found and not any(p == start or p.startswith(f"{start}/") for p in builtin):
            raise LabError(f"kernel {root.name}: there is no {start}")
        keep |= found
    keep |= {needed for path in keep for needed in depends[path]}
    for file in root.rglob("*"):
        name = file.relative_to(root).as_posix()
        if file.is_file() and name not in keep and name not in _INDEX:
            file.unlink()


def _parse_depends(text: str) -> dict[str, tuple[str, ...]]:
    """Read modules.dep: each line a module, a colon, and all it needs, nearest first."""
    table = {}
    for line in text.splitlines():
        path, _, needed = line.partition(":")
        table[path] = tuple(needed.split())
    return table


def _module_name(path: str) -> str:
    return PurePosixPath(path).name.split(".", 1)[0].replace("-", "_")
