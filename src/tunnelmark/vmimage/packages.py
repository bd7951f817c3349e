"""Debian packages by name, with all they need, downloaded and verified by apt, without root."""

import re
import subprocess
import tarfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Final

from tunnelmark.model.errors import LabError
from tunnelmark.vmimage import programs
from tunnelmark.vmimage.recipe import Recipe

_KEYRING: Final = Path("/usr/share/keyrings/debian-archive-keyring.gpg")


@dataclass(frozen=True)
class Package:
    """One package that was downloaded."""

    name: str
    version: str
    file: Path


@dataclass(frozen=True)
class Mirrors:
    """Where packages come from; apt checks that Debian signed them, wherever that is."""

    main: str = "http://deb.debian.org/debian"
    security: str = "http://deb.debian.org/debian-security"
    expired: bool = False
    """Whether lists count whose time is over, as those of an archive of the past are."""


def download(
    recipe: Recipe, mirrors: Mirrors, directory: Path
) -> tuple[tuple[Package, ...], tuple[Package, ...]]:
    """Download the recipe's packages and its kernel below ``directory``; return both by name.

    An interrupted download is continued. The machine's own apt and its database are not touched:
    everything that apt writes stands in ``directory``. The kernel comes without what it depends
    on beside its own files, which is only what would make an initial file system on an installed
    machine. With a user's own kernel none is downloaded.
    """
    if '"' in str(directory) or "\n" in str(directory):
        raise LabError(f"{directory}: a path with a quotation mark cannot be given to apt")
    env = _private_apt(recipe, mirrors, directory)
    programs.run(["apt-get", "-q", "update"], env=env)
    # One by one: apt finds no set of packages that has one of ``beside`` and what it excludes.
    for wanted in (recipe.packages, *((name,) for name in recipe.beside)):
        install = ["apt-get", "-q", "-y", "--download-only", "install", *wanted]
        programs.run(install, env=env, timeout_s=1800)
    system = tuple(_package(file) for file in sorted((directory / "archives").glob("*.deb")))
    return system, () if recipe.own_kernel else _kernel(recipe, directory / "kernel", env)


def _kernel(recipe: Recipe, directory: Path, env: Mapping[str, str]) -> tuple[Package, ...]:
    """Download the kernel: one package, or since Linux 7 of Debian one for each of its parts."""
    directory.mkdir(exist_ok=True)

    def depends(name: str) -> str:
        return programs.run(["apt-cache", "depends", name], env=env)

    image = _kernel_name(depends(recipe.kernel))
    names = [image, *_kernel_parts(image, depends(image))]
    programs.run(["apt-get", "-q", "download", *names], env=env, cwd=directory, timeout_s=1800)
    packages = tuple(_package(file) for file in sorted(directory.glob("*.deb")))
    if len(packages) != len(names):
        raise LabError(
            f"{directory}: {len(packages)} packages of a kernel were downloaded instead of "
            f"{len(names)}"
        )
    return packages


@contextmanager
def contents(package: Package) -> Iterator[tarfile.TarFile]:
    """Give the files of a package as a tar stream, to be read in order."""
    argv = [programs.need("dpkg-deb"), "--fsys-tarfile", str(package.file)]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, stdin=subprocess.DEVNULL) as process:
        stream: IO[bytes] | None = process.stdout
        assert stream is not None  # noqa: S101  # PIPE was asked for
        with tarfile.open(fileobj=stream, mode="r|") as tar:
            yield tar
        # What tarfile leaves unread is the padding after the last block.
        while stream.read(1 << 16):
            pass
    if process.returncode != 0:
        raise LabError(f"{package.file.name}: dpkg-deb ended with status {process.returncode}")


def _private_apt(recipe: Recipe, mirrors: Mirrors, directory: Path) -> dict[str, str]:
    """Write a configuration that leaves the machine's own apt out; return the environment."""
    for part in ("lists/partial", "archives/partial", "etc/preferences.d", "etc/apt.conf.d", "log"):
        (directory / part).mkdir(parents=True, exist_ok=True)
    (directory / "status").touch()
    if not _KEYRING.exists():
        raise LabError(f"{_KEYRING} is missing (apt-get install debian-archive-keyring)")
    sources = [
        (mirrors.main, recipe.suite),
        (mirrors.main, f"{recipe.suite}-updates"),
        (mirrors.security, f"{recipe.suite}-security"),
    ]
    if recipe.backports:
        sources.append((mirrors.main, f"{recipe.suite}-backports"))
        # apt(8) takes nothing from there by itself.
        (directory / "etc/preferences.d/tunnelmark").write_text(
            f"Package: {' '.join(recipe.backports)}\n"
            f"Pin: release n={recipe.suite}-backports\nPin-Priority: 900\n",
            encoding="ascii",
        )
    (directory / "etc/sources.list").write_text(
        "".join(f"deb [signed-by={_KEYRING}] {mirror} {suite} main\n" for mirror, suite in sources),
        encoding="ascii",
    )
    settings = {
        "Dir::State": f"{directory}/",
        "Dir::State::lists": f"{directory}/lists/",
        "Dir::State::status": f"{directory}/status",
        "Dir::Cache": f"{directory}/",
        "Dir::Cache::archives": f"{directory}/archives/",
        "Dir::Etc": f"{directory}/etc/",
        "Dir::Etc::main": "/dev/null",
        # The machine's own settings, its hooks among them, are not ours to run.
        "Dir::Etc::parts": f"{directory}/etc/apt.conf.d/",
        "Dir::Etc::sourceparts": "/dev/null",
        "Dir::Etc::trusted": "/dev/null",
        "Dir::Etc::trustedparts": "/dev/null",
        "Dir::Log": f"{directory}/log/",
        "APT::Architecture": "amd64",
        "APT::Architectures": "amd64",
        "APT::Install-Recommends": "false",
        "Acquire::Languages": "none",
        "Acquire::Check-Valid-Until": "false" if mirrors.expired else "true",
        "Acquire::Retries": "3",
        "Debug::NoLocking": "true",
        **_proxies(),
    }
    configuration = directory / "etc/tm-apt.conf"
    configuration.write_text(
        "".join(f'{key} "{value}";\n' for key, value in settings.items()), encoding="utf-8"
    )
    return {"APT_CONFIG": str(configuration)}


def _proxies() -> dict[str, str]:
    """Return the proxies of the machine's apt: they are how it reaches the network at all."""
    pattern = r'^(Acquire::https?::Proxy) "([^"\n]+)";$'
    return dict(re.findall(pattern, programs.run(["apt-config", "dump", "Acquire"]), re.MULTILINE))


def _kernel_name(depends: str) -> str:
    match = re.search(r"^\s*Depends: (linux-image-[0-9][a-z0-9.+-]*)$", depends, re.MULTILINE)
    if match is None:
        raise LabError(f"apt-cache depends: no kernel is named in {depends.strip()!r}")
    return match[1]


def _kernel_parts(image: str, depends: str) -> list[str]:
    """Return the packages that have the files of an image that is only a name for them."""
    release = re.escape(image.removeprefix("linux-image-"))
    pattern = rf"^\s*Depends: (linux-(?:base|binary|modules)-{release})$"
    return sorted(set(re.findall(pattern, depends, re.MULTILINE)))


def _package(file: Path) -> Package:
    # The file is called name_version_architecture.deb; apt writes a colon as %3a.
    match = re.fullmatch(r"([a-z0-9][a-z0-9.+-]*)_([^_]+)_[a-z0-9]+\.deb", file.name)
    if match is None:
        raise LabError(f"{file}: is not named like a package")
    return Package(name=match[1], version=match[2].replace("%3a", ":"), file=file)
