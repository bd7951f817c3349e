"""Builds an image: download, gather, write; without root, namespaces or running foreign scripts."""

import shutil
import subprocess
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Final

from tunnelmark.model.errors import LabError
from tunnelmark.model.suites import MachineSystem
from tunnelmark.vmimage import cache, cpio, kernel, packages, programs
from tunnelmark.vmimage.cache import Image
from tunnelmark.vmimage.kernel import Kernel
from tunnelmark.vmimage.own_kernel import OwnKernel
from tunnelmark.vmimage.packages import Mirrors, Package
from tunnelmark.vmimage.recipe import RECIPE, Recipe
from tunnelmark.vmimage.suites import SUITES
from tunnelmark.vmimage.tree import Tree, finish

NEEDED: Final = ("apt-get", "apt-cache", "apt-config", "dpkg-deb", "depmod", "sqfstar")
"""Programs a build runs."""

_FREE_BYTES: Final = 1536 << 20


def unavailable() -> str | None:
    """Return why this machine cannot build an image, with the remedy, or None."""
    for program in NEEDED:
        try:
            programs.need(program)
        except LabError as error:
            return str(error)
    return None


def ensure(
    *,
    clock: Callable[[], float],
    say: Callable[[str], None],
    system: MachineSystem = MachineSystem(),  # noqa: B008  # frozen
) -> Image:
    """Return the image of a system from the cache, or build it there.

    Raises ``LabError`` for a user's own kernel without an image: only its user has the files.
    """
    found = ready(system)
    if found is None and system.kernel is not None:
        raise LabError(missing(system))
    return found or build(clock=clock, say=say, recipe=SUITES[system.name])


def ready(system: MachineSystem) -> Image | None:
    """Return the image of a system if it is in the cache; nothing is built."""
    recipe = SUITES[system.name]
    if system.kernel is None:
        return cache.find(recipe)
    return cache.find_own(recipe, system.kernel)


def missing(system: MachineSystem) -> str:
    """Return that a system has no image, with the remedy."""
    of = f" of {system.describe()}" if system.is_named else ""
    return f"there is no image{of} for virtual machines (tunnelmark vm build{system.options()})"


def build(
    *,
    clock: Callable[[], float],
    say: Callable[[str], None],
    recipe: Recipe = RECIPE,
    mirrors: Mirrors | None = None,
    directory: Path | None = None,
    refresh: bool = False,
    own: OwnKernel | None = None,
) -> Image:
    """Build the image into the cache and return it; one that is there is returned, or renewed.

    ``clock`` gives seconds (for the manifest), ``say`` gets each step. A user's ``own`` kernel
    takes the place of the recipe's, and of an earlier one of the same release. Raises ``LabError``
    naming the one package to install, the step that failed, or the room that is missing.
    """
    base = recipe
    if own is not None:
        recipe = replace(recipe, own_kernel=own.sha256)
    directory = directory or cache.user_cache()
    # Before all else: who may not build, or take the lock, may use what is there.
    known = cache.load(directory / recipe.digest())
    if known is not None and not refresh:
        return known
    if reason := unavailable():
        raise LabError(f"the system image cannot be built: {reason}")
    cache.prepare(directory)
    with cache.locked(directory):
        known = cache.load(directory / recipe.digest())  # of the build that was waited for
        if known is not None and not refresh:
            return known
        if (free := shutil.disk_usage(directory).free) < _FREE_BYTES:
            raise LabError(
                f"{directory}: {free >> 20} MiB are free, a build needs {_FREE_BYTES >> 20}"
            )
        # Under the lock this name is ours; what an interrupted build downloaded is used again.
        downloads = directory / f".downloads-{recipe.digest()}"
        downloads.mkdir(exist_ok=True)
        building = directory / f".building-{recipe.digest()}"
        shutil.rmtree(building, ignore_errors=True)
        building.mkdir(mode=0o700)
        started = clock()
        say(f"downloading {len(recipe.packages)} packages and what they need")
        found = _downloaded(recipe, mirrors or Mirrors(), downloads)
        downloaded = clock()
        system, kernel_packages = found
        taken = _kernel(recipe, own, kernel_packages, building, say)
        _write(recipe, system, taken, building, say)
        image = cache.store(
            building,
            recipe,
            kernel_release=taken.release,
            packages={package.name: package.version for package in (*system, *kernel_packages)},
            modules=tuple(name for name in taken.modules if name.endswith(".ko")),
            download_s=downloaded - started,
            build_s=clock() - downloaded,
        )
        shutil.rmtree(downloads)
        if own is not None:
            cache.remove_entries(
                other.directory
                for other in cache.images(directory)
                if other.kernel_release == own.release
                and other.recipe_digest != image.recipe_digest
                and cache.is_own_of(other, base)
            )
        return image


def _downloaded(
    recipe: Recipe, mirrors: Mirrors, directory: Path
) -> tuple[tuple[Package, ...], tuple[Package, ...]]:
    """Download all packages; where lists are too old, say how they are taken all the same."""
    try:
        return packages.download(recipe, mirrors, directory)
    except LabError as error:
        if _EXPIRED in str(error) and not mirrors.expired:
            raise LabError(f"{error} (tunnelmark vm build --expired takes it as it is)") from error
        raise


_EXPIRED: Final = " is expired "
"""What apt-get says of a list whose time is over."""


def _kernel(
    recipe: Recipe,
    own: OwnKernel | None,
    kernel_packages: Iterable[Package],
    building: Path,
    say: Callable[[str], None],
) -> Kernel:
    unpacked = building / ".kernel"
    unpacked.mkdir()
    if own is not None:
        say(f"reading the kernel {own.release}")
        taken = own.kernel(unpacked)
    else:
        parts = kernel.Packages(unpacked)
        for package in kernel_packages:
            say(f"unpacking {package.name} {package.version}")
            with packages.contents(package) as tar:
                parts.add(tar)
        taken = parts.kernel(recipe.modules)
    shutil.rmtree(unpacked)
    return taken


def _write(
    recipe: Recipe,
    system: Iterable[Package],
    taken: Kernel,
    building: Path,
    say: Callable[[str], None],
) -> None:
    """Write the three files."""
    say("gathering the system")
    tree = Tree(recipe.left_out)
    for package in system:
        with packages.contents(package) as tar:
            tree.add_tar(tar)
    for name, data in taken.modules.items():
        tree.add_file(f"lib/modules/{taken.release}/{name}", data)
    finish(tree, recipe)
    say("writing the image")
    (building / "vmlinux").write_bytes(taken.vmlinux)
    busybox = tree.get("bin/busybox")
    (building / "initramfs.cpio").write_bytes(_initramfs(recipe, taken, busybox))
    _write_squashfs(tree, building / "system.squashfs")


def _initramfs(recipe: Recipe, taken: Kernel, busybox: bytes) -> bytes:
    members: dict[str, cpio.Member] = {
        name: cpio.Member(None, 0o755)
        for name in ("dev", "mnt", "proc", "ro", "rw", "sys", "payload")
    }
    members["init"] = cpio.Member(recipe.init.encode(), 0o755)
    members["bin/busybox"] = cpio.Member(busybox, 0o755)
    order = taken.in_load_order(recipe.boot_modules)
    for path in order:
        members[f"modules/{Path(path).name}"] = cpio.Member(taken.modules[path])
    lines = "".join(f"{Path(path).name}\n" for path in order)
    members["modules.order"] = cpio.Member(lines.encode())
    return cpio.archive(members)


def _write_squashfs(tree: Tree, target: Path) -> None:
    # Uncompressed: under emulation, unpacking costs more than reading.
    plain = ("-noI", "-noD", "-noF", "-noX", "-no-progress", "-quiet")
    fixed = (
        "-mkfs-time",
        "0",
        "-all-time",
        "0",
        "-root-mode",
        "755",
        "-root-uid",
        "0",
        "-root-gid",
        "0",
    )
    argv = [programs.need("sqfstar"), *plain, *fixed, str(target)]
    with subprocess.Popen(
        argv, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
    ) as process:
        stdin, stderr = process.stdin, process.stderr
        assert stdin is not None  # noqa: S101  # PIPE was asked for
        assert stderr is not None  # noqa: S101
        try:
            tree.write(stdin)
            stdin.close()
        except BrokenPipeError:
            pass  # it says why on standard error
        words = stderr.read().decode("utf-8", "replace").strip().splitlines()
    if process.returncode != 0:
        raise LabError(f"sqfstar: {words[-1] if words else f'exit status {process.returncode}'}")
