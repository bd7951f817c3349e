import io
import lzma
import tarfile
from pathlib import Path

import pytest

from tunnelmark.model.errors import LabError
from tunnelmark.vmimage import programs
from tunnelmark.vmimage.kernel import Kernel, Packages, selected

ELF = b"\x7fELF" + bytes(range(256)) * 8


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


@pytest.fixture
def no_depmod(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(programs, "run", lambda *_args, **_kwargs: "")


def module(*depends: str) -> bytes:
    return b"\x7fELF\0license=GPL\0depends=" + ",".join(depends).encode() + b"\0name=x\0"


def tree(root: Path, modules: dict[str, bytes]) -> Path:
    for path, data in modules.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_bytes(data)
    (root / "modules.builtin").write_text("kernel/fs/squashfs/squashfs.ko\n")
    return root


@pytest.mark.usefixtures("no_depmod")
def test_modules_come_with_what_they_need_and_uncompressed(tmp_path: Path) -> None:
    modules = tree(
        tmp_path / "all",
        {
            "kernel/net/a.ko.xz": lzma.compress(module("b-c")),
            "kernel/lib/b-c.ko": module("d"),
            "kernel/lib/d.ko": module(),
            "kernel/drivers/z.ko": module(),
        },
    )
    starts = ["kernel/net", "kernel/fs/squashfs"]
    found = selected(modules, "6.12", starts, tmp_path / "work", required=starts)
    assert sorted(found) == [
        "kernel/lib/b-c.ko",
        "kernel/lib/d.ko",
        "kernel/net/a.ko",
        "modules.builtin",
    ]
    assert found["kernel/net/a.ko"] == module("b-c")


@pytest.mark.usefixtures("no_depmod")
def test_a_module_that_is_missing_is_an_error_where_it_is_required(tmp_path: Path) -> None:
    modules = tree(tmp_path / "all", {"kernel/net/a.ko": module("gone")})
    with pytest.raises(LabError, match=r"kernel 6\.12: there is no kernel/fs/ovl"):
        selected(modules, "6.12", ["kernel/fs/ovl"], tmp_path / "1", required=["kernel/fs/ovl"])
    assert list(selected(modules, "6.12", ["kernel/fs/ovl"], tmp_path / "2", required=())) == [
        "modules.builtin"
    ]
    with pytest.raises(LabError, match=r"6\.12: kernel/net/a\.ko needs gone, which is not there"):
        selected(modules, "6.12", ["kernel/net"], tmp_path / "3", required=())


def package(files: dict[str, bytes]) -> tarfile.TarFile:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as tar:
        for path, data in files.items():
            info = tarfile.TarInfo(path)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    out.seek(0)
    return tarfile.open(fileobj=out)


@pytest.mark.usefixtures("no_depmod")
@pytest.mark.parametrize(
    "parts",
    [
        # Debian 12 and 13; then the parts into which Debian cuts Linux 7.
        [("boot/vmlinuz-6.1", "lib/modules/6.1/kernel/a.ko", "lib/modules/6.1/modules.builtin")],
        [
            ("usr/lib/modules/6.1/vmlinuz",),
            ("usr/lib/modules/6.1/kernel/a.ko", "usr/lib/modules/6.1/modules.builtin"),
        ],
    ],
)
def test_a_kernel_may_come_in_parts(tmp_path: Path, parts: list[tuple[str, ...]]) -> None:
    data = {"vmlinuz-6.1": ELF, "vmlinuz": ELF, "a.ko": module(), "modules.builtin": b""}
    kernel = Packages(tmp_path)
    for names in parts:
        with package({name: data[Path(name).name] for name in names}) as tar:
            kernel.add(tar)
    found = kernel.kernel(["a.ko"])
    assert (found.release, found.vmlinux, sorted(found.modules)) == (
        "6.1",
        ELF,
        ["kernel/a.ko", "modules.builtin"],
    )


def test_packages_without_a_kernel_are_refused(tmp_path: Path) -> None:
    with pytest.raises(LabError, match="has no vmlinuz with modules of the same release"):
        Packages(tmp_path).kernel([])
