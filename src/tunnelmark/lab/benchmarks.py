"""What a core does of a cipher, by the library whose code a tunnel's program runs.

One algorithm has another rate in every library, and each has a switch of its own by which it leaves
out a CPU's instructions for ciphers, or none.
"""

import re
import statistics
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Final, NamedTuple

from tunnelmark.devices.ciphers import figure_of
from tunnelmark.devices.profiles import SYSTEM_CALLS, Device
from tunnelmark.devices.registry import TUNNEL_CIPHER
from tunnelmark.hosts.cgroup import Quota
from tunnelmark.model.errors import LabError
from tunnelmark.model.host import Completed, Need
from tunnelmark.model.tunnel import CipherLibrary, Encryption

PLAIN_CODE: Final[Mapping[str, str]] = MappingProxyType(
    {
        # None of these cores has instructions for AES: libraries get the hint that ours has none.
        "OPENSSL_ia32cap": "0:0",
        "OPENSSL_armcap": "0",
        "GNUTLS_CPUID_OVERRIDE": "0x1",
        # GnuTLS leaves ciphers to Nettle, which looks at the CPU for itself.
        "NETTLE_FAT_OVERRIDE": "none",
        "GODEBUG": "cpu.aes=off,cpu.avx2=off,cpu.pclmulqdq=off",
    }
)
"""Environment of the programs of a device without instructions for ciphers."""

Bench = Callable[[Sequence[str], Mapping[str, str], float], Completed]
"""Runs a program: words, environment, time limit in s."""


class Goal(NamedTuple):
    """What a limit must meet: a figure of the device, as a library here does it."""

    figure: str
    library: CipherLibrary = "OpenSSL"

    def describe(self) -> str:
        """Return it in words; OpenSSL's is what devices are measured by."""
        return self.figure if self.library == "OpenSSL" else f"{self.figure} of {self.library}"


def goal_of(device: Device, calibrate: str, encryption: Encryption) -> Goal:
    """Return what the limit of a device must meet for a tunnel.

    The tunnel's own cipher in its program's own library where the study says so: the one that it
    names otherwise, or AES-128-CBC if the tunnel has no cipher of which the device has a figure. A
    library of which there is no benchmark is stood in for by OpenSSL.
    """
    if calibrate != TUNNEL_CIPHER:
        return Goal(calibrate)
    name = figure_of(encryption.cipher or "")
    if name == SYSTEM_CALLS or name not in device.figures:
        return Goal(_NO_CIPHER)
    return own_goal(name, encryption)


def own_goal(name: str, encryption: Encryption) -> Goal:
    """Return a figure as the tunnel's own library does it; by OpenSSL if that has no benchmark."""
    if encryption.library is not None and name in _NAMES.get(encryption.library, ()):
        return Goal(name, encryption.library)
    return Goal(name)


def need_of(goal: Goal) -> Need:
    """Return the programs that measure it, beside those of every calibration."""
    return Need(programs={"gocryptfs": "gocryptfs"} if goal.library == "Go" else {})


def measure(
    goal: Goal,
    bench: Bench,
    environment: Mapping[str, str],
    *,
    quota: Quota | None = None,
    wanted: float = 0.0,
) -> float:
    """Return MB/s, or pairs of system calls per second.

    ``quota`` is the limit under which ``bench`` runs, ``wanted`` what is expected there.
    """
    seconds = _TIMED_S if quota is None else max(_TIMED_S, -(-_PERIODS * quota.period_us // 10**6))
    limit_s = 60.0 + 20 * seconds
    name, library = goal
    if name == SYSTEM_CALLS:
        count = max(1, round(wanted * seconds))
        argv = ["dd", "if=/dev/zero", "of=/dev/null", "bs=1", f"count={count}"]
        return parse_dd(bench(argv, environment, limit_s))
    if library == "Go":
        runs = [bench(["gocryptfs", "-speed"], environment, limit_s) for _ in range(seconds)]
        # Each took a second: the time of all is the mean of what a byte took.
        return statistics.harmonic_mean([parse_go(done, _NAMES["Go"][name]) for done in runs])
    if library == "GnuTLS":
        argv = [sys.executable, "-I", str(_GNUTLS), _NAMES["GnuTLS"][name], str(seconds)]
        return parse_speed(bench(argv, environment, limit_s))
    argv = ["openssl", "speed", "-elapsed", "-mr", "-seconds", str(seconds), "-bytes", "8192"]
    if name == "BF-CBC":
        # OpenSSL 3 keeps it apart.
        argv += ["-provider", "legacy", "-provider", "default"]
    return parse_speed(bench([*argv, "-evp", name.lower()], environment, limit_s))


def unlimited(goal: Goal, bench: Bench) -> tuple[float, float]:
    """Return MB/s on one core: with the computer's instructions, and in plain code.

    ``bench`` runs without a limit. Of three runs the fastest counts: nothing makes one faster than
    it is, and whatever else runs makes it slower.
    """
    own, plain = (
        max(measure(goal, bench, environment) for _ in range(_UNLIMITED_RUNS))
        for environment in ({}, PLAIN_CODE)
    )
    return own, plain


def parse_speed(done: Completed) -> float:
    """Read ``openssl speed -mr`` of one algorithm and one size: 1,000,000 bytes/s."""
    return _only(_SPEED.findall(done.text()), done) / 1e6


def parse_go(done: Completed, name: str) -> float:
    """Read the line of a cipher in what ``gocryptfs -speed`` says: 1,000,000 bytes/s."""
    return _only([rate for found, rate in _GO.findall(done.text()) if found == name], done)


def parse_dd(done: Completed) -> float:
    """Read what dd says at its end: pairs of a read and a write of one byte per second."""
    found = _DD.findall(done.stderr.decode("utf-8", "replace"))
    if done.returncode != 0 or len(found) != 1 or float(found[0][1]) <= 0:
        raise LabError(f"{' '.join(done.argv)}: no rate: {done.last_words()}")
    return int(found[0][0]) / float(found[0][1])


def _only(found: Sequence[str], done: Completed) -> float:
    if done.returncode != 0 or len(found) != 1 or float(found[0]) <= 0:
        raise LabError(f"{' '.join(done.argv)}: no speed: {done.last_words()}")
    return float(found[0])


_NO_CIPHER: Final = "AES-128-CBC"
_NAMES: Final[Mapping[CipherLibrary, Mapping[str, str]]] = {
    # XChaCha20 adds one block of ChaCha20 to the 64 of a piece.
    "Go": {"AES-256-GCM": "AES-GCM-256-Go", "ChaCha20-Poly1305": "XChaCha20-Poly1305-Go"},
    "GnuTLS": {"AES-256-GCM": "AES-256-GCM", "ChaCha20-Poly1305": "CHACHA20-POLY1305"},
}
"""Of the figures that a library's benchmark has, its own names."""
_GNUTLS: Final = Path(__file__).with_name("gnutls_speed.py")
_TIMED_S: Final = 1
_UNLIMITED_RUNS: Final = 3
_PERIODS: Final = 50
"""A run lasts so many periods at least: the part of one at its end is 2 % then."""
_SPEED: Final = re.compile(r"^\+F:\d+:[^:]{1,40}:(\d{1,15}\.\d+)$", re.MULTILINE)
_GO: Final = re.compile(r"^([\w-]{1,40})\s{1,40}(\d{1,9}\.\d+) MB/s\b", re.MULTILINE)
_DD: Final = re.compile(
    r"^(\d{1,12}) bytes? .*copied, (\d{1,6}(?:\.\d+)?(?:e-\d+)?) s,", re.MULTILINE
)
