import struct
from pathlib import Path

import pytest

from tunnelmark.model.errors import LabError
from tunnelmark.vmimage import programs
from tunnelmark.vmimage.own_kernel import own_kernel
from tunnelmark.vmimage.recipe import RECIPE

RELEASE = "6.17.0-mine+"


def elf(*, machine: int = 62, note: int = 18, release: str = RELEASE) -> bytes:
    """Make an ELF file with one note of Xen and the kernel's banner."""
    notes = struct.pack("<III", 4, 8, note) + b"Xen\0" + bytes(8)
    head = bytearray(64)
    head[:6] = b"\x7fELF\x02\x01"
    struct.pack_into("<H", head, 18, machine)
    struct.pack_into("<Q", head, 32, 64)
    struct.pack_into("<HH", head, 54, 56, 1)
    segment = struct.pack("<IIQQQQQQ", 4, 0, 120, 0, 0, len(notes), len(notes), 4)
    banner = f"Linux version {release} (me@here) #1 SMP\0".encode()
    return bytes(head) + segment + notes + banner


@pytest.fixture
def image(tmp_path: Path) -> Path:
    file = tmp_path / "vmlinux"
    file.write_bytes(elf())
    return file


@pytest.fixture
def modules(tmp_path: Path) -> Path:
    tree = tmp_path / RELEASE
    for path in ("kernel/net/xfrm/xfrm_user.ko", "updates/dkms/amneziawg.ko", "kernel/fs/ntfs.ko"):
        (tree / path).parent.mkdir(parents=True)
        text = f"\0depends=\0vermagic={RELEASE} SMP\0{path}"
        (tree / path).write_text(text)
    built_in = "".join(f"kernel/{name}.ko\n" for name in RECIPE.boot_modules)
    (tree / "modules.builtin").write_text(built_in)
    return tree


def test_a_kernel_is_taken_with_the_modules_of_the_suites_and_its_own(
    image: Path, modules: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(programs, "run", lambda *_args, **_kwargs: "")
    own = own_kernel(image, modules, RECIPE)
    assert own.release == RELEASE
    kernel = own.kernel(tmp_path / "work")
    assert kernel.vmlinux == elf()
    assert sorted(kernel.modules) == [
        "kernel/net/xfrm/xfrm_user.ko",
        "modules.builtin",
        "updates/dkms/amneziawg.ko",
    ]


def test_the_digest_is_of_the_kernel_and_of_every_module(image: Path, modules: Path) -> None:
    first = own_kernel(image, modules, RECIPE).sha256
    assert own_kernel(image, modules, RECIPE).sha256 == first
    with (modules / "kernel/fs/ntfs.ko").open("a") as file:
        file.write("changed")
    second = own_kernel(image, modules, RECIPE).sha256
    image.write_bytes(elf() + b"changed")
    assert len({first, second, own_kernel(image, modules, RECIPE).sha256}) == 3


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (None, "is not a file (give a vmlinuz or a vmlinux)"),
        (b"MZ no kernel", "kernel image of 12 bytes: no ELF file compressed by xz, gzip or zstd"),
        (elf(machine=183), "is not a kernel for x86-64"),
        (elf(note=1), "has no PVH entry, by which QEMU starts a kernel (build it with CONFIG_PVH"),
        (elf()[:60], "is cut off or damaged"),
        (elf(release="../../etc"), "names no release of Linux"),
    ],
)
def test_another_file_is_refused_by_name(
    image: Path, modules: Path, data: bytes | None, words: str
) -> None:
    image.unlink()
    if data is not None:
        image.write_bytes(data)
    with pytest.raises(LabError) as caught:
        own_kernel(image, modules, RECIPE)
    assert str(caught.value).startswith(f"{image}: ")
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


def test_modules_of_another_kernel_are_refused(image: Path, modules: Path) -> None:
    image.write_bytes(elf(release="6.18.0"))
    with pytest.raises(LabError) as caught:
        own_kernel(image, modules, RECIPE)
    assert str(caught.value) == (
        f"{modules}: kernel/fs/ntfs.ko is of {RELEASE}, {image} is Linux 6.18.0 (give the modules "
        "of this kernel)"
    )


def test_a_directory_without_modules_is_refused(image: Path, tmp_path: Path) -> None:
    with pytest.raises(LabError, match="is not a directory"):
        own_kernel(image, tmp_path / "gone", RECIPE)
    with pytest.raises(LabError, match=r"has no modules\.builtin"):
        own_kernel(image, tmp_path, RECIPE)


def test_what_a_machine_starts_with_must_be_there(image: Path, modules: Path) -> None:
    (modules / "modules.builtin").write_text("kernel/drivers/virtio/virtio_pci.ko\n")
    with pytest.raises(LabError, match="has no virtio_blk, without which a machine does not start"):
        own_kernel(image, modules, RECIPE)
