import lzma
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tunnelmark.model.errors import LabError
from tunnelmark.vmimage.kernel import Kernel, uncompressed

ELF = b"\x7fELF" + bytes(range(256)) * 8


def gzip(data: bytes) -> bytes:
    packer = zlib.compressobj(wbits=31)
    return packer.compress(data) + packer.flush()


@given(st.binary(max_size=300), st.binary(max_size=300))
def test_the_payload_is_found_between_anything(before: bytes, after: bytes) -> None:
    assert uncompressed(before + lzma.compress(ELF) + after) == ELF
    assert uncompressed(before + gzip(ELF) + after) == ELF


def test_what_only_looks_like_a_payload_is_passed_over() -> None:
    decoys = b"\x1f\x8b\x08junk" + b"\xfd7zXZ\x00junk" + gzip(b"not a kernel")
    assert uncompressed(decoys + gzip(ELF)) == ELF


def test_an_image_without_payload_is_refused() -> None:
    with pytest.raises(LabError, match="kernel image of 5 bytes"):
        uncompressed(b"MZ...")


def kernel() -> Kernel:
    depends = (
        "kernel/a.ko: kernel/b.ko kernel/c.ko\n"
        "kernel/b.ko: kernel/c.ko\n"
        "kernel/c.ko:\n"
        "kernel/x/virtio-rng.ko:\n"
    )
    return Kernel(
        release="6.1",
        vmlinux=b"",
        modules={"modules.dep": depends.encode(), "modules.builtin": b"kernel/virtio.ko\n"},
    )


def test_dependencies_are_loaded_first_and_once() -> None:
    order = kernel().in_load_order(["a", "c", "virtio_rng"])
    assert order == ("kernel/c.ko", "kernel/b.ko", "kernel/a.ko", "kernel/x/virtio-rng.ko")


def test_what_is_built_in_needs_no_loading() -> None:
    assert kernel().in_load_order(["virtio"]) == ()


def test_a_module_that_is_not_there_is_named() -> None:
    with pytest.raises(LabError, match=r"kernel 6\.1: there is no module nonsense"):
        kernel().in_load_order(["nonsense"])
