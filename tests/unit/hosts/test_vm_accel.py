import json
import os
from pathlib import Path

import pytest

from tunnelmark.hosts import vm_accel
from tunnelmark.hosts.vm_accel import Choice, choose
from tunnelmark.vmimage import programs
from tunnelmark.vmimage.cache import Image


@pytest.fixture
def image(tmp_path: Path) -> Image:
    return Image(
        directory=tmp_path,
        recipe_digest="0123456789abcdef",
        kernel_release="6.1",
        packages={},
        modules=(),
        sizes_bytes={},
        sha256={},
        download_s=0,
        build_s=0,
    )


@pytest.fixture
def device(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Stand in for /dev/kvm, which may or may not be here."""
    file = tmp_path / "kvm"
    file.touch()
    monkeypatch.setattr(vm_accel, "_KVM", file)
    return file


def qemu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str) -> Path:
    """Put a program in QEMU's place that counts how often it is started."""
    count = tmp_path / "count"
    program = tmp_path / "qemu-system-x86_64"
    program.write_text(f"#!/bin/sh\necho x >>{count}\n{text}\n")
    program.chmod(0o755)
    monkeypatch.setattr(programs, "_PATH", f"{tmp_path}:{os.environ['PATH']}")
    return count


def test_without_the_device_there_is_nothing_to_try(device: Path, image: Image) -> None:
    device.unlink()
    choice = choose(image, cached=device.parent / "cached")
    assert choice == Choice("tcg", f"{device} does not exist")


@pytest.mark.usefixtures("device")
def test_a_machine_that_boots_chooses_kvm_and_is_asked_once(
    image: Image, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    count = qemu(tmp_path, monkeypatch, "echo 'tunnelmark-init: probe done'")
    for _ in range(2):
        choice = choose(image, cached=tmp_path / "cached")
        assert choice == Choice("kvm", "a test machine booted with it")
    assert count.read_text() == "x\n"


@pytest.mark.usefixtures("device")
def test_a_machine_that_hangs_chooses_emulation(
    image: Image, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    qemu(tmp_path, monkeypatch, "exec sleep 100")
    monkeypatch.setattr(vm_accel, "_LIMIT_S", 0.2)
    choice = choose(image, cached=tmp_path / "cached")
    assert choice == Choice("tcg", "a test machine with KVM did not boot within 0.2 s")


@pytest.mark.usefixtures("device")
def test_qemus_own_words_are_the_reason(
    image: Image, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    qemu(tmp_path, monkeypatch, "echo 'failed to initialize kvm' >&2; exit 1")
    choice = choose(image, cached=tmp_path / "cached")
    assert choice == Choice("tcg", "kvm: failed to initialize kvm")


@pytest.mark.usefixtures("device")
def test_an_end_without_the_sign_is_no_boot(
    image: Image, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    qemu(tmp_path, monkeypatch, "exit 0")
    assert choose(image, cached=tmp_path / "cached").accelerator == "tcg"


@pytest.mark.usefixtures("device")
@pytest.mark.parametrize(
    "change", [{"boot_id": "other"}, {"image": "other"}, {"accelerator": None}, None]
)
def test_what_was_kept_of_another_boot_image_or_is_damaged_is_not_used(
    change: dict[str, object] | None,
    image: Image,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    count = qemu(tmp_path, monkeypatch, "echo 'tunnelmark-init: probe done'")
    cached = tmp_path / "cached"
    choose(image, cached=cached)
    kept = json.loads(cached.read_text())
    cached.write_text("{" if change is None else json.dumps({**kept, **change}))
    choose(image, cached=cached)
    assert count.read_text() == "x\nx\n"


@pytest.mark.usefixtures("device")
def test_a_cache_that_cannot_be_written_is_no_error(
    image: Image, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    qemu(tmp_path, monkeypatch, "echo 'tunnelmark-init: probe done'")
    (tmp_path / "file").touch()
    assert choose(image, cached=tmp_path / "file" / "below").accelerator == "kvm"
