import json
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from tunnelmark.cli import vm as cli
from tunnelmark.cli.vm import vm
from tunnelmark.hosts import vm_accel
from tunnelmark.hosts.vm_accel import Choice
from tunnelmark.model.errors import LabError
from tunnelmark.vmimage import build as builder
from tunnelmark.vmimage import cache, programs
from tunnelmark.vmimage.own_kernel import OwnKernel
from tunnelmark.vmimage.packages import Mirrors
from tunnelmark.vmimage.recipe import RECIPE, Recipe
from tunnelmark.vmimage.suites import SUITES


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(cache, "SYSTEM_CACHE", tmp_path / "system")
    monkeypatch.setattr(vm_accel, "choose", lambda _image: Choice("tcg", "no kvm in a test"))
    monkeypatch.setattr(builder, "unavailable", lambda: None)
    return cache.user_cache()


def store(
    directory: Path, recipe: Recipe = RECIPE, *, release: str = "6.1", size_bytes: int = 1_000_000
) -> cache.Image:
    building = directory / ".building"
    building.mkdir(parents=True)
    for name in cache.FILES:
        (building / name).write_bytes(bytes(size_bytes))
    return cache.store(
        building,
        recipe,
        kernel_release=release,
        packages={"a": "1"},
        modules=(),
        download_s=3.0,
        build_s=9.0,
    )


def test_status_without_anything_names_the_remedies(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert not home.exists()
    monkeypatch.setattr(programs, "_PATH", "/nonexistent")
    reason = "sqfstar is not installed (apt-get install squashfs-tools)"
    monkeypatch.setattr(builder, "unavailable", lambda: reason)
    lines = CliRunner().invoke(vm, ["status"], catch_exceptions=False).stdout.splitlines()
    assert lines == [
        f"bookworm: no image of recipe {RECIPE.digest()} (tunnelmark vm build)",
        *(
            f"{suite}: no image of recipe {SUITES[suite].digest()} (tunnelmark vm build --suite "
            f"{suite})"
            for suite in ("trixie", "trixie-backports", "forky")
        ),
        "qemu: qemu-system-x86_64 is not installed (apt-get install qemu-system-x86)",
        f"an image cannot be built here: {reason}",
    ]


def test_status_of_an_image(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    image = store(home)
    monkeypatch.setattr(programs, "need", lambda _program: "/usr/bin/qemu-system-x86_64")
    text = CliRunner().invoke(vm, ["status"], catch_exceptions=False).stdout
    assert f"bookworm: image {RECIPE.digest()}: Linux 6.1, 1 packages, 3 MB" in text
    assert "machines run by emulation: no kvm in a test" in text
    raw = CliRunner().invoke(vm, ["status", "--json", "--verify"], catch_exceptions=False).stdout
    state = json.loads(raw)
    assert (state["image"], state["accelerator"], state["damaged"]) == (
        str(image.directory),
        "tcg",
        None,
    )


def test_status_lists_every_suite_and_own_kernels(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(programs, "need", lambda _program: "/usr/bin/qemu-system-x86_64")
    trixie = store(home, SUITES["trixie"], release="6.12")
    own = store(home, replace(SUITES["trixie"], own_kernel="0" * 64), release="6.17.0-mine")
    text = CliRunner().invoke(vm, ["status"], catch_exceptions=False).stdout
    assert f"trixie: image {trixie.recipe_digest}: Linux 6.12, " in text
    assert "\ntrixie: without softether-vpnclient, " in text
    assert f"trixie: image {own.recipe_digest}: Linux 6.17.0-mine (your own), " in text
    raw = CliRunner().invoke(vm, ["status", "--json"], catch_exceptions=False).stdout
    state = json.loads(raw)
    assert (state["image"], state["suites"]["bookworm"]["image"]) == (None, None)
    assert state["suites"]["trixie"]["image"] == str(trixie.directory)
    assert [one["kernel"] for one in state["suites"]["trixie"]["own_kernels"]] == ["6.17.0-mine"]
    own.vmlinux.write_bytes(b"x" * 1_000_000)
    with pytest.raises(LabError, match=r"--refresh --suite trixie --kernel FILE --modules DIR\)"):
        CliRunner().invoke(vm, ["status", "--verify"], catch_exceptions=False)


def test_build_of_a_suite_with_an_own_kernel(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = OwnKernel("6.17.0-mine", b"", tmp_path, "0" * 64)
    asked: list[object] = []

    def build(**arguments: object) -> cache.Image:
        asked.append((arguments["recipe"], arguments["own"]))
        return store(home, replace(SUITES["trixie"], own_kernel="0" * 64), release=own.release)

    monkeypatch.setattr(builder, "build", build)
    monkeypatch.setattr(cli, "own_kernel", lambda *_arguments: own)
    options = ["build", "--suite", "trixie", "--kernel", "vmlinuz", "--modules", "mods"]
    done = CliRunner().invoke(vm, options, catch_exceptions=False)
    assert asked == [(SUITES["trixie"], own)]
    assert done.stdout.splitlines()[-1] == (
        "use it with: tunnelmark run STUDY --suite trixie --kernel 6.17.0-mine"
    )
    half = CliRunner().invoke(vm, ["build", "--kernel", "vmlinuz"])
    assert half.exit_code == 2
    assert "--kernel FILE and --modules DIR need each other" in half.stderr
    assert CliRunner().invoke(vm, ["build", "--suite", "sid"]).exit_code == 2


def test_a_damaged_image_is_an_error_with_its_remedy(home: Path) -> None:
    image = store(home)
    image.vmlinux.write_bytes(b"x" * 1_000_000)
    with pytest.raises(LabError, match=r"vmlinux: differs .* \(tunnelmark vm build --refresh\)"):
        CliRunner().invoke(vm, ["status", "--verify"], catch_exceptions=False)


def test_build_is_reported_where_from_and_where_to(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[object] = []

    def build(**arguments: object) -> cache.Image:
        say = arguments["say"]
        assert callable(say)
        say("a step")
        asked.append((arguments["mirrors"], arguments["directory"], arguments["refresh"]))
        return store(home)

    monkeypatch.setattr(builder, "build", build)
    options = ["build", "--refresh", "--system", "--mirror", "http://m", "--security-mirror", "s"]
    done = CliRunner().invoke(vm, options, catch_exceptions=False)
    assert asked == [(Mirrors("http://m", "s"), cache.SYSTEM_CACHE, True)]
    assert "built in 9 s" in done.stdout
    assert done.stderr == "vm: a step\n"


def test_remove_leaves_nothing(home: Path) -> None:
    store(home)
    done = CliRunner().invoke(vm, ["remove"], catch_exceptions=False)
    assert done.stdout.startswith("3 MB freed in ")
    assert not home.exists()
    assert CliRunner().invoke(vm, ["remove"], catch_exceptions=False).stdout.startswith("0 MB")


def test_remove_old_keeps_the_image_in_use(home: Path) -> None:
    image = store(home)
    (home / "0123456789abcdef").mkdir()
    (home / "0123456789abcdef" / "vmlinux").write_bytes(bytes(2_000_000))
    done = CliRunner().invoke(vm, ["remove", "--old"], catch_exceptions=False)
    assert done.stdout.startswith("2 MB freed in ")
    assert cache.find() == image
    assert not (home / "0123456789abcdef").exists()


def test_remove_old_keeps_every_suite_and_own_kernels_of_this_version(home: Path) -> None:
    kept = [
        store(home, SUITES["trixie"]),
        store(home, replace(SUITES["trixie"], own_kernel="0" * 64), release="6.17.0"),
    ]
    store(home, replace(SUITES["trixie"], format=0, own_kernel="0" * 64), release="6.17.0")
    done = CliRunner().invoke(vm, ["remove", "--old"], catch_exceptions=False)
    assert done.stdout.startswith("3 MB freed in ")
    digests = {image.recipe_digest for image in kept}
    assert {image.recipe_digest for image in cache.images(home)} == digests


def test_remove_of_one_suite_keeps_the_others(home: Path) -> None:
    image = store(home)
    store(home, SUITES["trixie"])
    store(home, replace(SUITES["trixie"], own_kernel="0" * 64), release="6.17.0")
    done = CliRunner().invoke(vm, ["remove", "--suite", "trixie"], catch_exceptions=False)
    assert done.stdout.startswith("6 MB freed in ")
    assert cache.images(home) == (image,)
    assert CliRunner().invoke(vm, ["remove", "--suite", "trixie", "--old"]).exit_code == 2
