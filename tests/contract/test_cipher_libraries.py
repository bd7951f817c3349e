"""The library that the programs of a driver encrypt by: devices are calibrated by its benchmark."""

import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import pytest

from tunnelmark.lab.benchmarks import PLAIN_CODE, Goal, measure
from tunnelmark.model.host import Completed
from tunnelmark.model.registry import make
from tunnelmark.model.trial import DriverSpec
from tunnelmark.model.tunnel import CipherLibrary
from tunnelmark.tunnels.registry import tunnel_kinds

_MARKS: Final = {"OpenSSL": "libcrypto.so", "GnuTLS": "libgnutls.so"}
_GO: Final = b"golang.org/x/crypto"
_PROGRAMS: Final = {
    "openvpn": "openvpn",
    "tinc": "tincd",
    "ssh_tun": "ssh",
    "ocserv": "ocserv",
    "ipsec": "/usr/lib/ipsec/plugins/libstrongswan-openssl.so",
    "ikev2": "/usr/lib/ipsec/plugins/libstrongswan-openssl.so",
    "nebula": "nebula",
    "yggdrasil": "yggdrasil",
    "wireguard": "wireguard-go",
}
"""Of each driver the program that encrypts, where it is a file of its own."""


class Host:
    """Has what this computer has, and the kernel's WireGuard."""

    def has(self, program: str) -> str | None:
        return shutil.which(program)

    def has_kernel(self, _feature: str) -> bool:
        return True


def library_of(kind: str, **params: object) -> str | None:
    tunnel = make(tunnel_kinds(), DriverSpec(kind, kind, params))
    host: Any = Host()
    library: str | None = tunnel.encryption(host).library
    return library


@pytest.mark.parametrize("kind", _PROGRAMS)
def test_the_program_is_linked_to_the_library_that_the_driver_names(kind: str) -> None:
    found = shutil.which(_PROGRAMS[kind])
    program = found or (_PROGRAMS[kind] if Path(_PROGRAMS[kind]).is_file() else None)
    assert program is not None, f"{_PROGRAMS[kind]} is not installed"
    library = library_of(kind)
    if library == "Go":
        assert _GO in Path(program).read_bytes()
        return
    assert library is not None
    linked = subprocess.run(["ldd", program], capture_output=True, check=True, text=True).stdout
    assert _MARKS[library] in linked
    others = [mark for name, mark in _MARKS.items() if name != library]
    assert not any(other in linked for other in others)


def test_the_library_of_wireguard_is_that_of_the_program_which_a_device_can_hold() -> None:
    assert library_of("wireguard", implementation="wireguard-go") == "Go"
    assert library_of("wireguard", implementation="boringtun") == "ring"
    assert library_of("wireguard", implementation="kernel") is None
    # A limit holds no kernel: a program takes its place there.
    assert library_of("wireguard") == "Go"


def here(argv: Sequence[str], environment: Mapping[str, str], limit_s: float) -> Completed:
    done = subprocess.run(
        argv, env={**os.environ, **environment}, capture_output=True, check=False, timeout=limit_s
    )
    return Completed(tuple(argv), done.returncode, done.stdout, done.stderr)


@pytest.mark.parametrize("library", ["OpenSSL", "GnuTLS", "Go"])
def test_programs_of_a_device_without_cipher_instructions_use_none(library: CipherLibrary) -> None:
    goal = Goal("AES-256-GCM", library)
    times = measure(goal, here, {}) / measure(goal, here, PLAIN_CODE)
    # Some 20 where this CPU has such instructions; 2 with them hidden from one half of a library.
    has_any = " aes " in Path("/proc/cpuinfo").read_text(encoding="ascii")
    assert times > (5 if has_any else 0.5)
