"""CPU profiles of endpoints: data with the source of each figure, nothing measured here.

Where nobody published a figure it is scaled from clock and core and marked as an estimate.
docs/devices.md says how.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final


@dataclass(frozen=True)
class Figure:
    """One figure of a device, and where it comes from."""

    value: float
    source: str
    estimate: bool = False
    """Scaled from clock and core; nobody measured it."""


@dataclass(frozen=True)
class Device:
    """An endpoint's CPU."""

    kind: str
    title: str
    source: str
    """Where clock, cores and memory come from."""
    core: str = ""
    cores: int = 0
    mhz: int = 0
    memory_mib: int = 0
    speeds_mbyte_s: Mapping[str, Figure] = field(default_factory=lambda: MappingProxyType({}))
    """``openssl speed``, one core, pieces of 8192 byte, in 1,000,000 byte/s, by algorithm."""
    system_calls_per_s: Figure | None = None
    """Read and write of one byte (``dd bs=1``), one core: pairs of them each second."""
    wireguard_bit_s: Figure | None = None
    """WireGuard with both ends on one board; not calibrated to, for comparison."""
    aes_instructions: bool = False

    @property
    def limited(self) -> bool:
        """Whether it is anything but this machine as it is."""
        return self.cores > 0

    def figure(self, name: str) -> Figure:
        """Return what a limit is calibrated to: a cipher, a hash, or ``system calls``."""
        if name == "system calls":
            assert self.system_calls_per_s is not None  # noqa: S101 - a profile has it
            return self.system_calls_per_s
        return self.speeds_mbyte_s[name]


_CALDAS: Final = "Caldas-Calle 2017, table I"
_OPENSSL: Final = "openssl speed on the board, 8192 byte"
_AES_586: Final = "OpenSSL, crypto/aes/asm/aes-586.pl, cycles per byte"
_VPAES: Final = "OpenSSL, crypto/aes/asm/vpaes-x86_64.pl, cycles per byte"
_SHA1_586: Final = "OpenSSL, crypto/sha/asm/sha1-586.pl, cycles per byte"

# OpenSSL 3.0.22 on an x86-64 with every vector and AES instruction turned off: figures of the
# same integer code stand in about this ratio on any core.
_AES_256_OF_AES_128: Final = 0.72
_3DES_OF_BLOWFISH: Final = 0.209
_X86_3DES_CYCLES: Final = 110.0
"""Per byte, on x86 cores that execute out of order."""
_PAIR_CYCLES: Final = 900.0
"""Read and write of one byte through the kernel, on a core that does Blowfish in 24 cycles."""
_BLOWFISH_CYCLES: Final = 24.0


def _board(
    kind: str, title: str, core: tuple[str, int, int, int], known: Mapping[str, Figure]
) -> Device:
    """Return a Raspberry Pi: known figures, the rest scaled from its Blowfish."""
    name, cores, mhz, memory_mib = core
    blowfish = known["BF-CBC"].value
    triple = Figure(
        round(blowfish * _3DES_OF_BLOWFISH, 2), f"BF-CBC x {_3DES_OF_BLOWFISH}", estimate=True
    )
    return Device(
        kind,
        title,
        _CALDAS,
        name,
        cores,
        mhz,
        memory_mib,
        MappingProxyType({**known, "DES-EDE3-CBC": triple}),
        _system_calls(mhz, mhz / blowfish),
        _WIREGUARD.get(kind),
    )


def _pc(  # noqa: PLR0917 - a row of a table
    kind: str,
    title: str,
    source: str,
    core: tuple[str, int, int, int],
    aes: tuple[float, str, bool],
    sha1: tuple[float, str, bool],
) -> Device:
    """Return a PC from the cycles per byte of its core; an unknown one is an estimate."""
    name, cores, mhz, memory_mib = core
    triple = mhz / _X86_3DES_CYCLES
    blowfish = triple / _3DES_OF_BLOWFISH
    aes_128 = Figure(round(mhz / aes[0], 1), aes[1], aes[2])
    by_clock = f"{_X86_3DES_CYCLES:g} cycles per byte of an x86 core out of order"
    speeds = {
        "AES-128-CBC": aes_128,
        "AES-256-CBC": Figure(
            round(aes_128.value * _AES_256_OF_AES_128, 1),
            f"AES-128-CBC x {_AES_256_OF_AES_128}",
            estimate=True,
        ),
        "BF-CBC": Figure(round(blowfish, 1), f"DES-EDE3-CBC / {_3DES_OF_BLOWFISH}", estimate=True),
        "DES-EDE3-CBC": Figure(round(triple, 2), by_clock, estimate=True),
        "SHA1": Figure(round(mhz / sha1[0], 1), sha1[1], sha1[2]),
    }
    calls = _system_calls(mhz, mhz / blowfish)
    return Device(
        kind, title, source, name, cores, mhz, memory_mib, MappingProxyType(speeds), calls
    )


def _system_calls(mhz: int, blowfish_cycles: float) -> Figure:
    cycles = _PAIR_CYCLES * blowfish_cycles / _BLOWFISH_CYCLES
    return Figure(
        round(mhz * 1e6 / cycles, -3),
        f"{_PAIR_CYCLES:g} cycles a pair on a core that does Blowfish in {_BLOWFISH_CYCLES:g} "
        "cycles per byte, scaled by the core's own",
        estimate=True,
    )


def _known(aes_128: float, aes_256: float, blowfish: float, sha1: float) -> dict[str, Figure]:
    speeds = {"AES-128-CBC": aes_128, "AES-256-CBC": aes_256, "BF-CBC": blowfish, "SHA1": sha1}
    return {name: Figure(value, _OPENSSL) for name, value in speeds.items()}


_BOTH_ENDS: Final = "WireGuard with both ends on one board"
_WIREGUARD: Final = {
    "pi-b": Figure(16.1e6, _BOTH_ENDS),
    "pi-2": Figure(192e6, _BOTH_ENDS),
    "pi-3": Figure(522e6, _BOTH_ENDS),
}
_ZERO_BY_CLOCK: Final = "pi-b x 1000/700 MHz, the same core"

PROFILES: Final = (
    Device("host", "this machine, without a limit", "no limit is set"),
    _pc(
        "pc-300mhz",
        "PC of 300 MHz (Pentium II)",
        "Munasinghe 2005: a 300 MHz PC; core and memory are assumed",
        ("Pentium II (P6)", 1, 300, 128),
        (25.0, f"{_AES_586}: PIII 25, the same core", False),
        (11.5, f"{_SHA1_586}: PIII 11.5, the same core", False),
    ),
    _pc(
        "pc-1700mhz",
        "PC of 1700 MHz (Pentium 4)",
        "Munasinghe 2005: a 1.7 GHz PC; core and memory are assumed",
        ("Pentium 4 (NetBurst)", 1, 1700, 256),
        (24.0, f"{_AES_586}: P4 24", False),
        (10.6, f"{_SHA1_586}: P4 10.6", False),
    ),
    _pc(
        "core2duo-1870",
        "PC of 1.87 GHz (Core 2 Duo)",
        "Dymora 2014: Core 2 Duo 1.87 GHz; memory is assumed",
        ("Core 2", 2, 1870, 2048),
        (21.9, f"{_VPAES}: Core 2 21.9", False),
        (6.0, f"{_SHA1_586}: Core2 with SSSE3 6.0", False),
    ),
    _pc(
        "amd-e450",
        "netbook (AMD E-450)",
        "AMD: E-450, two Bobcat cores at 1.65 GHz; memory is assumed",
        ("Bobcat", 2, 1650, 4096),
        (30.0, f"{_AES_586}: AMD K8 20, times 3/2 for two instead of three decoders", True),
        (10.7, f"{_SHA1_586}: AMD K8 7.1, times 3/2 for two instead of three decoders", True),
    ),
    _board(
        "pi-zero",
        "Raspberry Pi Zero",
        ("ARM1176JZF-S", 1, 1000, 512),
        {
            "AES-128-CBC": Figure(22.2, _OPENSSL),
            "AES-256-CBC": Figure(17.3, _OPENSSL),
            "BF-CBC": Figure(19.1, _ZERO_BY_CLOCK, estimate=True),
            "SHA1": Figure(43.0, _ZERO_BY_CLOCK, estimate=True),
        },
    ),
    _board(
        "pi-b",
        "Raspberry Pi B",
        ("ARM1176JZF-S", 1, 700, 512),
        _known(15.7, 12.1, 13.4, 30.1),
    ),
    _board(
        "pi-2",
        "Raspberry Pi 2",
        ("Cortex-A7", 4, 900, 1024),
        _known(21.7, 16.4, 19.6, 43.4),
    ),
    _board(
        "pi-3",
        "Raspberry Pi 3",
        ("Cortex-A53", 4, 1200, 1024),
        _known(47.9, 36.2, 37.6, 90.9),
    ),
)
"""Every profile, ``host`` first."""
