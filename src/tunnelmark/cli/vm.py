"""``tunnelmark vm``: the system images of machines — build, status, remove."""

import json
import shutil
import time
from dataclasses import replace
from pathlib import Path

import click

from tunnelmark.hosts import vm_accel
from tunnelmark.model.errors import LabError
from tunnelmark.model.suites import DEFAULT_SUITE, SUITES, MachineSystem, Suite
from tunnelmark.vmimage import build as builder
from tunnelmark.vmimage import cache, programs
from tunnelmark.vmimage.cache import Image
from tunnelmark.vmimage.own_kernel import own_kernel
from tunnelmark.vmimage.packages import Mirrors
from tunnelmark.vmimage.suites import SUITES as RECIPES
from tunnelmark.vmimage.suites import absences

_EPILOG = """
\b
examples:
  tunnelmark vm build                  once, before the first run in a machine
  tunnelmark vm build --suite trixie   the programs of Debian 13
  tunnelmark vm status
"""
_BUILD = """
\b
examples:
  tunnelmark vm build
  tunnelmark vm build --suite trixie
  tunnelmark vm build --suite trixie-backports   its newer kernel and OpenVPN
  tunnelmark vm build --kernel vmlinuz-6.17.0 --modules /lib/modules/6.17.0
  tunnelmark vm build --refresh                  again, the newest packages
"""
_REMOVE = """
\b
examples:
  tunnelmark vm remove
  tunnelmark vm remove --suite trixie
  tunnelmark vm remove --old         all but the images of this version
"""


@click.group(epilog=_EPILOG)
def vm() -> None:
    """Build, show or remove the system images of the virtual machines."""


@vm.command(epilog=_BUILD)
@click.option(
    "--suite",
    type=click.Choice(SUITES),
    default=DEFAULT_SUITE,
    show_default=True,
    help="Release of Debian that the programs and the kernel come from.",
)
@click.option(
    "--kernel",
    "kernel_file",
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="Your own kernel, a vmlinuz or vmlinux, in place of Debian's; needs --modules.",
)
@click.option(
    "--modules",
    metavar="DIR",
    type=click.Path(path_type=Path),
    help="The modules of --kernel: its /lib/modules/RELEASE.",
)
@click.option("--refresh", is_flag=True, help="Build again, with the newest packages.")
@click.option("--system", is_flag=True, help=f"Build for all users, in {cache.SYSTEM_CACHE}.")
@click.option("--mirror", default=Mirrors().main, show_default=True, help="Debian mirror.")
@click.option(
    "--security-mirror",
    default=Mirrors().security,
    show_default=True,
    help="Debian security mirror.",
)
@click.option(
    "--expired",
    is_flag=True,
    help="Accept expired package lists, for example of an archive mirror.",
)
def build(
    *,
    suite: Suite,
    kernel_file: Path | None,
    modules: Path | None,
    refresh: bool,
    system: bool,
    mirror: str,
    security_mirror: str,
    expired: bool,
) -> None:
    """Download Debian packages and build the image of a suite.

    This needs neither root nor namespaces. A run uses another suite than the default, or your own
    kernel, by `tunnelmark run --suite` and `--kernel`, or by `[place]` of the study.
    """
    recipe = RECIPES[suite]
    if (kernel_file is None) != (modules is None):
        raise click.UsageError("--kernel FILE and --modules DIR need each other")
    own = None
    if kernel_file is not None and modules is not None:
        own = own_kernel(kernel_file, modules, recipe)
    image = builder.build(
        clock=time.monotonic,
        say=lambda step: click.echo(f"vm: {step}", err=True),
        recipe=recipe,
        mirrors=Mirrors(mirror, security_mirror, expired),
        directory=cache.SYSTEM_CACHE if system else None,
        refresh=refresh,
        own=own,
    )
    click.echo(_line(image, suite))
    if own is not None:
        click.echo(f"use it with: tunnelmark run STUDY --suite {suite} --kernel {own.release}")


@vm.command(epilog="example: tunnelmark vm status --verify")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@click.option("--verify", is_flag=True, help="Compare every byte with the images as built.")
def status(*, as_json: bool, verify: bool) -> None:
    """Show which images exist and how virtual machines would run.

    What is missing is named, with how to install it.
    """
    images: list[Image] = []
    suites: dict[str, object] = {}
    lines = []
    for suite in SUITES:
        found = cache.find(RECIPES[suite])
        system = MachineSystem(suite)
        own = _own_images(suite)
        suites[suite] = {
            "recipe": RECIPES[suite].digest(),
            **_state(found),
            "own_kernels": [_state(one) for one in own],
            "absent": dict(RECIPES[suite].absent),
        }
        lines.append(
            f"{suite}: no image of recipe {RECIPES[suite].digest()} "
            f"(tunnelmark vm build{system.options()})"
            if found is None
            else _line(found, suite)
        )
        lines += [_line(one, suite) for one in own]
        if found is not None or own:
            lines += [f"{suite}: {words}" for words in absences(suite)]
        images += [*([] if found is None else [found]), *own]
    state: dict[str, object] = {
        "recipe": RECIPES[DEFAULT_SUITE].digest(),
        **_state(cache.find(RECIPES[DEFAULT_SUITE])),
        "suites": suites,
        "qemu": programs.find("qemu-system-x86_64"),
        "cannot_build": builder.unavailable(),
    }
    try:
        qemu = programs.need("qemu-system-x86_64")
        lines.append(f"qemu: {qemu}")
        if images:
            choice = vm_accel.choose(images[0])
            state |= {"accelerator": choice.accelerator, "accelerator_reason": choice.reason}
            what = "hardware virtualization" if choice.accelerator == "kvm" else "emulation"
            lines.append(f"virtual machines run by {what}: {choice.reason}")
    except LabError as error:
        lines.append(f"qemu: {error}")
    if reason := builder.unavailable():
        lines.append(f"an image cannot be built here: {reason}")
    damaged = None
    if verify and images:
        damaged = next((words for image in images if (words := _damage(image))), None)
        state["damaged"] = damaged
    click.echo(json.dumps(state, indent=1) if as_json else "\n".join(lines))
    if damaged is not None:
        raise LabError(damaged)


@vm.command(epilog=_REMOVE)
@click.option(
    "--suite", type=click.Choice(SUITES), help="Remove the images of this suite, no others."
)
@click.option(
    "--system", is_flag=True, help=f"Remove the images for all users, in {cache.SYSTEM_CACHE}."
)
@click.option("--old", is_flag=True, help="Keep the images that this version uses.")
def remove(*, suite: Suite | None, system: bool, old: bool) -> None:
    """Remove all images and leftovers of interrupted builds.

    Running machines keep running.
    """
    if old and suite is not None:
        raise click.UsageError("--old and --suite are mutually exclusive")
    directory = cache.SYSTEM_CACHE if system else cache.user_cache()
    current = {
        image.recipe_digest: name for image in cache.images(directory) if (name := _suite_of(image))
    }
    if suite is not None:
        others = {digest for digest, name in current.items() if name != suite}
        freed = cache.remove(directory, only=current.keys() - others)
    else:
        freed = cache.remove(directory, keep=current if old else ())
        if directory.is_dir() and not old:
            shutil.rmtree(directory)
    click.echo(f"{_mb(freed)} freed in {_home(directory)}")


def _own_images(suite: Suite) -> list[Image]:
    """Return the images of a suite that have a user's own kernel."""
    found: dict[str, Image] = {}
    for directory in (cache.user_cache(), cache.SYSTEM_CACHE):
        for image in cache.images(directory):
            if cache.is_own_of(image, RECIPES[suite]):
                found.setdefault(image.kernel_release, image)
    return list(found.values())


def _damage(image: Image) -> str | None:
    """Return which file of an image is not what was built, with the remedy, or None."""
    words = cache.verify(image)
    system = MachineSystem(_suite_of(image), image.kernel_release if image.own_kernel else None)
    return words and f"{words} (tunnelmark vm build --refresh{system.options()})"


def _suite_of(image: Image) -> Suite | None:
    """Return the suite of an image that this version uses, or None."""
    for suite in SUITES:
        if replace(RECIPES[suite], own_kernel=image.own_kernel).digest() == image.recipe_digest:
            return suite
    return None


def _state(image: Image | None) -> dict[str, object]:
    if image is None:
        return {"image": None}
    return {
        "image": str(image.directory),
        "kernel": image.kernel_release,
        "size_bytes": image.size_bytes,
        "packages": len(image.packages),
        "download_s": image.download_s,
        "build_s": image.build_s,
    }


def _line(image: Image, suite: Suite) -> str:
    own = " (your own)" if image.own_kernel else ""
    return (
        f"{suite}: image {image.recipe_digest}: Linux {image.kernel_release}{own}, "
        f"{len(image.packages)} packages, {_mb(image.size_bytes)}, downloaded in "
        f"{image.download_s:.0f} s, built in {image.build_s:.0f} s, in {_home(image.directory)}"
    )


def _mb(size_bytes: int) -> str:
    return f"{size_bytes / 1e6:.0f} MB"


def _home(path: Path) -> str:
    try:
        return f"~/{path.relative_to(Path.home())}"
    except (ValueError, RuntimeError):
        return str(path)
