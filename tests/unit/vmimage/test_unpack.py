import lzma
import shutil
import struct
import subprocess
import zlib
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tunnelmark.model.errors import LabError
from tunnelmark.vmimage import programs, unpack

ELF = b"\x7fELF" + bytes(range(256)) * 8


def gzip(data: bytes) -> bytes:
    packer = zlib.compressobj(wbits=31)
    return packer.compress(data) + packer.flush()


def zstd(data: bytes) -> bytes:
    if shutil.which("zstd") is None:
        pytest.skip("zstd is not installed")
    return subprocess.run(["zstd", "-qc"], input=data, capture_output=True, check=True).stdout


@given(st.binary(max_size=300), st.binary(max_size=300))
def test_the_payload_is_found_between_anything(before: bytes, after: bytes) -> None:
    # As every bzImage begins: boot loaders of UEFI take it for a program.
    assert unpack.vmlinux(b"MZ" + before + lzma.compress(ELF) + after) == ELF
    assert unpack.vmlinux(b"MZ" + before + gzip(ELF) + after) == ELF


def test_what_only_looks_like_a_payload_is_passed_over() -> None:
    decoys = b"\x1f\x8b\x08junk" + b"\xfd7zXZ\x00junk" + gzip(b"not a kernel")
    assert unpack.vmlinux(decoys + gzip(ELF)) == ELF


def test_a_kernel_that_is_not_compressed_is_taken_as_it_is() -> None:
    assert unpack.vmlinux(ELF) == ELF


def test_an_image_without_payload_is_refused() -> None:
    with pytest.raises(LabError, match="kernel image of 5 bytes"):
        unpack.vmlinux(b"MZ...")


def test_zstd_is_found_by_the_header_of_the_image() -> None:
    payload = zstd(ELF)
    image = bytearray(1024 + 64)
    image[0x1F1] = 1  # sectors of set-up code behind the first
    image[0x202:0x206] = b"HdrS"
    struct.pack_into("<II", image, 0x248, 64, len(payload) + 4)
    image += payload + struct.pack("<I", len(ELF)) + b"what follows"
    assert unpack.vmlinux(bytes(image)) == ELF


@pytest.mark.parametrize("ending", ["", ".xz", ".gz", ".zst"])
def test_modules_are_read_whatever_their_compression(tmp_path: Path, ending: str) -> None:
    pack: dict[str, Callable[[bytes], bytes]] = {
        "": bytes,
        ".xz": lzma.compress,
        ".gz": gzip,
        ".zst": zstd,
    }
    file = tmp_path / f"a.ko{ending}"
    file.write_bytes(pack[ending](ELF))
    assert unpack.file(file) == ELF


def test_a_damaged_module_is_named(tmp_path: Path) -> None:
    file = tmp_path / "a.ko.xz"
    file.write_bytes(b"\xfd7zXZ\x00junk")
    with pytest.raises(LabError, match=r"a\.ko\.xz: is damaged"):
        unpack.file(file)


def test_without_zstd_the_package_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(programs, "_PATH", "/nonexistent")
    file = tmp_path / "a.ko.zst"
    file.write_bytes(b"x")
    with pytest.raises(LabError, match=r"zstd is not installed \(apt-get install zstd\)"):
        unpack.file(file)


def test_a_module_says_what_it_needs() -> None:
    assert unpack.depends(b"\0depends=b,c-d\0retpoline=Y\0") == ("b", "c_d")
    assert unpack.depends(b"\0depends=\0") == ()
    assert unpack.depends(b"nothing") == ()
