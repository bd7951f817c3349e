"""Kernel images and modules as their makers compress them: xz, gzip or zstd."""

import lzma
import re
import struct
import subprocess
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Final

from tunnelmark.model.errors import LabError
from tunnelmark.vmimage import programs

ENDINGS: Final = (".xz", ".zst", ".gz")
"""Behind the name of a module that is compressed."""

_ELF: Final = b"\x7fELF"
_VMLINUX_MAX: Final = 512 << 20
_ZSTD_MAGIC: Final = b"\x28\xb5\x2f\xfd"
_HEADER_BYTES: Final = 0x250
"""To the end of payload_length in the header of a bzImage."""
_ZSTD_LIMIT_S: Final = 120.0
_DEPENDS: Final = re.compile(rb"(?:^|\0)depends=([A-Za-z0-9_,-]*)\0")
"""Of the section .modinfo, whose entries end with a zero (kernel: include/linux/moduleparam.h)."""


def vmlinux(image: bytes) -> bytes:
    """Return the ELF file that a compressed kernel image carries, or that the image is.

    The image is a small decompressor followed by the payload; the payload is found by trying each
    place that looks like the start of one, as the kernel's own scripts/extract-vmlinux does.
    """
    if image.startswith(_ELF):
        return image
    for magic, decompress in _FORMATS:
        start = image.find(magic)
        while start != -1:
            try:
                data = decompress(image[start:])
            except (zlib.error, lzma.LZMAError, EOFError):
                data = b""
            if data.startswith(_ELF):
                return data
            start = image.find(magic, start + 1)
    if (payload := _payload(image)).startswith(_ZSTD_MAGIC):
        data = _zstd(payload)
        if data.startswith(_ELF):
            return data
    raise LabError(
        f"kernel image of {len(image)} bytes: no ELF file compressed by xz, gzip or zstd was found "
        "in it"
    )


def file(path: Path) -> bytes:
    """Return the content of a module, not compressed any more."""
    data = path.read_bytes()
    try:
        match path.suffix:
            case ".xz":
                return lzma.decompress(data)
            case ".gz":
                return zlib.decompress(data, 31)
            case ".zst":
                return _zstd(data)
            case _:
                return data
    except (lzma.LZMAError, zlib.error) as error:
        raise LabError(f"{path}: is damaged: {error}") from error


def depends(module: bytes) -> tuple[str, ...]:
    """Return the names of the modules that one says it needs."""
    found = _DEPENDS.search(module)
    words = found[1].decode("ascii").split(",") if found else []
    return tuple(word.replace("-", "_") for word in words if word)


def _xz(data: bytes) -> bytes:
    return lzma.LZMADecompressor().decompress(data, max_length=_VMLINUX_MAX)


def _gzip(data: bytes) -> bytes:
    return zlib.decompressobj(31).decompress(data, _VMLINUX_MAX)


_FORMATS: Final[tuple[tuple[bytes, Callable[[bytes], bytes]], ...]] = (
    (b"\xfd7zXZ\x00", _xz),
    (b"\x1f\x8b\x08", _gzip),
)


def _payload(image: bytes) -> bytes:
    """Return the compressed kernel by the header of the image, without the size that follows it.

    zstd takes nothing after its frame, so the very bytes are needed (kernel:
    Documentation/arch/x86/boot.rst, payload_offset and payload_length since protocol 2.08).
    """
    if len(image) < _HEADER_BYTES or image[0x202:0x206] != b"HdrS":
        return b""
    sectors = image[0x1F1] or 4
    offset, length = struct.unpack_from("<II", image, 0x248)
    start = (sectors + 1) * 512 + offset
    return image[start : start + length - 4]


def _zstd(data: bytes) -> bytes:
    # Python 3.11 has no zstd of its own.
    try:
        done = subprocess.run(
            [programs.need("zstd"), "-dcq"],
            input=data,
            capture_output=True,
            timeout=_ZSTD_LIMIT_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise LabError(f"zstd: not done after {_ZSTD_LIMIT_S:g} s") from None
    if done.returncode != 0:
        words = done.stderr.decode("utf-8", "replace").strip().splitlines()
        raise LabError(f"zstd: {words[-1] if words else f'exit status {done.returncode}'}")
    return done.stdout
