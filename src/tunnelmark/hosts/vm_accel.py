"""Whether hardware virtualization really works here: a device that exists may still hang."""

import json
import os
import subprocess
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from tunnelmark.hosts.vm_qemu import Accelerator, Boot, MachineSpec, command
from tunnelmark.model.errors import LabError
from tunnelmark.vmimage import cache, programs
from tunnelmark.vmimage.cache import Image

_KVM: Final = Path("/dev/kvm")
_BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")
_LIMIT_S: Final = 10.0
"""A kernel that is not emulated is at its first program in less than 2 s."""
_DONE: Final = b"tunnelmark-init: probe done"


@dataclass(frozen=True)
class Choice:
    """Which accelerator machines use here, and why."""

    accelerator: Accelerator
    reason: str


def choose(image: Image, *, cached: Path | None = None) -> Choice:
    """Return the accelerator to use; the answer is kept until this machine boots again.

    Boots the image's kernel with KVM to its first program, with a time limit, unless /dev/kvm is
    missing or out of reach, which is cheap to see and not kept.
    """
    if not _KVM.exists():
        return Choice("tcg", f"{_KVM} does not exist")
    if not os.access(_KVM, os.R_OK | os.W_OK):
        return Choice("tcg", f"{_KVM} may not be opened by user {os.getuid()}")
    # A file for each image: a run that changes between two suites tries each once.
    file = cached or cache.user_cache() / f"kvm-{image.recipe_digest}.json"
    key = {"boot_id": _BOOT_ID.read_text(encoding="ascii").strip(), "image": image.recipe_digest}
    known = _read(file, key)
    if known is not None:
        return known
    choice = _probe(image)
    try:
        cache.prepare(file.parent)
        with tempfile.NamedTemporaryFile("w", dir=file.parent, delete=False) as out:
            json.dump({**key, **asdict(choice)}, out)
        Path(out.name).rename(file)
    except (OSError, LabError):
        pass  # a cache that cannot be written costs the next run a probe, no more
    return choice


def _read(file: Path, key: dict[str, str]) -> Choice | None:
    try:
        known = json.loads(file.read_bytes()[:4096])
        if any(known[name] != value for name, value in key.items()):
            return None
        accelerators: tuple[Accelerator, ...] = ("kvm", "tcg")
        kept = accelerators.index(known["accelerator"])
        return Choice(accelerators[kept], str(known["reason"]))
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _probe(image: Image) -> Choice:
    boot = Boot(image.vmlinux, image.initramfs, None)
    argv = command(
        MachineSpec(cpus=1, memory_mib=256),
        boot,
        "kvm",
        console=Path("/proc/self/fd/1"),
        agent_socket=None,
        kernel_options=["tm.probe"],
    )
    argv[0] = programs.need(argv[0])
    try:
        done = subprocess.run(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=_LIMIT_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return Choice("tcg", f"a test machine with KVM did not boot within {_LIMIT_S:g} s")
    if done.returncode == 0 and _DONE in done.stdout:
        return Choice("kvm", "a test machine booted with it")
    words = done.stdout.decode("utf-8", "replace").strip().splitlines()
    return Choice("tcg", f"kvm: {words[-1] if words else f'exit status {done.returncode}'}")
