import errno
import json
import os
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tunnelmark.model.errors import LabError
from tunnelmark.vmimage import cache
from tunnelmark.vmimage.build import build
from tunnelmark.vmimage.cache import Image
from tunnelmark.vmimage.recipe import RECIPE


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(cache, "SYSTEM_CACHE", tmp_path / "system")
    directory = cache.user_cache()
    cache.prepare(directory)
    return directory


def store(directory: Path, text: str = "x") -> Image:
    building = directory / ".building"
    building.mkdir()
    for name in cache.FILES:
        (building / name).write_text(f"{text} {name}")
    return cache.store(
        building,
        RECIPE,
        kernel_release="6.1",
        packages={"b": "2", "a": "1"},
        modules=("kernel/net/esp4.ko",),
        download_s=1.234,
        build_s=5.678,
    )


def test_what_is_stored_is_found_and_whole(home: Path) -> None:
    image = store(home)
    assert cache.find() == image
    assert cache.images(home) == (image,)
    assert cache.verify(image) is None
    assert image.vmlinux.read_text() == "x vmlinux"
    assert image.size_bytes == sum(len(f"x {name}") for name in cache.FILES)
    assert (image.download_s, image.build_s) == (1.23, 5.68)


def test_nothing_is_found_in_an_empty_cache(home: Path) -> None:
    assert cache.find() is None
    assert cache.images(home) == ()


def test_another_recipe_is_another_image(home: Path) -> None:
    store(home)
    assert cache.find(replace(RECIPE, packages=(*RECIPE.packages, "vim"))) is None


def test_an_image_is_replaced_whole(home: Path) -> None:
    store(home, "old")
    image = store(home, "new")
    assert image.system.read_text() == "new system.squashfs"
    assert [entry.name for entry in home.iterdir()] == [RECIPE.digest()]


def test_a_file_of_another_size_makes_it_no_image(home: Path) -> None:
    store(home).system.write_text("cut")
    assert cache.find() is None


def test_a_changed_file_of_the_same_size_is_seen_by_verify(home: Path) -> None:
    image = store(home)
    image.vmlinux.write_text("y vmlinux")
    assert cache.find() == image
    assert cache.verify(image) == f"{image.vmlinux}: differs from what was built"


@pytest.mark.parametrize(
    "change",
    [
        {"sizes_bytes": {}},
        {"packages": []},
        {"build_s": "soon"},
        {"modules": 3},
    ],
)
def test_a_damaged_manifest_makes_it_no_image(home: Path, change: dict[str, object]) -> None:
    manifest = store(home).directory / "manifest.json"
    manifest.write_text(json.dumps({**json.loads(manifest.read_text()), **change}))
    assert cache.find() is None


def test_an_image_that_others_may_write_is_not_trusted(home: Path) -> None:
    image = store(home)
    image.directory.chmod(0o777)
    assert cache.find() is None


@pytest.mark.skipif(os.getuid() != 0, reason="giving a file away needs root")
def test_an_image_of_another_user_is_not_trusted(home: Path) -> None:
    image = store(home)
    os.chown(image.directory, 12345, 12345)
    assert cache.find() is None
    os.chown(home, 12345, 12345)
    with pytest.raises(LabError, match="belongs to user 12345"):
        cache.prepare(home)


def test_the_systems_image_serves_users_without_one(home: Path, tmp_path: Path) -> None:
    system = tmp_path / "system"
    system.mkdir()
    image = store(system)
    assert cache.find() == image
    own = store(home)
    assert cache.find() == own


def test_remove_frees_all_but_the_lock(home: Path) -> None:
    image = store(home)
    (home / ".downloads-x").mkdir()
    (home / ".downloads-x" / "a.deb").write_bytes(bytes(1000))
    assert cache.remove(home) >= image.size_bytes + 1000
    assert cache.find() is None
    assert [entry.name for entry in home.iterdir()] == [".lock"]
    assert cache.remove(home / "gone") == 0


@pytest.mark.parametrize("at", [".lock", "entry"])
def test_a_cache_of_root_s_is_named_to_others_with_the_remedy(
    home: Path, monkeypatch: pytest.MonkeyPatch, at: str
) -> None:
    image = store(home)
    plain = Path.open

    def refused(path: Path, *_arguments: object) -> Any:
        raise PermissionError(errno.EACCES, "Permission denied", str(path))

    def opened(path: Path, *arguments: Any) -> Any:
        return (refused if path.name == ".lock" else plain)(path, *arguments)

    if at == ".lock":
        monkeypatch.setattr(Path, "open", opened)
    else:
        monkeypatch.setattr(shutil, "rmtree", refused)
    with pytest.raises(LabError) as caught:
        cache.remove(home)
    words = "cannot be changed: Permission denied (run as root)"
    assert str(caught.value) == f"{home}: {words}"
    assert cache.find() == image


def test_an_image_that_is_there_is_found_without_the_lock(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    image = store(home)

    def locked(_cache: Path) -> None:
        raise AssertionError

    monkeypatch.setattr(cache, "locked", locked)
    found = build(clock=lambda: 0.0, say=lambda _step: None, directory=home)
    assert found == image


def test_what_fails_under_the_lock_is_not_the_lock_s(home: Path) -> None:
    with pytest.raises(FileNotFoundError), cache.locked(home):
        raise FileNotFoundError


def test_a_user_without_a_home_has_a_cache_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setenv("HOME", "/nonexistent")
    assert cache.user_cache().parts[1:] == ("var", "tmp", f"tunnelmark-{os.getuid()}", "vm")
    monkeypatch.setenv("XDG_CACHE_HOME", "relative/is/ignored")
    assert cache.user_cache().parts[1:] == ("var", "tmp", f"tunnelmark-{os.getuid()}", "vm")
