"""Where images are kept: one directory per recipe, complete or not there."""

import fcntl
import hashlib
import json
import os
import shutil
import stat
import tempfile
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Final

from tunnelmark.model.errors import LabError
from tunnelmark.vmimage.recipe import RECIPE, Recipe

SYSTEM_CACHE: Final = Path("/var/cache/tunnelmark/vm")
"""Images that root has built for all users; read by everyone, trusted because root owns them."""

_MANIFEST: Final = "manifest.json"
_MANIFEST_MAX: Final = 1 << 20


@dataclass(frozen=True)
class Image:
    """An image that can be booted."""

    directory: Path
    recipe_digest: str
    kernel_release: str
    packages: Mapping[str, str]
    """Package to version, the kernel's included."""
    modules: tuple[str, ...]
    """Paths of the kernel modules below ``lib/modules/<release>/``."""
    sizes_bytes: Mapping[str, int]
    sha256: Mapping[str, str]
    download_s: float
    build_s: float
    own_kernel: str = ""
    """SHA-256 of a user's own kernel with its modules; empty: the kernel is the suite's."""

    @property
    def vmlinux(self) -> Path:
        """The uncompressed kernel."""
        return self.directory / "vmlinux"

    @property
    def initramfs(self) -> Path:
        """The first file system, to be followed by an archive with the payload."""
        return self.directory / "initramfs.cpio"

    @property
    def system(self) -> Path:
        """The read-only system."""
        return self.directory / "system.squashfs"

    @property
    def size_bytes(self) -> int:
        """Bytes of all three files."""
        return sum(self.sizes_bytes.values())


FILES: Final = ("vmlinux", "initramfs.cpio", "system.squashfs")


def user_cache() -> Path:
    """Return where this user's images are kept.

    ``$XDG_CACHE_HOME/tunnelmark/vm``, else ``~/.cache/tunnelmark/vm``, else (a user without a home)
    ``/var/tmp/tunnelmark-<uid>/vm``.
    """
    named = os.environ.get("XDG_CACHE_HOME", "")
    if named.startswith("/"):
        return Path(named) / "tunnelmark/vm"
    try:
        home = Path.home()
    except RuntimeError:
        home = Path("/nonexistent")
    if home != Path("/") and os.access(home, os.W_OK):
        return home / ".cache/tunnelmark/vm"
    return Path(f"/var/tmp/tunnelmark-{os.getuid()}/vm")  # noqa: S108  # owner is checked below


def prepare(cache: Path) -> None:
    """Make a cache directory; one that another user could have put there is refused."""
    try:
        cache.mkdir(mode=0o755, parents=True, exist_ok=True)
    except OSError as error:
        raise LabError(f"{cache}: cannot be made: {error.strerror}") from error
    for directory in (cache, cache.parent):
        if directory.stat().st_uid not in {os.getuid(), 0}:
            raise LabError(f"{directory}: belongs to user {directory.stat().st_uid}, not to us")


def find(recipe: Recipe = RECIPE, cache: Path | None = None) -> Image | None:
    """Return the image of a recipe from the user's cache, else from the system's, or None."""
    for directory in (cache or user_cache(), SYSTEM_CACHE):
        image = load(directory / recipe.digest())
        if image is not None:
            return image
    return None


def find_own(recipe: Recipe, release: str, cache: Path | None = None) -> Image | None:
    """Return the image of a recipe with a user's own kernel of a release, or None."""
    for directory in (cache or user_cache(), SYSTEM_CACHE):
        for image in images(directory):
            if image.kernel_release == release and is_own_of(image, recipe):
                return image
    return None


def is_own_of(image: Image, recipe: Recipe) -> bool:
    """Say whether an image is the recipe's but for a user's own kernel."""
    own = replace(recipe, own_kernel=image.own_kernel)
    return bool(image.own_kernel) and image.recipe_digest == own.digest()


def load(directory: Path) -> Image | None:
    """Read the image in a directory; None if there is none, or somebody else could have made it.

    Sizes are compared with the manifest; ``verify`` compares contents.
    """
    try:
        owner = directory.stat()
        if owner.st_uid not in {os.getuid(), 0} or owner.st_mode & stat.S_IWOTH:
            return None
        with (directory / _MANIFEST).open("rb") as file:
            raw = json.loads(file.read(_MANIFEST_MAX))
        image = Image(
            directory=directory,
            recipe_digest=str(raw["recipe_digest"]),
            kernel_release=str(raw["kernel_release"]),
            packages={str(k): str(v) for k, v in raw["packages"].items()},
            modules=tuple(str(m) for m in raw["modules"]),
            sizes_bytes={name: int(raw["sizes_bytes"][name]) for name in FILES},
            sha256={name: str(raw["sha256"][name]) for name in FILES},
            download_s=float(raw["download_s"]),
            build_s=float(raw["build_s"]),
            own_kernel=str(raw.get("own_kernel", "")),
        )
        if any((directory / name).stat().st_size != image.sizes_bytes[name] for name in FILES):
            return None
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None
    return image


def verify(image: Image) -> str | None:
    """Return which file is not what was built, or None."""
    for name in FILES:
        if _sha256(image.directory / name) != image.sha256[name]:
            return f"{image.directory / name}: differs from what was built"
    return None


def store(
    building: Path,
    recipe: Recipe,
    *,
    kernel_release: str,
    packages: Mapping[str, str],
    modules: tuple[str, ...],
    download_s: float,
    build_s: float,
) -> Image:
    """Give the finished files in ``building`` their place; the image appears whole."""
    target = building.parent / recipe.digest()
    image = Image(
        directory=target,
        recipe_digest=recipe.digest(),
        kernel_release=kernel_release,
        packages=dict(sorted(packages.items())),
        modules=modules,
        sizes_bytes={name: (building / name).stat().st_size for name in FILES},
        sha256={name: _sha256(building / name) for name in FILES},
        download_s=round(download_s, 2),
        build_s=round(build_s, 2),
        own_kernel=recipe.own_kernel,
    )
    manifest = {key: value for key, value in asdict(image).items() if key != "directory"}
    (building / _MANIFEST).write_text(json.dumps(manifest, indent=1) + "\n", encoding="utf-8")
    for file in building.iterdir():
        file.chmod(0o644)
    building.chmod(0o755)
    if target.exists():
        # A running machine keeps its open files; rename cannot replace a directory with files.
        old = Path(tempfile.mkdtemp(prefix=".old-", dir=building.parent))
        target.rename(old / "image")
        building.rename(target)
        shutil.rmtree(old)
    else:
        building.rename(target)
    return image


def images(cache: Path) -> tuple[Image, ...]:
    """Return all images in a cache directory."""
    if not cache.is_dir():
        return ()
    found = (load(entry) for entry in sorted(cache.iterdir()) if entry.is_dir())
    return tuple(image for image in found if image is not None)


def remove(cache: Path, *, keep: Collection[str] = (), only: Collection[str] | None = None) -> int:
    """Remove everything in a cache directory and return how many bytes that freed.

    The images whose recipes have the digests ``keep`` stay, or all but those with the digests
    ``only``. Machines that run go on. Raises ``LabError`` where we may not change the directory.
    """
    if not cache.is_dir():
        return 0
    with locked(cache):
        return remove_entries(
            entry
            for entry in cache.iterdir()
            if entry.name not in {_LOCK, *keep} and (only is None or entry.name in only)
        )


def remove_entries(entries: Iterable[Path]) -> int:
    """Remove parts of a cache directory, whose lock is held; return how many bytes that freed.

    Raises ``LabError`` naming the directory.
    """
    freed = 0
    for entry in entries:
        try:
            if entry.is_dir() and not entry.is_symlink():
                freed += sum(f.stat().st_size for f in entry.rglob("*") if f.is_file())
                shutil.rmtree(entry)
            else:
                entry.unlink()
        except OSError as error:
            raise _unchangeable(entry.parent, error) from error
    return freed


@contextmanager
def locked(cache: Path) -> Iterator[None]:
    """Keep other builds out; waits until the one that runs is done.

    Raises ``LabError`` naming the directory where we may not change it.
    """
    try:
        file = (cache / _LOCK).open("w")
    except OSError as error:
        raise _unchangeable(cache, error) from error
    with file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _unchangeable(cache: Path, error: OSError) -> LabError:
    remedy = " (run as root)" if isinstance(error, PermissionError) else ""
    return LabError(f"{cache}: cannot be changed: {error.strerror or error}{remedy}")


_LOCK: Final = ".lock"


def _sha256(file: Path) -> str:
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
