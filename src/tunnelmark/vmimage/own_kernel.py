"""A user's own kernel in place of a suite's: checked before anything is downloaded for it."""

import hashlib
import re
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tunnelmark.model.errors import LabError
from tunnelmark.model.suites import RELEASE_PATTERN
from tunnelmark.vmimage import unpack
from tunnelmark.vmimage.kernel import Kernel, by_path, selected
from tunnelmark.vmimage.recipe import Recipe
from tunnelmark.vmimage.suites import SUITES

_MOST_BYTES: Final = 512 << 20
_OUT_OF_TREE: Final = ("updates", "extra")
"""Where DKMS and ``make M=… modules_install`` put modules: whoever has some wants them measured."""
_BANNER: Final = re.compile(rb"Linux version ([^ \0]{1,64}) \(")
"""What the kernel says first, and ``/proc/version`` (kernel: init/version-timestamp.c)."""
_VERMAGIC: Final = re.compile(rb"\0vermagic=([^ \0]{1,64}) ")

_ELF_64_LITTLE: Final = b"\x7fELF\x02\x01"
_X86_64: Final = 62
_PT_NOTE: Final = 4
_PVH_ENTRY: Final = 18
"""XEN_ELFNOTE_PHYS32_ENTRY of xen/include/public/elfnote.h: where QEMU enters a vmlinux."""


@dataclass(frozen=True)
class OwnKernel:
    """A kernel that can be booted, with the tree of its modules."""

    release: str
    vmlinux: bytes
    modules: Path
    sha256: str
    """Of the kernel and all its modules."""

    def kernel(self, work_dir: Path) -> Kernel:
        """Return it with the modules of any suite that it has, and those built out of its tree."""
        names = {name for recipe in SUITES.values() for name in recipe.modules}
        starts = [*(f"kernel/{name}" for name in sorted(names)), *_OUT_OF_TREE]
        modules = selected(self.modules, self.release, starts, work_dir, required=())
        return Kernel(self.release, self.vmlinux, modules)


def own_kernel(image: Path, modules: Path, recipe: Recipe) -> OwnKernel:
    """Return the kernel of two paths; ``LabError`` names the file, what is wrong and the remedy."""
    data = _read(image)
    try:
        vmlinux = unpack.vmlinux(data)
    except LabError as error:
        raise LabError(f"{image}: {error}") from error
    if not _has_pvh_entry(vmlinux, image):
        raise LabError(
            f"{image}: has no PVH entry, by which QEMU starts a kernel (build it with CONFIG_PVH=y)"
        )
    banner = _BANNER.search(vmlinux)
    release = banner[1].decode("ascii", "replace") if banner else ""
    if not re.fullmatch(RELEASE_PATTERN, release):
        raise LabError(f"{image}: names no release of Linux")
    there = _tree(modules)
    _same_release(there, modules, release, image)
    builtin = (modules / "modules.builtin").read_text(encoding="utf-8", errors="replace").split()
    names = {Path(path).name.split(".", 1)[0].replace("-", "_") for path in (*there, *builtin)}
    for name in recipe.boot_modules:
        if name not in names:
            raise LabError(
                f"{modules}: has no {name}, without which a machine does not start (build it as a "
                "module or into the kernel)"
            )
    digest = hashlib.sha256()
    for one in _all_bytes(data, there):
        digest.update(hashlib.sha256(one).digest())
    return OwnKernel(release, vmlinux, modules, digest.hexdigest())


def _read(image: Path) -> bytes:
    try:
        if not image.is_file():
            raise LabError(f"{image}: is not a file (give a vmlinuz or a vmlinux)")
        if (size := image.stat().st_size) > _MOST_BYTES:
            raise LabError(f"{image}: has {size} bytes, a kernel has at most {_MOST_BYTES}")
        return image.read_bytes()
    except OSError as error:
        raise LabError(f"{image}: {error.strerror}") from error


def _tree(modules: Path) -> dict[str, Path]:
    if not modules.is_dir():
        raise LabError(f"{modules}: is not a directory (give /lib/modules/RELEASE of the kernel)")
    if not (modules / "modules.builtin").is_file():
        raise LabError(
            f"{modules}: has no modules.builtin (give the tree that make modules_install wrote)"
        )
    return by_path(modules)


def _same_release(there: dict[str, Path], modules: Path, release: str, image: Path) -> None:
    """Ask one module: all of a tree are built together."""
    if not there:
        return  # all is built in
    first = min(there)
    found = _VERMAGIC.search(unpack.file(there[first]))
    of_modules = found[1].decode("ascii", "replace") if found else "no release"
    if of_modules != release:
        raise LabError(
            f"{modules}: {first} is of {of_modules}, {image} is Linux {release} (give the modules "
            "of this kernel)"
        )


def _has_pvh_entry(vmlinux: bytes, image: Path) -> bool:
    """Say whether the ELF file has the note by which QEMU starts it."""
    try:
        (machine,) = struct.unpack_from("<H", vmlinux, 18)
        if not vmlinux.startswith(_ELF_64_LITTLE) or machine != _X86_64:
            raise LabError(f"{image}: is not a kernel for x86-64")
        (table,) = struct.unpack_from("<Q", vmlinux, 32)
        size, count = struct.unpack_from("<HH", vmlinux, 54)
        for number in range(count):
            place = table + number * size
            (kind,) = struct.unpack_from("<I", vmlinux, place)
            start, length = struct.unpack_from("<Q16xQ", vmlinux, place + 8)
            if kind == _PT_NOTE and _PVH_ENTRY in _xen_notes(vmlinux[start : start + length]):
                return True
    except struct.error as error:
        raise LabError(f"{image}: is cut off or damaged") from error
    return False


def _xen_notes(notes: bytes) -> Iterator[int]:
    """Give the types of the notes of Xen in a segment (elf(5): Nhdr, padded to 4 bytes)."""
    place = 0
    while place + 12 <= len(notes):
        name_bytes, data_bytes, kind = struct.unpack_from("<III", notes, place)
        if notes[place + 12 : place + 12 + name_bytes] == b"Xen\0":
            yield kind
        place += 12 + -(-name_bytes // 4) * 4 + -(-data_bytes // 4) * 4


def _all_bytes(image: bytes, there: dict[str, Path]) -> Iterator[bytes]:
    yield image
    for path in sorted(there):
        yield path.encode()
        yield there[path].read_bytes()
