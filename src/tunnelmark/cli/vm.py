"""``tunnelmark vm``: the system image of machines — build, status, remove."""

import json
import shutil
import time
from pathlib import Path

import click

from tunnelmark.hosts import vm_accel
from tunnelmark.model.errors import LabError
from tunnelmark.vmimage import build as builder
from tunnelmark.vmimage import cache, programs
from tunnelmark.vmimage.cache import Image
from tunnelmark.vmimage.packages import Mirrors
from tunnelmark.vmimage.recipe import RECIPE

_EPILOG = """
\b
examples:
  tunnelmark vm build      once, before the first run in a machine
  tunnelmark vm status
"""
_BUILD = """
\b
examples:
  tunnelmark vm build
  tunnelmark vm build --refresh      again, with the newest packages
"""
_REMOVE = """
\b
examples:
  tunnelmark vm remove
  tunnelmark vm remove --old         all but the image of this version
"""


@click.group(epilog=_EPILOG)
def vm() -> None:
    """Build, show or remove the system image of the virtual machines."""


@vm.command(epilog=_BUILD)
@click.option("--refresh", is_flag=True, help="Build again, with the newest packages.")
@click.option("--system", is_flag=True, help=f"Build for all users, in {cache.SYSTEM_CACHE}.")
@click.option("--mirror", default=Mirrors().main, show_default=True, help="Debian mirror.")
@click.option(
    "--security-mirror",
    default=Mirrors().security,
    show_default=True,
    help="Debian security mirror.",
)
def build(refresh: bool, system: bool, mirror: str, security_mirror: str) -> None:
    """Download Debian packages and build the image.

    This needs neither root nor namespaces.
    """
    image = builder.build(
        clock=time.monotonic,
        say=lambda step: click.echo(f"vm: {step}", err=True),
        mirrors=Mirrors(mirror, security_mirror),
        directory=cache.SYSTEM_CACHE if system else None,
        refresh=refresh,
    )
    click.echo(_line(image))


@vm.command(epilog="example: tunnelmark vm status --verify")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@click.option("--verify", is_flag=True, help="Compare every byte with the image as built.")
def status(as_json: bool, verify: bool) -> None:
    """Show whether the image exists and how virtual machines would run.

    What is missing is named, with how to install it.
    """
    image = cache.find()
    state: dict[str, object] = {
        "recipe": RECIPE.digest(),
        "image": None if image is None else str(image.directory),
        "qemu": programs.find("qemu-system-x86_64"),
        "cannot_build": builder.unavailable(),
    }
    lines = [
        _line(image) if image else f"no image of recipe {RECIPE.digest()} (tunnelmark vm build)"
    ]
    if image is not None:
        state |= {
            "kernel": image.kernel_release,
            "size_bytes": image.size_bytes,
            "packages": len(image.packages),
            "download_s": image.download_s,
            "build_s": image.build_s,
        }
    try:
        qemu = programs.need("qemu-system-x86_64")
        lines.append(f"qemu: {qemu}")
        if image is not None:
            choice = vm_accel.choose(image)
            state |= {"accelerator": choice.accelerator, "accelerator_reason": choice.reason}
            what = "hardware virtualization" if choice.accelerator == "kvm" else "emulation"
            lines.append(f"virtual machines run by {what}: {choice.reason}")
    except LabError as error:
        lines.append(f"qemu: {error}")
    if reason := builder.unavailable():
        lines.append(f"an image cannot be built here: {reason}")
    damaged = cache.verify(image) if verify and image is not None else None
    if verify and image is not None:
        state["damaged"] = damaged
    click.echo(json.dumps(state, indent=1) if as_json else "\n".join(lines))
    if damaged is not None:
        raise LabError(f"{damaged} (tunnelmark vm build --refresh)")


@vm.command(epilog=_REMOVE)
@click.option(
    "--system", is_flag=True, help=f"Remove the images for all users, in {cache.SYSTEM_CACHE}."
)
@click.option("--old", is_flag=True, help="Keep the image that this version uses.")
def remove(system: bool, old: bool) -> None:
    """Remove all images and leftovers of interrupted builds.

    Running machines keep running.
    """
    directory = cache.SYSTEM_CACHE if system else cache.user_cache()
    freed = cache.remove(directory, keep=RECIPE.digest() if old else None)
    if directory.is_dir() and not old:
        shutil.rmtree(directory)
    click.echo(f"{_mb(freed)} freed in {_home(directory)}")


def _line(image: Image) -> str:
    return (
        f"image {image.recipe_digest}: Linux {image.kernel_release}, "
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
